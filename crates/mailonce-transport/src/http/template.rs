//! The transport kind `http`: any other provider, described by a template of its request.
//!
//! The body is JSON. A string that is exactly one placeholder, such as `"{{to}}"`, becomes that value with its own type
//! (recipients are lists). If the mail has no such value, the member is left out. Inside a longer string a placeholder
//! becomes text. No part of a mail is dropped silently: if the template lacks a placeholder for it, the mail is
//! rejected as unsupported.

use hyper::Method;
use mailonce_core::{
    handoff::{
        capabilities::{PayloadFormat, RecoveryMethod},
        reply::{ReplyMeaning, TransportReply},
        transport_request::{FrozenEnvelope, OutboundMail, UnsupportedMail},
    },
    outbound::content::LOOP_HEADER,
    ports::transport::Transport,
};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    BaseUrl, HttpProvider, HttpTransportConfig, ProviderRequest, Secret, TransportConfigError, build_transport, form,
};
use crate::http::connection::ProviderResponse;

/// The names that are allowed between `{{` and `}}`.
const PLACEHOLDERS: [&str; 19] = [
    "from",
    "from_address",
    "from_name",
    "to",
    "cc",
    "bcc",
    "recipients",
    "reply_to",
    "subject",
    "text",
    "html",
    "headers",
    "attachments",
    "tags",
    "metadata",
    "key",
    "id",
    "message_id",
    "mime_base64",
];

/// The settings of a provider without a module of its own.
#[derive(Clone, Debug)]
pub struct TemplateConfig {
    /// The full URL of the send endpoint. It replaces `base_url`.
    pub url: String,
    /// The HTTP method, `POST` or `PUT`.
    pub method: String,
    /// Headers of each request. Their values are treated as secrets, because usually one of them is.
    pub headers: Vec<(String, Secret)>,
    /// The body: JSON with placeholders.
    pub body: String,
    /// The header for the idempotency key, if the provider supports one.
    pub key_header: Option<String>,
    /// How long the provider remembers a key. Without it an unknown outcome is never retried.
    pub key_window: Option<Duration>,
    /// Statuses that mean the mail was accepted.
    pub accepted_statuses: Vec<u16>,
    /// JSON pointer (RFC 6901) to the message id in the response. If set, a response without an id proves nothing.
    pub id_pointer: Option<String>,
    /// Statuses that mean a duplicate was rejected as a duplicate, such as `409`.
    pub duplicate_statuses: Vec<u16>,
}

struct TemplateProvider {
    config: TemplateConfig,
    method: Method,
    body: Value,
    placeholders: BTreeSet<String>,
    /// The header values and their words, because a provider may quote a token without its scheme.
    secrets: Vec<Secret>,
}

/// Builds a transport to any provider with a JSON API.
pub fn transport(
    mut setting: HttpTransportConfig,
    config: TemplateConfig,
) -> Result<Arc<dyn Transport>, TransportConfigError> {
    let config_error = |why: String| TransportConfigError(format!("transport {}: {why}", setting.name));
    let method = match config.method.as_str() {
        "POST" => Method::POST,
        "PUT" => Method::PUT,
        other => return Err(config_error(format!("method must be POST or PUT, not {other}"))),
    };
    let body: Value = serde_json::from_str(&config.body).map_err(|e| config_error(format!("body is not JSON: {e}")))?;
    let mut placeholders = BTreeSet::new();
    collect_placeholders(&body, &mut placeholders);
    if let Some(unknown) = placeholders.iter().find(|name| !PLACEHOLDERS.contains(&name.as_str())) {
        return Err(config_error(format!("body has the unknown placeholder {{{{{unknown}}}}}")));
    }
    if config.key_window.is_some() && config.key_header.is_none() && !placeholders.contains("key") {
        return Err(config_error(
            "idempotency_window is set, but there is no idempotency_header and no {{key}}: the provider never sees the key".into(),
        ));
    }
    if config.accepted_statuses.is_empty() || config.accepted_statuses.iter().any(|status| !(200..300).contains(status))
    {
        return Err(config_error("accepted_statuses must list statuses from 200 to 299".into()));
    }
    if config.duplicate_statuses.iter().any(|status| !(400..500).contains(status)) {
        return Err(config_error("duplicate_statuses must list statuses from 400 to 499".into()));
    }
    setting.base_url = Some(config.url.clone());
    let values = config.headers.iter().map(|(_, value)| value.0.as_str());
    let words = values.clone().flat_map(str::split_whitespace);
    let secrets = values.chain(words).map(Secret::new).collect();
    build_transport(setting, TemplateProvider { config, method, body, placeholders, secrets }, "", "")
}

