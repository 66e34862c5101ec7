//! JSON bodies that several handlers share. The OpenAPI document is generated from these types.

use crate::{
    api::outbound::policy_steps::{PolicyStepBody, policy_body},
    http::json::{OneOrMany, OrderedMap, ScalarSchema, StrictObject, parse_choice},
};
use mailonce_core::{
    call_trace::CallTrace,
    handoff::HandoffState,
    id::StopId,
    intent::Intent,
    outbound::{
        content::{EmailContent, MetadataValue, RawAttachment, RawContent},
        email::{Email, Guard, OnUnknown},
        template::{TemplateRef, TemplateUse},
    },
    problem::{FieldError, Problem},
    ttl::Ttl,
};
use mailonce_engine::{
    control::budgets::BudgetRoom,
    outbound::{
        keyed_send::{OnMismatch, SendRequest},
        send_receipt::SendReceipt,
    },
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type},
};

/// How long an idempotency key is remembered.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "has a type that this field does not accept")]
pub(crate) enum TtlBody {
    /// `transactional` (7 d), `notification` (24 h), or a duration from `1s` to `400d`.
    Text(String),
    /// Twice the interval of a recurring email.
    Class(StrictObject<TtlClass>),
}

/// Key lifetime for a recurring email: twice its interval.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TtlClass {
    /// Always `scheduled`.
    class: String,
    /// How often the email recurs, such as `7d`.
    interval: String,
}

impl PartialSchema for TtlBody {
    fn schema() -> RefOr<Schema> {
        let text = "`transactional` (7 d), `notification` (24 h), or a duration from `1s` to `400d`.";
        text_or_object_schema::<TtlClass>(
            "How long an idempotency key is remembered.",
            text,
            "Twice the interval of a recurring email.",
        )
    }
}

impl ToSchema for TtlBody {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((TtlClass::name().into(), TtlClass::schema()));
    }
}

/// The schema of a value that is a string or an object, with a description for each.
pub(crate) fn text_or_object_schema<T: ToSchema>(about: &str, text: &str, object: &str) -> RefOr<Schema> {
    let text = ObjectBuilder::new().schema_type(Type::String).description(Some(text));
    let mut reference = Ref::from_schema_name(T::name());
    object.clone_into(&mut reference.description);
    OneOfBuilder::new().item(text).item(reference).description(Some(about)).into()
}

impl TtlBody {
    pub(crate) fn parse(&self) -> Result<Ttl, FieldError> {
        let parsed = match self {
            Self::Text(text) => Ttl::parse(text),
            Self::Class(StrictObject(TtlClass { class, interval })) if class == "scheduled" => Ttl::scheduled(interval),
            Self::Class(_) => Err(mailonce_core::ttl::TtlError),
        };
        parsed.map_err(|error| FieldError::new("ttl", error.to_string()))
    }
}

/// A tag: a name, or a name with a value.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "has a type that this field does not accept")]
pub(crate) enum TagBody {
    /// Only a name.
    Name(String),
    /// A name and a value.
    Pair(StrictObject<TagPair>),
}

impl PartialSchema for TagBody {
    fn schema() -> RefOr<Schema> {
        text_or_object_schema::<TagPair>(
            "A tag: a name, or a name with a value.",
            "Only a name.",
            "A name and a value.",
        )
    }
}

impl ToSchema for TagBody {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((TagPair::name().into(), TagPair::schema()));
    }
}

/// A tag with a value.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TagPair {
    /// Name of the tag.
    name: String,
    /// Value of the tag.
    #[serde(default)]
    value: Option<String>,
}

/// An attachment.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttachmentBody {
    /// File name.
    #[serde(default)]
    filename: Option<String>,
    /// The file's bytes in Base64.
    content: String,
    /// MIME type.
    #[serde(default)]
    content_type: Option<String>,
    /// Content-ID, for inline images.
    #[serde(default)]
    content_id: Option<String>,
}

/// What an email is about.
///
/// The idempotency key is derived from the intent and `to`, so that every retry has the same key.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IntentBody {
    /// Type of the email, such as `order.confirmation`.
    #[serde(rename = "type")]
    kind: String,
    /// What the email is about, such as `order_4821`.
    entity: String,
    /// Increase it to send about the same entity again on purpose; 1 by default.
    #[serde(default)]
    version: Option<u32>,
    /// The day, week or run of a recurring email.
    #[serde(default)]
    period: Option<String>,
}

