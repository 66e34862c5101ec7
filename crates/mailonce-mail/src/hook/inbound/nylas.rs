//! Nylas: `message.created` and its kin, with the message as Nylas read it. The mail itself is there to be fetched.

use serde_json::Value;

use mailonce_core::port::collect::Notice;

use super::{Bytes, Mail, filled, people};
use crate::{
    compose::Fields,
    hook::{Unreadable, json},
};

pub(super) fn read(body: &[u8]) -> Result<Option<Mail>, Unreadable> {
    let event = json::parse(body)?;
    let kind = json::text(&event, "/type").unwrap_or_default();
    if !matches!(kind, "message.created" | "message.created.truncated" | "message.created.cleaned") {
        return Ok(None);
    }
    let message = event.pointer("/data/object").ok_or(Unreadable::Shape("an object in data"))?;
    if is_own(message) {
        return Ok(None);
    }
    let id = json::text(message, "/id").ok_or(Unreadable::Shape("a message with id"))?.to_owned();
    let [to, cc, bcc] = ["/to", "/cc", "/bcc"].map(|at| people::list(message.pointer(at)));
    let recipients = people::addresses([&to, &cc, &bcc]);
    // What was cleaned or cut is not the mail, and of files only the names are told.
    let files = message.pointer("/attachments").and_then(Value::as_array).is_some_and(|files| !files.is_empty());
    let whole = kind == "message.created" && !files && message.get("body").is_some();
    let content = if whole { Some(Bytes::rebuilt(fields(message, to, cc), &id)?) } else { None };
    let grant = json::first_text(message, &["/grant_id"]).or_else(|| json::text(&event, "/data/grant_id"));
    let notice = Notice { id: id.clone(), grant: grant.map(str::to_owned), object: None };
    Ok(Some(Mail { name: id, sender: None, recipients, envelope: false, content, notice: Some(notice) }))
}

/// Mail that the account sent itself is told of too.
fn is_own(message: &Value) -> bool {
    let folders = message.pointer("/folders").and_then(Value::as_array).into_iter().flatten();
    let words: Vec<String> = folders.filter_map(Value::as_str).map(str::to_ascii_uppercase).collect();
    words.iter().any(|word| word == "SENT") && !words.iter().any(|word| word == "INBOX")
}

fn fields(
    message: &Value,
    to: Vec<mailonce_core::address::Mailbox>,
    cc: Vec<mailonce_core::address::Mailbox>,
) -> Fields {
    let headers = message.pointer("/headers").and_then(Value::as_array).into_iter().flatten();
    let pair = |one: &Value| Some((json::text(one, "/name")?.to_owned(), one.pointer("/value")?.as_str()?.to_owned()));
    Fields {
        headers: headers.filter_map(pair).collect(),
        from: people::list(message.pointer("/from")),
        to,
        cc,
        reply_to: people::list(message.pointer("/reply_to")),
        subject: filled(json::text(message, "/subject")),
        html: filled(json::text(message, "/body")),
        ..Fields::default()
    }
}
