//! Resend: one event per request, sent through Svix. HMAC over id, timestamp and the raw body; the id is in a header.

use mailonce_core::time::Time;
use serde_json::Value;

use super::{HookEvent, HookParseError, HookRejection, HookRequest, ReportedStatus, json};
use crate::hooks::{
    event::{HookEventDraft, parse_email_id},
    verification,
};

pub(crate) fn verify(
    keys: &[Vec<u8>],
    request: &HookRequest<'_>,
    now: Time,
    tolerance_ms: i64,
) -> Result<(), HookRejection> {
    // The header names of Svix or those of Standard Webhooks, never a mix.
    let is_standard = request.header("svix-id")?.is_none() && request.header("webhook-id")?.is_some();
    let (id, timestamp, signatures) = if is_standard {
        ("webhook-id", "webhook-timestamp", "webhook-signature")
    } else {
        ("svix-id", "svix-timestamp", "svix-signature")
    };
    let (id, timestamp) = (request.required_header(id)?, request.required_header(timestamp)?);
    let signatures = request.required_header(signatures)?;
    if id.contains('.') {
        // The signed text is joined with dots, so a dot inside the id would make it ambiguous.
        return Err(HookRejection::Malformed("the id has a dot".into()));
    }
    let seconds = verification::parse_timestamp(timestamp, "the timestamp")?;
    // Signatures of other versions are ignored.
    let v1_signatures = signatures.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    let signatures: Vec<_> = v1_signatures.filter_map(verification::decode_base64_32).take(16).collect();
    verification::verify_any_hmac(keys, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", request.body], &signatures)?;
    verification::check_freshness(Time(seconds.saturating_mul(1000)), now, tolerance_ms)
}

pub(crate) fn parse_events(request: &HookRequest<'_>) -> Result<Vec<HookEvent>, HookParseError> {
    let event = json::parse(request.body)?;
    let kind = json::str_at(&event, "/type").ok_or(HookParseError::Unexpected("an object with type"))?;
    let id = ["svix-id", "webhook-id"].iter().find_map(|name| request.header_named(name).ok().flatten());
    let tag_id = json::entry_value(event.pointer("/data/tags"), "mailonce");
    let header_id = json::entry_value(event.pointer("/data/headers"), "x-mailonce-id");
    let recipient = sole_recipient(event.pointer("/data/to"));
    let reasons = ["/data/bounce/message", "/data/failed/reason", "/data/suppressed/message", "/data/bounce/subType"];
    let draft = HookEventDraft {
        event_id: id.map(str::to_owned),
        discriminator: None,
        event_type: kind,
        email: parse_email_id(tag_id).or_else(|| parse_email_id(header_id)),
        remote_id: json::str_at(&event, "/data/email_id"),
        recipient,
        reported_status: reported_status(kind, &event),
        reason: json::first_str_at(&event, &reasons),
        occurred_at: json::time_at(&event, "/created_at"),
        is_test: recipient.is_some_and(|address| address.trim_end_matches('>').ends_with("@resend.dev")),
    };
    Ok(vec![draft.finish()])
}

/// The recipient, if there is only one. An event about a mail to several does not say which one it concerns.
pub(crate) fn sole_recipient(to: Option<&Value>) -> Option<&str> {
    match to? {
        Value::String(one) => Some(one),
        Value::Array(all) => match all.as_slice() {
            [one] => one.as_str(),
            _ => None,
        },
        _ => None,
    }
}

fn reported_status(kind: &str, event: &Value) -> ReportedStatus {
    match kind {
        "email.sent" | "email.scheduled" => ReportedStatus::Accepted,
        "email.delivered" => ReportedStatus::Delivered,
        "email.delivery_delayed" => ReportedStatus::Deferred,
        "email.bounced" => bounce_status(event),
        "email.complained" => ReportedStatus::Complained,
        "email.failed" => ReportedStatus::Refused,
        "email.suppressed" => ReportedStatus::Suppressed,
        _ => ReportedStatus::Other,
    }
}

fn bounce_status(event: &Value) -> ReportedStatus {
    let kind = json::str_at(event, "/data/bounce/type").unwrap_or("Permanent");
    let sub = json::str_at(event, "/data/bounce/subType").unwrap_or_default();
    let message = json::str_at(event, "/data/bounce/message").unwrap_or_default();
    // Older events have only the message.
    if matches!(sub, "Suppressed" | "OnAccountSuppressionList") || message.contains("suppressed sending") {
        return ReportedStatus::Suppressed;
    }
    ReportedStatus::Bounced { permanent: kind == "Permanent" }
}
