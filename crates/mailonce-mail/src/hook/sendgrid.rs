//! SendGrid: a batch of events in a request, ECDSA over the time and the raw body.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde_json::Value;

use super::{
    BadSecret, HookRequest, Reject, Report, Says, Unreadable, json, proof,
    report::{Draft, ours},
};

/// What comes before the point in every P-256 key as `SubjectPublicKeyInfo` (RFC 5480): two object ids and two lengths.
const SPKI_P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The mail that the "test your integration" button talks about.
const SAMPLE: &str = "14c5d75ce93.dfd.64b469";

/// A point on P-256, uncompressed.
#[derive(Clone)]
pub(super) struct Point([u8; 65]);

impl Point {
    /// Reads a key as SendGrid shows it.
    pub(super) fn parse(key: &str) -> Result<Self, BadSecret> {
        let wrong = BadSecret::Unusable("is not a P-256 public key in base64");
        let Ok(der) = STANDARD.decode(key) else { return Err(wrong) };
        let point = der.strip_prefix(&SPKI_P256).and_then(|point| <[u8; 65]>::try_from(point).ok());
        point.filter(|point| point[0] == 4).map(Self).ok_or(wrong)
    }
}

pub(super) fn verify(keys: &[Point], request: &HookRequest<'_>, now: Time, tolerance_ms: i64) -> Result<(), Reject> {
    let signature = request.required("x-twilio-email-event-webhook-signature")?;
    let timestamp = request.required("x-twilio-email-event-webhook-timestamp")?;
    let seconds = proof::digits(timestamp, "the timestamp")?;
    let Ok(signature) = STANDARD.decode(signature) else {
        return Err(Reject::Malformed("the signature is not base64".into()));
    };
    let signed = [timestamp.as_bytes(), request.body].concat();
    // Public keys and signatures are no secrets: here time may tell.
    let good =
        |Point(key): &Point| UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).verify(&signed, &signature).is_ok();
    if !keys.iter().any(good) {
        return Err(Reject::BadSignature);
    }
    proof::fresh(Time(seconds.saturating_mul(1000)), now, tolerance_ms)
}

pub(super) fn read(body: &[u8]) -> Result<Vec<Report>, Unreadable> {
    Ok(json::objects(body)?.iter().map(report).collect())
}

fn report(event: &Value) -> Report {
    let sg_message_id = json::text(event, "/sg_message_id");
    Draft {
        event_id: json::text(event, "/sg_event_id").map(str::to_owned),
        mark: None,
        event: json::text(event, "/event").unwrap_or_default(),
        // Custom arguments come back among the event's own fields.
        email: ours(json::first_text(event, &["/mailonce", "/custom_args/mailonce", "/unique_args/mailonce"])),
        remote_id: sg_message_id.map(as_answered),
        recipient: json::text(event, "/email"),
        says: says(event),
        reason: json::first_text(event, &["/reason", "/response", "/type"]),
        at: json::epoch_seconds(event, "/timestamp"),
        test: sg_message_id.is_some_and(|id| id.starts_with(SAMPLE)),
    }
    .finish()
}

/// The part of the id that the answer to a send had in `X-Message-Id`: the rest names a recipient and a machine.
fn as_answered(id: &str) -> &str {
    let machine = [".filter", ".recvd"].iter().filter_map(|mark| id.find(mark)).min();
    machine.or_else(|| id.find('.')).map_or(id, |end| &id[..end])
}

fn says(event: &Value) -> Says {
    let kind = json::text(event, "/type").unwrap_or_default();
    match json::text(event, "/event").unwrap_or_default() {
        "processed" => Says::Accepted,
        "delivered" => Says::Delivered,
        "deferred" => Says::Deferred,
        // A block or an expiry is about this mail, a bounce about the address.
        "bounce" => Says::Bounced { permanent: !matches!(kind, "blocked" | "expired") },
        "blocked" => Says::Bounced { permanent: false },
        "dropped" if on_a_list(event) => Says::Suppressed,
        "dropped" => Says::Refused,
        "spamreport" => Says::Complained,
        _ => Says::Other,
    }
}

fn on_a_list(event: &Value) -> bool {
    let reason = json::text(event, "/reason").unwrap_or_default().to_ascii_lowercase();
    ["bounced address", "unsubscribed address", "spam reporting address"].iter().any(|why| reason.contains(why))
}
