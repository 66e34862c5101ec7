//! Mailgun: one event per request, with the signature inside the body.
//!
//! The signature covers a timestamp and a token, not the event. An attacker who has one valid triple can attach any
//! event to it while the timestamp is fresh. So the caller should remember each [`request_token`] for that long,
//! together with the [`HookEvent::dedupe_key`]. The same token with another event is a forgery; with the same event it
//! is a retry.

use mailonce_core::time::Time;
use serde_json::Value;
use std::borrow::Cow;

use super::{HookEvent, HookParseError, HookRejection, HookRequest, ReportedStatus, inbound::form::HookForm, json};
use crate::hooks::{
    event::{HookEventDraft, parse_email_id},
    verification,
};

/// How old the signature of a received mail may be, in milliseconds. Mailgun retries a route for eight hours and does
/// not document whether it signs each retry anew. A mail must not be lost because we were down for more than five
/// minutes.
pub const ROUTE_TOLERANCE_MS: i64 = 9 * 3_600_000;

/// The one-time token of a request, if it has one.
pub fn request_token(request: &HookRequest<'_>) -> Option<String> {
    if let Ok(Some(form)) = HookForm::from_request(request) {
        return form.text("token").map(Cow::into_owned);
    }
    let body = json::parse(request.body).ok()?;
    json::str_at(&body, "/signature/token").map(str::to_owned)
}

pub(crate) fn verify(
    keys: &[Vec<u8>],
    request: &HookRequest<'_>,
    now: Time,
    tolerance_ms: i64,
) -> Result<(), HookRejection> {
    if let Some(form) = HookForm::from_request(request).map_err(|why| HookRejection::Malformed(why.to_string()))? {
        return verify_form(keys, &form, now, tolerance_ms.max(ROUTE_TOLERANCE_MS));
    }
    let body = json::parse(request.body).map_err(|why| HookRejection::Malformed(why.to_string()))?;
    let timestamp = match body.pointer("/signature/timestamp") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return Err(HookRejection::MissingField("signature.timestamp")),
    };
    let token = json::str_at(&body, "/signature/token").ok_or(HookRejection::MissingField("signature.token"))?;
    json::str_at(&body, "/signature/signature").ok_or(HookRejection::MissingField("signature.signature"))?;
    // Events of a subaccount are also signed with the key of the parent account.
    let pointers = ["/signature/signature", "/signature/parent-signature"];
    let signatures: Vec<_> = pointers
        .iter()
        .filter_map(|pointer| json::str_at(&body, pointer))
        .filter_map(verification::decode_hex32)
        .collect();
    let seconds = verification::parse_timestamp(&timestamp, "signature.timestamp")?;
    verification::verify_any_hmac(keys, &[timestamp.as_bytes(), token.as_bytes()], &signatures)?;
    verification::check_freshness(Time(seconds.saturating_mul(1000)), now, tolerance_ms)
}

/// Verifies the form that a route posts. The signature is among its fields.
fn verify_form(keys: &[Vec<u8>], form: &HookForm<'_>, now: Time, tolerance_ms: i64) -> Result<(), HookRejection> {
    let field = |name: &'static str| form.text(name).ok_or(HookRejection::MissingField(name));
    let (timestamp, token, signature) = (field("timestamp")?, field("token")?, field("signature")?);
    let seconds = verification::parse_timestamp(&timestamp, "timestamp")?;
    let signature = verification::decode_hex32(&signature)
        .ok_or_else(|| HookRejection::Malformed("signature is not hex".into()))?;
    verification::verify_any_hmac(keys, &[timestamp.as_bytes(), token.as_bytes()], &[signature])?;
    verification::check_freshness(Time(seconds.saturating_mul(1000)), now, tolerance_ms)
}

pub(crate) fn parse_events(body: &[u8]) -> Result<Vec<HookEvent>, HookParseError> {
    let body = json::parse(body)?;
    let event = body.pointer("/event-data").filter(|event| event.is_object());
    let event = event.ok_or(HookParseError::Unexpected("an object with event-data"))?;
    let at = json::epoch_time_at(event, "/timestamp");
    // Mailgun writes the Message-ID without angle brackets here, and with them in the response to a send.
    let message_id = json::str_at(event, "/message/headers/message-id");
    let remote_id = message_id.map(|id| format!("<{}>", id.trim_start_matches('<').trim_end_matches('>')));
    let reasons = ["/delivery-status/message", "/delivery-status/description", "/reject/reason", "/reason"];
    let draft = HookEventDraft {
        // Mailgun's event ids are unique only within a day, so the timestamp is added.
        event_id: json::str_at(event, "/id").map(|id| format!("{id}@{}", at.map_or(0, |at| at.0))),
        discriminator: None,
        event_type: json::str_at(event, "/event").unwrap_or_default(),
        email: parse_email_id(json::str_at(event, "/user-variables/mailonce")),
        remote_id: remote_id.as_deref(),
        recipient: json::str_at(event, "/recipient"),
        reported_status: reported_status(event),
        reason: json::first_str_at(event, &reasons),
        occurred_at: at,
        is_test: event.pointer("/flags/is-test-mode").and_then(Value::as_bool).unwrap_or_default(),
    };
    Ok(vec![draft.finish()])
}

fn reported_status(event: &Value) -> ReportedStatus {
    match json::str_at(event, "/event").unwrap_or_default() {
        "accepted" => ReportedStatus::Accepted,
        "delivered" => ReportedStatus::Delivered,
        "failed" => failed_status(event),
        "rejected" => ReportedStatus::Refused,
        "complained" => ReportedStatus::Complained,
        _ => ReportedStatus::Other,
    }
}

fn failed_status(event: &Value) -> ReportedStatus {
    let reason = json::str_at(event, "/reason").unwrap_or_default();
    let code = event.pointer("/delivery-status/code").and_then(Value::as_u64).unwrap_or_default();
    if json::str_at(event, "/severity") == Some("temporary") {
        return ReportedStatus::Deferred;
    }
    if reason.starts_with("suppress-") {
        return ReportedStatus::Suppressed;
    }
    // Mailgun gave up after too many retries: the mail is lost, but the address may be valid.
    ReportedStatus::Bounced { permanent: reason != "old" && !(400..500).contains(&code) }
}
