//! Postmark: knocks instead of signatures, and its records.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;
use mailonce_mail::hook::{BadSecret, Kind, Knock, Reject, Says, Secrets};
use serde_json::{Value, json};

use crate::rig::{HARD, NOW, OURS, Post, SOFT, one, ours, set};

fn basic(user: &str, password: &str) -> Knock {
    Knock::Basic { user: user.into(), password: password.into() }
}

fn secrets(knocks: Vec<Knock>) -> Secrets {
    Secrets::knocks(Kind::Postmark, knocks).unwrap()
}

fn knocking(pair: &str) -> Post {
    Post::of(delivered().to_string()).with("Authorization", format!("Basic {}", STANDARD.encode(pair)))
}

fn delivered() -> Value {
    json!({
        "RecordType": "Delivery", "ServerID": 23, "MessageStream": "outbound",
        "MessageID": "a1b2c3d4-6105-42a2-a16a-77a8eac79400", "Recipient": "john@example.com", "Tag": "welcome-email",
        "DeliveredAt": "2026-11-15T09:59:58.1234567-04:00", "Details": "smtp;250 2.0.0 OK",
        "Metadata": {"mailonce": OURS, "run": "42"}
    })
}

fn bounce(kind: &str) -> Value {
    json!({
        "RecordType": "Bounce", "ID": 4_323_372_036_854_775_807_u64, "Type": kind, "TypeCode": 1, "Name": "a bounce",
        "MessageID": "a1b2c3d4-6105-42a2-a16a-77a8eac79400", "Description": "The server was unable to deliver",
        "Details": "smtp;550 5.1.1 no such\r\nuser", "Email": "john@example.com", "From": "sender@example.com",
        "BouncedAt": "2026-11-15T09:59:58Z", "Inactive": true, "CanActivate": true, "Subject": "Hi",
        "Metadata": {"mailonce": OURS}
    })
}

#[test]
fn a_password_opens_and_another_does_not() {
    let secrets = secrets(vec![basic("hooks", "a long enough password")]);
    assert_eq!(knocking("hooks:a long enough password").verify(&secrets, NOW), Ok(()));
    assert_eq!(knocking("hooks:a long enough password").shouting().verify(&secrets, NOW), Ok(()));
    for wrong in ["hooks:a long enough passwor", "hooks:a long enough password ", "hook:a long enough password", ":"] {
        assert_eq!(knocking(wrong).verify(&secrets, NOW), Err(Reject::BadSignature), "{wrong}");
    }
    let none = Post::of("{}").verify(&secrets, NOW).unwrap_err();
    assert_eq!((none.clone(), none.status()), (Reject::MissingHeader("authorization"), 401));
    let bearer = Post::of("{}").with("authorization", "Bearer a long enough password");
    assert_eq!(bearer.verify(&secrets, NOW), Err(Reject::MissingHeader("authorization")));
}

#[test]
fn two_passwords_live_while_one_replaces_the_other() {
    let both = secrets(vec![basic("hooks", "the old password 1"), basic("hooks", "the new password 2")]);
    assert_eq!(knocking("hooks:the old password 1").verify(&both, NOW), Ok(()));
    assert_eq!(knocking("hooks:the new password 2").verify(&both, NOW), Ok(()));
    assert_eq!(knocking("hooks:the new password 3").verify(&both, NOW), Err(Reject::BadSignature));
}

#[test]
fn a_token_in_a_header_or_in_the_address_opens() {
    let token = "0123456789abcdef";
    let header = secrets(vec![Knock::Header { name: "X-Hook-Token".into(), value: token.into() }]);
    assert_eq!(Post::of("{}").with("x-hook-token", token).verify(&header, NOW), Ok(()));
    assert_eq!(Post::of("{}").with("x-hook-token", "0123456789abcdeF").verify(&header, NOW), Err(Reject::BadSignature));
    let twice = Post::of("{}").with("x-hook-token", token).with("X-Hook-Token", "other");
    assert!(matches!(twice.verify(&header, NOW), Err(Reject::Malformed(_))));
    let binary = Post::of("{}").with("x-hook-token", [0xff, 0xfe]);
    assert!(matches!(binary.verify(&header, NOW), Err(Reject::Malformed(_))));

    let query = secrets(vec![Knock::Query { name: "token".into(), value: token.into() }]);
    let asked = |query: &str| Post { query: query.into(), ..Post::of("{}") };
    assert_eq!(asked("a=1&token=0123456789abcdef").verify(&query, NOW), Ok(()));
    assert_eq!(asked("token=0123456789abcdee").verify(&query, NOW), Err(Reject::BadSignature));
    for none in ["", "token", "xtoken=0123456789abcdef", "token=0123456789abcdef&token=0123456789abcdef"] {
        assert!(matches!(asked(none).verify(&query, NOW), Err(Reject::MissingHeader(_))), "{none}");
    }
}

