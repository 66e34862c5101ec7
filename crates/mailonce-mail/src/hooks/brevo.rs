//! Brevo: one event per request (an array when batched), without a signature and without an event id.

use mailonce_core::time::Time;
use serde_json::Value;

use super::{HookEvent, HookParseError, ReportedStatus, json};
use crate::hooks::event::{HookEventDraft, parse_email_id};

pub(crate) fn parse_events(body: &[u8]) -> Result<Vec<HookEvent>, HookParseError> {
    Ok(json::parse_objects(body)?.iter().map(parse_event).collect())
}

fn parse_event(event: &Value) -> HookEvent {
    let kind = json::str_at(event, "/event").unwrap_or_default();
    HookEventDraft {
        event_id: None,
        // The only time that differs between events. Its time zone does not matter here.
        discriminator: event.pointer("/ts_event").map(Value::to_string),
        event_type: kind,
        email: parse_email_id(id_from_custom_header(event)).or_else(|| id_from_tags(event)),
        remote_id: json::str_at(event, "/message-id"),
        recipient: json::str_at(event, "/email"),
        reported_status: reported_status(kind),
        reason: json::str_at(event, "/reason"),
        occurred_at: event_time(event),
        is_test: false,
    }
    .finish()
}

/// `ts_epoch` is the only time that is always in UTC. It is in milliseconds, in some events in seconds.
fn event_time(event: &Value) -> Option<Time> {
    let number = event.pointer("/ts_epoch").and_then(Value::as_i64).filter(|number| *number > 0)?;
    let millis = if number < 100_000_000_000 { number * 1000 } else { number };
    (millis < 253_402_300_800_000).then_some(Time(millis))
}

/// Our email id in the custom header, which may contain other values: `mailonce=…|run=42`.
fn id_from_custom_header(event: &Value) -> Option<&str> {
    let header = json::first_str_at(event, &["/X-Mailin-custom", "/x-mailin-custom"])?;
    header.split(['|', ';', ',']).find_map(|part| part.trim().strip_prefix("mailonce="))
}

/// Our email id in a tag. `tags` is an array; `tag` is one tag, or the array as text.
fn id_from_tags(event: &Value) -> Option<mailonce_core::id::EmailId> {
    let many = event.pointer("/tags").and_then(Value::as_array);
    let many = many.into_iter().flatten().filter_map(Value::as_str);
    let one = json::str_at(event, "/tag").into_iter();
    let one = one.flat_map(|tag| tag.split(['[', ']', '"', ',']));
    many.chain(one).find_map(|tag| parse_email_id(tag.trim().strip_prefix("mailonce-")))
}

fn reported_status(kind: &str) -> ReportedStatus {
    match kind {
        "request" | "sent" => ReportedStatus::Accepted,
        "delivered" => ReportedStatus::Delivered,
        "deferred" => ReportedStatus::Deferred,
        "hard_bounce" | "invalid_email" => ReportedStatus::Bounced { permanent: true },
        "soft_bounce" => ReportedStatus::Bounced { permanent: false },
        "spam" | "complaint" => ReportedStatus::Complained,
        "blocked" => ReportedStatus::Suppressed,
        "error" => ReportedStatus::Refused,
        _ => ReportedStatus::Other,
    }
}