/// Collects the names of the placeholders in a template.
fn collect_placeholders(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => found.extend(split_placeholders(text).into_iter().filter_map(|piece| match piece {
            BodyTemplatePart::Placeholder(name) => Some(name.to_owned()),
            BodyTemplatePart::Text(_) => None,
        })),
        Value::Array(list) => list.iter().for_each(|value| collect_placeholders(value, found)),
        Value::Object(map) => map.values().for_each(|value| collect_placeholders(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

enum BodyTemplatePart<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

fn split_placeholders(mut text: &str) -> Vec<BodyTemplatePart<'_>> {
    let mut pieces = Vec::new();
    while let Some((before, name, after)) = text
        .split_once("{{")
        .and_then(|(before, rest)| rest.split_once("}}").map(|(name, after)| (before, name, after)))
    {
        pieces.extend((!before.is_empty()).then_some(BodyTemplatePart::Text(before)));
        pieces.push(BodyTemplatePart::Placeholder(name.trim()));
        text = after;
    }
    pieces.extend((!text.is_empty()).then_some(BodyTemplatePart::Text(text)));
    pieces
}

/// Fills the template with the mail's values. `None` for a value that the mail does not have.
fn fill_template(template: &Value, mail: &OutboundMail<'_>) -> Option<Value> {
    match template {
        Value::String(text) => match split_placeholders(text).as_slice() {
            [BodyTemplatePart::Placeholder(name)] => placeholder_value(name, mail),
            many => Some(Value::String(many.iter().map(|part| render_part(part, mail)).collect())),
        },
        Value::Array(list) => Some(list.iter().filter_map(|value| fill_template(value, mail)).collect()),
        Value::Object(map) => {
            let member = |(name, value): (&String, &Value)| Some((name.clone(), fill_template(value, mail)?));
            Some(Value::Object(map.iter().filter_map(member).collect()))
        }
        plain => Some(plain.clone()),
    }
}

/// One part of a longer string as text.
fn render_part(piece: &BodyTemplatePart<'_>, mail: &OutboundMail<'_>) -> String {
    match piece {
        BodyTemplatePart::Text(text) => (*text).to_owned(),
        BodyTemplatePart::Placeholder(name) => match placeholder_value(name, mail) {
            None => String::new(),
            Some(Value::String(text)) => text,
            Some(Value::Array(list)) if list.iter().all(Value::is_string) => {
                list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
            }
            Some(other) => other.to_string(),
        },
    }
}

fn placeholder_value(name: &str, mail: &OutboundMail<'_>) -> Option<Value> {
    let content = mail.content;
    let list = |list: Vec<String>| (!list.is_empty()).then(|| Value::from(list));
    let text = |text: &Option<String>| text.clone().map(Value::String);
    match name {
        "from" => Some(form::mailbox(&content.from).into()),
        "from_address" => Some(content.from.address.clone().into()),
        "from_name" => text(&content.from.name),
        "to" => list(form::mailboxes(&content.to)),
        "cc" => list(form::mailboxes(&content.cc)),
        "bcc" => list(form::mailboxes(&content.bcc)),
        "recipients" => list(content.recipients().into_iter().map(str::to_owned).collect()),
        "reply_to" => list(form::mailboxes(&content.reply_to)),
        "subject" => Some(content.subject.clone().into()),
        "text" => text(&content.text),
        "html" => text(&content.html),
        "headers" => object(content.headers.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())))),
        "attachments" => (!content.attachments.is_empty()).then(|| files(mail)),
        "tags" => object(content.tags.iter().map(|(name, value)| (name.clone(), Value::from(value.as_deref())))),
        "metadata" => {
            object(content.metadata.iter().map(|(name, value)| (name.clone(), form::scalar_text(value).into())))
        }
        "key" => Some(mail.key.as_hyphenated().to_string().into()),
        "id" => Some(mail.id.to_string().into()),
        "message_id" => Some(mail.message_id.into()),
        "mime_base64" => mail.mime.map(|mime| form::to_base64(mime).into()),
        _ => None,
    }
}

fn object(members: impl Iterator<Item = (String, Value)>) -> Option<Value> {
    let map: Map<String, Value> = members.collect();
    (!map.is_empty()).then_some(Value::Object(map))
}

