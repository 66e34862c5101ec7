//! useSend: millisecond timestamps, the secret's text as key, and a body with an attempt counter.

use mailonce_core::time::Time;
use mailonce_mail::hooks::{HookRejection, HookSecrets, Kind, ReportedStatus};
use serde_json::{Value, json};

use crate::rig::{
    HARD_BOUNCE, HookTestRequest, NOW, OUR_EMAIL_ID, SOFT_BOUNCE, hex, hmac, our_email_id, sole_event, with_field,
};

const SECRET: &str = "whsec_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn secrets() -> HookSecrets {
    HookSecrets::from_keys(Kind::UseSend, &[SECRET]).unwrap()
}

fn signed(secret: &str, at: Time, body: &str) -> HookTestRequest {
    let signature = hex(&hmac(secret.as_bytes(), format!("{}.{body}", at.0).as_bytes()));
    HookTestRequest::new(body)
        .with("X-UseSend-Timestamp", at.0.to_string())
        .with("X-UseSend-Signature", format!("v1={signature}"))
        .with("X-UseSend-Event", "email.sent")
        .with("X-UseSend-Call", "call_1")
}

fn event(word: &str) -> Value {
    json!({
        "id": "call_b3f0c2", "type": word, "version": "2026-01-18", "createdAt": "2026-11-15T09:59:59.000Z",
        "teamId": 7, "attempt": 1,
        "data": {
            "id": "cm2a0q8fx0001", "status": "SENT", "from": "a@example.org", "to": ["ada@example.com"],
            "occurredAt": "2026-11-15T09:59:58.500Z", "subject": "Hi"
        }
    })
}

#[test]
fn a_signature_of_another_implementation_verifies() {
    // HMAC by Python's standard library over `1794736800000.{body}`.
    let post = HookTestRequest::new(r#"{"id":"call_1","type":"webhook.test"}"#)
        .with("x-usesend-timestamp", "1794736800000")
        .with("x-usesend-signature", "v1=4da406327fab438978d9ff3e04e46c42cc1615fb026ca71d5d1eeed8c4a12f75");
    assert_eq!(post.verify(&secrets(), NOW), Ok(()));
    assert!(post.parse_events(Kind::UseSend).unwrap()[0].is_test);
}

#[test]
fn only_the_right_secret_verifies() {
    let body = event("email.delivered").to_string();
    let good = signed(SECRET, NOW, &body);
    assert_eq!(good.verify(&secrets(), NOW), Ok(()));
    assert_eq!(good.clone().with_uppercase_headers().verify(&secrets(), NOW), Ok(()));
    assert_eq!(
        good.clone().with_body(body.replace("SENT", "LOST")).verify(&secrets(), NOW),
        Err(HookRejection::BadSignature)
    );
    // The prefix is part of the key.
    let stripped = signed(SECRET.trim_start_matches("whsec_"), NOW, &body);
    assert_eq!(stripped.verify(&secrets(), NOW), Err(HookRejection::BadSignature));
    for name in ["x-usesend-timestamp", "x-usesend-signature"] {
        assert_eq!(good.clone().without(name).verify(&secrets(), NOW), Err(HookRejection::MissingHeader(name)));
    }
    let odd = good.clone().without("x-usesend-signature").with("x-usesend-signature", "v1=zz");
    assert!(matches!(odd.verify(&secrets(), NOW), Err(HookRejection::Malformed(_))));
    let mut longer = good.clone();
    longer.headers[1].1.extend(b"00");
    assert!(matches!(longer.verify(&secrets(), NOW), Err(HookRejection::Malformed(_))));
    let both = HookSecrets::from_keys(Kind::UseSend, &["whsec_the_new_one_of_two", SECRET]).unwrap();
    assert_eq!(good.verify(&both, NOW), Ok(()));
    assert_eq!(signed("whsec_the_new_one_of_two", NOW, &body).verify(&both, NOW), Ok(()));
}

#[test]
fn the_timestamp_is_in_milliseconds() {
    let post = signed(SECRET, NOW, "{}");
    assert_eq!(post.verify(&secrets(), NOW.plus(300_000)), Ok(()));
    assert_eq!(post.verify(&secrets(), NOW.plus(300_001)), Err(HookRejection::Stale { off_ms: 300_001 }));
    // Read as milliseconds, seconds would be a date in January 1970.
    let seconds = signed(SECRET, Time(NOW.0 / 1000), "{}");
    assert!(matches!(seconds.verify(&secrets(), NOW), Err(HookRejection::Stale { .. })));
}

#[test]
fn event_types_map_to_reported_statuses() {
    let bounce =
        |kind: &str| with_field(&event("email.bounced"), "/data/bounce", json!({"type": kind, "message": "no"}));
    let cases = [
        (event("email.queued"), ReportedStatus::Accepted),
        (event("email.sent"), ReportedStatus::Accepted),
        (event("email.delivered"), ReportedStatus::Delivered),
        (event("email.delivery_delayed"), ReportedStatus::Deferred),
        (bounce("Permanent"), HARD_BOUNCE),
        (bounce("Transient"), SOFT_BOUNCE),
        (event("email.complained"), ReportedStatus::Complained),
        (event("email.rejected"), ReportedStatus::Refused),
        (event("email.failed"), ReportedStatus::Refused),
        (event("email.suppressed"), ReportedStatus::Suppressed),
        (event("email.opened"), ReportedStatus::Other),
        (event("contact.created"), ReportedStatus::Other),
    ];
    for (event, says) in cases {
        let report = sole_event(Kind::UseSend, &event);
        assert_eq!(report.reported_status, says, "{event}");
        assert_eq!((report.dedupe_key.as_str(), report.email), ("call_b3f0c2", None));
        assert_eq!(report.recipient.as_deref(), Some("ada@example.com"));
        assert_eq!(report.occurred_at, Time::parse("2026-11-15T09:59:58.500Z"));
    }
    assert_eq!(sole_event(Kind::UseSend, &event("email.sent")).remote_id.as_deref(), Some("cm2a0q8fx0001"));
    assert_eq!(sole_event(Kind::UseSend, &event("contact.created")).remote_id, None);
}

#[test]
fn a_retry_is_the_same_event_and_our_id_is_found_in_the_headers() {
    let (first, second) = (event("email.sent"), with_field(&event("email.sent"), "/attempt", 2));
    assert_eq!(sole_event(Kind::UseSend, &first).dedupe_key, sole_event(Kind::UseSend, &second).dedupe_key);
    for headers in [json!({"X-Mailonce-Id": OUR_EMAIL_ID}), json!([{"name": "x-mailonce-id", "value": OUR_EMAIL_ID}])] {
        assert_eq!(sole_event(Kind::UseSend, &with_field(&first, "/data/headers", headers)).email, our_email_id());
    }
}
