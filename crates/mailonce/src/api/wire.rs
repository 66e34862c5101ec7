//! The wire forms of requests and answers. The OpenAPI document is made from these types.

use mailonce_core::{
    call_trace::CallTrace,
    handoff::HandoffState,
    intent::Intent,
    limits,
    outbound::{
        content::{EmailContent, MetadataValue, RawAttachment, RawContent},
        email::{Email, Guard, OnUnknown},
    },
    problem::{Code, FieldError, Problem, nearest_name},
    ttl::Ttl,
};
use mailonce_engine::outbound::{
    keyed_send::{OnMismatch, SendRequest},
    send_receipt::SendReceipt,
};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    marker::PhantomData,
};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema, Type},
};

/// Tells `null` from absent.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// One text or a list of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OneOrMany(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = OneOrMany;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an address or a list of addresses")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany(vec![text.to_owned()]))
            }
            fn visit_unit<E: de::Error>(self) -> Result<OneOrMany, E> {
                Ok(OneOrMany::default())
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMany, A::Error> {
                let mut all = Vec::new();
                while let Some(text) = list.next_element()? {
                    all.push(text);
                }
                Ok(OneOrMany(all))
            }
        }
        from.deserialize_any(Visitor)
    }
}

impl PartialSchema for OneOrMany {
    fn schema() -> RefOr<Schema> {
        let list = ArrayBuilder::new().items(ObjectBuilder::new().schema_type(Type::String));
        let either = OneOfBuilder::new().item(ObjectBuilder::new().schema_type(Type::String)).item(list);
        either.description(Some("One address or a list of them.")).into()
    }
}

impl ToSchema for OneOrMany {
    fn name() -> std::borrow::Cow<'static, str> {
        "Addresses".into()
    }
}

/// How a value of `metadata` is described.
struct ScalarSchema;

impl PartialSchema for ScalarSchema {
    fn schema() -> RefOr<Schema> {
        let kinds = [Type::String, Type::Number, Type::Boolean].map(|kind| ObjectBuilder::new().schema_type(kind));
        let either = kinds.into_iter().fold(OneOfBuilder::new(), OneOfBuilder::item);
        either.description(Some("A string, a number up to 2^53-1 or a boolean.")).into()
    }
}

impl ToSchema for ScalarSchema {
    fn name() -> std::borrow::Cow<'static, str> {
        "Scalar".into()
    }
}

/// An object with free names, in order. A name that stands twice is refused.
#[derive(Clone, Debug)]
pub(crate) struct OrderedMap<T>(pub(crate) Vec<(String, T)>);

impl<T> Default for OrderedMap<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMap<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = OrderedMap<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<OrderedMap<T>, A::Error> {
                let (mut pairs, mut names): (Vec<(String, T)>, HashSet<String>) = Default::default();
                while let Some((name, value)) = map.next_entry::<String, T>()? {
                    if !names.insert(name.clone()) {
                        return Err(de::Error::custom(format!("duplicate field `{name}`")));
                    }
                    pairs.push((name, value));
                }
                Ok(OrderedMap(pairs))
            }
        }
        from.deserialize_map(Visitor(PhantomData))
    }
}

/// An object. Derived readers take a list of values as well; callers mean objects.
#[derive(Clone, Debug)]
pub(crate) struct StrictObject<T>(pub(crate) T);

/// Reads an object and no list.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    StrictObject::deserialize(from).map(|StrictObject(it)| it)
}

/// Reads an object and no list, or `null`.
pub(crate) fn object_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(Option::deserialize(from)?.map(|StrictObject(it)| it))
}

/// The same for a member that `null` takes away.
pub(crate) fn given_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    object_or_null(from).map(Some)
}

/// Reads a list of objects.
pub(crate) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Vec::deserialize(from)?.into_iter().map(|StrictObject(it)| it).collect())
}

/// Reads a list of objects, or `null`.
pub(crate) fn objects_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let all: Option<Vec<StrictObject<T>>> = Option::deserialize(from)?;
    Ok(all.map(|all| all.into_iter().map(|StrictObject(it)| it).collect()))
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for StrictObject<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
            type Value = StrictObject<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<StrictObject<T>, A::Error> {
                T::deserialize(de::value::MapAccessDeserializer::new(map)).map(StrictObject)
            }
        }
        from.deserialize_map(Visitor(PhantomData))
    }
}

