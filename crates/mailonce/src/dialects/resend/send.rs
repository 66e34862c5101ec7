//! The Resend routes for sending: one email or a batch.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::NamedAddress,
    key::Key,
    outbound::{
        content::{EmailContent, RawContent},
        email::Channel,
        test_recipient::TestRecipient,
    },
    problem::Problem,
    ttl::Ttl,
};
use mailonce_engine::outbound::keyed_send::SendRequest;
use serde::{Deserialize, Serialize};

use super::{ResendDialect, ResendRequest, ResendRequestBody, ResendResult, json};
use crate::{
    dialects::{
        attachment::DialectAttachment,
        batch_failure, field_problem,
        resend::{
            errors::{self, FILE_FIELD, missing_field, problem_message},
            templates::TemplateUseBody,
        },
        respond_to_send, send_failure, send_failures, with_state_headers,
    },
    http::{
        app::App,
        json::{OneOrMany, OrderedMap, UnsupportedField, non_empty_text},
        json_body::parse,
    },
};

/// Maximum number of emails in a batch.
const MAX_BATCH_ITEMS: usize = 100;
/// Maximum number of tags of an email.
const MAX_TAGS: usize = 75;
/// Maximum length of a tag's name and of its value.
const MAX_TAG_CHARS: usize = 256;
/// How long Resend remembers an idempotency key.
const KEY_TTL: Ttl = Ttl(86_400_000);

#[derive(Deserialize)]
struct ResendTagBody {
    name: String,
    value: String,
}

impl ResendTagBody {
    fn is_valid(&self) -> bool {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !self.name.is_empty() && [&self.name, &self.value].iter().all(|text| text.chars().all(is_allowed))
    }

    fn is_too_long(&self) -> bool {
        self.name.len() > MAX_TAG_CHARS || self.value.len() > MAX_TAG_CHARS
    }
}

/// An email as the SDKs send it.
#[derive(Deserialize)]
struct SendBody {
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    to: OneOrMany,
    #[serde(default)]
    cc: OneOrMany,
    #[serde(default)]
    bcc: OneOrMany,
    #[serde(default)]
    reply_to: OneOrMany,
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    html: Option<String>,
    #[serde(default)]
    headers: Option<OrderedMap<String>>,
    #[serde(default)]
    attachments: Option<Vec<DialectAttachment>>,
    #[serde(default)]
    tags: Option<Vec<ResendTagBody>>,
    #[serde(default)]
    scheduled_at: Option<String>,
    #[serde(default)]
    template: Option<TemplateUseBody>,
    #[serde(default)]
    topic_id: UnsupportedField,
}

impl SendBody {
    /// Converts it to the engine's send request.
    fn into_request(mut self, key: Option<Key>) -> Result<SendRequest, Problem> {
        self.to.drop_empty();
        self.check()?;
        let raw = RawContent {
            from: self.from.unwrap_or_default(),
            to: self.to.0,
            cc: self.cc.non_empty(),
            bcc: self.bcc.non_empty(),
            reply_to: self.reply_to.non_empty(),
            subject: self.subject.unwrap_or_default(),
            text: self.text,
            html: self.html,
            headers: self.headers.unwrap_or_default().0,
            attachments: self
                .attachments
                .unwrap_or_default()
                .into_iter()
                .filter_map(DialectAttachment::into_raw)
                .collect(),
            tags: self.tags.unwrap_or_default().into_iter().map(|tag| (tag.name, Some(tag.value))).collect(),
            metadata: Vec::new(),
            scheduled_at: non_empty_text(self.scheduled_at),
            template: self.template.map(TemplateUseBody::into),
        };
        let content = EmailContent::validate(raw).map_err(Problem::from).map_err(mark_file_problem)?;
        Ok(SendRequest { ttl: Some(KEY_TTL), ..SendRequest::new(content, key) })
    }

    /// Refuses missing required fields and unsupported features.
    fn check(&self) -> Result<(), Problem> {
        if self.topic_id.is_given() {
            return Err(field_problem("topic_id", "Topics are not supported; leave `topic_id` out."));
        }
        let no_subject = self.subject.is_none() && self.template.is_none();
        let absent = [("from", self.from.is_none()), ("to", self.to.0.is_empty()), ("subject", no_subject)];
        if let Some((field, _)) = absent.into_iter().find(|(_, absent)| *absent) {
            return Err(missing_field(field));
        }
        if self.text.is_none() && self.html.is_none() && self.template.is_none() {
            return Err(missing_field("html` or `text"));
        }
        self.check_tags()?;
        check_test_recipients(&self.to.0, &self.cc.0, &self.bcc.0)?;
        let files = self.attachments.iter().flatten();
        match files.enumerate().find(|(_, file)| file.content.is_none()) {
            Some((n, file)) if file.path.is_some() => Err(mark_file_problem(field_problem(
                &format!("attachments[{n}].path"),
                "Attachments are not fetched from a `path`; send their `content`.",
            ))),
            Some((n, _)) => Err(mark_file_problem(field_problem(
                &format!("attachments[{n}]"),
                "Attachment must have either a `content` or `path`.",
            ))),
            None => Ok(()),
        }
    }

