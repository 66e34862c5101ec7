//! Brevo: one event in a request (an array when batched), nothing signed, no id of its own.

use mailonce_core::time::Time;
use serde_json::Value;

use super::{
    Report, Says, Unreadable, json,
    report::{Draft, ours},
};

pub(super) fn read(body: &[u8]) -> Result<Vec<Report>, Unreadable> {
    Ok(json::objects(body)?.iter().map(report).collect())
}

fn report(event: &Value) -> Report {
    let kind = json::text(event, "/event").unwrap_or_default();
    Draft {
        event_id: None,
        // The only time that moves with each event; which zone it is in does not matter here.
        mark: event.pointer("/ts_event").map(Value::to_string),
        event: kind,
        email: ours(custom(event)).or_else(|| tagged(event)),
        remote_id: json::text(event, "/message-id"),
        recipient: json::text(event, "/email"),
        says: says(kind),
        reason: json::text(event, "/reason"),
        at: at(event),
        test: false,
    }
    .finish()
}

/// `ts_epoch` is the only time that is always in UTC; it is in milliseconds, in some events in seconds.
fn at(event: &Value) -> Option<Time> {
    let number = event.pointer("/ts_epoch").and_then(Value::as_i64).filter(|number| *number > 0)?;
    let millis = if number < 100_000_000_000 { number * 1000 } else { number };
    (millis < 253_402_300_800_000).then_some(Time(millis))
}

/// Our id in the custom header, which may hold others: `mailonce=…|run=42`.
fn custom(event: &Value) -> Option<&str> {
    let header = json::first_text(event, &["/X-Mailin-custom", "/x-mailin-custom"])?;
    header.split(['|', ';', ',']).find_map(|part| part.trim().strip_prefix("mailonce="))
}

/// Our id in a tag. `tags` is an array; `tag` is one tag, or the array as text.
fn tagged(event: &Value) -> Option<mailonce_core::id::EmailId> {
    let many = event.pointer("/tags").and_then(Value::as_array);
    let many = many.into_iter().flatten().filter_map(Value::as_str);
    let one = json::text(event, "/tag").into_iter();
    let one = one.flat_map(|tag| tag.split(['[', ']', '"', ',']));
    many.chain(one).find_map(|tag| ours(tag.trim().strip_prefix("mailonce-")))
}

fn says(kind: &str) -> Says {
    match kind {
        "request" | "sent" => Says::Accepted,
        "delivered" => Says::Delivered,
        "deferred" => Says::Deferred,
        "hard_bounce" | "invalid_email" => Says::Bounced { permanent: true },
        "soft_bounce" => Says::Bounced { permanent: false },
        "spam" | "complaint" => Says::Complained,
        "blocked" => Says::Suppressed,
        "error" => Says::Refused,
        _ => Says::Other,
    }
}
