//! useSend: one event per request, HMAC over the timestamp (in milliseconds) and the raw body.
//!
//! The HMAC key is the whole text of the secret, including `whsec_`. The body contains an attempt counter, so only its
//! id is stable across retries.

use mailonce_core::time::Time;
use serde_json::Value;

use super::{HookEvent, HookParseError, HookRejection, HookRequest, ReportedStatus, json, resend::sole_recipient};
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
    let timestamp = request.required_header("x-usesend-timestamp")?;
    let signature = request.required_header("x-usesend-signature")?;
    let millis = verification::parse_timestamp(timestamp, "the timestamp")?;
    let signature = signature.strip_prefix("v1=").and_then(verification::decode_hex32);
    let signature = signature.ok_or_else(|| HookRejection::Malformed("the signature is not v1= and hex".into()))?;
    verification::verify_any_hmac(keys, &[timestamp.as_bytes(), b".", request.body], &[signature])?;
    verification::check_freshness(Time(millis), now, tolerance_ms)
}

pub(crate) fn parse_events(body: &[u8]) -> Result<Vec<HookEvent>, HookParseError> {
    let event = json::parse(body)?;
    let kind = json::str_at(&event, "/type").ok_or(HookParseError::Unexpected("an object with type"))?;
    let header_id = json::entry_value(event.pointer("/data/headers"), "x-mailonce-id");
    let reasons = ["/data/bounce/message", "/data/failed/reason", "/data/suppression/reason", "/data/bounce/subType"];
    let draft = HookEventDraft {
        event_id: json::str_at(&event, "/id").map(str::to_owned),
        discriminator: None,
        event_type: kind,
        email: parse_email_id(header_id).or_else(|| parse_email_id(json::str_at(&event, "/data/metadata/mailonce"))),
        remote_id: json::str_at(&event, "/data/id").filter(|_| kind.starts_with("email.")),
        recipient: sole_recipient(event.pointer("/data/to")),
        reported_status: reported_status(kind, &event),
        reason: json::first_str_at(&event, &reasons),
        occurred_at: json::time_at(&event, "/data/occurredAt").or_else(|| json::time_at(&event, "/createdAt")),
        is_test: kind == "webhook.test",
    };
    Ok(vec![draft.finish()])
}

fn reported_status(kind: &str, event: &Value) -> ReportedStatus {
    match kind {
        "email.queued" | "email.sent" => ReportedStatus::Accepted,
        "email.delivered" => ReportedStatus::Delivered,
        "email.delivery_delayed" => ReportedStatus::Deferred,
        "email.bounced" => {
            ReportedStatus::Bounced { permanent: json::str_at(event, "/data/bounce/type") == Some("Permanent") }
        }
        "email.complained" => ReportedStatus::Complained,
        // This is only useSend's claim: it also reports a timeout between useSend and SES as `failed`.
        "email.rejected" | "email.rendering_failure" | "email.failed" | "email.cancelled" => ReportedStatus::Refused,
        "email.suppressed" => ReportedStatus::Suppressed,
        _ => ReportedStatus::Other,
    }
}