fn files(mail: &OutboundMail<'_>) -> Value {
    let file = |(index, attachment)| {
        let id = form::content_id(attachment).map(|id| ("content_id".to_owned(), Value::from(id)));
        let plain = [
            ("filename".to_owned(), Value::from(form::filename(index, attachment))),
            ("content".to_owned(), form::to_base64(&attachment.bytes).into()),
            ("content_type".to_owned(), form::content_type(attachment).into()),
        ];
        Value::Object(plain.into_iter().chain(id).collect())
    };
    mail.content.attachments.iter().enumerate().map(file).collect()
}

impl TemplateProvider {
    fn uses_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.placeholders.contains(*name))
    }

    /// Checks that the template has a placeholder for every part of the mail that must arrive.
    fn check(&self, mail: &OutboundMail<'_>) -> Result<(), UnsupportedMail> {
        let content = mail.content;
        let has_mime = self.uses_any(&["mime_base64"]);
        // Our loop header is optional: a mail may be sent without it.
        let has_headers = content.headers.iter().any(|(name, _)| name != LOOP_HEADER);
        let needs = [
            ("to", true, self.uses_any(&["to", "recipients"])),
            ("cc", !content.cc.is_empty(), self.uses_any(&["cc", "recipients"])),
            ("bcc", !content.bcc.is_empty(), self.uses_any(&["bcc", "recipients"])),
            ("reply_to", !content.reply_to.is_empty(), has_mime || self.uses_any(&["reply_to"])),
            ("text", content.text.is_some() && content.html.is_none(), has_mime || self.uses_any(&["text"])),
            ("html", content.html.is_some(), has_mime || self.uses_any(&["html"])),
            ("attachments", !content.attachments.is_empty(), has_mime || self.uses_any(&["attachments"])),
            ("headers", has_headers, has_mime || self.uses_any(&["headers"])),
        ];
        match needs.iter().find(|(_, is_present, has_placeholder)| *is_present && !has_placeholder) {
            Some((name, ..)) => Err(UnsupportedMail(format!("the transport's template has no placeholder for {name}"))),
            None => Ok(()),
        }
    }
}

impl HttpProvider for TemplateProvider {
    const KIND: &'static str = "http";

    fn wire(&self) -> PayloadFormat {
        if self.uses_any(&["mime_base64"]) { PayloadFormat::Mime } else { PayloadFormat::Content }
    }

    fn recovery(&self) -> RecoveryMethod {
        let ms = self.config.key_window.and_then(|window| i64::try_from(window.as_millis()).ok());
        ms.map_or(RecoveryMethod::None, |window_ms| RecoveryMethod::IdempotencyKey { window_ms })
    }

    fn secrets(&self) -> Vec<&Secret> {
        self.secrets.iter().collect()
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        self.check(mail)?;
        if self.uses_any(&["mime_base64"]) {
            form::require_mime(mail)?;
        }
        form::to_json(&fill_template(&self.body, mail).unwrap_or(Value::Null))
    }

    fn send_request(&self, _base: &BaseUrl, envelope: &FrozenEnvelope) -> ProviderRequest {
        let mut request = ProviderRequest::json("", envelope);
        request.method = self.method.clone();
        for (name, value) in &self.config.headers {
            request = request.with_header(name, &value.0);
        }
        match &self.config.key_header {
            Some(name) => request.with_header(name, envelope.key.as_hyphenated().to_string()),
            None => request,
        }
    }

    fn interpret_response(&self, response: &ProviderResponse) -> TransportReply {
        if self.config.duplicate_statuses.contains(&response.status) {
            return response.reply(ReplyMeaning::Repeated, &response.excerpt());
        }
        if !self.config.accepted_statuses.contains(&response.status) {
            return response.reply_by_status("the provider", None);
        }
        match (&self.config.id_pointer, &response.body) {
            (Some(pointer), _) => match id_at(response, pointer) {
                Some(id) => response.accepted_reply(id, "accepted"),
                None => response.reply_by_status("the provider", None),
            },
            // Without an id pointer the status decides, but an HTML page does not come from the API.
            (None, Ok(body)) if body.is_empty() || response.json_object().is_some() => {
                response.reply(ReplyMeaning::Accepted, "accepted")
            }
            (None, _) => response.reply_by_status("the provider", None),
        }
    }
}

fn id_at(response: &ProviderResponse, pointer: &str) -> Option<String> {
    match response.json_object()?.pointer(pointer)? {
        Value::String(id) if !id.trim().is_empty() => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}
