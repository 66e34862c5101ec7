//! Nylas: `message.created` and its variants, with the message as Nylas parsed it. The raw mail can be fetched.

use serde_json::Value;

use mailonce_core::inbound::provider_mail::ProviderMailRef;

use super::{HookMail, MailBytes, non_empty};
use crate::{
    compose::ProviderFields,
    hooks::{HookParseError, inbound::mailboxes, json},
};

pub(crate) fn parse_mail(body: &[u8]) -> Result<Option<HookMail>, HookParseError> {
    let event = json::parse(body)?;
    let kind = json::str_at(&event, "/type").unwrap_or_default();
    if !matches!(kind, "message.created" | "message.created.truncated" | "message.created.cleaned") {
        return Ok(None);
    }
    let message = event.pointer("/data/object").ok_or(HookParseError::Unexpected("an object in data"))?;
    if is_sent_by_account(message) {
        return Ok(None);
    }
    let id = json::str_at(message, "/id").ok_or(HookParseError::Unexpected("a message with id"))?.to_owned();
    let [to, cc, bcc] = ["/to", "/cc", "/bcc"].map(|pointer| mailboxes::from_json(message.pointer(pointer)));
    let recipients = mailboxes::addresses([&to, &cc, &bcc]);
    // A cleaned or truncated message is incomplete, and attachments are listed without their content.
    let has_attachments =
        message.pointer("/attachments").and_then(Value::as_array).is_some_and(|attachments| !attachments.is_empty());
    let is_complete = kind == "message.created" && !has_attachments && message.get("body").is_some();
    let content = if is_complete { Some(MailBytes::rebuild(provider_fields(message, to, cc), &id)?) } else { None };
    let grant = json::first_str_at(message, &["/grant_id"]).or_else(|| json::str_at(&event, "/data/grant_id"));
    let location = ProviderMailRef { id: id.clone(), grant: grant.map(str::to_owned), object: None };
    Ok(Some(HookMail {
        dedupe_key: id,
        envelope_sender: None,
        recipients,
        has_envelope_recipients: false,
        content,
        location: Some(location),
    }))
}

/// Whether the account sent the mail itself. Nylas reports such mail too.
fn is_sent_by_account(message: &Value) -> bool {
    let folders = message.pointer("/folders").and_then(Value::as_array).into_iter().flatten();
    let folder_names: Vec<String> = folders.filter_map(Value::as_str).map(str::to_ascii_uppercase).collect();
    folder_names.iter().any(|folder| folder == "SENT") && !folder_names.iter().any(|folder| folder == "INBOX")
}

fn provider_fields(
    message: &Value,
    to: Vec<mailonce_core::address::NamedAddress>,
    cc: Vec<mailonce_core::address::NamedAddress>,
) -> ProviderFields {
    let headers = message.pointer("/headers").and_then(Value::as_array).into_iter().flatten();
    let pair =
        |one: &Value| Some((json::str_at(one, "/name")?.to_owned(), one.pointer("/value")?.as_str()?.to_owned()));
    ProviderFields {
        headers: headers.filter_map(pair).collect(),
        from: mailboxes::from_json(message.pointer("/from")),
        to,
        cc,
        reply_to: mailboxes::from_json(message.pointer("/reply_to")),
        subject: non_empty(json::str_at(message, "/subject")),
        html: non_empty(json::str_at(message, "/body")),
        ..ProviderFields::default()
    }
}
