//! Mailgun: a proof inside the body that does not cover it.

use mailonce_core::time::Time;
use mailonce_mail::hook::{BadSecret, Kind, Reject, Says, Secrets};
use serde_json::{Value, json};

use crate::rig::{HARD, NOW, OURS, Post, SOFT, hex, hmac, one, ours, set};

const KEY: &str = "key-3ax6xnjp29jd6fds4gc373sgvjxteol0";
const TOKEN: &str = "e0b5477167110d68991efc6b9f89f0a11066af27834600e123";

fn signed(key: &str, at: Time, event: &Value) -> Value {
    let timestamp = (at.0 / 1000).to_string();
    let signature = hex(&hmac(key.as_bytes(), format!("{timestamp}{TOKEN}").as_bytes()));
    json!({"signature": {"timestamp": timestamp, "token": TOKEN, "signature": signature}, "event-data": event})
}

fn secrets() -> Secrets {
    Secrets::keys(Kind::Mailgun, &[KEY]).unwrap()
}

fn event(word: &str) -> Value {
    json!({
        "id": "CPgfbmQMTCKtHW6uIWtuVe", "event": word, "timestamp": 1_521_472_262.908_181, "log-level": "info",
        "recipient": "alice@example.com", "tags": ["my_tag_1"], "flags": {"is-test-mode": false, "is-routed": false},
        "user-variables": {"mailonce": OURS, "my_var_1": "Mailgun Variable #1"},
        "message": {"headers": {"to": "Alice <alice@example.com>", "message-id":
            "20130503182626.18666.16540@mg.example.com", "from": "Bob <bob@mg.example.com>", "subject": "Test"}},
        "delivery-status": {"tls": true, "code": 250, "description": "", "message": "OK", "attempt-no": 1}
    })
}

fn failed(severity: &str, reason: &str, code: u64) -> Value {
    let event = set(&event("failed"), "/severity", severity);
    set(&set(&event, "/reason", reason), "/delivery-status/code", code)
}

#[test]
fn the_right_key_is_believed_and_nothing_else() {
    let good = signed(KEY, NOW, &event("delivered"));
    assert_eq!(Post::of(good.to_string()).verify(&secrets(), NOW), Ok(()));
    // Mailgun's documentation shows the time as text and calls it a number.
    let number = set(&good, "/signature/timestamp", NOW.0 / 1000);
    assert_eq!(Post::of(number.to_string()).verify(&secrets(), NOW), Ok(()));

    let verdict = |body: &Value| Post::of(body.to_string()).verify(&secrets(), NOW);
    assert_eq!(verdict(&signed("key-of-somebody-else-entirely", NOW, &event("delivered"))), Err(Reject::BadSignature));
    assert_eq!(verdict(&set(&good, "/signature/token", "another")), Err(Reject::BadSignature));
    assert_eq!(verdict(&set(&good, "/signature/signature", "00")), Err(Reject::BadSignature));
    assert_eq!(verdict(&set(&good, "/signature/timestamp", "1")), Err(Reject::BadSignature));
    for (place, name) in [("token", "signature.token"), ("signature", "signature.signature")] {
        assert_eq!(verdict(&set(&good, &format!("/signature/{place}"), Value::Null)), Err(Reject::MissingField(name)));
    }
    assert_eq!(verdict(&json!({"event-data": {}})), Err(Reject::MissingField("signature.timestamp")));
}

#[test]
fn both_live_keys_and_the_key_of_the_account_above_are_believed() {
    let both = Secrets::keys(Kind::Mailgun, &["the-key-that-goes-away", KEY]).unwrap();
    for key in ["the-key-that-goes-away", KEY] {
        assert_eq!(Post::of(signed(key, NOW, &event("delivered")).to_string()).verify(&both, NOW), Ok(()), "{key}");
    }
    let sub = signed("the-key-of-a-subaccount", NOW, &event("delivered"));
    let above = signed(KEY, NOW, &event("delivered"))["signature"]["signature"].clone();
    assert_eq!(Post::of(sub.to_string()).verify(&secrets(), NOW), Err(Reject::BadSignature));
    let with_parent = set(&sub, "/signature/parent-signature", above);
    assert_eq!(Post::of(with_parent.to_string()).verify(&secrets(), NOW), Ok(()));
    assert_eq!(Secrets::keys(Kind::Mailgun, &[""]).unwrap_err(), BadSecret::Short);
}

