//! Resend: the published test vector of Standard Webhooks and Svix, and events.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;
use mailonce_mail::hooks::{HookParseError, HookRejection, HookSecretError, HookSecrets, Kind, ReportedStatus};
use serde_json::{Value, json};

use crate::rig::{
    HARD_BOUNCE, HookTestRequest, NOW, OUR_EMAIL_ID, SOFT_BOUNCE, hmac, our_email_id, sole_event, with_field,
};

/// From the tests of the Standard Webhooks libraries.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const VECTOR: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
const VECTOR_BODY: &str = r#"{"test": 2432232314}"#;
const THEN: Time = Time(1_614_265_330_000);

fn secrets() -> HookSecrets {
    HookSecrets::from_keys(Kind::Resend, &[SECRET]).unwrap()
}

fn vector(family: &str) -> HookTestRequest {
    HookTestRequest::new(VECTOR_BODY)
        .with(&format!("{family}-id"), "msg_p5jXN8AQM9LWM0D4loKWxJek")
        .with(&format!("{family}-timestamp"), "1614265330")
        .with(&format!("{family}-signature"), VECTOR)
}

fn signed(secret: &str, at: Time, body: &str) -> HookTestRequest {
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap();
    let seconds = (at.0 / 1000).to_string();
    let signature = hmac(&key, format!("msg_1.{seconds}.{body}").as_bytes());
    HookTestRequest::new(body)
        .with("svix-id", "msg_1")
        .with("svix-timestamp", seconds)
        .with("svix-signature", format!("v1,{}", STANDARD.encode(signature)))
}

fn event(word: &str) -> Value {
    json!({
        "type": word, "created_at": "2026-11-15T09:59:43.736Z",
        "data": {
            "created_at": "2026-11-15T09:59:00.982Z", "email_id": "56761188-7520-42d8-8898-ff6fc54ce618",
            "from": "Acme <onboarding@example.org>", "to": ["Ada <ada@example.com>"], "subject": "Sending this example",
            "tags": {"mailonce": OUR_EMAIL_ID, "category": "confirm_email"}
        }
    })
}

fn bounce(kind: &str, sub: &str) -> Value {
    let bounce = json!({"type": kind, "subType": sub, "message": "The server said no", "diagnosticCode": ["550"]});
    with_field(&event("email.bounced"), "/data/bounce", bounce)
}

#[test]
fn the_published_vector_verifies_with_both_header_families() {
    for family in ["svix", "webhook", "SVIX", "Webhook"] {
        assert_eq!(vector(family).verify(&secrets(), THEN), Ok(()), "{family}");
    }
    // Unknown versions and a signature with another key next to it, as during a key rotation at the sender.
    let many = format!(
        "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg== v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= {VECTOR} v2,x novalue"
    );
    let several = vector("svix").without("svix-signature").with("svix-signature", many);
    assert_eq!(several.verify(&secrets(), THEN), Ok(()));
}

