//! Events in useSend's words, signed as useSend signs: hexadecimal, over milliseconds and body, under the secret as it
//! is written.

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
use crate::dialects::resend::event_format::{affected_recipients, reply_text};

/// The name of the dialect.
pub(crate) const NAME: &str = "usesend";
/// The version of its payloads.
const VERSION: &str = "2026-01-18";

/// The dialect's type and status of what happened.
fn type_and_status(event: &Event) -> Option<(&'static str, &'static str)> {
    let scheduled = event.event.data["state"] == EmailState::Scheduled.as_str();
    match event.event.kind {
        // There is no type for a mail that is to leave later.
        EventKind::EmailAccepted if scheduled => None,
        EventKind::EmailAccepted | EventKind::EmailHeld => Some(("email.queued", "QUEUED")),
        EventKind::EmailSent => Some(("email.sent", "SENT")),
        EventKind::EmailDelivered => Some(("email.delivered", "DELIVERED")),
        EventKind::EmailBounced => Some(("email.bounced", "BOUNCED")),
        EventKind::EmailComplained => Some(("email.complained", "COMPLAINED")),
        EventKind::EmailFailed => Some(("email.failed", "FAILED")),
        EventKind::EmailDeferred | EventKind::EmailUnknown => Some(("email.delivery_delayed", "DELIVERY_DELAYED")),
        EventKind::EmailCancelled => Some(("email.cancelled", "CANCELLED")),
        _ => None,
    }
}

/// An event as useSend tells it.
pub(crate) fn format_event(telling: &NoticeContext<'_>) -> Option<FormattedEvent> {
    let (kind, status) = type_and_status(telling.event)?;
    let data = email_data(telling.email.as_ref()?, telling.event, status);
    let call = telling.notice.id.to_string();
    let body = json!({
        "id": call,
        "type": kind,
        "version": VERSION,
        "createdAt": telling.event.event.at.to_string(),
        "teamId": numeric_id(telling.endpoint.team.0),
        "data": data,
        "attempt": telling.notice.attempts.max(1),
    })
    .to_string();
    let at = telling.attempted_at.0.to_string();
    let mut headers = vec![
        ("x-usesend-event".to_owned(), kind.to_owned()),
        ("x-usesend-call".to_owned(), call),
        ("x-usesend-timestamp".to_owned(), at.clone()),
        ("x-usesend-retry".to_owned(), (telling.notice.attempts > 1).to_string()),
    ];
    let signed = telling.secrets.first().and_then(|secret| sign(secret, &at, &body));
    headers.extend(signed.map(|signed| ("x-usesend-signature".to_owned(), signed)));
    Some(FormattedEvent { body, headers })
}

/// Its verifier knows one signature, so the newest secret signs.
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

fn email_data(told: &EmailEvent, event: &Event, status: &str) -> Value {
    let head = &told.email.head;
    let mut data = json!({
        "id": told.email.id.to_string(),
        "status": status,
        "from": head.from,
        "to": affected_recipients(told, event),
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
        // As Python's hmac has it, under `whsec_YWJj`.
        let expected = "v1=87b37e8e7e5f6cc2f1c973d388e5d2fdd0e1048a785d9c0dff4fdcc0e34d8a3d";
        assert_eq!(sign(b"abc", "1", "{}").as_deref(), Some(expected));
    }
}
