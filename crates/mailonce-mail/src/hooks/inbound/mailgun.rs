//! Mailgun routes: one form per mail and recipient, with the raw mail in `body-mime` if the webhook URL ends in `mime`.

use mailonce_core::outbound::content::Attachment;
use serde_json::Value;

use super::{
    HookMail, MailBytes,
    form::{FormField, HookForm},
    hash_key, non_empty,
};
use crate::hooks::inbound::mailboxes;
use crate::{
    compose::ProviderFields,
    hooks::{HookParseError, HookRequest, json},
};

/// The fields that differ between retries.
const SIGNATURE_FIELDS: [&str; 3] = ["timestamp", "token", "signature"];

pub(crate) fn parse_mail(request: &HookRequest<'_>) -> Result<Option<HookMail>, HookParseError> {
    let Some(form) = HookForm::from_request(request)? else { return Ok(None) };
    let text = |name: &str| form.text(name);
    let recipient = text("recipient").ok_or(HookParseError::Unexpected("a form with recipient"))?;
    // The form has no delivery id, and the sender chooses the Message-ID. So the dedupe key is a hash of all fields
    // except the signature.
    let stable_fields = form.0.iter().filter(|field| !SIGNATURE_FIELDS.contains(&field.name.as_str()));
    let dedupe_key = hash_key(stable_fields.flat_map(|field| [field.name.as_bytes(), &field.bytes]));
    let content = match form.field("body-mime") {
        Some(raw) => MailBytes::original(raw.bytes.to_vec()),
        None => MailBytes::rebuild(provider_fields(&form)?, &dedupe_key)?,
    };
    Ok(Some(HookMail {
        dedupe_key,
        envelope_sender: text("sender").map(|sender| sender.trim().to_owned()),
        recipients: mailboxes::addresses([&mailboxes::from_header(&recipient)]),
        has_envelope_recipients: true,
        content: Some(content),
        location: None,
    }))
}

fn provider_fields(form: &HookForm<'_>) -> Result<ProviderFields, HookParseError> {
    if form.field("attachments").is_some() {
        return Err(HookParseError::Unexpected(
            "attachments in the form: use forward() in the route, because store() omits them",
        ));
    }
    let text = |name: &str| non_empty(form.text(name).as_deref());
    let mailboxes_of = |name: &str| text(name).map(|text| mailboxes::from_header(&text)).unwrap_or_default();
    Ok(ProviderFields {
        headers: parse_headers(form),
        from: mailboxes_of("from"),
        to: mailboxes_of("To"),
        cc: mailboxes_of("Cc"),
        reply_to: mailboxes_of("Reply-To"),
        subject: text("subject"),
        date: text("Date"),
        message_id: text("Message-Id"),
        text: text("body-plain"),
        html: text("body-html"),
        attachments: form.0.iter().filter_map(|field| parse_attachment(form, field)).collect(),
    })
}

/// Parses `message-headers`, a JSON list of pairs.
fn parse_headers(form: &HookForm<'_>) -> Vec<(String, String)> {
    let list = form.field("message-headers").and_then(|field| json::parse(&field.bytes).ok());
    let pair = |one: &Value| Some((json::str_at(one, "/0")?.to_owned(), one.pointer("/1")?.as_str()?.to_owned()));
    list.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(pair).collect()
}

fn parse_attachment(form: &HookForm<'_>, field: &FormField<'_>) -> Option<Attachment> {
    field.name.strip_prefix("attachment-")?.parse::<u32>().ok()?;
    let ids = form.field("content-id-map").and_then(|field| json::parse(&field.bytes).ok());
    let id = ids.as_ref().and_then(Value::as_object).and_then(|ids| {
        ids.iter().find(|(_, name)| name.as_str() == Some(field.name.as_str())).map(|(id, _)| id.clone())
    });
    Some(Attachment {
        filename: field.filename.clone(),
        content_type: field.content_type.clone(),
        content_id: id,
        bytes: field.bytes.to_vec(),
    })
}