/// The template that writes an email.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateUseBody {
    /// Name of the template.
    name: String,
    /// The version; the newest by default.
    #[serde(default)]
    version: Option<u32>,
    /// Values, by variable.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, serde_json::Value>>)]
    variables: Option<serde_json::Map<String, serde_json::Value>>,
}

impl From<TemplateUseBody> for TemplateUse {
    fn from(body: TemplateUseBody) -> Self {
        Self { name: body.name, version: body.version, variables: body.variables.unwrap_or_default() }
    }
}

/// An email to send once.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendBody {
    /// Sender: `agent@example.com` or `Name <agent@example.com>`.
    pub(crate) from: String,
    pub(crate) to: OneOrMany,
    #[serde(default)]
    cc: OneOrMany,
    #[serde(default)]
    bcc: OneOrMany,
    #[serde(default)]
    reply_to: OneOrMany,
    /// Subject.
    #[serde(default)]
    subject: Option<String>,
    /// Plain text body. Required unless `html` or `template` is set.
    #[serde(default)]
    text: Option<String>,
    /// HTML body.
    #[serde(default)]
    html: Option<String>,
    /// The template that writes the email, in the place of `subject`, `text` and `html`.
    #[serde(default)]
    #[schema(value_type = Option<TemplateUseBody>)]
    template: Option<StrictObject<TemplateUseBody>>,
    /// Custom headers, by name.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    headers: Option<OrderedMap<String>>,
    #[serde(default)]
    #[schema(value_type = Option<Vec<AttachmentBody>>)]
    attachments: Option<Vec<StrictObject<AttachmentBody>>>,
    #[serde(default)]
    tags: Option<Vec<TagBody>>,
    /// Your own data: strings, numbers up to 2^53-1 and booleans, by name.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, ScalarSchema>>)]
    metadata: Option<OrderedMap<Option<MetadataValue>>>,
    /// When to send: RFC 3339 time with an offset, or a relative time such as `in 5 minutes`. At once when absent.
    #[serde(default)]
    scheduled_at: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<IntentBody>)]
    intent: Option<StrictObject<IntentBody>>,
    #[serde(default)]
    ttl: Option<TtlBody>,
    /// What to do when the key was used for a different email.
    ///
    /// `reject` answers 422; `first_wins` answers with the first email. The default is `reject` for header keys and
    /// `first_wins` for intents.
    #[serde(default)]
    on_mismatch: Option<String>,
    /// What to do when the outcome is unknown.
    ///
    /// `hold` (default) waits for evidence or a person; `resend` sends once more, so the recipient may get it twice.
    #[serde(default)]
    on_unknown: Option<String>,
    /// Name of the transport to use; chosen by the server when absent.
    #[serde(default)]
    transport: Option<String>,
    /// One-time token of a held email that looks like an earlier one: confirms that it is a different email.
    #[serde(default)]
    distinct_token: Option<String>,
}

impl SendBody {
    /// Validates the body and converts it for the engine. Collects all field errors.
    pub(crate) fn into_request(self, key: Option<mailonce_core::key::Key>) -> Result<SendRequest, Problem> {
        let mut errors = Vec::new();
        let on_mismatch = collect_error(
            parse_choice("on_mismatch", self.on_mismatch.as_deref(), &["reject", "first_wins"]),
            &mut errors,
        );
        let on_mismatch =
            on_mismatch.map(|word| if word == "reject" { OnMismatch::Reject } else { OnMismatch::FirstWins });
        let on_unknown =
            collect_error(parse_choice("on_unknown", self.on_unknown.as_deref(), &["hold", "resend"]), &mut errors);
        let on_unknown = on_unknown.and_then(OnUnknown::parse);
        let ttl = collect_error(self.ttl.as_ref().map(TtlBody::parse).transpose(), &mut errors);
        let intent =
            collect_error(self.intent.clone().map(|StrictObject(intent)| intent.validate()).transpose(), &mut errors);
        let (transport, distinct_token) = (self.transport.clone(), self.distinct_token.clone());
        match EmailContent::validate(self.into_content()) {
            Ok(content) if errors.is_empty() => {
                let defaults = SendRequest::new(content, key);
                Ok(SendRequest { intent, ttl, on_mismatch, on_unknown, transport, distinct_token, ..defaults })
            }
            Ok(_) => Err(Problem::from(errors)),
            Err(more) => Err(Problem::from([errors, more].concat())),
        }
    }

