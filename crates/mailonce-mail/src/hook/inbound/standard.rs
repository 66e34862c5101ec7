//! Mail in our own words, signed after Standard Webhooks: from a mail worker at the edge, say.
//!
//! Either the mail itself as `message/rfc822`, or JSON: `{id, sender, recipients, raw}` with the mail in base64, or with
//! `from, to, cc, subject, text, html, headers, attachments` in its place. JSON may stand inside `data`, beside `type`.

use mailonce_core::content::Attachment;
use serde_json::Value;

use super::{Bytes, Mail, base64, filled, people};
use crate::{
    compose::Fields,
    hook::{HookRequest, Unreadable, json},
    parse,
};

pub(super) fn read(request: &HookRequest<'_>) -> Result<Option<Mail>, Unreadable> {
    let id = ["webhook-id", "svix-id"].iter().find_map(|name| request.header_named(name).ok().flatten());
    let id = id.unwrap_or_default();
    let kind = request.header_named("content-type").ok().flatten().unwrap_or_default();
    if kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("message/rfc822")) {
        return Ok(Some(whole(id, request.body)));
    }
    let body = json::parse(request.body)?;
    let mail = body.get("data").filter(|data| data.is_object()).unwrap_or(&body);
    if !mail.is_object() {
        return Err(Unreadable::Shape("an object"));
    }
    let told = json::text(&body, "/type");
    if told.is_some_and(|word| !matches!(word, "email.received" | "message.received")) {
        return Ok(None);
    }
    from_fields(id, mail).map(Some)
}

/// A mail alone names its recipients itself.
fn whole(id: &str, raw: &[u8]) -> Mail {
    let parsed = parse::parse(raw);
    Mail {
        name: id.to_owned(),
        sender: None,
        recipients: people::addresses([&parsed.to, &parsed.cc]),
        envelope: false,
        content: Some(Bytes::whole(raw.to_vec())),
        notice: None,
    }
}

/// The mail in an object. Its own `id` is its name, else the one given.
pub fn from_fields(id: &str, mail: &Value) -> Result<Mail, Unreadable> {
    let name = json::text(mail, "/id").unwrap_or(id).to_owned();
    let [to, cc, told] = ["/to", "/cc", "/recipients"].map(|at| people::list(mail.pointer(at)));
    let envelope = !told.is_empty();
    let recipients = if envelope { people::addresses([&told]) } else { people::addresses([&to, &cc]) };
    let content = match mail.get("raw") {
        Some(raw) => Bytes::whole(base64(raw.as_str().ok_or(Unreadable::Shape("raw in base64"))?)?),
        None => Bytes::rebuilt(fields(mail, to, cc)?, &name)?,
    };
    let recipients = match (recipients.is_empty(), content.rebuilt) {
        (true, false) => whole(&name, &content.raw).recipients,
        _ => recipients,
    };
    let sender = mail.get("sender").and_then(Value::as_str).map(|text| text.trim_matches(['<', '>']).to_owned());
    Ok(Mail { name, sender, recipients, envelope, content: Some(content), notice: None })
}

fn fields(
    mail: &Value,
    to: Vec<mailonce_core::address::Mailbox>,
    cc: Vec<mailonce_core::address::Mailbox>,
) -> Result<Fields, Unreadable> {
    let text = |at: &str| filled(json::text(mail, at));
    Ok(Fields {
        headers: headers(mail.get("headers")),
        from: people::list(mail.pointer("/from")),
        to,
        cc,
        reply_to: people::list(mail.pointer("/reply_to")),
        subject: text("/subject"),
        date: text("/date"),
        message_id: text("/message_id"),
        text: text("/text"),
        html: text("/html"),
        attachments: attachments(mail)?,
    })
}

/// An object, or a list of `{name, value}` or pairs.
fn headers(value: Option<&Value>) -> Vec<(String, String)> {
    let pair = |name: Option<&str>, value: Option<&Value>| Some((name?.to_owned(), value?.as_str()?.to_owned()));
    match value {
        Some(Value::Object(map)) => map.iter().filter_map(|(name, value)| pair(Some(name), Some(value))).collect(),
        Some(Value::Array(list)) => {
            let one = |item: &Value| {
                pair(json::first_text(item, &["/name", "/0"]), item.pointer("/value").or_else(|| item.pointer("/1")))
            };
            list.iter().filter_map(one).collect()
        }
        _ => Vec::new(),
    }
}

fn attachments(mail: &Value) -> Result<Vec<Attachment>, Unreadable> {
    let all = mail.pointer("/attachments").and_then(Value::as_array).into_iter().flatten();
    all.map(|one| {
        Ok(Attachment {
            filename: filled(json::text(one, "/filename")),
            content_type: filled(json::text(one, "/content_type")),
            content_id: filled(json::text(one, "/content_id")),
            bytes: base64(json::text(one, "/content").unwrap_or_default())?,
        })
    })
    .collect()
}
