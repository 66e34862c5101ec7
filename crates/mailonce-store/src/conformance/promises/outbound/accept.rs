//! Promises about accepting one email.

use mailonce_core::{
    events::event::EventKind,
    handoff::HandoffState,
    id::EmailId,
    outbound::{email::EmailState, email_query::EmailQuery},
    time::Time,
};

use crate::conformance::{
    DAY, HOUR, T0, TEAM, TestStore, accept_email, accept_first, accept_replay, all_events, capture_due, expect_first,
    keyed_email, keyless_email, load_detail, load_email, next_id,
};

pub(super) async fn a_new_key_creates_one_queued_email(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;

    assert_eq!((email.state(), email.rev, email.bind_number), (EmailState::Queued, 1, 1));
    assert_eq!((email.settled_at, email.expires_at(), email.guard), (None, None, None));
    assert_eq!(load_email(&store, email.id).await, email);
}

pub(super) async fn an_equal_replay_returns_the_first_email_and_writes_nothing(store: TestStore) {
    let first = accept_first(&store, &keyed_email("k"), T0).await;

    let replays = [
        accept_replay(&store, &keyed_email("k"), T0).await,
        accept_replay(&store, &keyed_email("k"), T0.plus(1)).await,
        accept_replay(&store, &keyed_email("k"), T0.plus(DAY)).await,
    ];

    assert!(replays.iter().all(|replay| *replay == first), "{replays:?}");
    assert_eq!(all_events(&store, TEAM).await.len(), 1);
    let page = store.emails(TEAM, EmailQuery { limit: 10, ..EmailQuery::default() }).await.unwrap();
    assert_eq!(page.rows, [first]);
}

pub(super) async fn a_changed_replay_returns_the_first_email_and_its_digest(store: TestStore) {
    let first = accept_first(&store, &keyed_email("k").text("one"), T0).await;

    let changed = keyed_email("k").text("two").to_new_email(T0);
    let found = accept_replay(&store, &keyed_email("k").text("two"), T0).await;

    assert_eq!(found, first);
    assert_ne!(found.digest, changed.digest);
    assert_eq!(found.digest, keyed_email("k").text("one").to_new_email(T0).digest);
}

pub(super) async fn emails_without_a_key_are_never_duplicates(store: TestStore) {
    let one = accept_first(&store, &keyless_email(), T0).await;
    let two = accept_first(&store, &keyless_email(), T0).await;

    assert_ne!(one.id, two.id);
    assert_eq!((one.bind_number, two.bind_number), (0, 0));
    assert_eq!(all_events(&store, TEAM).await.len(), 2);
}

pub(super) async fn an_accepted_email_is_read_back_unchanged(store: TestStore) {
    let fixture =
        keyed_email("k").to(&["b@example.com", "a@example.com"]).cc(&["c@example.com"]).separate_envelopes().ttl(HOUR);
    let new_email = fixture.to_new_email(T0);
    let email = expect_first(store.accept(new_email.clone(), T0).await.unwrap());

    let found = load_detail(&store, new_email.id).await;

    assert_eq!(found.email, email);
    assert_eq!(
        (found.email.head, found.email.digest, found.email.ttl),
        (std::sync::Arc::new(new_email.head), new_email.digest, new_email.ttl)
    );
    assert_eq!(found.body.as_deref(), Some(&*new_email.body));
    assert_eq!((found.attempts, found.suppressed_calls), (vec![], vec![]));
}

pub(super) async fn the_callers_call_id_is_stored_and_in_the_accepted_event(store: TestStore) {
    let first = accept_first(&store, &keyed_email("k").with_call_id("toolu_1"), T0).await;
    let without_call_id = accept_first(&store, &keyed_email("quiet"), T0).await;
    capture_due(&store, 2, T0.plus(1)).await;

    let found = accept_replay(&store, &keyed_email("k").with_call_id("toolu_2"), T0.plus(2)).await;

    assert_eq!(found.head.call, keyed_email("k").with_call_id("toolu_1").to_new_email(T0).head.call);
    assert_eq!((found.id, &found.digest), (first.id, &first.digest));
    assert_eq!(load_email(&store, without_call_id.id).await.head.call, None);
    let events: Vec<_> = all_events(&store, TEAM).await.into_iter().map(|event| event.event).collect();
    let calls: Vec<_> = events.iter().filter(|event| event.data.get("call").is_some()).collect();
    assert_eq!(calls.len(), 1, "{events:?}");
    assert_eq!((calls[0].kind, calls[0].subject_id), (EventKind::EmailAccepted, first.id.0));
    assert_eq!(calls[0].data["call"], serde_json::json!({ "id": "toolu_1" }));
}

