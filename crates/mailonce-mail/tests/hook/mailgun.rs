//! Mailgun: a signature inside the body that does not cover the event.

use mailonce_core::time::Time;
use mailonce_mail::hooks::{HookRejection, HookSecretError, HookSecrets, Kind, ReportedStatus};
use serde_json::{Value, json};

use crate::rig::{
    HARD_BOUNCE, HookTestRequest, NOW, OUR_EMAIL_ID, SOFT_BOUNCE, hex, hmac, our_email_id, sole_event, with_field,
};

const KEY: &str = "key-3ax6xnjp29jd6fds4gc373sgvjxteol0";
const TOKEN: &str = "e0b5477167110d68991efc6b9f89f0a11066af27834600e123";

fn signed(key: &str, at: Time, event: &Value) -> Value {
    let timestamp = (at.0 / 1000).to_string();
    let signature = hex(&hmac(key.as_bytes(), format!("{timestamp}{TOKEN}").as_bytes()));
    json!({"signature": {"timestamp": timestamp, "token": TOKEN, "signature": signature}, "event-data": event})
}

fn secrets() -> HookSecrets {
    HookSecrets::from_keys(Kind::Mailgun, &[KEY]).unwrap()
}

fn event(word: &str) -> Value {
    json!({
        "id": "CPgfbmQMTCKtHW6uIWtuVe", "event": word, "timestamp": 1_521_472_262.908_181, "log-level": "info",
        "recipient": "alice@example.com", "tags": ["my_tag_1"], "flags": {"is-test-mode": false, "is-routed": false},
        "user-variables": {"mailonce": OUR_EMAIL_ID, "my_var_1": "Mailgun Variable #1"},
        "message": {"headers": {"to": "Alice <alice@example.com>", "message-id":
            "20130503182626.18666.16540@mg.example.com", "from": "Bob <bob@mg.example.com>", "subject": "Test"}},
        "delivery-status": {"tls": true, "code": 250, "description": "", "message": "OK", "attempt-no": 1}
    })
}

fn failed(severity: &str, reason: &str, code: u64) -> Value {
    let event = with_field(&event("failed"), "/severity", severity);
    with_field(&with_field(&event, "/reason", reason), "/delivery-status/code", code)
}

#[test]
fn only_the_right_key_verifies() {
    let good = signed(KEY, NOW, &event("delivered"));
    assert_eq!(HookTestRequest::new(good.to_string()).verify(&secrets(), NOW), Ok(()));
    // Mailgun's documentation shows the timestamp as a string and calls it a number.
    let number = with_field(&good, "/signature/timestamp", NOW.0 / 1000);
    assert_eq!(HookTestRequest::new(number.to_string()).verify(&secrets(), NOW), Ok(()));

    let verdict = |body: &Value| HookTestRequest::new(body.to_string()).verify(&secrets(), NOW);
    assert_eq!(
        verdict(&signed("key-of-somebody-else-entirely", NOW, &event("delivered"))),
        Err(HookRejection::BadSignature)
    );
    assert_eq!(verdict(&with_field(&good, "/signature/token", "another")), Err(HookRejection::BadSignature));
    assert_eq!(verdict(&with_field(&good, "/signature/signature", "00")), Err(HookRejection::BadSignature));
    assert_eq!(verdict(&with_field(&good, "/signature/timestamp", "1")), Err(HookRejection::BadSignature));
    for (place, name) in [("token", "signature.token"), ("signature", "signature.signature")] {
        assert_eq!(
            verdict(&with_field(&good, &format!("/signature/{place}"), Value::Null)),
            Err(HookRejection::MissingField(name))
        );
    }
    assert_eq!(verdict(&json!({"event-data": {}})), Err(HookRejection::MissingField("signature.timestamp")));
}

#[test]
fn both_active_keys_and_the_parent_account_key_verify() {
    let both = HookSecrets::from_keys(Kind::Mailgun, &["the-key-that-goes-away", KEY]).unwrap();
    for key in ["the-key-that-goes-away", KEY] {
        assert_eq!(
            HookTestRequest::new(signed(key, NOW, &event("delivered")).to_string()).verify(&both, NOW),
            Ok(()),
            "{key}"
        );
    }
    let sub = signed("the-key-of-a-subaccount", NOW, &event("delivered"));
    let above = signed(KEY, NOW, &event("delivered"))["signature"]["signature"].clone();
    assert_eq!(HookTestRequest::new(sub.to_string()).verify(&secrets(), NOW), Err(HookRejection::BadSignature));
    let with_parent = with_field(&sub, "/signature/parent-signature", above);
    assert_eq!(HookTestRequest::new(with_parent.to_string()).verify(&secrets(), NOW), Ok(()));
    assert_eq!(HookSecrets::from_keys(Kind::Mailgun, &[""]).unwrap_err(), HookSecretError::TooShort);
}

