//! Webhook events in useSend's format. The signature is a hexadecimal HMAC over timestamp (milliseconds) and body. Its
//! key is the text of the secret, `whsec_` included.

use hmac::{Hmac, KeyInit as _, Mac as _};
use mailonce_core::{
    events::{
        event::{Event, EventKind},
        formatted_event::{EmailEvent, FormattedEvent, NoticeContext},
    },
    outbound::email::EmailState,
};
use mailonce_engine::events::endpoints::secret_text;
use serde_json::{Value, json};
use sha2::Sha256;

use super::numeric_id;
use crate::dialects::resend::event_format::{affected_recipients, is_first_sent, reply_text};

/// The name of the dialect.
pub(crate) const NAME: &str = "usesend";
/// The version of the event payloads.
const VERSION: &str = "2026-01-18";

/// The useSend event type and status of an event; `None` if useSend has none.
fn type_and_status(event: &Event) -> Option<(&'static str, &'static str)> {
    let scheduled = event.event.data["state"] == EmailState::Scheduled.as_str();
    match event.event.kind {
        // useSend has no event type for a scheduled email.
        EventKind::EmailAccepted if scheduled => None,
        EventKind::EmailAccepted | EventKind::EmailHeld => Some(("email.queued", "QUEUED")),
        // useSend sends one `email.sent` per email.
        EventKind::EmailSent | EventKind::EmailResolved if is_first_sent(event) => Some(("email.sent", "SENT")),
        EventKind::EmailDelivered => Some(("email.delivered", "DELIVERED")),
        EventKind::EmailBounced => Some(("email.bounced", "BOUNCED")),
        EventKind::EmailComplained => Some(("email.complained", "COMPLAINED")),
        EventKind::EmailFailed => Some(("email.failed", "FAILED")),
        EventKind::EmailDeferred | EventKind::EmailUnknown => Some(("email.delivery_delayed", "DELIVERY_DELAYED")),
        EventKind::EmailCancelled => Some(("email.cancelled", "CANCELLED")),
        _ => None,
    }
}

/// Formats an event as a useSend webhook.
pub(crate) fn format_event(context: &NoticeContext<'_>) -> Option<FormattedEvent> {
    let (kind, status) = type_and_status(context.event)?;
    let data = email_data(context.email.as_ref()?, context.event, status);
    let call = context.notice.id.to_string();
    let body = json!({
        "id": call,
        "type": kind,
        "version": VERSION,
        "createdAt": context.event.event.at.to_string(),
        "teamId": numeric_id(context.endpoint.team.0),
        "data": data,
        "attempt": context.notice.attempts.max(1),
    })
    .to_string();
    let at = context.attempted_at.0.to_string();
    let mut headers = vec![
        ("x-usesend-event".to_owned(), kind.to_owned()),
        ("x-usesend-call".to_owned(), call),
        ("x-usesend-timestamp".to_owned(), at.clone()),
        ("x-usesend-retry".to_owned(), (context.notice.attempts > 1).to_string()),
    ];
    let signature = context.secrets.first().and_then(|secret| sign(secret, &at, &body));
    headers.extend(signature.map(|signature| ("x-usesend-signature".to_owned(), signature)));
    Some(FormattedEvent { body, headers })
}

/// Signs a webhook. The verifier of useSend accepts one signature, so only the newest secret signs.
fn sign(secret: &[u8], at: &str, body: &str) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret_text(secret).as_bytes()).ok()?;
    mac.update(at.as_bytes());
    mac.update(b".");
    mac.update(body.as_bytes());
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    let sum = mac.finalize().into_bytes();
    let digits: String = sum.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
    Some(format!("v1={digits}"))
}

fn email_data(email_event: &EmailEvent, event: &Event, status: &str) -> Value {
    let head = &email_event.email.head;
    let mut data = json!({
        "id": email_event.email.id.to_string(),
        "status": status,
        "from": head.from,
        "to": affected_recipients(email_event, event),
        "occurredAt": event.event.at.to_string(),
        "subject": head.subject,
    });
    match event.event.kind {
        EventKind::EmailBounced => {
            data["bounce"] = json!({ "type": "Permanent", "subType": "General", "message": reply_text(event) });
        }
        EventKind::EmailFailed => data["failed"] = json!({ "reason": reply_text(event) }),
        _ => {}
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_signs_as_it_is_written() {
        // Computed with Python's hmac and the key `whsec_YWJj`.
        let expected = "v1=87b37e8e7e5f6cc2f1c973d388e5d2fdd0e1048a785d9c0dff4fdcc0e34d8a3d";
        assert_eq!(sign(b"abc", "1", "{}").as_deref(), Some(expected));
    }
}
