//! Amazon SES: an SNS notification for each mail that a receipt rule matched, with the mail inside or stored in S3.

use mailonce_core::inbound::provider_mail::ProviderMailRef;
use serde_json::Value;

use super::{HookMail, MailBytes, decode_base64};
use crate::hooks::{HookParseError, json, sns::SnsMessage};

pub(crate) fn parse_mail(body: &[u8]) -> Result<Option<HookMail>, HookParseError> {
    let envelope = SnsMessage::parse(body).map_err(|why| HookParseError::json(&why.to_string()))?;
    let is_notification = envelope.field("Type").is_ok_and(|kind| kind == "Notification");
    let message = envelope.field("Message").unwrap_or_default();
    if !is_notification || !message.trim_start().starts_with('{') {
        return Ok(None);
    }
    let notification = json::parse(message.as_bytes())?;
    if json::str_at(&notification, "/notificationType") != Some("Received") {
        return Ok(None);
    }
    let message_id =
        json::str_at(&notification, "/mail/messageId").ok_or(HookParseError::Unexpected("a mail with messageId"))?;
    // The envelope recipients that the receipt rule matched.
    let recipients = notification.pointer("/receipt/recipients").and_then(Value::as_array);
    let recipients = recipients.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let content = match notification.pointer("/content").and_then(Value::as_str) {
        None => None,
        Some(text) if json::str_at(&notification, "/receipt/action/encoding") == Some("BASE64") => {
            Some(decode_base64(text)?)
        }
        Some(text) => Some(text.as_bytes().to_vec()),
    };
    let location = content.is_none().then(|| ProviderMailRef {
        id: message_id.to_owned(),
        object: s3_object(&notification),
        ..ProviderMailRef::default()
    });
    Ok(Some(HookMail {
        dedupe_key: message_id.to_owned(),
        envelope_sender: notification.pointer("/mail/source").and_then(Value::as_str).map(str::to_owned),
        recipients,
        has_envelope_recipients: true,
        content: content.map(MailBytes::original),
        location,
    }))
}

/// The S3 bucket and key.
fn s3_object(notification: &Value) -> Option<(String, String)> {
    let bucket = json::str_at(notification, "/receipt/action/bucketName")?;
    Some((bucket.to_owned(), json::str_at(notification, "/receipt/action/objectKey")?.to_owned()))
}