/// How long a key is remembered.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum TtlBody {
    /// `transactional` (7 d), `notification` (24 h), or a duration from `1s` to `400d`.
    Text(String),
    /// Twice the interval of a mail that recurs.
    Class(StrictObject<TtlClass>),
}

/// The memory of a mail that recurs.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TtlClass {
    /// `scheduled`.
    class: String,
    /// How often it recurs: `7d`.
    interval: String,
}

impl PartialSchema for TtlBody {
    fn schema() -> RefOr<Schema> {
        let words = "`transactional` (7 d), `notification` (24 h), or a duration from `1s` to `400d`.";
        text_or_object_schema::<TtlClass>(
            "How long a key is remembered.",
            words,
            "Twice the interval of a mail that recurs.",
        )
    }
}

impl ToSchema for TtlBody {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((TtlClass::name().into(), TtlClass::schema()));
    }
}

/// A text, or an object in its place.
fn text_or_object_schema<T: ToSchema>(about: &str, text: &str, object: &str) -> RefOr<Schema> {
    let text = ObjectBuilder::new().schema_type(Type::String).description(Some(text));
    let mut named = Ref::from_schema_name(T::name());
    object.clone_into(&mut named.description);
    OneOfBuilder::new().item(text).item(named).description(Some(about)).into()
}

impl TtlBody {
    pub(crate) fn parse(&self) -> Result<Ttl, FieldError> {
        let read = match self {
            Self::Text(text) => Ttl::parse(text),
            Self::Class(StrictObject(TtlClass { class, interval })) if class == "scheduled" => Ttl::scheduled(interval),
            Self::Class(_) => Err(mailonce_core::ttl::TtlError),
        };
        read.map_err(|error| FieldError::new("ttl", error.to_string()))
    }
}

/// A tag: a name, or a name with a value.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
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
    name: String,
    #[serde(default)]
    value: Option<String>,
}

/// A file that goes with the mail.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AttachmentBody {
    /// File name.
    #[serde(default)]
    filename: Option<String>,
    /// Base64.
    content: String,
    /// MIME type.
    #[serde(default)]
    content_type: Option<String>,
    /// For inline images.
    #[serde(default)]
    content_id: Option<String>,
}

/// What a mail is about. Its key follows from this and from `to`, so that every retry has the same key.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IntentBody {
    /// What kind of mail it is: `order.confirmation`.
    #[serde(rename = "type")]
    kind: String,
    /// What it is about: `order_4821`.
    entity: String,
    /// Rises when the same thing is told again on purpose.
    #[serde(default)]
    version: Option<u32>,
    /// The day, week or run it belongs to, when it recurs.
    #[serde(default)]
    period: Option<String>,
}

/// An email to send once.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendBody {
    /// `agent@example.com` or `Name <agent@example.com>`.
    pub(crate) from: String,
    pub(crate) to: OneOrMany,
    #[serde(default)]
    cc: OneOrMany,
    #[serde(default)]
    bcc: OneOrMany,
    #[serde(default)]
    reply_to: OneOrMany,
    #[serde(default)]
    subject: Option<String>,
    /// Plain text body. This or `html`, or both.
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    html: Option<String>,
    /// Custom headers.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    headers: Option<OrderedMap<String>>,
    #[serde(default)]
    #[schema(value_type = Option<Vec<AttachmentBody>>)]
    attachments: Option<Vec<StrictObject<AttachmentBody>>>,
    #[serde(default)]
    tags: Option<Vec<TagBody>>,
    /// Strings, numbers up to 2^53-1 and booleans.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, ScalarSchema>>)]
    metadata: Option<OrderedMap<Option<MetadataValue>>>,
    /// RFC 3339 with an offset, or `in 5 minutes`.
    #[serde(default)]
    scheduled_at: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<IntentBody>)]
    intent: Option<StrictObject<IntentBody>>,
    #[serde(default)]
    ttl: Option<TtlBody>,
    /// `reject` or `first_wins`.
    #[serde(default)]
    on_mismatch: Option<String>,
    /// `hold` or `resend`.
    #[serde(default)]
    on_unknown: Option<String>,
    /// The name of a configured transport.
    #[serde(default)]
    transport: Option<String>,
    /// The one-use token of a held look-alike.
    #[serde(default)]
    distinct_token: Option<String>,
}

