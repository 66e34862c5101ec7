//! Postmark: shared secrets instead of signatures, and its record types.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::time::Time;
use mailonce_mail::hooks::{HookRejection, HookSecretError, HookSecrets, Kind, ReportedStatus, SharedSecret};
use serde_json::{Value, json};

use crate::rig::{HARD_BOUNCE, HookTestRequest, NOW, OUR_EMAIL_ID, SOFT_BOUNCE, our_email_id, sole_event, with_field};

fn basic(user: &str, password: &str) -> SharedSecret {
    SharedSecret::Basic { user: user.into(), password: password.into() }
}

fn secrets(shared_secrets: Vec<SharedSecret>) -> HookSecrets {
    HookSecrets::from_shared_secrets(Kind::Postmark, shared_secrets).unwrap()
}

fn request_with_basic_auth(pair: &str) -> HookTestRequest {
    HookTestRequest::new(delivered().to_string()).with("Authorization", format!("Basic {}", STANDARD.encode(pair)))
}

fn delivered() -> Value {
    json!({
        "RecordType": "Delivery", "ServerID": 23, "MessageStream": "outbound",
        "MessageID": "a1b2c3d4-6105-42a2-a16a-77a8eac79400", "Recipient": "john@example.com", "Tag": "welcome-email",
        "DeliveredAt": "2026-11-15T09:59:58.1234567-04:00", "Details": "smtp;250 2.0.0 OK",
        "Metadata": {"mailonce": OUR_EMAIL_ID, "run": "42"}
    })
}

fn bounce(kind: &str) -> Value {
    json!({
        "RecordType": "Bounce", "ID": 4_323_372_036_854_775_807_u64, "Type": kind, "TypeCode": 1, "Name": "a bounce",
        "MessageID": "a1b2c3d4-6105-42a2-a16a-77a8eac79400", "Description": "The server was unable to deliver",
        "Details": "smtp;550 5.1.1 no such\r\nuser", "Email": "john@example.com", "From": "sender@example.com",
        "BouncedAt": "2026-11-15T09:59:58Z", "Inactive": true, "CanActivate": true, "Subject": "Hi",
        "Metadata": {"mailonce": OUR_EMAIL_ID}
    })
}

#[test]
fn only_the_right_password_authenticates() {
    let secrets = secrets(vec![basic("hooks", "a long enough password")]);
    assert_eq!(request_with_basic_auth("hooks:a long enough password").verify(&secrets, NOW), Ok(()));
    assert_eq!(
        request_with_basic_auth("hooks:a long enough password").with_uppercase_headers().verify(&secrets, NOW),
        Ok(())
    );
    for wrong in ["hooks:a long enough passwor", "hooks:a long enough password ", "hook:a long enough password", ":"] {
        assert_eq!(request_with_basic_auth(wrong).verify(&secrets, NOW), Err(HookRejection::BadSignature), "{wrong}");
    }
    let none = HookTestRequest::new("{}").verify(&secrets, NOW).unwrap_err();
    assert_eq!((none.clone(), none.status()), (HookRejection::MissingHeader("authorization"), 401));
    let bearer = HookTestRequest::new("{}").with("authorization", "Bearer a long enough password");
    assert_eq!(bearer.verify(&secrets, NOW), Err(HookRejection::MissingHeader("authorization")));
}

#[test]
fn two_passwords_are_active_during_a_rotation() {
    let both = secrets(vec![basic("hooks", "the old password 1"), basic("hooks", "the new password 2")]);
    assert_eq!(request_with_basic_auth("hooks:the old password 1").verify(&both, NOW), Ok(()));
    assert_eq!(request_with_basic_auth("hooks:the new password 2").verify(&both, NOW), Ok(()));
    assert_eq!(
        request_with_basic_auth("hooks:the new password 3").verify(&both, NOW),
        Err(HookRejection::BadSignature)
    );
}

#[test]
fn a_token_in_a_header_or_query_authenticates() {
    let token = "0123456789abcdef";
    let header = secrets(vec![SharedSecret::Header { name: "X-Hook-Token".into(), value: token.into() }]);
    assert_eq!(HookTestRequest::new("{}").with("x-hook-token", token).verify(&header, NOW), Ok(()));
    assert_eq!(
        HookTestRequest::new("{}").with("x-hook-token", "0123456789abcdeF").verify(&header, NOW),
        Err(HookRejection::BadSignature)
    );
    let twice = HookTestRequest::new("{}").with("x-hook-token", token).with("X-Hook-Token", "other");
    assert!(matches!(twice.verify(&header, NOW), Err(HookRejection::Malformed(_))));
    let binary = HookTestRequest::new("{}").with("x-hook-token", [0xff, 0xfe]);
    assert!(matches!(binary.verify(&header, NOW), Err(HookRejection::Malformed(_))));

    let query = secrets(vec![SharedSecret::Query { name: "token".into(), value: token.into() }]);
    let asked = |query: &str| HookTestRequest { query: query.into(), ..HookTestRequest::new("{}") };
    assert_eq!(asked("a=1&token=0123456789abcdef").verify(&query, NOW), Ok(()));
    assert_eq!(asked("token=0123456789abcdee").verify(&query, NOW), Err(HookRejection::BadSignature));
    for none in ["", "token", "xtoken=0123456789abcdef", "token=0123456789abcdef&token=0123456789abcdef"] {
        assert!(matches!(asked(none).verify(&query, NOW), Err(HookRejection::MissingHeader(_))), "{none}");
    }
}

