//! SendGrid: a batch of events per request, ECDSA over the timestamp and the raw body.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde_json::Value;

use super::{HookEvent, HookParseError, HookRejection, HookRequest, HookSecretError, ReportedStatus, json};
use crate::hooks::{
    event::{HookEventDraft, parse_email_id},
    verification,
};

/// The fixed prefix of every P-256 key as `SubjectPublicKeyInfo` (RFC 5480): two object ids and their lengths.
const SPKI_P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The message id in the events of the "test your integration" button.
const TEST_MESSAGE_ID: &str = "14c5d75ce93.dfd.64b469";

/// An uncompressed point on P-256.
#[derive(Clone)]
pub(crate) struct P256PublicKey([u8; 65]);

impl P256PublicKey {
    /// Parses a key in the format that SendGrid displays.
    pub(crate) fn parse(key: &str) -> Result<Self, HookSecretError> {
        let error = HookSecretError::Unusable("is not a P-256 public key in base64");
        let Ok(der) = STANDARD.decode(key) else { return Err(error) };
        let point = der.strip_prefix(&SPKI_P256).and_then(|point| <[u8; 65]>::try_from(point).ok());
        point.filter(|point| point[0] == 4).map(Self).ok_or(error)
    }
}

pub(crate) fn verify(
    keys: &[P256PublicKey],
    request: &HookRequest<'_>,
    now: Time,
    tolerance_ms: i64,
) -> Result<(), HookRejection> {
    let signature = request.required_header("x-twilio-email-event-webhook-signature")?;
    let timestamp = request.required_header("x-twilio-email-event-webhook-timestamp")?;
    let seconds = verification::parse_timestamp(timestamp, "the timestamp")?;
    let Ok(signature) = STANDARD.decode(signature) else {
        return Err(HookRejection::Malformed("the signature is not base64".into()));
    };
    let signed = [timestamp.as_bytes(), request.body].concat();
    // Public keys and signatures are not secret, so this need not take constant time.
    let verifies = |P256PublicKey(key): &P256PublicKey| {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).verify(&signed, &signature).is_ok()
    };
    if !keys.iter().any(verifies) {
        return Err(HookRejection::BadSignature);
    }
    verification::check_freshness(Time(seconds.saturating_mul(1000)), now, tolerance_ms)
}

pub(crate) fn parse_events(body: &[u8]) -> Result<Vec<HookEvent>, HookParseError> {
    Ok(json::parse_objects(body)?.iter().map(parse_event).collect())
}

fn parse_event(event: &Value) -> HookEvent {
    let sg_message_id = json::str_at(event, "/sg_message_id");
    HookEventDraft {
        event_id: json::str_at(event, "/sg_event_id").map(str::to_owned),
        discriminator: None,
        event_type: json::str_at(event, "/event").unwrap_or_default(),
        // Custom arguments are returned among the event's own fields.
        email: parse_email_id(json::first_str_at(
            event,
            &["/mailonce", "/custom_args/mailonce", "/unique_args/mailonce"],
        )),
        remote_id: sg_message_id.map(accepted_message_id),
        recipient: json::str_at(event, "/email"),
        reported_status: reported_status(event),
        reason: json::first_str_at(event, &["/reason", "/response", "/type"]),
        occurred_at: json::epoch_time_at(event, "/timestamp"),
        is_test: sg_message_id.is_some_and(|id| id.starts_with(TEST_MESSAGE_ID)),
    }
    .finish()
}

/// The part of the id that SendGrid returned in `X-Message-Id` for the send. The rest identifies recipient and machine.
fn accepted_message_id(id: &str) -> &str {
    let machine = [".filter", ".recvd"].iter().filter_map(|mark| id.find(mark)).min();
    machine.or_else(|| id.find('.')).map_or(id, |end| &id[..end])
}

fn reported_status(event: &Value) -> ReportedStatus {
    let kind = json::str_at(event, "/type").unwrap_or_default();
    match json::str_at(event, "/event").unwrap_or_default() {
        "processed" => ReportedStatus::Accepted,
        "delivered" => ReportedStatus::Delivered,
        "deferred" => ReportedStatus::Deferred,
        // A block or an expiry concerns this mail, a bounce the address.
        "bounce" => ReportedStatus::Bounced { permanent: !matches!(kind, "blocked" | "expired") },
        "blocked" => ReportedStatus::Bounced { permanent: false },
        "dropped" if is_suppressed(event) => ReportedStatus::Suppressed,
        "dropped" => ReportedStatus::Refused,
        "spamreport" => ReportedStatus::Complained,
        _ => ReportedStatus::Other,
    }
}

fn is_suppressed(event: &Value) -> bool {
    let reason = json::str_at(event, "/reason").unwrap_or_default().to_ascii_lowercase();
    ["bounced address", "unsubscribed address", "spam reporting address"].iter().any(|why| reason.contains(why))
}
