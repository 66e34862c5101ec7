//! The useSend routes for sending: one email or a batch.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::NamedAddress,
    key::Key,
    outbound::{
        content::{EmailContent, RawContent},
        template::TemplateUse,
    },
    problem::{Code, Problem, shorten},
    time::Time,
    ttl::Ttl,
};
use mailonce_engine::{Caller, Engine, outbound::keyed_send::SendRequest};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, value::RawValue};

use super::{UseSend, UseSendRequest, UseSendRequestBody, UseSendResult, json};
use crate::{
    dialects::{
        attachment::DialectAttachment, batch_failure, field_problem, respond_to_send, send_failures,
        usesend::errors::problem_response, with_state_headers,
    },
    http::{
        app::App,
        json::{OneOrMany, OrderedMap, non_empty_text},
        json_body::parse,
    },
};

/// Maximum number of emails in a batch.
const MAX_BATCH_ITEMS: usize = 100;
/// Maximum number of attachments of an email.
const MAX_FILES: usize = 10;
/// How long useSend remembers an idempotency key.
const KEY_TTL: Ttl = Ttl(86_400_000);

/// An email as the SDKs send it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
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
    #[serde(default, deserialize_with = "html")]
    html: Option<String>,
    #[serde(default)]
    headers: Option<OrderedMap<String>>,
    #[serde(default)]
    attachments: Option<Vec<DialectAttachment>>,
    #[serde(default)]
    scheduled_at: Option<String>,
    #[serde(default)]
    template_id: Option<String>,
    #[serde(default)]
    variables: Option<Map<String, Value>>,
    #[serde(default)]
    in_reply_to_id: Option<String>,
}

/// Parses any JSON value as text. As in useSend, `true` and `false` mean that there is no HTML.
fn html<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(None),
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(Some(text).filter(|text| text != "true" && text != "false"))
}

impl SendBody {
    /// Converts it to the engine's send request.
    async fn into_request(
        mut self,
        engine: &Engine,
        caller: &Caller,
        key: Option<Key>,
    ) -> Result<SendRequest, Problem> {
        self.drop_empty();
        let headers = self.headers(engine, caller).await?;
        self.check()?;
        let template = self.template_id.map(|name| TemplateUse {
            name,
            version: None,
            variables: self.variables.unwrap_or_default(),
        });
        // As in useSend, a template replaces subject and HTML.
        let (subject, html) = if template.is_some() { (None, None) } else { (self.subject, self.html) };
        let raw = RawContent {
            from: self.from.unwrap_or_default(),
            to: self.to.0,
            cc: self.cc.non_empty(),
            bcc: self.bcc.non_empty(),
            reply_to: self.reply_to.non_empty(),
            subject: subject.unwrap_or_default(),
            text: self.text,
            html,
            headers,
            attachments: self
                .attachments
                .unwrap_or_default()
                .into_iter()
                .filter_map(DialectAttachment::into_raw)
                .collect(),
            tags: Vec::new(),
            metadata: Vec::new(),
            scheduled_at: self.scheduled_at,
            template,
        };
        let content = EmailContent::validate(raw)?;
        Ok(SendRequest { ttl: Some(KEY_TTL), ..SendRequest::new(content, key) })
    }

    /// Removes empty texts: clients send them for fields that they do not use.
    fn drop_empty(&mut self) {
        self.to.drop_empty();
        for field in [&mut self.scheduled_at, &mut self.template_id, &mut self.in_reply_to_id] {
            *field = non_empty_text(field.take());
        }
    }

    fn check(&self) -> Result<(), Problem> {
        let from = self.from.as_deref().ok_or_else(|| field_problem("from", "from is required"))?;
        NamedAddress::parse(from).map_err(|_wrong| field_problem("from", "From email is invalid"))?;
        if self.to.0.is_empty() {
            return Err(field_problem("to", "to is required"));
        }
        self.check_wording()?;
        if self.scheduled_at.as_deref().is_some_and(|at| Time::parse(at).is_none()) {
            return Err(field_problem("scheduledAt", "scheduledAt must be an ISO 8601 time with an offset"));
        }
        let files = self.attachments.as_deref().unwrap_or_default();
        if files.len() > MAX_FILES {
            return Err(field_problem("attachments", format!("attachments must hold at most {MAX_FILES} files")));
        }
        match files.iter().position(|file| file.content.is_none()) {
            Some(n) => Err(field_problem("attachments", format!("attachments[{n}].content is required"))),
            None => Ok(()),
        }
    }

    fn check_wording(&self) -> Result<(), Problem> {
        let is_empty = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
        if self.template_id.is_some() {
            let text = "text cannot be combined with templateId: the template writes the email";
            return if is_empty(&self.text) { Ok(()) } else { Err(field_problem("text", text)) };
        }
        if is_empty(&self.subject) {
            return Err(field_problem("subject", "Either subject or templateId is required"));
        }
        if is_empty(&self.text) && is_empty(&self.html) {
            return Err(field_problem("text", "Either text or html is required"));
        }
        Ok(())
    }

