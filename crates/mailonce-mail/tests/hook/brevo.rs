//! Brevo: a token instead of a signature, and events without an id.

use mailonce_core::time::Time;
use mailonce_mail::hooks::{HookRejection, HookSecrets, Kind, ReportedStatus, SharedSecret};
use serde_json::{Value, json};

use crate::rig::{HARD_BOUNCE, HookTestRequest, NOW, OUR_EMAIL_ID, SOFT_BOUNCE, our_email_id, sole_event, with_field};

fn event(word: &str) -> Value {
    json!({
        "event": word, "email": "example@domain.com", "id": 26224, "date": "2020-10-09 00:00:00", "ts": 1_604_933_619,
        "message-id": "<201798300811.5787683@relay.domain.com>", "ts_event": 1_604_933_654,
        "subject": "My first Transactional", "X-Mailin-custom": format!("run=42|mailonce={OUR_EMAIL_ID}"),
        "sending_ip": "xxx.xxx.xxx.xxx", "ts_epoch": 1_604_933_654_123_i64, "template_id": 22,
        "tags": ["transac_messages"], "reason": " RecipientError: 550 5.5.0 mailbox unavailable."
    })
}

#[test]
fn a_bearer_token_authenticates() {
    let token = "s3cr3t-of-a-brevo-hook";
    let secrets = HookSecrets::from_shared_secrets(Kind::Brevo, vec![SharedSecret::Bearer(token.into())]).unwrap();
    let with = |value: &str| HookTestRequest::new("{}").with("Authorization", value).verify(&secrets, NOW);
    assert_eq!(with(&format!("Bearer {token}")), Ok(()));
    assert_eq!(with(&format!("bearer {token}")), Ok(()));
    assert_eq!(with("Bearer s3cr3t-of-a-brevo-hooK"), Err(HookRejection::BadSignature));
    for none in [token, "Basic czNjcjN0", "Bearer", ""] {
        assert_eq!(with(none), Err(HookRejection::MissingHeader("authorization")), "{none}");
    }
    assert_eq!(HookTestRequest::new("{}").verify(&secrets, NOW), Err(HookRejection::MissingHeader("authorization")));

    let both = vec![SharedSecret::Bearer("the-old-token-of-two".into()), SharedSecret::Bearer(token.into())];
    let both = HookSecrets::from_shared_secrets(Kind::Brevo, both).unwrap();
    for live in [token, "the-old-token-of-two"] {
        assert_eq!(
            HookTestRequest::new("{}").with("authorization", format!("Bearer {live}")).verify(&both, NOW),
            Ok(())
        );
    }
    assert_eq!(HookTestRequest::new("{}").verify(&both, NOW), Err(HookRejection::MissingHeader("authorization")));
}

#[test]
fn event_types_map_to_reported_statuses() {
    let cases = [
        ("request", ReportedStatus::Accepted),
        ("delivered", ReportedStatus::Delivered),
        ("deferred", ReportedStatus::Deferred),
        ("hard_bounce", HARD_BOUNCE),
        ("invalid_email", HARD_BOUNCE),
        ("soft_bounce", SOFT_BOUNCE),
        ("spam", ReportedStatus::Complained),
        ("complaint", ReportedStatus::Complained),
        ("blocked", ReportedStatus::Suppressed),
        ("error", ReportedStatus::Refused),
        ("unique_opened", ReportedStatus::Other),
        ("of_tomorrow", ReportedStatus::Other),
    ];
    for (word, says) in cases {
        let report = sole_event(Kind::Brevo, &event(word));
        assert_eq!(report.reported_status, says, "{word}");
        assert_eq!((report.email, report.recipient.as_deref()), (our_email_id(), Some("example@domain.com")));
        assert_eq!(report.remote_id.as_deref(), Some("<201798300811.5787683@relay.domain.com>"));
        assert_eq!(report.reason, "RecipientError: 550 5.5.0 mailbox unavailable.");
        assert_eq!((report.occurred_at, report.is_test), (Some(Time(1_604_933_654_123)), false));
    }
    // Some events have seconds where others have milliseconds.
    let seconds = with_field(&event("error"), "/ts_epoch", 1_604_933_623);
    assert_eq!(sole_event(Kind::Brevo, &seconds).occurred_at, Some(Time(1_604_933_623_000)));
}

#[test]
fn our_email_id_is_found_in_tags_too() {
    let plain = with_field(&event("delivered"), "/X-Mailin-custom", "some_custom_header");
    assert_eq!(sole_event(Kind::Brevo, &plain).email, None);
    let tag = format!("mailonce-{OUR_EMAIL_ID}");
    assert_eq!(sole_event(Kind::Brevo, &with_field(&plain, "/tags", json!(["a", tag]))).email, our_email_id());
    assert_eq!(sole_event(Kind::Brevo, &with_field(&plain, "/tag", tag.as_str())).email, our_email_id());
    assert_eq!(sole_event(Kind::Brevo, &with_field(&plain, "/tag", format!(r#"["a","{tag}"]"#))).email, our_email_id());
    assert_eq!(
        sole_event(
            Kind::Brevo,
            &with_field(&event("delivered"), "/X-Mailin-custom", format!("mailonce={OUR_EMAIL_ID}"))
        )
        .email,
        our_email_id()
    );
}

#[test]
fn a_redelivery_has_the_same_dedupe_key_and_a_second_deferral_another() {
    let name = |event: &Value| sole_event(Kind::Brevo, event).dedupe_key;
    let first = name(&event("deferred"));
    assert_eq!(first, name(&with_field(&event("deferred"), "/subject", "another")));
    // Two deferrals of one mail may have the same send time.
    assert_ne!(first, name(&with_field(&event("deferred"), "/ts_event", 1_604_933_700)));
    assert_ne!(first, name(&event("delivered")));
    assert_ne!(first, name(&with_field(&event("deferred"), "/email", "b@domain.com")));
    let batch = json!([event("delivered"), event("deferred")]).to_string();
    assert_eq!(HookTestRequest::new(batch).parse_events(Kind::Brevo).unwrap().len(), 2);
}