    fn into_content(self) -> RawContent {
        let attachment = |StrictObject(file): StrictObject<AttachmentBody>| RawAttachment {
            filename: file.filename,
            content: file.content,
            content_type: file.content_type,
            content_id: file.content_id,
        };
        let tag = |tag: TagBody| match tag {
            TagBody::Name(name) => (name, None),
            TagBody::Pair(StrictObject(pair)) => (pair.name, pair.value),
        };
        let metadata = self.metadata.unwrap_or_default().0;
        RawContent {
            from: self.from,
            to: self.to.0,
            cc: self.cc.0,
            bcc: self.bcc.0,
            reply_to: self.reply_to.0,
            subject: self.subject.unwrap_or_default(),
            text: self.text,
            html: self.html,
            headers: self.headers.unwrap_or_default().0,
            attachments: self.attachments.unwrap_or_default().into_iter().map(attachment).collect(),
            tags: self.tags.unwrap_or_default().into_iter().map(tag).collect(),
            // As everywhere in the API, `null` counts as absent.
            metadata: metadata.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
            scheduled_at: self.scheduled_at,
            template: self.template.map(|StrictObject(template)| template.into()),
        }
    }
}

impl IntentBody {
    fn validate(self) -> Result<Intent, FieldError> {
        let intent =
            Intent { kind: self.kind, entity: self.entity, version: self.version.unwrap_or(1), period: self.period };
        intent.validate().map_err(|error| FieldError::new(&format!("intent.{}", error.field), error.rule))?;
        Ok(intent)
    }
}

/// The value of a field; an error is added to the list instead.
fn collect_error<T>(parsed: Result<Option<T>, FieldError>, errors: &mut Vec<FieldError>) -> Option<T> {
    parsed.unwrap_or_else(|error| {
        errors.push(error);
        None
    })
}

/// What the idempotency key of a send did.
#[derive(Serialize, ToSchema)]
pub(crate) struct DedupeBody {
    /// `first` for a new email, `replayed` for a duplicate call.
    outcome: &'static str,
    /// The idempotency key, from the header or derived from the intent; null without one.
    key: Option<String>,
    /// When the idempotency key expires; null until the email reaches a final state.
    expires_at: Option<String>,
    /// Number of duplicate calls that were answered with this email.
    suppressed: u64,
    /// Whether the content of this call differs from that of the first call.
    payload_differs: bool,
}

/// The response to a send. A retry gets the same email with its current state.
#[derive(Serialize, ToSchema)]
pub(crate) struct SendReceiptBody {
    /// Id of the email.
    id: String,
    /// `scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`
    state: &'static str,
    /// Revision; grows with every change.
    rev: u32,
    /// The Message-ID header, with angle brackets.
    message_id: String,
    /// When the email was accepted.
    created_at: String,
    /// What this response means and what to do next, in a sentence.
    next: &'static str,
    /// The most important guard in `holds`, or the one that held or flagged the email, or found a duplicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<&'static str>,
    /// The guards that hold the email. It leaves when none is left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    holds: Vec<&'static str>,
    /// One-time token of a held email that looks like an earlier one.
    ///
    /// If it is a different email, send the same call again with this token: the held email is released.
    #[serde(skip_serializing_if = "Option::is_none")]
    distinct_token: Option<String>,
    /// The thread of a reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    /// The fence of that thread's latest lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    /// Id of the next version, if the email was resent.
    #[serde(skip_serializing_if = "Option::is_none")]
    resent_as: Option<String>,
    /// Of the budgets that the email counts against, the one with the least room. Absent for a repeated call.
    #[serde(skip_serializing_if = "Option::is_none")]
    tightest_budget: Option<BudgetRoomBody>,
    /// With `Prefer: policy-trace`: what each check decided about the email when it was accepted, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Vec<PolicyStepBody>>,
    dedupe: DedupeBody,
}

