//! Promises about accepting one wish.

use mailonce_core::{
    events::event::EventKind,
    handoff::HandoffState,
    id::EmailId,
    outbound::{email::EmailState, email_query::EmailQuery},
    time::Time,
};

use super::{
    DAY, HOUR, T0, TEAM, TestStore, accept_email, accept_first, accept_replay, all_events, capture_due, keyed_email,
    keyless_email, load_detail, load_email,
};

pub(super) async fn a_free_key_is_accepted(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;

    assert_eq!((email.state(), email.rev, email.bind_number), (EmailState::Queued, 1, 1));
    assert_eq!((email.settled_at, email.expires_at(), email.guard), (None, None, None));
    assert_eq!(load_email(&store, email.id).await, email);
}

pub(super) async fn an_equal_replay_finds_the_first_and_writes_nothing(store: TestStore) {
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

pub(super) async fn a_changed_replay_finds_the_first_and_its_digest(store: TestStore) {
    let first = accept_first(&store, &keyed_email("k").text("one"), T0).await;

    let changed = keyed_email("k").text("two").to_new_email(T0);
    let found = accept_replay(&store, &keyed_email("k").text("two"), T0).await;

    assert_eq!(found, first);
    assert_ne!(found.digest, changed.digest);
    assert_eq!(found.digest, keyed_email("k").text("one").to_new_email(T0).digest);
}

pub(super) async fn wishes_without_a_key_never_collide(store: TestStore) {
    let one = accept_first(&store, &keyless_email(), T0).await;
    let two = accept_first(&store, &keyless_email(), T0).await;

    assert_ne!(one.id, two.id);
    assert_eq!((one.bind_number, two.bind_number), (0, 0));
    assert_eq!(all_events(&store, TEAM).await.len(), 2);
}

pub(super) async fn what_was_accepted_is_read_back_whole(store: TestStore) {
    let draft =
        keyed_email("k").to(&["b@example.com", "a@example.com"]).cc(&["c@example.com"]).separate_envelopes().ttl(HOUR);
    let wish = draft.to_new_email(T0);
    let email = super::expect_first(store.accept(wish.clone(), T0).await.unwrap());

    let found = load_detail(&store, wish.id).await;

    assert_eq!(found.email, email);
    assert_eq!(
        (found.email.head, found.email.digest, found.email.ttl),
        (std::sync::Arc::new(wish.head), wish.digest, wish.ttl)
    );
    assert_eq!(found.body.as_deref(), Some(&*wish.body));
    assert_eq!((found.attempts, found.suppressed_calls), (vec![], vec![]));
}

pub(super) async fn what_a_call_is_called_is_kept_and_told_with_the_acceptance(store: TestStore) {
    let first = accept_first(&store, &keyed_email("k").with_call_id("toolu_1"), T0).await;
    let quiet = accept_first(&store, &keyed_email("quiet"), T0).await;
    capture_due(&store, 2, T0.plus(1)).await;

    let found = accept_replay(&store, &keyed_email("k").with_call_id("toolu_2"), T0.plus(2)).await;

    assert_eq!(found.head.call, keyed_email("k").with_call_id("toolu_1").to_new_email(T0).head.call);
    assert_eq!((found.id, &found.digest), (first.id, &first.digest));
    assert_eq!(load_email(&store, quiet.id).await.head.call, None);
    let told: Vec<_> = all_events(&store, TEAM).await.into_iter().map(|event| event.event).collect();
    let calls: Vec<_> = told.iter().filter(|event| event.data.get("call").is_some()).collect();
    assert_eq!(calls.len(), 1, "{told:?}");
    assert_eq!((calls[0].kind, calls[0].subject_id), (EventKind::EmailAccepted, first.id.0));
    assert_eq!(calls[0].data["call"], serde_json::json!({ "id": "toolu_1" }));
}

pub(super) async fn each_envelope_becomes_a_handoff_in_order(store: TestStore) {
    let draft = keyed_email("k").to(&["a@example.com", "b@example.com"]).separate_envelopes().via_transport("relay");
    let id = accept_first(&store, &draft, T0).await.id;

    let email = load_email(&store, id).await;
    let handoffs: Vec<_> = email.handoffs.iter().map(|h| (h.number, h.recipients[0].as_str(), h.state)).collect();

    assert_eq!(handoffs, [(0, "a@example.com", HandoffState::Queued), (1, "b@example.com", HandoffState::Queued)]);
    assert!(email.handoffs.iter().all(|h| h.transport == "relay" && h.attempts == 0 && h.due_at == Some(T0)));
}

pub(super) async fn a_replay_shows_the_current_state(store: TestStore) {
    let first = accept_first(&store, &keyed_email("k"), T0).await;
    capture_due(&store, 1, T0.plus(1)).await;

    let found = accept_replay(&store, &keyed_email("k"), T0.plus(2)).await;

    assert_eq!((found.id, found.state(), found.rev), (first.id, EmailState::Sent, 2));
}

pub(super) async fn a_wish_for_later_is_scheduled(store: TestStore) {
    let due = T0.plus(HOUR);
    let email = accept_first(&store, &keyed_email("k").due(due), T0).await;

    assert_eq!((email.state(), email.handoffs[0].due_at), (EmailState::Scheduled, Some(due)));
    assert_eq!(load_email(&store, email.id).await, email);
}

pub(super) async fn a_due_time_makes_a_wish_scheduled_whatever_ledger_time_says(store: TestStore) {
    for (key, due) in [("k1", T0.plus(-HOUR)), ("k2", T0), ("k3", T0.plus(HOUR))] {
        let email = accept_first(&store, &keyed_email(key).due(due), T0).await;
        assert_eq!((email.state(), email.handoffs[0].due_at), (EmailState::Scheduled, Some(due)), "{key}");
    }
}

pub(super) async fn times_keep_their_milliseconds(store: TestStore) {
    let (now, due) = (T0.plus(7), T0.plus(HOUR + 13));
    let id = accept_first(&store, &keyed_email("k").due(due).ttl(DAY + 17), now).await.id;
    capture_due(&store, 1, due.plus(1)).await;

    let email = load_email(&store, id).await;

    assert_eq!((email.head.created_at, email.settled_at), (now, Some(due.plus(1))));
    assert_eq!(email.expires_at(), Some(due.plus(1 + DAY + 17)));
}

pub(super) async fn a_long_body_and_an_empty_one_are_kept(store: TestStore) {
    for (key, size) in [("none", 0), ("odd", 4_099), ("long", 3 << 20)] {
        let mut wish = keyed_email(key).to_new_email(T0);
        wish.body = (0..size).map(|i: usize| (i % 251) as u8).collect();
        let _first = super::expect_first(store.accept(wish.clone(), T0).await.unwrap());
        assert!(load_detail(&store, wish.id).await.body.as_deref() == Some(&*wish.body), "{key}");
    }
}

pub(super) async fn an_unknown_id_is_nobody(store: TestStore) {
    let nobody = EmailId(super::next_id(Time(0)));
    assert_eq!(store.email(TEAM, nobody).await.unwrap(), None);
    assert_eq!(store.email_detail(TEAM, nobody).await.unwrap(), None);
}

pub(super) async fn an_id_with_other_unordered_bits_is_nobody(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let near = EmailId(uuid::Uuid::from_u128(email.id.0.as_u128() ^ 1));

    assert_eq!(store.email(TEAM, near).await.unwrap(), None);
    assert_eq!(store.email_detail(TEAM, near).await.unwrap(), None);
    assert!(matches!(
        accept_email(&store, &keyed_email("k"), T0).await,
        mailonce_core::outbound::accept::AcceptResult::KeyBound(_)
    ));
}

pub(super) async fn the_highest_id_is_remembered(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let last = mailonce_core::id::ordered_bits(email.id.0);

    assert!(store.installation().await.unwrap().last_id >= last);
}