#[test]
fn an_old_signature_is_stale_and_retryable() {
    let post = |at| HookTestRequest::new(signed(KEY, at, &event("delivered")).to_string());
    for near in [-300_000, 300_000] {
        assert_eq!(post(NOW.plus(near)).verify(&secrets(), NOW), Ok(()), "{near}");
    }
    for far in [-301_000, 301_000] {
        let reject = post(NOW.plus(far)).verify(&secrets(), NOW).unwrap_err();
        assert_eq!(reject, HookRejection::Stale { off_ms: -far });
        assert_eq!((reject.status(), reject.is_retryable()), (503, true));
    }
    assert_eq!(post(NOW.plus(-3_600_000)).verify(&secrets().with_tolerance_ms(3_600_000), NOW), Ok(()));
}

#[test]
fn the_token_is_exposed_so_that_a_reused_signature_can_be_detected() {
    let good = signed(KEY, NOW, &event("delivered"));
    let forged = with_field(&good, "/event-data/event", "complained");
    // The scheme itself cannot detect it, so the token must be stored together with the event's dedupe key.
    assert_eq!(HookTestRequest::new(forged.to_string()).verify(&secrets(), NOW), Ok(()));
    let token = |body: &Value| HookTestRequest::new(body.to_string()).token();
    assert_eq!(token(&good).as_deref(), Some(TOKEN));
    assert_eq!(token(&good), token(&forged));
    let moved = with_field(&forged, "/event-data/id", "another");
    assert_ne!(sole_event(Kind::Mailgun, &good).dedupe_key, sole_event(Kind::Mailgun, &moved).dedupe_key);
    assert_eq!(HookTestRequest::new("nonsense").token(), None);
}

#[test]
fn event_types_map_to_reported_statuses() {
    let cases = [
        (event("accepted"), ReportedStatus::Accepted),
        (event("delivered"), ReportedStatus::Delivered),
        (failed("permanent", "bounce", 550), HARD_BOUNCE),
        (failed("permanent", "old", 602), SOFT_BOUNCE),
        (failed("permanent", "generic", 451), SOFT_BOUNCE),
        (failed("temporary", "generic", 421), ReportedStatus::Deferred),
        (failed("permanent", "suppress-bounce", 605), ReportedStatus::Suppressed),
        (event("rejected"), ReportedStatus::Refused),
        (event("complained"), ReportedStatus::Complained),
        (event("opened"), ReportedStatus::Other),
        (event("of tomorrow"), ReportedStatus::Other),
    ];
    for (event, says) in cases {
        let report = sole_event(Kind::Mailgun, &signed(KEY, NOW, &event));
        assert_eq!(report.reported_status, says, "{event}");
        assert_eq!((report.email, report.recipient.as_deref()), (our_email_id(), Some("alice@example.com")));
    }
}

#[test]
fn the_fields_are_parsed() {
    let report = sole_event(Kind::Mailgun, &signed(KEY, NOW, &event("delivered")));
    // With the angle brackets that the response to a send has.
    assert_eq!(report.remote_id.as_deref(), Some("<20130503182626.18666.16540@mg.example.com>"));
    assert_eq!(report.occurred_at, Some(Time(1_521_472_262_908)));
    assert_eq!((report.reason.as_str(), report.is_test), ("OK", false));
    // A retry with a new signature is the same event.
    assert_eq!(
        report.dedupe_key,
        sole_event(Kind::Mailgun, &signed(KEY, NOW.plus(60_000), &event("delivered"))).dedupe_key
    );
    // Event ids are reused after a day.
    let later = with_field(&event("delivered"), "/timestamp", 1_521_572_262.0);
    assert_ne!(report.dedupe_key, sole_event(Kind::Mailgun, &signed(KEY, NOW, &later)).dedupe_key);
    let test = with_field(&event("delivered"), "/flags/is-test-mode", true);
    assert!(sole_event(Kind::Mailgun, &signed(KEY, NOW, &test)).is_test);
}