    /// Checks the tags, with the error messages that Resend documents.
    fn check_tags(&self) -> Result<(), Problem> {
        let tags = self.tags.as_deref().unwrap_or_default();
        if tags.len() > MAX_TAGS {
            return Err(field_problem("tags", format!("An email can have at most {MAX_TAGS} tags.")));
        }
        if !tags.iter().all(ResendTagBody::is_valid) {
            let text = "Tags should only contain ASCII letters, numbers, underscores, or dashes.";
            return Err(field_problem("tags", text));
        }
        if tags.iter().any(ResendTagBody::is_too_long) {
            return Err(field_problem("tags", format!("Tags can contain no more than {MAX_TAG_CHARS} characters.")));
        }
        Ok(())
    }
}

/// Refuses a mail to a test address and to somebody else: a test mail reaches no next hop, the other one must.
pub(super) fn check_test_recipients(to: &[String], cc: &[String], bcc: &[String]) -> Result<(), Problem> {
    let address = |text: &String| NamedAddress::parse(text).map(|mailbox| mailbox.address).ok();
    let addresses: Vec<String> = to.iter().chain(cc).chain(bcc).filter_map(address).collect();
    let is_test = |address: &String| TestRecipient::is_simulated(Channel::Resend, address);
    match (addresses.iter().find(|address| is_test(address)), addresses.iter().all(is_test)) {
        (Some(test), false) => Err(field_problem("to", format!("`{test}` is a test address; send to it alone."))),
        _ => Ok(()),
    }
}

/// Marks a problem in `attachments` as an invalid attachment.
fn mark_file_problem(problem: Problem) -> Problem {
    let in_attachments = problem.field.as_deref().is_some_and(|field| field.starts_with("attachments"));
    if in_attachments { problem.with_extension(FILE_FIELD, true) } else { problem }
}

#[derive(Serialize)]
struct SendReceiptBody {
    id: String,
}

/// `POST /emails`.
pub(super) async fn send(State(app): State<App>, auth: ResendRequest, body: ResendRequestBody) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let request = body.parse::<SendBody>()?.into_request(auth.key)?;
    drop(body);
    let sent = app.engine.outbound.send(&auth.caller, request).await?;
    Ok(respond_to_send::<ResendDialect>(&sent, || json(StatusCode::OK, &SendReceiptBody { id: sent.id.to_string() })))
}

#[derive(Serialize)]
struct BatchError {
    index: usize,
    message: String,
}

#[derive(Serialize)]
struct BatchBody {
    data: Vec<SendReceiptBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Vec<BatchError>>,
}

/// `POST /emails/batch`.
pub(super) async fn batch(
    State(app): State<App>,
    auth: ResendRequest,
    headers: HeaderMap,
    body: ResendRequestBody,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let strict = is_strict(&headers)?;
    let values = body.items()?;
    if values.is_empty() || values.len() > MAX_BATCH_ITEMS {
        let message = format!("A batch must hold 1 to {MAX_BATCH_ITEMS} emails; this one has {}.", values.len());
        return Err(field_problem("", message).into());
    }
    let item = |value: &&serde_json::value::RawValue| parse::<SendBody>(value.get().as_bytes())?.into_request(None);
    let items = values.iter().map(item).collect();
    drop(body);
    let mut result = app.engine.outbound.send_batch(&auth.caller, auth.key, items, strict).await?;
    let sent: Vec<_> = result.items.iter().flatten().collect();
    // An email that failed, is held or unknown is an error: of its item in permissive mode, else of the batch.
    result.errors.extend(send_failures(&result.items));
    result.errors.sort_by_key(|(index, _)| *index);
    if let Some((index, problem)) = result.errors.first().filter(|_| strict) {
        return Ok(with_state_headers(sent, errors::problem_response(&batch_failure(*index, problem.clone()))));
    }
    let successful = sent.iter().filter(|receipt| send_failure(receipt).is_none());
    let data = successful.map(|receipt| SendReceiptBody { id: receipt.id.to_string() }).collect();
    let batch_error =
        |(index, problem): &(usize, Problem)| BatchError { index: *index, message: problem_message(problem) };
    let errors = (!strict).then(|| result.errors.iter().map(batch_error).collect());
    Ok(with_state_headers(sent, json(StatusCode::OK, &BatchBody { data, errors })))
}

fn is_strict(headers: &HeaderMap) -> Result<bool, Problem> {
    match headers.get("x-batch-validation").map(|value| value.to_str().unwrap_or_default()) {
        None | Some("strict") => Ok(true),
        Some("permissive") => Ok(false),
        Some(_) => {
            Err(field_problem("x-batch-validation", "The `x-batch-validation` must be `strict` or `permissive`."))
        }
    }
}