#[test]
fn weak_secrets_are_not_taken() {
    let make = |knocks| Secrets::knocks(Kind::Postmark, knocks).unwrap_err();
    assert_eq!(make(vec![]), BadSecret::Count);
    assert_eq!(make(vec![basic("a", "0123456789abcdef"); 3]), BadSecret::Count);
    assert_eq!(make(vec![basic("a", "short")]), BadSecret::Short);
    assert!(matches!(make(vec![basic("a:b", "0123456789abcdef")]), BadSecret::Unusable(_)));
    let spaced = Knock::Query { name: "t".into(), value: "0123456789abcde%20".into() };
    assert!(matches!(make(vec![spaced]), BadSecret::Unusable(_)));
    let signed = Secrets::knocks(Kind::Resend, vec![basic("a", "0123456789abcdef")]);
    assert_eq!(signed.unwrap_err(), BadSecret::Kind(Kind::Resend));
    let shown = format!("{:?} {:?}", secrets(vec![basic("u", "0123456789abcdef")]), basic("u", "0123456789abcdef"));
    assert!(!shown.contains("0123456789abcdef"), "{shown}");
}

#[test]
fn a_delivery_is_read() {
    let report = one(Kind::Postmark, &delivered());
    assert_eq!(report.says, Says::Delivered);
    assert_eq!(report.email, ours());
    assert_eq!(report.remote_id.as_deref(), Some("a1b2c3d4-6105-42a2-a16a-77a8eac79400"));
    assert_eq!(report.recipient.as_deref(), Some("john@example.com"));
    assert_eq!(report.at, Time::parse("2026-11-15T13:59:58.123Z"));
    assert_eq!((report.reason.as_str(), report.test), ("smtp;250 2.0.0 OK", false));
}

#[test]
fn records_are_told_apart() {
    let bounces = [
        ("HardBounce", HARD),
        ("BadEmailAddress", HARD),
        ("SoftBounce", SOFT),
        ("Blocked", SOFT),
        ("A type of tomorrow", SOFT),
        ("Transient", Says::Deferred),
        ("SpamComplaint", Says::Complained),
        ("ManuallyDeactivated", Says::Suppressed),
        ("TemplateRenderingFailed", Says::Refused),
        ("AutoResponder", Says::Other),
    ];
    for (kind, says) in bounces {
        assert_eq!(one(Kind::Postmark, &bounce(kind)).says, says, "{kind}");
    }
    let complaint = set(&bounce("SpamComplaint"), "/RecordType", "SpamComplaint");
    assert_eq!(one(Kind::Postmark, &complaint).says, Says::Complained);
    // Somebody who unsubscribes did get the mail.
    for record in ["SubscriptionChange", "Open", "Click", "Of tomorrow"] {
        let event = set(&delivered(), "/RecordType", record);
        assert_eq!(one(Kind::Postmark, &event).says, Says::Other, "{record}");
    }
    assert_eq!(one(Kind::Postmark, &bounce("HardBounce")).reason, "smtp;550 5.1.1 no such  user");
}

#[test]
fn a_repeat_has_the_same_name_and_another_event_has_another() {
    let name = |event: &Value| one(Kind::Postmark, event).once;
    let first = name(&delivered());
    // What changes between repeats, or is added by Postmark one day, does not count.
    assert_eq!(first, name(&set(&delivered(), "/Attempt", 7)));
    assert_eq!(first, name(&set(&delivered(), "/Tag", "another")));
    for (place, value) in [
        ("/Recipient", "jane@example.com"),
        ("/MessageID", "b1b2c3d4-6105-42a2-a16a-77a8eac79400"),
        ("/RecordType", "Open"),
        ("/DeliveredAt", "2026-11-15T09:59:59Z"),
    ] {
        assert_ne!(first, name(&set(&delivered(), place, value)), "{place}");
    }
    assert_ne!(name(&bounce("HardBounce")), name(&set(&bounce("HardBounce"), "/ID", 7)));
}

#[test]
fn arrays_are_read_and_test_buttons_are_known() {
    let body = json!([delivered(), bounce("HardBounce")]).to_string();
    let says: Vec<_> = Post::of(body).read(Kind::Postmark).unwrap().iter().map(|report| report.says).collect();
    assert_eq!(says, [Says::Delivered, HARD]);
    assert!(one(Kind::Postmark, &set(&delivered(), "/MessageID", "883953f4-6105-42a2-a16a-77a8eac79483")).test);
    let stranger = one(Kind::Postmark, &set(&delivered(), "/Metadata", json!({"mailonce": "not an id"})));
    assert_eq!(stranger.email, None);
}