    /// The caller's headers without those that useSend drops, plus `In-Reply-To` and `References` for `inReplyToId`.
    async fn headers(&self, engine: &Engine, caller: &Caller) -> Result<Vec<(String, String)>, Problem> {
        let dropped = |(name, value): &(String, String)| {
            value.contains(['\r', '\n']) || name.eq_ignore_ascii_case("x-usesend-email-id")
        };
        let kept = self.headers.iter().flat_map(|pairs| &pairs.0).filter(|pair| !dropped(pair));
        let mut headers: Vec<(String, String)> = kept.cloned().collect();
        let Some(replied_to) = &self.in_reply_to_id else { return Ok(headers) };
        let invalid = || field_problem("inReplyToId", "\"inReplyTo\" is invalid");
        let id = replied_to.parse().map_err(|_not_an_id| invalid())?;
        let email = match engine.outbound.email(caller, id).await {
            Ok(email) => email,
            Err(problem) if problem.code == Code::NotFound => return Err(invalid()),
            Err(problem) => return Err(problem),
        };
        let message_id = engine.ctx.message_id(&email);
        headers.push(("In-Reply-To".to_owned(), message_id.clone()));
        headers.push(("References".to_owned(), message_id));
        Ok(headers)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SendReceiptBody {
    pub(super) email_id: String,
}

/// Replaces the detail of a problem with the sender or the template by the message of the dialect.
fn with_dialect_message(problem: Problem) -> Problem {
    let domain = || problem.detail.split(' ').find_map(|word| word.split_once('@')).map_or("", |(_, domain)| domain);
    match problem.code {
        Code::SenderNotVerified => {
            let detail = format!("Domain: {} of from email is wrong. Use the domain verified by useSend", domain());
            Problem::for_field(problem.code, "from", detail)
        }
        Code::SenderNotAllowed => {
            let detail = format!("API key does not have access to domain: {}", domain());
            Problem::for_field(problem.code, "from", detail)
        }
        Code::TemplateError if problem.field.as_deref() == Some("template.name") => {
            let name = problem.extensions.get("template").and_then(Value::as_str).unwrap_or_default();
            let detail = format!("templateId names no template: {}", shorten(name));
            Problem::for_field(problem.code, "templateId", detail)
        }
        _ => problem,
    }
}

/// `POST /emails`.
pub(super) async fn send(State(app): State<App>, auth: UseSendRequest, body: UseSendRequestBody) -> UseSendResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let send_body = body.parse::<SendBody>()?;
    drop(body);
    let request = send_body.into_request(&app.engine, &auth.caller, auth.key).await?;
    let sent = app.engine.outbound.send(&auth.caller, request).await.map_err(with_dialect_message)?;
    Ok(respond_to_send::<UseSend>(&sent, || json(StatusCode::OK, &SendReceiptBody { email_id: sent.id.to_string() })))
}

#[derive(Serialize)]
struct BatchBody {
    data: Vec<SendReceiptBody>,
}

/// `POST /emails/batch`. All emails are accepted or none: the response never has fewer ids than the batch has emails.
pub(super) async fn batch(State(app): State<App>, auth: UseSendRequest, body: UseSendRequestBody) -> UseSendResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let values: Vec<&RawValue> = body.items()?;
    if values.is_empty() {
        return Err(field_problem("", "No emails provided for bulk send").into());
    }
    if values.len() > MAX_BATCH_ITEMS {
        return Err(field_problem("", format!("Array must contain at most {MAX_BATCH_ITEMS} element(s)")).into());
    }
    let mut items = Vec::with_capacity(values.len());
    for value in values {
        let item = match parse::<SendBody>(value.get().as_bytes()) {
            Ok(send_body) => send_body.into_request(&app.engine, &auth.caller, None).await,
            Err(problem) => Err(problem),
        };
        items.push(item);
    }
    drop(body);
    let mut result =
        app.engine.outbound.send_batch(&auth.caller, auth.key, items, true).await.map_err(with_dialect_message)?;
    if !result.errors.is_empty() {
        return Err(result.errors.remove(0).1.into());
    }
    let sent: Vec<_> = result.items.iter().flatten().collect();
    if let Some((index, problem)) = send_failures(&result.items).into_iter().next() {
        return Ok(with_state_headers(sent, problem_response(&batch_failure(index, problem))));
    }
    let data = sent.iter().map(|receipt| SendReceiptBody { email_id: receipt.id.to_string() }).collect();
    Ok(with_state_headers(sent, json(StatusCode::OK, &BatchBody { data })))
}
