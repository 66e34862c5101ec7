//! Hostile input: nothing panics, everything has a limit, errors say what is wrong.

use mailonce_mail::hooks::{HookParseError, HookRejection, HookSecrets, Kind, MAX_EVENT_BODY_BYTES, SharedSecret, ses};
use proptest::prelude::*;

use crate::rig::{HookTestRequest, NOW, OUR_EMAIL_ID};

fn secrets(kind: Kind) -> HookSecrets {
    match kind {
        Kind::Postmark | Kind::Brevo => HookSecrets::from_shared_secrets(kind, vec![SharedSecret::Bearer("0123456789abcdef".into())]),
        Kind::Ses => HookSecrets::from_topics(vec!["arn:aws:sns:us-east-1:123456789012:mailonce-events".into()], true),
        Kind::Sendgrid => HookSecrets::from_keys(
            kind,
            &["MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEDr2LjtURuePQzplybdC+u4CwrqDqBaWjcMMsTbhdbcwHBcepxo7yAQGhHPTnlvFYPAZFceEu/1FwCM/QmGUhA=="],
        ),
        Kind::Mailgun | Kind::Resend | Kind::UseSend | Kind::Nylas | Kind::Standard => HookSecrets::from_keys(kind, &["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]),
    }
    .unwrap()
}

/// The kinds that send events.
fn event_kinds() -> impl Iterator<Item = &'static Kind> {
    Kind::ALL.iter().filter(|kind| kind.sends_events())
}

/// A valid body of its kind, except for one value.
fn event_with(kind: Kind, value: &str) -> String {
    match kind {
        Kind::Postmark => format!(r#"{{"RecordType":"Delivery","MessageID":"m","x":{value}}}"#),
        Kind::Mailgun => format!(r#"{{"event-data":{{"event":"delivered","timestamp":{value}}}}}"#),
        Kind::Sendgrid => format!(r#"[{{"event":"delivered","timestamp":{value}}}]"#),
        Kind::Ses => {
            let event = format!(r#"{{"eventType":"Delivery","x":{value}}}"#);
            serde_json::json!({"Type": "Notification", "MessageId": "m", "Message": event}).to_string()
        }
        Kind::Resend | Kind::UseSend => format!(r#"{{"type":"email.sent","created_at":{value},"data":{{}}}}"#),
        Kind::Nylas | Kind::Standard => unreachable!("sends no events"),
        Kind::Brevo => format!(r#"{{"event":"delivered","ts_epoch":{value}}}"#),
    }
}

#[test]
fn every_kind_has_a_unique_name() {
    for kind in Kind::ALL {
        assert_eq!(Kind::parse(kind.as_str()), Some(*kind));
        assert_eq!(serde_json::to_string(kind).unwrap(), format!("\"{kind}\""));
    }
    assert_eq!((Kind::ALL.len(), Kind::parse("gmail"), Kind::parse("SES")), (9, None, None));
}

#[test]
fn duplicate_json_names_are_rejected() {
    for kind in event_kinds() {
        assert!(HookTestRequest::new(event_with(*kind, "1")).parse_events(*kind).is_ok(), "{kind}");
        for twice in [r#"{"a":1,"a":2}"#, r#"[{"a":{"b":1,"b":1}}]"#] {
            let why = HookTestRequest::new(event_with(*kind, twice)).parse_events(*kind).unwrap_err();
            assert!(matches!(&why, HookParseError::Json(text) if text.contains("duplicate name")), "{kind}: {why}");
        }
    }
    // Also where the signature is parsed.
    let twice = format!(r#"{{"signature":{{"token":"a","token":"b"}},"x":"{OUR_EMAIL_ID}"}}"#);
    assert!(matches!(
        HookTestRequest::new(twice.as_str()).verify(&secrets(Kind::Mailgun), NOW),
        Err(HookRejection::Malformed(_))
    ));
    let topics = r#"{"TopicArn":"arn:aws:sns:us-east-1:123456789012:mailonce-events","TopicArn":"other"}"#;
    assert!(matches!(HookTestRequest::new(topics).verify(&secrets(Kind::Ses), NOW), Err(HookRejection::Malformed(_))));
}

#[test]
fn huge_numbers_are_not_timestamps() {
    for kind in event_kinds() {
        for number in [
            "1e300",
            "-1",
            "99999999999999999999999999",
            "9000000000000000000",
            "-9223372036854775808",
            "18446744073709551615",
        ] {
            let reports = HookTestRequest::new(event_with(*kind, number)).parse_events(*kind).unwrap();
            assert_eq!(reports[0].occurred_at, None, "{kind} {number}");
        }
        assert!(
            matches!(
                HookTestRequest::new(event_with(*kind, "1e999")).parse_events(*kind),
                Err(HookParseError::Json(_))
            ),
            "{kind}"
        );
    }
}

#[test]
fn nesting_depth_is_limited() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for kind in event_kinds() {
        assert!(HookTestRequest::new(event_with(*kind, &deep(100))).parse_events(*kind).is_ok(), "{kind}");
        assert!(
            matches!(
                HookTestRequest::new(event_with(*kind, &deep(100_000))).parse_events(*kind),
                Err(HookParseError::Json(_))
            ),
            "{kind}"
        );
    }
    let body = HookTestRequest::new(deep(100_000));
    assert!(matches!(body.verify(&secrets(Kind::Mailgun), NOW), Err(HookRejection::Malformed(_))));
    assert!(matches!(body.verify(&secrets(Kind::Ses), NOW), Err(HookRejection::Malformed(_))));
}

#[test]
fn invalid_json_is_reported_as_such() {
    for kind in event_kinds() {
        for body in [b"".as_slice(), b"\xff\xfe{}", b"{\"a\":\"\xc3\x28\"}", b"{} {}", b"{\"a\":1,}", b"NaN"] {
            let why = HookTestRequest::new(body).parse_events(*kind).unwrap_err();
            assert!(matches!(why, HookParseError::Json(_)), "{kind} {body:?}: {why}");
        }
        for body in ["1", "\"text\"", "null", "[[]]"] {
            let why = HookTestRequest::new(body).parse_events(*kind).unwrap_err();
            assert!(matches!(why, HookParseError::Unexpected(_) | HookParseError::Json(_)), "{kind} {body}: {why}");
        }
    }
}

#[test]
fn bodies_over_a_megabyte_are_rejected() {
    let large = HookTestRequest::new(vec![b' '; MAX_EVENT_BODY_BYTES + 1]);
    for kind in Kind::ALL {
        assert_eq!(large.parse_events(*kind), Err(HookParseError::TooLarge));
        assert_eq!(large.verify(&secrets(*kind), NOW), Err(HookRejection::TooLarge));
    }
    assert_eq!(ses::sns_urls(&large.body), Err(HookRejection::TooLarge));
    assert_eq!(HookRejection::TooLarge.status(), 413);
}

#[test]
fn stored_event_fields_are_short_and_printable() {
    let long = "x".repeat(10_000);
    let body = serde_json::json!([{
        "event": "bounce", "reason": format!("no\u{7}\r\n{long}"), "email": format!("{long}@example.com"),
        "sg_message_id": format!("a\nb{long}"), "sg_event_id": long
    }]);
    let report = HookTestRequest::new(body.to_string()).parse_events(Kind::Sendgrid).unwrap().remove(0);
    assert_eq!(report.reason.chars().count(), 500);
    assert!(!report.reason.chars().any(char::is_control));
    assert_eq!((report.recipient, report.remote_id), (None, None));
    assert!(report.dedupe_key.len() <= 64);
    // An id that is too long to store still distinguishes events.
    let other = body.to_string().replacen(&long, "y", 4);
    assert_ne!(report.dedupe_key, HookTestRequest::new(other).parse_events(Kind::Sendgrid).unwrap()[0].dedupe_key);
}

#[test]
fn no_status_makes_a_provider_stop_retrying_for_good() {
    let rejects = [
        HookRejection::MissingHeader("x"),
        HookRejection::MissingField("x"),
        HookRejection::BadSignature,
        HookRejection::Stale { off_ms: 1 },
        HookRejection::Malformed(String::new()),
        HookRejection::ForeignTopic,
        HookRejection::Certificate("x"),
        HookRejection::Sha1,
        HookRejection::TooLarge,
        HookRejection::Misconfigured,
    ];
    for reject in rejects {
        assert!(!matches!(reject.status(), 200..300 | 403 | 406 | 410), "{reject}");
    }
}

/// JSON-like text, which reaches deeper into the parsers than random bytes.
fn jsonish() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\"signature\"",
        "\"event-data\"",
        "\"Type\"",
        "\"Notification\"",
        "\"Message\"",
        "\"timestamp\"",
        "\"type\"",
        "\"data\"",
        "\"to\"",
        "1e308",
        "-1",
        "null",
        "\\u0000",
        "é",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()).prop_map(str::to_owned), 0..60)
        .prop_map(|parts| parts.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn random_bytes_never_panic_and_never_pass(
        body in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), jsonish()],
        values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 3),
        query in ".{0,40}",
        pem in prop::collection::vec(any::<u8>(), 0..300),
        now in any::<i64>(),
    ) {
        let names = [
            "svix-id", "svix-timestamp", "svix-signature", "x-usesend-timestamp", "x-usesend-signature", "authorization",
            "x-twilio-email-event-webhook-signature", "x-twilio-email-event-webhook-timestamp",
        ];
        let mut post = HookTestRequest { query, certificate: Some(pem), ..HookTestRequest::new(body) };
        for (number, name) in names.iter().enumerate() {
            post = post.with(name, &values[number % values.len()]);
        }
        for kind in event_kinds() {
            prop_assert!(post.verify(&secrets(*kind), mailonce_core::time::Time(now)).is_err());
            for report in post.parse_events(*kind).unwrap_or_default() {
                prop_assert!(!report.dedupe_key.is_empty());
            }
        }
        if let Ok(needs) = ses::sns_urls(&post.body) {
            prop_assert!(needs.certificate_url.starts_with("https://sns."));
        }
        post.token();
        for kind in Kind::ALL {
            if let Ok(Some(mail)) = post.parse_mail(*kind) {
                assert!(!mail.recipients.is_empty() && mail.dedupe_key.len() <= 200);
            }
        }
    }
}
