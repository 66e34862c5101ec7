//! Mail in mailonce's own format, signed by Standard Webhooks: for example from an email worker at the edge.
//!
//! The body is either the mail itself as `message/rfc822`, or JSON. The JSON is `{id, sender, recipients, raw}` with
//! the mail in base64, or has `from, to, cc, subject, text, html, headers, attachments` instead of `raw`. It may be
//! nested in `data`, next to `type`.

use mailonce_core::outbound::content::Attachment;
use serde_json::Value;

use super::{HookMail, MailBytes, decode_base64, non_empty};
use crate::hooks::inbound::mailboxes;
use crate::{
    compose::ProviderFields,
    hooks::{HookParseError, HookRequest, json},
    parse,
};

pub(crate) fn parse_mail(request: &HookRequest<'_>) -> Result<Option<HookMail>, HookParseError> {
    let id = ["webhook-id", "svix-id"].iter().find_map(|name| request.header_named(name).ok().flatten());
    let id = id.unwrap_or_default();
    let content_type = request.header_named("content-type").ok().flatten().unwrap_or_default();
    if content_type
        .split(';')
        .next()
        .is_some_and(|content_type| content_type.trim().eq_ignore_ascii_case("message/rfc822"))
    {
        return Ok(Some(mail_from_mime(id, request.body)));
    }
    let body = json::parse(request.body)?;
    let mail = body.get("data").filter(|data| data.is_object()).unwrap_or(&body);
    if !mail.is_object() {
        return Err(HookParseError::Unexpected("an object"));
    }
    let event_type = json::str_at(&body, "/type");
    if event_type.is_some_and(|event_type| !matches!(event_type, "email.received" | "message.received")) {
        return Ok(None);
    }
    mail_from_fields(id, mail).map(Some)
}

/// A raw mail. Its recipients come from its headers.
fn mail_from_mime(id: &str, raw: &[u8]) -> HookMail {
    let parsed = parse::parse(raw);
    HookMail {
        dedupe_key: id.to_owned(),
        envelope_sender: None,
        recipients: mailboxes::addresses([&parsed.to, &parsed.cc]),
        has_envelope_recipients: false,
        content: Some(MailBytes::original(raw.to_vec())),
        location: None,
    }
}

/// The mail in a JSON object. The dedupe key is its own `id`, else the given one.
pub fn mail_from_fields(id: &str, mail: &Value) -> Result<HookMail, HookParseError> {
    let dedupe_key = json::str_at(mail, "/id").unwrap_or(id).to_owned();
    let [to, cc, envelope_recipients] =
        ["/to", "/cc", "/recipients"].map(|pointer| mailboxes::from_json(mail.pointer(pointer)));
    let has_envelope_recipients = !envelope_recipients.is_empty();
    let recipients = if has_envelope_recipients {
        mailboxes::addresses([&envelope_recipients])
    } else {
        mailboxes::addresses([&to, &cc])
    };
    let content = match mail.get("raw") {
        Some(raw) => {
            MailBytes::original(decode_base64(raw.as_str().ok_or(HookParseError::Unexpected("raw in base64"))?)?)
        }
        None => MailBytes::rebuild(provider_fields(mail, to, cc)?, &dedupe_key)?,
    };
    let recipients = match (recipients.is_empty(), content.is_rebuilt) {
        (true, false) => mail_from_mime(&dedupe_key, &content.raw).recipients,
        _ => recipients,
    };
    let sender = mail.get("sender").and_then(Value::as_str).map(|text| text.trim_matches(['<', '>']).to_owned());
    Ok(HookMail {
        dedupe_key,
        envelope_sender: sender,
        recipients,
        has_envelope_recipients,
        content: Some(content),
        location: None,
    })
}

fn provider_fields(
    mail: &Value,
    to: Vec<mailonce_core::address::NamedAddress>,
    cc: Vec<mailonce_core::address::NamedAddress>,
) -> Result<ProviderFields, HookParseError> {
    let text = |pointer: &str| non_empty(json::str_at(mail, pointer));
    Ok(ProviderFields {
        headers: parse_headers(mail.get("headers")),
        from: mailboxes::from_json(mail.pointer("/from")),
        to,
        cc,
        reply_to: mailboxes::from_json(mail.pointer("/reply_to")),
        subject: text("/subject"),
        date: text("/date"),
        message_id: text("/message_id"),
        text: text("/text"),
        html: text("/html"),
        attachments: parse_attachments(mail)?,
    })
}

/// Parses headers: an object, a list of `{name, value}`, or a list of pairs.
fn parse_headers(value: Option<&Value>) -> Vec<(String, String)> {
    let pair = |name: Option<&str>, value: Option<&Value>| Some((name?.to_owned(), value?.as_str()?.to_owned()));
    match value {
        Some(Value::Object(map)) => map.iter().filter_map(|(name, value)| pair(Some(name), Some(value))).collect(),
        Some(Value::Array(list)) => {
            let one = |item: &Value| {
                pair(json::first_str_at(item, &["/name", "/0"]), item.pointer("/value").or_else(|| item.pointer("/1")))
            };
            list.iter().filter_map(one).collect()
        }
        _ => Vec::new(),
    }
}

fn parse_attachments(mail: &Value) -> Result<Vec<Attachment>, HookParseError> {
    let all = mail.pointer("/attachments").and_then(Value::as_array).into_iter().flatten();
    all.map(|one| {
        Ok(Attachment {
            filename: non_empty(json::str_at(one, "/filename")),
            content_type: non_empty(json::str_at(one, "/content_type")),
            content_id: non_empty(json::str_at(one, "/content_id")),
            bytes: decode_base64(json::str_at(one, "/content").unwrap_or_default())?,
        })
    })
    .collect()
}