impl SendReceiptBody {
    pub(crate) fn with_policy(self, policy: Option<Vec<PolicyStepBody>>) -> Self {
        Self { policy: policy.or(self.policy), ..self }
    }
}

/// How much room a budget has.
#[derive(Serialize, ToSchema)]
pub(crate) struct BudgetRoomBody {
    id: String,
    name: String,
    limit: u64,
    remaining: u64,
    /// When the period ends.
    resets_at: String,
}

impl From<BudgetRoom> for BudgetRoomBody {
    fn from(room: BudgetRoom) -> Self {
        let BudgetRoom { id, name, limit, remaining, resets_at } = room;
        Self { id: id.to_string(), name, limit, remaining, resets_at: resets_at.to_string() }
    }
}

impl From<SendReceipt> for SendReceiptBody {
    fn from(receipt: SendReceipt) -> Self {
        let next = receipt.next_step();
        Self {
            id: receipt.id.to_string(),
            state: receipt.state.as_str(),
            rev: receipt.rev,
            message_id: receipt.message_id,
            created_at: receipt.created_at.to_string(),
            next,
            guard: receipt.guard.map(Guard::as_str),
            holds: receipt.holds.iter().map(Guard::as_str).collect(),
            distinct_token: receipt.distinct_token,
            thread_id: receipt.thread.map(|id| id.to_string()),
            fence: receipt.fence,
            resent_as: receipt.resent_as.map(|id| id.to_string()),
            tightest_budget: receipt.tightest_budget.map(BudgetRoomBody::from),
            policy: receipt.policy.map(policy_body),
            dedupe: DedupeBody {
                outcome: if receipt.first { "first" } else { "replayed" },
                key: receipt.key,
                expires_at: receipt.expires_at.map(|at| at.to_string()),
                suppressed: receipt.suppressed,
                payload_differs: receipt.payload_differs,
            },
        }
    }
}

/// The response to a batch.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchReceiptBody {
    /// One entry per item, in order; null for an item that has an entry in `errors`.
    pub(crate) data: Vec<Option<SendReceiptBody>>,
    pub(crate) errors: Vec<BatchItemError>,
}

/// Why one item of a batch was refused.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchItemError {
    /// Position of the item in the batch, from 0.
    pub(crate) index: usize,
    /// Error code, as in a problem.
    pub(crate) code: &'static str,
    /// What is wrong.
    pub(crate) message: String,
    /// The invalid field, if the error is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// With `Prefer: policy-trace`, if a check refused the item: what each check decided, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<PolicyStepBody>>)]
    pub(crate) policy: Option<serde_json::Value>,
}

/// An email, without its content.
#[derive(Serialize, ToSchema)]
pub(crate) struct EmailBody {
    /// Id of the email.
    id: String,
    /// `scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`
    state: &'static str,
    /// Revision; grows with every change.
    rev: u32,
    /// The Message-ID header, with angle brackets.
    message_id: String,
    /// When the email was accepted.
    created_at: String,
    /// Sender.
    from: String,
    /// To addresses.
    to: Vec<String>,
    /// Cc addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cc: Vec<String>,
    /// Bcc addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bcc: Vec<String>,
    /// Subject.
    subject: String,
    /// Idempotency key; null without one.
    key: Option<String>,
    /// When the idempotency key expires; null until the email reaches a final state.
    expires_at: Option<String>,
    /// When the email reached a final state; null before that.
    settled_at: Option<String>,
    /// When the email is due, while it is scheduled or held.
    scheduled_at: Option<String>,
    /// The most important guard in `holds`, or the one that held or flagged the email.
    guard: Option<&'static str>,
    /// The guards that hold the email. It leaves when none is left.
    #[schema(value_type = Vec<String>)]
    holds: Vec<&'static str>,
    /// Id of the stop that keeps the email from leaving.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped_by: Option<String>,
    /// Version of the email, from 1. Each resend is one more.
    version: u32,
    /// Id of the email that this one resends.
    resend_of: Option<String>,
    /// Id of the next version, if the email was resent.
    resent_as: Option<String>,
    /// Id of the message that this email replies to or forwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to_message: Option<String>,
    /// Id of the thread that the email is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    /// Number of handoffs in each state.
    #[schema(value_type = BTreeMap<String, u32>)]
    counts: BTreeMap<&'static str, u32>,
    /// Number of duplicate calls that were answered with this email.
    suppressed: u64,
    /// The template that wrote the email.
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<TemplateRefBody>,
    /// The caller's own ids of the call that created the email.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<CallTraceBody>,
}

