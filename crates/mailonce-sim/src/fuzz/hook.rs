//! Webhooks of providers, and the tags in returned bounces.

use mailonce_core::{handoff::reply::TransportReply, time::Time};
use mailonce_mail::{
    hooks::{self, HookRequest, HookSecrets, Kind, MAX_EVENTS, SharedSecret},
    return_path::AttemptTag,
};

use super::{FuzzResult, InputOutcome, as_utf8, ensure_holds};

const NOW: Time = Time(1_794_736_800_000);

/// A provider's events. The same bytes are used as headers, since an attacker controls both.
pub fn read_webhook(kind: Kind, bytes: &[u8]) -> FuzzResult {
    let names = ["authorization", "svix-id", "svix-timestamp", "svix-signature", "webhook-signature", "x-signature"];
    let headers: Vec<(&str, &[u8])> = names.into_iter().zip(bytes.split(|byte| *byte == b'\n')).collect();
    let query = as_utf8(bytes.get(..200).unwrap_or(bytes)).unwrap_or_default();
    let request = HookRequest {
        headers: &headers,
        query,
        body: bytes,
        certificate: Some(bytes),
        max_body_bytes: hooks::MAX_EVENT_BODY_BYTES,
    };
    if let Some(secrets) = hook_secrets(kind) {
        ensure_holds(hooks::verify(kind, &secrets, &request, NOW).is_err(), "a stranger was believed")?;
    }
    let Ok(reports) = hooks::parse_events(kind, &request) else { return Ok(InputOutcome::Rejected) };
    ensure_holds(reports.len() <= MAX_EVENTS, "too many events")?;
    for report in &reports {
        ensure_holds(
            !report.dedupe_key.is_empty() && report.dedupe_key.len() <= 256,
            "an event without a name of its own",
        )?;
        ensure_holds(report.reason.chars().count() <= TransportReply::TEXT_CHARS, "a reason too long")?;
        ensure_holds(!report.reason.contains(char::is_control), "a reason that cannot be printed")?;
    }
    ensure_holds(hooks::parse_events(kind, &request).as_ref() == Ok(&reports), "the same bytes, other events")?;
    Ok(InputOutcome::accepted_if(reports.iter().any(|report| report.email.is_some() || report.remote_id.is_some())))
}

/// Secrets that no input contains.
fn hook_secrets(kind: Kind) -> Option<HookSecrets> {
    let knock = || vec![SharedSecret::Bearer("a-token-that-no-input-knows".into())];
    match kind {
        Kind::Postmark | Kind::Brevo => HookSecrets::from_shared_secrets(kind, knock()).ok(),
        Kind::Mailgun | Kind::UseSend | Kind::Nylas => {
            HookSecrets::from_keys(kind, &["a-key-that-no-input-knows"]).ok()
        }
        Kind::Resend | Kind::Standard => {
            HookSecrets::from_keys(kind, &["whsec_YS1rZXktdGhhdC1uby1pbnB1dC1rbm93cw=="]).ok()
        }
        Kind::Ses => HookSecrets::from_topics(vec!["arn:aws:sns:eu-west-1:123456789012:mail".into()], true).ok(),
        // Its key is a point on a curve; the provider's unit tests have one.
        Kind::Sendgrid => None,
    }
}

/// Return paths and envelope ids.
pub fn return_path(bytes: &[u8]) -> FuzzResult {
    let Some(text) = as_utf8(bytes) else { return Ok(InputOutcome::Rejected) };
    let mut came = InputOutcome::Rejected;
    for tag in [AttemptTag::from_return_path(text), AttemptTag::from_envelope_id(text)].into_iter().flatten() {
        ensure_holds(
            AttemptTag::from_return_path(&tag.return_path("x.example")) == Some(tag),
            "a tag that is not read again",
        )?;
        ensure_holds(
            AttemptTag::from_envelope_id(&tag.envelope_id()) == Some(tag),
            "an envelope id that is not read again",
        )?;
        came = InputOutcome::Accepted;
    }
    Ok(came)
}
