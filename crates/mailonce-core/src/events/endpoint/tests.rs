//! Event filters of endpoints, the overlap of their secrets, and when they are disabled.

use super::*;
use uuid::Uuid;

const DAY: i64 = 86_400_000;

fn about(events: &[&str]) -> EndpointConfig {
    EndpointConfig {
        url: "https://a.test/hook".into(),
        description: String::new(),
        events: events.iter().map(|text| EventTypePattern::parse(text).unwrap()).collect(),
        inboxes: Vec::new(),
        secrets: Vec::new(),
        headers: BTreeMap::new(),
        rate_per_s: None,
        version: "2026-11-15".into(),
        include_text: false,
        dialect: None,
        changed_at: None,
    }
}

fn endpoint(events: &[&str]) -> Endpoint {
    Endpoint::new(EndpointId(Uuid::from_u128(1)), TeamId(Uuid::from_u128(2)), about(events), Time(0))
}

fn event(kind: EventKind, data: serde_json::Value) -> Event {
    Event { seq: 7, event: NewEvent { kind, at: Time(5), subject_id: Uuid::from_u128(9), rev: 1, data } }
}

#[test]
fn filters_match_all_one_type_or_one_family() {
    for (filter, kind, matches) in [
        ("*", EventKind::KeyExtended, true),
        ("email.*", EventKind::EmailSent, true),
        ("email.*", EventKind::MessageReceived, false),
        ("email.sent", EventKind::EmailSent, true),
        ("email.sent", EventKind::EmailHeld, false),
    ] {
        assert_eq!(EventTypePattern::parse(filter).unwrap().matches(kind), matches, "{filter} {kind:?}");
    }
    for nothing in ["", ".*", "emai.*", "email", "email.nonsense", "email.sen*", "**"] {
        assert_eq!(EventTypePattern::parse(nothing), None, "{nothing}");
    }
}

#[test]
fn an_endpoint_of_some_inboxes_hears_only_of_them() {
    let inbox = InboxId(Uuid::from_u128(3));
    let mut endpoint = endpoint(&["*"]);
    endpoint.config.inboxes = vec![inbox];
    assert!(endpoint.wants(&event(EventKind::MessageReceived, json!({ "inbox": inbox }))));
    assert!(!endpoint.wants(&event(EventKind::MessageReceived, json!({ "inbox": Uuid::from_u128(4) }))));
    assert!(!endpoint.wants(&event(EventKind::EmailSent, json!({}))));
}

#[test]
fn secrets_overlap_when_they_are_rotated() {
    let mut about = about(&["*"]);
    about.rotate_secret("one".into(), DAY, Time(0));
    about.rotate_secret("two".into(), DAY, Time(10));
    let live =
        |about: &EndpointConfig, at| about.active_secrets(Time(at)).map(|s| s.sealed.clone()).collect::<Vec<_>>();
    assert_eq!(live(&about, DAY + 9), ["two", "one"]);
    assert_eq!(live(&about, DAY + 10), ["two"]);
    // A second rotation does not extend the life of the first secret.
    about.rotate_secret("three".into(), DAY, Time(20));
    assert_eq!(live(&about, DAY + 15), ["three", "two"]);
    (0..20).for_each(|n| about.rotate_secret(n.to_string(), DAY, Time(30)));
    assert_eq!(about.secrets.len(), limits::ENDPOINT_SECRETS);
}

#[test]
fn two_weeks_without_a_success_disable_an_endpoint_and_one_success_does_not() {
    let mut endpoint = endpoint(&["*"]);
    assert_eq!(endpoint.record_response(WebhookVerdict::Retry(None), Time(0)), None);
    assert_eq!(endpoint.record_response(WebhookVerdict::Retry(None), Time(14 * DAY - 1)), None);
    assert_eq!(endpoint.record_response(WebhookVerdict::Delivered, Time(14 * DAY - 1)), None);
    assert_eq!(endpoint.record_response(WebhookVerdict::Retry(None), Time(14 * DAY)), None);
    let told = endpoint.record_response(WebhookVerdict::Retry(None), Time(28 * DAY)).unwrap();
    assert_eq!((told.kind, told.rev, told.subject_id), (EventKind::EndpointDisabled, 2, endpoint.id.0));
    assert_eq!((endpoint.state, endpoint.reason), (EndpointState::Disabled, Some(EndpointReason::Failing)));
    assert_eq!(endpoint.record_response(WebhookVerdict::Retry(None), Time(29 * DAY)), None);
}

#[test]
fn a_receiver_that_is_gone_disables_its_endpoint_at_once_and_a_person_enables_it() {
    let mut endpoint = endpoint(&["*"]);
    assert!(endpoint.record_response(WebhookVerdict::Gone, Time(1)).is_some());
    assert_eq!((endpoint.reason, endpoint.state_since), (Some(EndpointReason::Gone), Time(1)));
    let about = endpoint.config.clone();
    assert_eq!(endpoint.edit(about.clone(), EndpointState::Enabled, Time(2)), None);
    assert_eq!((endpoint.state, endpoint.reason, endpoint.state_since), (EndpointState::Enabled, None, Time(2)));
    assert!(endpoint.edit(about, EndpointState::Disabled, Time(3)).is_some());
    assert_eq!(endpoint.reason, Some(EndpointReason::Asked));
}

#[test]
fn looking_again_goes_back_and_never_forward() {
    let mut endpoint = endpoint(&["*"]);
    endpoint.cursor = 10;
    endpoint.rewind_to(12);
    assert_eq!((endpoint.cursor, endpoint.resend_until_seq), (10, 0));
    endpoint.rewind_to(4);
    endpoint.rewind_to(2);
    assert_eq!((endpoint.cursor, endpoint.resend_until_seq), (2, 10));
}