impl SendBody {
    /// Checks the words and gives the engine's form of them.
    pub(crate) fn into_request(self, key: Option<mailonce_core::key::Key>) -> Result<SendRequest, Problem> {
        let mut faults = Vec::new();
        let on_mismatch = collect_error(
            parse_choice("on_mismatch", self.on_mismatch.as_deref(), &["reject", "first_wins"]),
            &mut faults,
        );
        let on_mismatch =
            on_mismatch.map(|word| if word == "reject" { OnMismatch::Reject } else { OnMismatch::FirstWins });
        let on_unknown =
            collect_error(parse_choice("on_unknown", self.on_unknown.as_deref(), &["hold", "resend"]), &mut faults);
        let on_unknown = on_unknown.and_then(OnUnknown::parse);
        let ttl = collect_error(self.ttl.as_ref().map(TtlBody::parse).transpose(), &mut faults);
        let intent =
            collect_error(self.intent.clone().map(|StrictObject(intent)| intent.validate()).transpose(), &mut faults);
        let (transport, distinct_token) = (self.transport.clone(), self.distinct_token.clone());
        match EmailContent::validate(self.into_content()) {
            Ok(content) if faults.is_empty() => {
                let plain = SendRequest::new(content, key);
                Ok(SendRequest { intent, ttl, on_mismatch, on_unknown, transport, distinct_token, ..plain })
            }
            Ok(_) => Err(Problem::from(faults)),
            Err(more) => Err(Problem::from([faults, more].concat())),
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
            // null means absent, here as everywhere.
            metadata: metadata.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
            scheduled_at: self.scheduled_at,
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

/// The value, or its fault on the list.
fn collect_error<T>(read: Result<Option<T>, FieldError>, faults: &mut Vec<FieldError>) -> Option<T> {
    read.unwrap_or_else(|fault| {
        faults.push(fault);
        None
    })
}

/// One of a few words.
pub(crate) fn parse_choice<'a>(
    path: &str,
    text: Option<&'a str>,
    allowed: &[&'a str],
) -> Result<Option<&'a str>, FieldError> {
    let Some(text) = text else { return Ok(None) };
    if allowed.contains(&text) {
        return Ok(Some(text));
    }
    let hint =
        nearest_name(text, allowed.iter().copied()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Err(FieldError::new(path, format!("is one of {}{hint}", allowed.join(", "))))
}

/// What the key of a send did.
#[derive(Serialize, ToSchema)]
pub(crate) struct DedupeBody {
    /// `first` or `replayed`.
    outcome: &'static str,
    /// The key, given or derived; null without one.
    key: Option<String>,
    /// When the key is forgotten; null until the email is settled.
    expires_at: Option<String>,
    /// Calls that were answered with this email instead of making another.
    suppressed: u64,
    /// Whether this call said something else than the first one.
    payload_differs: bool,
}

/// The answer to a send, the first time and every time after.
#[derive(Serialize, ToSchema)]
pub(crate) struct SendReceiptBody {
    id: String,
    /// `scheduled queued sending sent delivered bounced complained failed unknown abandoned held cancelled`
    state: &'static str,
    rev: u32,
    /// With angle brackets.
    message_id: String,
    created_at: String,
    /// What this answer means, in a sentence.
    next: &'static str,
    /// The guard that spoke.
    #[serde(skip_serializing_if = "Option::is_none")]
    guard: Option<&'static str>,
    /// Post the mail again with it if this held look-alike is meant; it goes, and never another.
    #[serde(skip_serializing_if = "Option::is_none")]
    distinct_token: Option<String>,
    /// The thread that an answer belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    /// The fence of that thread's latest lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    fence: Option<u64>,
    /// The version that followed it, when there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    resent_as: Option<String>,
    dedupe: DedupeBody,
}

impl From<SendReceipt> for SendReceiptBody {
    fn from(sent: SendReceipt) -> Self {
        let next = sent.next_step();
        Self {
            id: sent.id.to_string(),
            state: sent.state.as_str(),
            rev: sent.rev,
            message_id: sent.message_id,
            created_at: sent.created_at.to_string(),
            next,
            guard: sent.guard.map(Guard::as_str),
            distinct_token: sent.distinct_token,
            thread_id: sent.thread.map(|id| id.to_string()),
            fence: sent.fence,
            resent_as: sent.resent_as.map(|id| id.to_string()),
            dedupe: DedupeBody {
                outcome: if sent.first { "first" } else { "replayed" },
                key: sent.key,
                expires_at: sent.expires_at.map(|at| at.to_string()),
                suppressed: sent.suppressed,
                payload_differs: sent.payload_differs,
            },
        }
    }
}

/// The answer to a batch.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchReceiptBody {
    /// In order; null where `errors` has a row.
    pub(crate) data: Vec<Option<SendReceiptBody>>,
    pub(crate) errors: Vec<BatchItemError>,
}

/// What was wrong with one item.
#[derive(Serialize, ToSchema)]
pub(crate) struct BatchItemError {
    pub(crate) index: usize,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
}

/// One email in a list.
#[derive(Serialize, ToSchema)]
pub(crate) struct EmailBody {
    id: String,
    state: &'static str,
    rev: u32,
    message_id: String,
    created_at: String,
    from: String,
    to: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cc: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bcc: Vec<String>,
    subject: String,
    key: Option<String>,
    /// When the key is forgotten; null until the email is settled.
    expires_at: Option<String>,
    settled_at: Option<String>,
    /// When it is due, while it is scheduled, or held for a person and wished for later.
    scheduled_at: Option<String>,
    guard: Option<&'static str>,
    version: u32,
    resend_of: Option<String>,
    resent_as: Option<String>,
    /// The message it answers or passes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    /// How many envelopes are in which state.
    #[schema(value_type = BTreeMap<String, u32>)]
    counts: BTreeMap<&'static str, u32>,
    suppressed: u64,
    /// What its caller calls the call that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<CallTraceBody>,
}

impl EmailBody {
    pub(crate) fn of(email: &Email, message_id: String) -> Self {
        let mut counts = BTreeMap::new();
        for handoff in &email.handoffs {
            *counts.entry(handoff.state.as_str()).or_insert(0) += 1;
        }
        let wait = |state: HandoffState| matches!(state, HandoffState::Scheduled | HandoffState::Held);
        let scheduled = email.handoffs.iter().filter(|handoff| wait(handoff.state));
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
            version: email.head.version,
            resend_of: email.head.resend_of.map(|id| id.to_string()),
            resent_as: email.resent_as.map(|id| id.to_string()),
            reply_to_message: email.head.answers.map(|id| id.to_string()),
            thread_id: email.head.thread.map(|id| id.to_string()),
            counts,
            suppressed: email.suppressed,
            call: email.head.call.as_ref().map(CallTraceBody::from),
        }
    }
}

/// A page of emails, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct EmailPage {
    pub(crate) data: Vec<EmailBody>,
    /// Pass it as `cursor`; null at the end. A page may be short and still have more behind it.
    pub(crate) next_cursor: Option<String>,
}

