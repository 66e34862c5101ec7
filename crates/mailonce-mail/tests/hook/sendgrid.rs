//! SendGrid: published samples, generated keys, and batches.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;
use mailonce_mail::hooks::{
    HookParseError, HookRejection, HookSecretError, HookSecrets, Kind, MAX_EVENTS, ReportedStatus,
};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value, json};

use crate::rig::{HARD_BOUNCE, HookTestRequest, NOW, OUR_EMAIL_ID, SOFT_BOUNCE, our_email_id, sole_event, with_field};

const SIGNATURE: &str = "X-Twilio-Email-Event-Webhook-Signature";
const TIMESTAMP: &str = "X-Twilio-Email-Event-Webhook-Timestamp";

/// From the tests of SendGrid's Python library: body with its line end, key, signature, time.
mod published {
    pub(super) const KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
    pub(super) const SIGNATURE: &str =
        "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM=";
    pub(super) const SECONDS: i64 = 1_600_112_502;
    pub(super) const BODY: &str = concat!(
        r#"[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address","#,
        r#""sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA","#,
        r#""sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0","#,
        r#""smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>","timestamp":1600112492}]"#,
        "\r\n"
    );
    /// The key, signature, time and body of the tests of its Node library.
    pub(super) const NODE: [&str; 4] = [
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEDr2LjtURuePQzplybdC+u4CwrqDqBaWjcMMsTbhdbcwHBcepxo7yAQGhHPTnlvFYPAZFceEu/1FwCM/QmGUhA==",
        "MEUCIQCtIHJeH93Y+qpYeWrySphQgpNGNr/U+UyUlBkU6n7RAwIgJTz2C+8a8xonZGi6BpSzoQsbVRamr2nlxFDWYNH2j/0=",
        "1588788367",
        r#"{"category":"example_payload","event":"test_event","message_id":"message_id"}"#,
    ];
}

fn secrets(keys: &[&str]) -> HookSecrets {
    HookSecrets::from_keys(Kind::Sendgrid, keys).unwrap()
}

fn published() -> HookTestRequest {
    HookTestRequest::new(published::BODY)
        .with(SIGNATURE, published::SIGNATURE)
        .with(TIMESTAMP, published::SECONDS.to_string())
}

/// A generated key pair, and its public key in the format that SendGrid displays.
fn pair() -> (EcdsaKeyPair, String) {
    let chance = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &chance).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &chance).unwrap();
    let front = STANDARD.decode("MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgA=").unwrap();
    let shown = STANDARD.encode([front.as_slice(), pair.public_key().as_ref()].concat());
    (pair, shown)
}

fn signed(pair: &EcdsaKeyPair, at: Time, body: &str) -> HookTestRequest {
    let seconds = (at.0 / 1000).to_string();
    let signature = pair.sign(&SystemRandom::new(), format!("{seconds}{body}").as_bytes()).unwrap();
    HookTestRequest::new(body).with(SIGNATURE, STANDARD.encode(signature)).with(TIMESTAMP, seconds)
}

fn event(word: &str) -> Value {
    json!({
        "email": "example@test.com", "timestamp": 1_513_299_569, "smtp-id": "<14c5d75ce93.dfd.64b469@ismtpd-555>",
        "event": word, "category": ["cat facts"], "sg_event_id": "bm90LWFuLWV2ZW50LTE", "mailonce": OUR_EMAIL_ID,
        "sg_message_id": "w1ZZZ0SZQbmQKkGo5N3jWQ.filter0001.16648.5515E0B88.0", "response": "250 OK", "tls": 1
    })
}

#[test]
fn the_published_samples_verify() {
    let secrets = secrets(&[published::KEY]);
    let then = Time(published::SECONDS * 1000);
    assert_eq!(published().verify(&secrets, then), Ok(()));
    assert_eq!(published().with_uppercase_headers().verify(&secrets, then), Ok(()));
    let reports = published().parse_events(Kind::Sendgrid).unwrap();
    assert_eq!(reports[0].reported_status, ReportedStatus::Suppressed);
    assert_eq!(reports[0].remote_id.as_deref(), Some("LRzXl_NHStOGhQ4kofSm_A"));
    assert_eq!(reports[0].dedupe_key, "ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA");

    let [key, signature, seconds, body] = published::NODE;
    let node = HookTestRequest::new(body).with(SIGNATURE, signature).with(TIMESTAMP, seconds);
    assert_eq!(node.verify(&self::secrets(&[key]), Time(1_588_788_367_000)), Ok(()));
    assert_eq!(node.parse_events(Kind::Sendgrid).unwrap()[0].reported_status, ReportedStatus::Other);
}

