//! Brevo: a token instead of a signature, and events without an id.

use mailonce_core::time::Time;
use mailonce_mail::hook::{Kind, Knock, Reject, Says, Secrets};
use serde_json::{Value, json};

use crate::rig::{HARD, NOW, OURS, Post, SOFT, one, ours, set};

fn event(word: &str) -> Value {
    json!({
        "event": word, "email": "example@domain.com", "id": 26224, "date": "2020-10-09 00:00:00", "ts": 1_604_933_619,
        "message-id": "<201798300811.5787683@relay.domain.com>", "ts_event": 1_604_933_654,
        "subject": "My first Transactional", "X-Mailin-custom": format!("run=42|mailonce={OURS}"),
        "sending_ip": "xxx.xxx.xxx.xxx", "ts_epoch": 1_604_933_654_123_i64, "template_id": 22,
        "tags": ["transac_messages"], "reason": " RecipientError: 550 5.5.0 mailbox unavailable."
    })
}

#[test]
fn a_bearer_token_opens() {
    let token = "s3cr3t-of-a-brevo-hook";
    let secrets = Secrets::knocks(Kind::Brevo, vec![Knock::Bearer(token.into())]).unwrap();
    let with = |value: &str| Post::of("{}").with("Authorization", value).verify(&secrets, NOW);
    assert_eq!(with(&format!("Bearer {token}")), Ok(()));
    assert_eq!(with(&format!("bearer {token}")), Ok(()));
    assert_eq!(with("Bearer s3cr3t-of-a-brevo-hooK"), Err(Reject::BadSignature));
    for none in [token, "Basic czNjcjN0", "Bearer", ""] {
        assert_eq!(with(none), Err(Reject::MissingHeader("authorization")), "{none}");
    }
    assert_eq!(Post::of("{}").verify(&secrets, NOW), Err(Reject::MissingHeader("authorization")));

    let both = vec![Knock::Bearer("the-old-token-of-two".into()), Knock::Bearer(token.into())];
    let both = Secrets::knocks(Kind::Brevo, both).unwrap();
    for live in [token, "the-old-token-of-two"] {
        assert_eq!(Post::of("{}").with("authorization", format!("Bearer {live}")).verify(&both, NOW), Ok(()));
    }
    assert_eq!(Post::of("{}").verify(&both, NOW), Err(Reject::MissingHeader("authorization")));
}

#[test]
fn events_are_told_apart() {
    let cases = [
        ("request", Says::Accepted),
        ("delivered", Says::Delivered),
        ("deferred", Says::Deferred),
        ("hard_bounce", HARD),
        ("invalid_email", HARD),
        ("soft_bounce", SOFT),
        ("spam", Says::Complained),
        ("complaint", Says::Complained),
        ("blocked", Says::Suppressed),
        ("error", Says::Refused),
        ("unique_opened", Says::Other),
        ("of_tomorrow", Says::Other),
    ];
    for (word, says) in cases {
        let report = one(Kind::Brevo, &event(word));
        assert_eq!(report.says, says, "{word}");
        assert_eq!((report.email, report.recipient.as_deref()), (ours(), Some("example@domain.com")));
        assert_eq!(report.remote_id.as_deref(), Some("<201798300811.5787683@relay.domain.com>"));
        assert_eq!(report.reason, "RecipientError: 550 5.5.0 mailbox unavailable.");
        assert_eq!((report.at, report.test), (Some(Time(1_604_933_654_123)), false));
    }
    // Some events have seconds where others have milliseconds.
    let seconds = set(&event("error"), "/ts_epoch", 1_604_933_623);
    assert_eq!(one(Kind::Brevo, &seconds).at, Some(Time(1_604_933_623_000)));
}

#[test]
fn our_id_is_found_in_tags_too() {
    let plain = set(&event("delivered"), "/X-Mailin-custom", "some_custom_header");
    assert_eq!(one(Kind::Brevo, &plain).email, None);
    let tag = format!("mailonce-{OURS}");
    assert_eq!(one(Kind::Brevo, &set(&plain, "/tags", json!(["a", tag]))).email, ours());
    assert_eq!(one(Kind::Brevo, &set(&plain, "/tag", tag.as_str())).email, ours());
    assert_eq!(one(Kind::Brevo, &set(&plain, "/tag", format!(r#"["a","{tag}"]"#))).email, ours());
    assert_eq!(
        one(Kind::Brevo, &set(&event("delivered"), "/X-Mailin-custom", format!("mailonce={OURS}"))).email,
        ours()
    );
}

#[test]
fn a_repeat_has_the_same_name_and_a_second_deferral_has_another() {
    let name = |event: &Value| one(Kind::Brevo, event).once;
    let first = name(&event("deferred"));
    assert_eq!(first, name(&set(&event("deferred"), "/subject", "another")));
    // Two deferrals of one mail may share the time of the send.
    assert_ne!(first, name(&set(&event("deferred"), "/ts_event", 1_604_933_700)));
    assert_ne!(first, name(&event("delivered")));
    assert_ne!(first, name(&set(&event("deferred"), "/email", "b@domain.com")));
    let batch = json!([event("delivered"), event("deferred")]).to_string();
    assert_eq!(Post::of(batch).read(Kind::Brevo).unwrap().len(), 2);
}
