//! Resend: one event in a request, sent through Svix. HMAC over id, time and the raw body; the id is in a header.

use mailonce_core::time::Time;
use serde_json::Value;

use super::{
    HookRequest, Reject, Report, Says, Unreadable, json, proof,
    report::{Draft, ours},
};

pub(super) fn verify(keys: &[Vec<u8>], request: &HookRequest<'_>, now: Time, tolerance_ms: i64) -> Result<(), Reject> {
    // Svix's own names, and those of Standard Webhooks. One family, never a mix.
    let standard = request.header("svix-id")?.is_none() && request.header("webhook-id")?.is_some();
    let (id, timestamp, signatures) = if standard {
        ("webhook-id", "webhook-timestamp", "webhook-signature")
    } else {
        ("svix-id", "svix-timestamp", "svix-signature")
    };
    let (id, timestamp) = (request.required(id)?, request.required(timestamp)?);
    let signatures = request.required(signatures)?;
    if id.contains('.') {
        // The signed text is joined with dots, so one inside the id could move its borders.
        return Err(Reject::Malformed("the id has a dot".into()));
    }
    let seconds = proof::digits(timestamp, "the timestamp")?;
    // Versions we do not know are for other readers.
    let known = signatures.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    let signatures: Vec<_> = known.filter_map(proof::base64_32).take(16).collect();
    proof::any_hmac(keys, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", request.body], &signatures)?;
    proof::fresh(Time(seconds.saturating_mul(1000)), now, tolerance_ms)
}

pub(super) fn read(request: &HookRequest<'_>) -> Result<Vec<Report>, Unreadable> {
    let event = json::parse(request.body)?;
    let kind = json::text(&event, "/type").ok_or(Unreadable::Shape("an object with type"))?;
    let id = ["svix-id", "webhook-id"].iter().find_map(|name| request.header_named(name).ok().flatten());
    let tagged = json::entry(event.pointer("/data/tags"), "mailonce");
    let headed = json::entry(event.pointer("/data/headers"), "x-mailonce-id");
    let recipient = only(event.pointer("/data/to"));
    let reasons = ["/data/bounce/message", "/data/failed/reason", "/data/suppressed/message", "/data/bounce/subType"];
    let report = Draft {
        event_id: id.map(str::to_owned),
        mark: None,
        event: kind,
        email: ours(tagged).or_else(|| ours(headed)),
        remote_id: json::text(&event, "/data/email_id"),
        recipient,
        says: says(kind, &event),
        reason: json::first_text(&event, &reasons),
        at: json::instant(&event, "/created_at"),
        test: recipient.is_some_and(|address| address.trim_end_matches('>').ends_with("@resend.dev")),
    };
    Ok(vec![report.finish()])
}

/// The recipient, when there is only one: an event of a mail to several does not tell whom it is about.
pub(super) fn only(to: Option<&Value>) -> Option<&str> {
    match to? {
        Value::String(one) => Some(one),
        Value::Array(all) => match all.as_slice() {
            [one] => one.as_str(),
            _ => None,
        },
        _ => None,
    }
}

fn says(kind: &str, event: &Value) -> Says {
    match kind {
        "email.sent" | "email.scheduled" => Says::Accepted,
        "email.delivered" => Says::Delivered,
        "email.delivery_delayed" => Says::Deferred,
        "email.bounced" => bounced(event),
        "email.complained" => Says::Complained,
        "email.failed" => Says::Refused,
        "email.suppressed" => Says::Suppressed,
        _ => Says::Other,
    }
}

fn bounced(event: &Value) -> Says {
    let kind = json::text(event, "/data/bounce/type").unwrap_or("Permanent");
    let sub = json::text(event, "/data/bounce/subType").unwrap_or_default();
    let message = json::text(event, "/data/bounce/message").unwrap_or_default();
    // Older events have only the sentence.
    if matches!(sub, "Suppressed" | "OnAccountSuppressionList") || message.contains("suppressed sending") {
        return Says::Suppressed;
    }
    Says::Bounced { permanent: kind == "Permanent" }
}
