//! Amazon SES: a notification of SNS for each mail that a receipt rule took, with the mail in it or a place in S3.

use mailonce_core::port::collect::Notice;
use serde_json::Value;

use super::{Bytes, Mail, base64};
use crate::hook::{Unreadable, json, sns::Envelope};

pub(super) fn read(body: &[u8]) -> Result<Option<Mail>, Unreadable> {
    let envelope = Envelope::parse(body).map_err(|why| Unreadable::json(&why.to_string()))?;
    let is_told = envelope.field("Type").is_ok_and(|kind| kind == "Notification");
    let message = envelope.field("Message").unwrap_or_default();
    if !is_told || !message.trim_start().starts_with('{') {
        return Ok(None);
    }
    let told = json::parse(message.as_bytes())?;
    if json::text(&told, "/notificationType") != Some("Received") {
        return Ok(None);
    }
    let name = json::text(&told, "/mail/messageId").ok_or(Unreadable::Shape("a mail with messageId"))?;
    // Those that the rule matched, out of the envelope.
    let recipients = told.pointer("/receipt/recipients").and_then(Value::as_array);
    let recipients = recipients.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let content = match told.pointer("/content").and_then(Value::as_str) {
        None => None,
        Some(text) if json::text(&told, "/receipt/action/encoding") == Some("BASE64") => Some(base64(text)?),
        Some(text) => Some(text.as_bytes().to_vec()),
    };
    let notice = content.is_none().then(|| Notice { id: name.to_owned(), object: object(&told), ..Notice::default() });
    Ok(Some(Mail {
        name: name.to_owned(),
        sender: told.pointer("/mail/source").and_then(Value::as_str).map(str::to_owned),
        recipients,
        envelope: true,
        content: content.map(Bytes::whole),
        notice,
    }))
}

/// The bucket and key of S3.
fn object(told: &Value) -> Option<(String, String)> {
    let bucket = json::text(told, "/receipt/action/bucketName")?;
    Some((bucket.to_owned(), json::text(told, "/receipt/action/objectKey")?.to_owned()))
}