#[test]
fn weak_secrets_are_rejected() {
    let make = |secrets| HookSecrets::from_shared_secrets(Kind::Postmark, secrets).unwrap_err();
    assert_eq!(make(vec![]), HookSecretError::WrongCount);
    assert_eq!(make(vec![basic("a", "0123456789abcdef"); 3]), HookSecretError::WrongCount);
    assert_eq!(make(vec![basic("a", "short")]), HookSecretError::TooShort);
    assert!(matches!(make(vec![basic("a:b", "0123456789abcdef")]), HookSecretError::Unusable(_)));
    let spaced = SharedSecret::Query { name: "t".into(), value: "0123456789abcde%20".into() };
    assert!(matches!(make(vec![spaced]), HookSecretError::Unusable(_)));
    let signed = HookSecrets::from_shared_secrets(Kind::Resend, vec![basic("a", "0123456789abcdef")]);
    assert_eq!(signed.unwrap_err(), HookSecretError::WrongScheme(Kind::Resend));
    let shown = format!("{:?} {:?}", secrets(vec![basic("u", "0123456789abcdef")]), basic("u", "0123456789abcdef"));
    assert!(!shown.contains("0123456789abcdef"), "{shown}");
}

#[test]
fn a_delivery_is_parsed() {
    let report = sole_event(Kind::Postmark, &delivered());
    assert_eq!(report.reported_status, ReportedStatus::Delivered);
    assert_eq!(report.email, our_email_id());
    assert_eq!(report.remote_id.as_deref(), Some("a1b2c3d4-6105-42a2-a16a-77a8eac79400"));
    assert_eq!(report.recipient.as_deref(), Some("john@example.com"));
    assert_eq!(report.occurred_at, Time::parse("2026-11-15T13:59:58.123Z"));
    assert_eq!((report.reason.as_str(), report.is_test), ("smtp;250 2.0.0 OK", false));
}

#[test]
fn record_types_map_to_reported_statuses() {
    let bounces = [
        ("HardBounce", HARD_BOUNCE),
        ("BadEmailAddress", HARD_BOUNCE),
        ("SoftBounce", SOFT_BOUNCE),
        ("Blocked", SOFT_BOUNCE),
        ("A type of tomorrow", SOFT_BOUNCE),
        ("Transient", ReportedStatus::Deferred),
        ("SpamComplaint", ReportedStatus::Complained),
        ("ManuallyDeactivated", ReportedStatus::Suppressed),
        ("TemplateRenderingFailed", ReportedStatus::Refused),
        ("AutoResponder", ReportedStatus::Other),
    ];
    for (kind, says) in bounces {
        assert_eq!(sole_event(Kind::Postmark, &bounce(kind)).reported_status, says, "{kind}");
    }
    let complaint = with_field(&bounce("SpamComplaint"), "/RecordType", "SpamComplaint");
    assert_eq!(sole_event(Kind::Postmark, &complaint).reported_status, ReportedStatus::Complained);
    // A recipient who unsubscribes did receive the mail.
    for record in ["SubscriptionChange", "Open", "Click", "Of tomorrow"] {
        let event = with_field(&delivered(), "/RecordType", record);
        assert_eq!(sole_event(Kind::Postmark, &event).reported_status, ReportedStatus::Other, "{record}");
    }
    assert_eq!(sole_event(Kind::Postmark, &bounce("HardBounce")).reason, "smtp;550 5.1.1 no such  user");
}

#[test]
fn a_redelivery_has_the_same_dedupe_key_and_another_event_another() {
    let name = |event: &Value| sole_event(Kind::Postmark, event).dedupe_key;
    let first = name(&delivered());
    // Fields that change between redeliveries, or that Postmark may add later, do not count.
    assert_eq!(first, name(&with_field(&delivered(), "/Attempt", 7)));
    assert_eq!(first, name(&with_field(&delivered(), "/Tag", "another")));
    for (place, value) in [
        ("/Recipient", "jane@example.com"),
        ("/MessageID", "b1b2c3d4-6105-42a2-a16a-77a8eac79400"),
        ("/RecordType", "Open"),
        ("/DeliveredAt", "2026-11-15T09:59:59Z"),
    ] {
        assert_ne!(first, name(&with_field(&delivered(), place, value)), "{place}");
    }
    assert_ne!(name(&bounce("HardBounce")), name(&with_field(&bounce("HardBounce"), "/ID", 7)));
}

#[test]
fn arrays_are_parsed_and_test_events_are_recognized() {
    let body = json!([delivered(), bounce("HardBounce")]).to_string();
    let says: Vec<_> = HookTestRequest::new(body)
        .parse_events(Kind::Postmark)
        .unwrap()
        .iter()
        .map(|report| report.reported_status)
        .collect();
    assert_eq!(says, [ReportedStatus::Delivered, HARD_BOUNCE]);
    assert!(
        sole_event(Kind::Postmark, &with_field(&delivered(), "/MessageID", "883953f4-6105-42a2-a16a-77a8eac79483"))
            .is_test
    );
    let stranger = sole_event(Kind::Postmark, &with_field(&delivered(), "/Metadata", json!({"mailonce": "not an id"})));
    assert_eq!(stranger.email, None);
}