/// What a caller calls its own call: for correlation, it decides nothing.
#[derive(Serialize, ToSchema)]
pub(crate) struct CallTraceBody {
    /// From `Mailonce-Call-Id`, or the `_meta` of a model's call.
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

/// A call that was answered with an earlier email.
#[derive(Serialize, ToSchema)]
pub(crate) struct SuppressedCallBody {
    at: String,
    /// The id of the API key it came with.
    caller: Option<String>,
    channel: &'static str,
    /// `key_replay payload_differs mismatch already_answered`
    reason: &'static str,
    /// What its caller calls it.
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

/// Words a person gives: short and on one line.
pub(crate) fn check_text(path: &str, text: &str) -> Result<(), Problem> {
    if text.chars().count() > limits::FREE_TEXT_CHARS || text.chars().any(char::is_control) {
        let detail = format!("{path} is at most {} characters without control characters", limits::FREE_TEXT_CHARS);
        return Err(Problem::for_field(Code::InvalidField, path, detail));
    }
    Ok(())
}

/// The same for words that name something, which nothing does not.
pub(crate) fn check_required_text(path: &str, text: &str) -> Result<(), Problem> {
    if text.trim().is_empty() {
        return Err(Problem::for_field(
            Code::InvalidField,
            path,
            format!("{path} is an empty text, which names nothing"),
        ));
    }
    check_text(path, text)
}