pub(super) async fn each_envelope_becomes_a_handoff_in_order(store: TestStore) {
    let fixture = keyed_email("k").to(&["a@example.com", "b@example.com"]).separate_envelopes().via_transport("relay");
    let id = accept_first(&store, &fixture, T0).await.id;

    let email = load_email(&store, id).await;
    let handoffs: Vec<_> = email.handoffs.iter().map(|h| (h.number, h.recipients[0].as_str(), h.state)).collect();

    assert_eq!(handoffs, [(0, "a@example.com", HandoffState::Queued), (1, "b@example.com", HandoffState::Queued)]);
    assert!(email.handoffs.iter().all(|h| h.transport == "relay" && h.attempts == 0 && h.due_at == Some(T0)));
}

pub(super) async fn a_replay_returns_the_current_state(store: TestStore) {
    let first = accept_first(&store, &keyed_email("k"), T0).await;
    capture_due(&store, 1, T0.plus(1)).await;

    let found = accept_replay(&store, &keyed_email("k"), T0.plus(2)).await;

    assert_eq!((found.id, found.state(), found.rev), (first.id, EmailState::Sent, 2));
}

pub(super) async fn an_email_with_a_later_due_time_is_scheduled(store: TestStore) {
    let due = T0.plus(HOUR);
    let email = accept_first(&store, &keyed_email("k").due(due), T0).await;

    assert_eq!((email.state(), email.handoffs[0].due_at), (EmailState::Scheduled, Some(due)));
    assert_eq!(load_email(&store, email.id).await, email);
}

pub(super) async fn an_email_with_a_due_time_is_scheduled_even_if_it_is_past(store: TestStore) {
    for (key, due) in [("k1", T0.plus(-HOUR)), ("k2", T0), ("k3", T0.plus(HOUR))] {
        let email = accept_first(&store, &keyed_email(key).due(due), T0).await;
        assert_eq!((email.state(), email.handoffs[0].due_at), (EmailState::Scheduled, Some(due)), "{key}");
    }
}

pub(super) async fn times_are_stored_to_the_millisecond(store: TestStore) {
    let (now, due) = (T0.plus(7), T0.plus(HOUR + 13));
    let id = accept_first(&store, &keyed_email("k").due(due).ttl(DAY + 17), now).await.id;
    capture_due(&store, 1, due.plus(1)).await;

    let email = load_email(&store, id).await;

    assert_eq!((email.head.created_at, email.settled_at), (now, Some(due.plus(1))));
    assert_eq!(email.expires_at(), Some(due.plus(1 + DAY + 17)));
}

pub(super) async fn large_and_empty_bodies_are_stored_unchanged(store: TestStore) {
    for (key, size) in [("none", 0), ("odd", 4_099), ("long", 3 << 20)] {
        let mut new_email = keyed_email(key).to_new_email(T0);
        new_email.body = (0..size).map(|i: usize| (i % 251) as u8).collect();
        let _first = expect_first(store.accept(new_email.clone(), T0).await.unwrap());
        assert!(load_detail(&store, new_email.id).await.body.as_deref() == Some(&*new_email.body), "{key}");
    }
}

pub(super) async fn an_unknown_email_id_is_not_found(store: TestStore) {
    let missing = EmailId(next_id(Time(0)));
    assert_eq!(store.email(TEAM, missing).await.unwrap(), None);
    assert_eq!(store.email_detail(TEAM, missing).await.unwrap(), None);
}

pub(super) async fn an_email_id_that_differs_only_in_its_random_bits_is_not_found(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let near = EmailId(uuid::Uuid::from_u128(email.id.0.as_u128() ^ 1));

    assert_eq!(store.email(TEAM, near).await.unwrap(), None);
    assert_eq!(store.email_detail(TEAM, near).await.unwrap(), None);
    assert!(matches!(
        accept_email(&store, &keyed_email("k"), T0).await,
        mailonce_core::outbound::accept::AcceptResult::KeyBound(_)
    ));
}

pub(super) async fn the_highest_email_id_is_remembered(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let last = mailonce_core::id::ordered_bits(email.id.0);

    assert!(store.installation().await.unwrap().last_id >= last);
}
