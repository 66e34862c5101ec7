//! Amazon SES: a notification of SNS for each mail that a receipt rule took, with the mail in it or a place in S3.

use mailonce_core::inbound::provider_mail::ProviderMailRef;
use serde_json::Value;

use super::{HookMail, MailBytes, decode_base64};
use crate::hooks::{HookParseError, json, sns::SnsMessage};

pub(crate) fn parse_mail(body: &[u8]) -> Result<Option<HookMail>, HookParseError> {
    let envelope = SnsMessage::parse(body).map_err(|why| HookParseError::json(&why.to_string()))?;
    let is_told = envelope.field("Type").is_ok_and(|kind| kind == "Notification");
    let message = envelope.field("Message").unwrap_or_default();
    if !is_told || !message.trim_start().starts_with('{') {
        return Ok(None);
    }
    let told = json::parse(message.as_bytes())?;
    if json::str_at(&told, "/notificationType") != Some("Received") {
        return Ok(None);
    }
    let name = json::str_at(&told, "/mail/messageId").ok_or(HookParseError::Unexpected("a mail with messageId"))?;
    // Those that the rule matched, out of the envelope.
    let recipients = told.pointer("/receipt/recipients").and_then(Value::as_array);
    let recipients = recipients.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let content = match told.pointer("/content").and_then(Value::as_str) {
        None => None,
        Some(text) if json::str_at(&told, "/receipt/action/encoding") == Some("BASE64") => Some(decode_base64(text)?),
        Some(text) => Some(text.as_bytes().to_vec()),
    };
    let notice = content.is_none().then(|| ProviderMailRef {
        id: name.to_owned(),
        object: s3_object(&told),
        ..ProviderMailRef::default()
    });
    Ok(Some(HookMail {
        dedupe_key: name.to_owned(),
        envelope_sender: told.pointer("/mail/source").and_then(Value::as_str).map(str::to_owned),
        recipients,
        has_envelope_recipients: true,
        content: content.map(MailBytes::original),
        location: notice,
    }))
}

/// The bucket and key of S3.
fn s3_object(told: &Value) -> Option<(String, String)> {
    let bucket = json::str_at(told, "/receipt/action/bucketName")?;
    Some((bucket.to_owned(), json::str_at(told, "/receipt/action/objectKey")?.to_owned()))
}