impl EmailBody {
    pub(crate) fn of(email: &Email, message_id: String) -> Self {
        let mut counts = BTreeMap::new();
        for handoff in &email.handoffs {
            *counts.entry(handoff.state.as_str()).or_insert(0) += 1;
        }
        let is_waiting = |state: HandoffState| matches!(state, HandoffState::Scheduled | HandoffState::Held);
        let scheduled = email.handoffs.iter().filter(|handoff| is_waiting(handoff.state));
        Self {
            id: email.id.to_string(),
            state: email.state().as_str(),
            rev: email.rev,
            message_id,
            created_at: email.head.created_at.to_string(),
            from: email.head.from.clone(),
            to: email.head.to.clone(),
            cc: email.head.cc.clone(),
            bcc: email.head.bcc.clone(),
            subject: email.head.subject.clone(),
            key: email.head.key.as_ref().map(mailonce_core::key::EmailKey::display_name),
            expires_at: email.expires_at().map(|at| at.to_string()),
            settled_at: email.settled_at.map(|at| at.to_string()),
            scheduled_at: scheduled.filter_map(|h| h.due_at).min().map(|at| at.to_string()),
            guard: email.guard.map(Guard::as_str),
            holds: email.holds.iter().map(Guard::as_str).collect(),
            stopped_by: None,
            version: email.head.version,
            resend_of: email.head.resend_of.map(|id| id.to_string()),
            resent_as: email.resent_as.map(|id| id.to_string()),
            reply_to_message: email.head.answers.map(|id| id.to_string()),
            thread_id: email.head.thread.map(|id| id.to_string()),
            counts,
            suppressed: email.suppressed,
            template: email.head.template.as_ref().map(TemplateRefBody::from),
            call: email.head.call.as_ref().map(CallTraceBody::from),
        }
    }

    /// The same email, with the stop that keeps it from leaving.
    pub(crate) fn with_stop(self, stop: Option<StopId>) -> Self {
        Self { stopped_by: stop.map(|id| id.to_string()), ..self }
    }
}

/// A template and its version.
#[derive(Serialize, ToSchema)]
pub(crate) struct TemplateRefBody {
    name: String,
    version: u32,
}

impl From<&TemplateRef> for TemplateRefBody {
    fn from(template: &TemplateRef) -> Self {
        Self { name: template.name.clone(), version: template.version }
    }
}

/// A page of emails, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct EmailPage {
    pub(crate) data: Vec<EmailBody>,
    /// Pass it as `cursor` to get the next page; null at the end. A page with few results may still have a next page.
    pub(crate) next_cursor: Option<String>,
}

/// The caller's own ids of a call. They are stored for correlation only.
#[derive(Serialize, ToSchema)]
pub(crate) struct CallTraceBody {
    /// From the `Mailonce-Call-Id` header, or from `_meta` of an MCP call.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// From `traceparent` (W3C Trace Context).
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

impl From<&CallTrace> for CallTraceBody {
    fn from(call: &CallTrace) -> Self {
        Self { id: call.id.clone(), traceparent: call.traceparent.clone() }
    }
}

/// A duplicate call that was answered with an earlier email.
#[derive(Serialize, ToSchema)]
pub(crate) struct SuppressedCallBody {
    /// When the duplicate call came.
    at: String,
    /// Id of the API key of the call.
    caller: Option<String>,
    /// How the call came.
    channel: &'static str,
    /// `key_replay payload_differs mismatch already_answered`
    reason: &'static str,
    /// The caller's own ids of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<CallTraceBody>,
}

impl From<&mailonce_core::outbound::suppressed_call::SuppressedCall> for SuppressedCallBody {
    fn from(call: &mailonce_core::outbound::suppressed_call::SuppressedCall) -> Self {
        Self {
            at: call.at.to_string(),
            caller: call.caller.map(|id| id.to_string()),
            channel: call.channel.as_str(),
            reason: call.reason.as_str(),
            call: call.call.as_ref().map(CallTraceBody::from),
        }
    }
}
