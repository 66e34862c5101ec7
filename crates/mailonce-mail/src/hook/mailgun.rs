//! Mailgun: one event in a request, with the proof inside the body.
//!
//! The proof covers a time and a token, not the event. Whoever gets hold of one triple can put any event beside it as
//! long as the time is fresh. So the caller should remember each [`token`] that long, with the [`Report::once`] it came
//! with: the same token beside another event is a forgery, beside the same event it is a repeat.

use mailonce_core::time::Time;
use serde_json::Value;
use std::borrow::Cow;

use super::{
    HookRequest, Reject, Report, Says, Unreadable,
    inbound::form::Form,
    json, proof,
    report::{Draft, ours},
};

/// How old the proof of a mail may be, in milliseconds. A route is tried again for eight hours, and whether the proof is
/// made anew each time is not told: a mail must not be lost because we were away for longer than five minutes.
pub const ROUTE_MS: i64 = 9 * 3_600_000;

/// The one-time token of a request. `None` when there is none.
pub fn token(request: &HookRequest<'_>) -> Option<String> {
    if let Ok(Some(form)) = Form::read(request) {
        return form.text("token").map(Cow::into_owned);
    }
    let body = json::parse(request.body).ok()?;
    json::text(&body, "/signature/token").map(str::to_owned)
}

pub(super) fn verify(keys: &[Vec<u8>], request: &HookRequest<'_>, now: Time, tolerance_ms: i64) -> Result<(), Reject> {
    if let Some(form) = Form::read(request).map_err(|why| Reject::Malformed(why.to_string()))? {
        return verify_form(keys, &form, now, tolerance_ms.max(ROUTE_MS));
    }
    let body = json::parse(request.body).map_err(|why| Reject::Malformed(why.to_string()))?;
    let timestamp = match body.pointer("/signature/timestamp") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return Err(Reject::MissingField("signature.timestamp")),
    };
    let token = json::text(&body, "/signature/token").ok_or(Reject::MissingField("signature.token"))?;
    json::text(&body, "/signature/signature").ok_or(Reject::MissingField("signature.signature"))?;
    // Events of a subaccount are also signed with the key of the account above it.
    let places = ["/signature/signature", "/signature/parent-signature"];
    let signatures: Vec<_> =
        places.iter().filter_map(|place| json::text(&body, place)).filter_map(proof::hex32).collect();
    let seconds = proof::digits(&timestamp, "signature.timestamp")?;
    proof::any_hmac(keys, &[timestamp.as_bytes(), token.as_bytes()], &signatures)?;
    proof::fresh(Time(seconds.saturating_mul(1000)), now, tolerance_ms)
}

/// A route's request, with the proof among its fields.
fn verify_form(keys: &[Vec<u8>], form: &Form<'_>, now: Time, tolerance_ms: i64) -> Result<(), Reject> {
    let field = |name: &'static str| form.text(name).ok_or(Reject::MissingField(name));
    let (timestamp, token, signature) = (field("timestamp")?, field("token")?, field("signature")?);
    let seconds = proof::digits(&timestamp, "timestamp")?;
    let signature = proof::hex32(&signature).ok_or_else(|| Reject::Malformed("signature is not hex".into()))?;
    proof::any_hmac(keys, &[timestamp.as_bytes(), token.as_bytes()], &[signature])?;
    proof::fresh(Time(seconds.saturating_mul(1000)), now, tolerance_ms)
}

pub(super) fn read(body: &[u8]) -> Result<Vec<Report>, Unreadable> {
    let body = json::parse(body)?;
    let event = body.pointer("/event-data").filter(|event| event.is_object());
    let event = event.ok_or(Unreadable::Shape("an object with event-data"))?;
    let at = json::epoch_seconds(event, "/timestamp");
    // Mailgun writes the Message-ID without its brackets here, and with them in its answer to a send.
    let message_id = json::text(event, "/message/headers/message-id");
    let remote_id = message_id.map(|id| format!("<{}>", id.trim_start_matches('<').trim_end_matches('>')));
    let reasons = ["/delivery-status/message", "/delivery-status/description", "/reject/reason", "/reason"];
    let report = Draft {
        // Its ids are unique within a day only, so the time goes with them.
        event_id: json::text(event, "/id").map(|id| format!("{id}@{}", at.map_or(0, |at| at.0))),
        mark: None,
        event: json::text(event, "/event").unwrap_or_default(),
        email: ours(json::text(event, "/user-variables/mailonce")),
        remote_id: remote_id.as_deref(),
        recipient: json::text(event, "/recipient"),
        says: says(event),
        reason: json::first_text(event, &reasons),
        at,
        test: event.pointer("/flags/is-test-mode").and_then(Value::as_bool).unwrap_or_default(),
    };
    Ok(vec![report.finish()])
}

fn says(event: &Value) -> Says {
    match json::text(event, "/event").unwrap_or_default() {
        "accepted" => Says::Accepted,
        "delivered" => Says::Delivered,
        "failed" => failed(event),
        "rejected" => Says::Refused,
        "complained" => Says::Complained,
        _ => Says::Other,
    }
}

fn failed(event: &Value) -> Says {
    let reason = json::text(event, "/reason").unwrap_or_default();
    let code = event.pointer("/delivery-status/code").and_then(Value::as_u64).unwrap_or_default();
    if json::text(event, "/severity") == Some("temporary") {
        return Says::Deferred;
    }
    if reason.starts_with("suppress-") {
        return Says::Suppressed;
    }
    // Given up after too many tries: the mail is lost, the address may be good.
    Says::Bounced { permanent: reason != "old" && !(400..500).contains(&code) }
}