#[test]
fn a_modified_sample_is_rejected() {
    let secrets = secrets(&[published::KEY]);
    let then = Time(published::SECONDS * 1000);
    // The line end is part of the signed bytes.
    let trimmed = published().with_body(published::BODY.trim_end());
    assert_eq!(trimmed.verify(&secrets, then), Err(HookRejection::BadSignature));
    let tampered = published().with_body(published::BODY.replace("dropped", "deliver"));
    assert_eq!(tampered.verify(&secrets, then), Err(HookRejection::BadSignature));
    let moved = published().without(TIMESTAMP).with(TIMESTAMP, "1600112503");
    assert_eq!(moved.verify(&secrets, then), Err(HookRejection::BadSignature));
    assert_eq!(published().verify(&self::secrets(&[&pair().1]), then), Err(HookRejection::BadSignature));
    assert_eq!(
        published().without(SIGNATURE).verify(&secrets, then),
        Err(HookRejection::MissingHeader("x-twilio-email-event-webhook-signature"))
    );
    assert_eq!(
        published().without(TIMESTAMP).verify(&secrets, then),
        Err(HookRejection::MissingHeader("x-twilio-email-event-webhook-timestamp"))
    );
    for nonsense in ["", "-1600112502", "1.6e9", "99999999999999999999"] {
        let odd = published().without(TIMESTAMP).with(TIMESTAMP, nonsense);
        assert!(matches!(odd.verify(&secrets, then), Err(HookRejection::Malformed(_))), "{nonsense}");
    }
    let off = HookRejection::Stale { off_ms: 300_001 };
    assert_eq!(published().verify(&secrets, then.plus(300_001)), Err(off));
}

#[test]
fn both_active_keys_verify() {
    let (old, new) = (pair(), pair());
    let both = secrets(&[&old.1, &new.1]);
    for key in [&old.0, &new.0] {
        assert_eq!(signed(key, NOW, "[]").verify(&both, NOW), Ok(()));
    }
    assert_eq!(signed(&pair().0, NOW, "[]").verify(&both, NOW), Err(HookRejection::BadSignature));
    let mut der = STANDARD.decode(published::KEY).unwrap();
    der[26] = 5;
    assert!(matches!(
        HookSecrets::from_keys(Kind::Sendgrid, &[&STANDARD.encode(der)]),
        Err(HookSecretError::Unusable(_))
    ));
    for odd in ["", "not base64!", "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgA="] {
        assert!(matches!(HookSecrets::from_keys(Kind::Sendgrid, &[odd]), Err(HookSecretError::Unusable(_))), "{odd}");
    }
}

#[test]
fn event_types_map_to_reported_statuses() {
    let cases = [
        (event("processed"), ReportedStatus::Accepted),
        (event("delivered"), ReportedStatus::Delivered),
        (event("deferred"), ReportedStatus::Deferred),
        (with_field(&event("bounce"), "/type", "bounce"), HARD_BOUNCE),
        (with_field(&event("bounce"), "/type", "blocked"), SOFT_BOUNCE),
        (with_field(&event("dropped"), "/reason", "Unsubscribed Address"), ReportedStatus::Suppressed),
        (with_field(&event("dropped"), "/reason", "Spam Content"), ReportedStatus::Refused),
        (event("spamreport"), ReportedStatus::Complained),
        (event("open"), ReportedStatus::Other),
        (event("of tomorrow"), ReportedStatus::Other),
    ];
    for (event, says) in cases {
        let report = sole_event(Kind::Sendgrid, &json!([event]));
        assert_eq!(report.reported_status, says, "{event}");
        assert_eq!((report.email, report.recipient.as_deref()), (our_email_id(), Some("example@test.com")));
        assert_eq!(report.remote_id.as_deref(), Some("w1ZZZ0SZQbmQKkGo5N3jWQ"));
        assert_eq!((report.occurred_at, report.is_test), (Some(Time(1_513_299_569_000)), false));
    }
    for id in ["AbC_1.of-a-machine-of-tomorrow.0", "AbC_1.recvd-5f54b5d587-rdxhf-1-641D.0", "AbC_1"] {
        let report = sole_event(Kind::Sendgrid, &with_field(&event("delivered"), "/sg_message_id", id));
        assert_eq!(report.remote_id.as_deref(), Some("AbC_1"), "{id}");
    }
    let sample =
        with_field(&event("delivered"), "/sg_message_id", "14c5d75ce93.dfd.64b469.filter0001.16648.5515E0B88.0");
    assert!(sole_event(Kind::Sendgrid, &sample).is_test);
}

#[test]
fn a_batch_is_parsed_up_to_a_limit() {
    let many = |count: usize| {
        Value::Array((0..count).map(|n| with_field(&event("open"), "/sg_event_id", format!("e{n}"))).collect())
    };
    let reports = HookTestRequest::new(many(3).to_string()).parse_events(Kind::Sendgrid).unwrap();
    let names: Vec<_> = reports.iter().map(|report| report.dedupe_key.as_str()).collect();
    assert_eq!(names, ["e0", "e1", "e2"]);
    let small = |count: usize| format!("[{}]", vec!["{}"; count].join(","));
    assert_eq!(HookTestRequest::new(small(MAX_EVENTS)).parse_events(Kind::Sendgrid).unwrap().len(), MAX_EVENTS);
    assert_eq!(
        HookTestRequest::new(small(MAX_EVENTS + 1)).parse_events(Kind::Sendgrid),
        Err(HookParseError::TooMany(MAX_EVENTS + 1))
    );
    assert_eq!(HookTestRequest::new("[]").parse_events(Kind::Sendgrid), Ok(vec![]));
    assert!(matches!(HookTestRequest::new("[1]").parse_events(Kind::Sendgrid), Err(HookParseError::Unexpected(_))));
}