#[test]
fn a_modified_vector_is_rejected() {
    let verdict = |post: HookTestRequest| post.verify(&secrets(), THEN);
    assert_eq!(verdict(vector("svix").with_body(r#"{"test":2432232314}"#)), Err(HookRejection::BadSignature));
    let other = HookSecrets::from_keys(Kind::Resend, &["whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"]).unwrap();
    assert_eq!(vector("svix").verify(&other, THEN), Err(HookRejection::BadSignature));
    for (name, value) in [("svix-id", "msg_other"), ("svix-timestamp", "1614265331"), ("svix-signature", "v1,AAAA")] {
        assert_eq!(verdict(vector("svix").without(name).with(name, value)), Err(HookRejection::BadSignature), "{name}");
        assert_eq!(verdict(vector("svix").without(name)), Err(HookRejection::MissingHeader(name)));
        let twice = vector("svix").with(name, value);
        assert!(matches!(verdict(twice), Err(HookRejection::Malformed(_))), "{name}");
    }
    // Headers of the two families cannot be mixed.
    let mixed = vector("svix").without("svix-id").with("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek");
    assert_eq!(verdict(mixed), Err(HookRejection::MissingHeader("webhook-timestamp")));
    let dotted = vector("svix").without("svix-id").with("svix-id", "msg.1");
    assert!(matches!(verdict(dotted), Err(HookRejection::Malformed(_))));
    assert_eq!(verdict(HookTestRequest::new(VECTOR_BODY)).unwrap_err().status(), 401);
}

#[test]
fn the_timestamp_is_checked_in_both_directions_after_the_signature() {
    for near in [-300_000, 300_000] {
        assert_eq!(vector("svix").verify(&secrets(), THEN.plus(near)), Ok(()));
    }
    for far in [-300_001, 300_001] {
        assert_eq!(vector("svix").verify(&secrets(), THEN.plus(far)), Err(HookRejection::Stale { off_ms: far }));
    }
    assert_eq!(vector("svix").verify(&secrets().with_tolerance_ms(301_000), THEN.plus(300_001)), Ok(()));
    // A forged request learns nothing about our clock.
    let forged = vector("svix").with_body("{}");
    assert_eq!(forged.verify(&secrets(), THEN.plus(900_000)), Err(HookRejection::BadSignature));
}

#[test]
fn two_secrets_can_be_active() {
    let new = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let both = HookSecrets::from_keys(Kind::Resend, &[SECRET, new]).unwrap();
    for secret in [SECRET, new] {
        assert_eq!(signed(secret, NOW, "{}").verify(&both, NOW), Ok(()), "{secret}");
    }
    assert_eq!(
        signed("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAA", NOW, "{}").verify(&both, NOW),
        Err(HookRejection::BadSignature)
    );
    assert_eq!(HookSecrets::from_keys(Kind::Resend, &["whsec_"]).unwrap_err(), HookSecretError::TooShort);
    assert!(matches!(HookSecrets::from_keys(Kind::Resend, &["whsec_not base64"]), Err(HookSecretError::Unusable(_))));
    assert_eq!(HookSecrets::from_keys(Kind::Resend, &[SECRET; 3]).unwrap_err(), HookSecretError::WrongCount);
    assert_eq!(HookSecrets::from_keys(Kind::Ses, &[SECRET]).unwrap_err(), HookSecretError::WrongScheme(Kind::Ses));
}

#[test]
fn secrets_of_another_kind_are_a_retryable_misconfiguration() {
    let reject = vector("svix").verify_as(Kind::UseSend, &secrets(), THEN).unwrap_err();
    assert_eq!((reject.clone(), reject.status()), (HookRejection::Misconfigured, 503));
}

#[test]
fn event_types_map_to_reported_statuses() {
    let sentence = "Resend has suppressed sending to this address because it is on the account-level suppression list.";
    let cases = [
        (event("email.sent"), ReportedStatus::Accepted),
        (event("email.delivered"), ReportedStatus::Delivered),
        (event("email.delivery_delayed"), ReportedStatus::Deferred),
        (bounce("Permanent", "General"), HARD_BOUNCE),
        (bounce("Transient", "MailboxFull"), SOFT_BOUNCE),
        (bounce("Undetermined", "Undetermined"), SOFT_BOUNCE),
        (bounce("Permanent", "OnAccountSuppressionList"), ReportedStatus::Suppressed),
        (with_field(&event("email.bounced"), "/data/bounce", json!({"message": "hard bounce"})), HARD_BOUNCE),
        (with_field(&event("email.bounced"), "/data/bounce", json!({"message": sentence})), ReportedStatus::Suppressed),
        (event("email.complained"), ReportedStatus::Complained),
        (event("email.failed"), ReportedStatus::Refused),
        (event("email.suppressed"), ReportedStatus::Suppressed),
        (event("email.opened"), ReportedStatus::Other),
        (event("inbox.of.tomorrow"), ReportedStatus::Other),
    ];
    for (event, says) in cases {
        let report = sole_event(Kind::Resend, &event);
        assert_eq!(report.reported_status, says, "{event}");
        assert_eq!((report.email, report.recipient.as_deref()), (our_email_id(), Some("ada@example.com")));
        assert_eq!(report.remote_id.as_deref(), Some("56761188-7520-42d8-8898-ff6fc54ce618"));
    }
    assert_eq!(sole_event(Kind::Resend, &bounce("Permanent", "General")).reason, "The server said no");
    assert_eq!(sole_event(Kind::Resend, &event("email.sent")).occurred_at, Time::parse("2026-11-15T09:59:43.736Z"));
}

#[test]
fn the_signed_id_is_the_dedupe_key() {
    let body = event("email.sent").to_string();
    let read = |post: HookTestRequest| post.parse_events(Kind::Resend).unwrap().remove(0).dedupe_key;
    let first = read(signed(SECRET, NOW, &body));
    assert_eq!(first, "msg_1");
    // A retry has a new timestamp and signature, but the same id.
    assert_eq!(first, read(signed(SECRET, NOW.plus(3_600_000), &body)));
    assert_ne!(first, read(HookTestRequest::new(body.as_str()).with("webhook-id", "msg_2")));
    let bare = read(HookTestRequest::new(body.as_str()));
    assert_eq!(bare, read(HookTestRequest::new(event("email.sent").to_string().replace("Sending", "Another"))));
    assert_ne!(bare, read(HookTestRequest::new(event("email.delivered").to_string())));
}

#[test]
fn tag_lists_headers_and_several_recipients_are_parsed() {
    let listed = with_field(
        &event("email.sent"),
        "/data/tags",
        json!([{"name": "a", "value": "b"}, {"name": "mailonce", "value": OUR_EMAIL_ID}]),
    );
    assert_eq!(sole_event(Kind::Resend, &listed).email, our_email_id());
    let headers = json!([{"name": "X-Mailonce-Id", "value": OUR_EMAIL_ID}]);
    let headed = with_field(&with_field(&event("email.sent"), "/data/tags", json!({})), "/data/headers", headers);
    assert_eq!(sole_event(Kind::Resend, &headed).email, our_email_id());
    // With two recipients the event does not say which one it concerns.
    let two = with_field(&event("email.sent"), "/data/to", json!(["a@example.com", "b@example.com"]));
    assert_eq!(sole_event(Kind::Resend, &two).recipient, None);
    assert!(
        sole_event(Kind::Resend, &with_field(&event("email.sent"), "/data/to", json!(["bounced@resend.dev"]))).is_test
    );
    assert!(matches!(HookTestRequest::new("{}").parse_events(Kind::Resend), Err(HookParseError::Unexpected(_))));
}