#[test]
fn an_old_proof_is_stale_and_asks_to_come_again() {
    let post = |at| Post::of(signed(KEY, at, &event("delivered")).to_string());
    for near in [-300_000, 300_000] {
        assert_eq!(post(NOW.plus(near)).verify(&secrets(), NOW), Ok(()), "{near}");
    }
    for far in [-301_000, 301_000] {
        let reject = post(NOW.plus(far)).verify(&secrets(), NOW).unwrap_err();
        assert_eq!(reject, Reject::Stale { off_ms: -far });
        assert_eq!((reject.status(), reject.asks_again()), (503, true));
    }
    assert_eq!(post(NOW.plus(-3_600_000)).verify(&secrets().tolerating(3_600_000), NOW), Ok(()));
}

#[test]
fn the_token_is_given_out_so_that_a_stolen_proof_can_be_told() {
    let good = signed(KEY, NOW, &event("delivered"));
    let forged = set(&good, "/event-data/event", "complained");
    // The scheme itself cannot tell: this is why the token must be remembered with the event's name.
    assert_eq!(Post::of(forged.to_string()).verify(&secrets(), NOW), Ok(()));
    let token = |body: &Value| Post::of(body.to_string()).token();
    assert_eq!(token(&good).as_deref(), Some(TOKEN));
    assert_eq!(token(&good), token(&forged));
    let moved = set(&forged, "/event-data/id", "another");
    assert_ne!(one(Kind::Mailgun, &good).once, one(Kind::Mailgun, &moved).once);
    assert_eq!(Post::of("nonsense").token(), None);
}

#[test]
fn events_are_told_apart() {
    let cases = [
        (event("accepted"), Says::Accepted),
        (event("delivered"), Says::Delivered),
        (failed("permanent", "bounce", 550), HARD),
        (failed("permanent", "old", 602), SOFT),
        (failed("permanent", "generic", 451), SOFT),
        (failed("temporary", "generic", 421), Says::Deferred),
        (failed("permanent", "suppress-bounce", 605), Says::Suppressed),
        (event("rejected"), Says::Refused),
        (event("complained"), Says::Complained),
        (event("opened"), Says::Other),
        (event("of tomorrow"), Says::Other),
    ];
    for (event, says) in cases {
        let report = one(Kind::Mailgun, &signed(KEY, NOW, &event));
        assert_eq!(report.says, says, "{event}");
        assert_eq!((report.email, report.recipient.as_deref()), (ours(), Some("alice@example.com")));
    }
}

#[test]
fn the_parts_are_read() {
    let report = one(Kind::Mailgun, &signed(KEY, NOW, &event("delivered")));
    // With the brackets that the answer to a send has.
    assert_eq!(report.remote_id.as_deref(), Some("<20130503182626.18666.16540@mg.example.com>"));
    assert_eq!(report.at, Some(Time(1_521_472_262_908)));
    assert_eq!((report.reason.as_str(), report.test), ("OK", false));
    // Signed anew, as a retry may be: the same event all the same.
    assert_eq!(report.once, one(Kind::Mailgun, &signed(KEY, NOW.plus(60_000), &event("delivered"))).once);
    // Ids repeat after a day.
    let later = set(&event("delivered"), "/timestamp", 1_521_572_262.0);
    assert_ne!(report.once, one(Kind::Mailgun, &signed(KEY, NOW, &later)).once);
    let test = set(&event("delivered"), "/flags/is-test-mode", true);
    assert!(one(Kind::Mailgun, &signed(KEY, NOW, &test)).test);
}
