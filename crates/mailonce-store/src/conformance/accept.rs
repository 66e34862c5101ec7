//! Promises about accepting one wish.

use mailonce_core::{email::EmailState, event::Kind, handoff::State, id::EmailId, port::store::EmailQuery, time::Time};

use super::{DAY, HOUR, Ledger, T0, TEAM, accept, accepted, capture, detail, events, keyed, keyless, replayed, the};

pub(super) async fn a_free_key_is_accepted(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;

    assert_eq!((email.state(), email.rev, email.bind), (EmailState::Queued, 1, 1));
    assert_eq!((email.settled_at, email.expires_at(), email.guard), (None, None, None));
    assert_eq!(the(&store, email.id).await, email);
}

pub(super) async fn an_equal_replay_finds_the_first_and_writes_nothing(store: Ledger) {
    let first = accepted(&store, &keyed("k"), T0).await;

    let replays = [
        replayed(&store, &keyed("k"), T0).await,
        replayed(&store, &keyed("k"), T0.plus(1)).await,
        replayed(&store, &keyed("k"), T0.plus(DAY)).await,
    ];

    assert!(replays.iter().all(|replay| *replay == first), "{replays:?}");
    assert_eq!(events(&store, TEAM).await.len(), 1);
    let page = store.emails(TEAM, EmailQuery { limit: 10, ..EmailQuery::default() }).await.unwrap();
    assert_eq!(page.rows, [first]);
}

pub(super) async fn a_changed_replay_finds_the_first_and_its_digest(store: Ledger) {
    let first = accepted(&store, &keyed("k").text("one"), T0).await;

    let changed = keyed("k").text("two").wish(T0);
    let found = replayed(&store, &keyed("k").text("two"), T0).await;

    assert_eq!(found, first);
    assert_ne!(found.digest, changed.digest);
    assert_eq!(found.digest, keyed("k").text("one").wish(T0).digest);
}

pub(super) async fn wishes_without_a_key_never_collide(store: Ledger) {
    let one = accepted(&store, &keyless(), T0).await;
    let two = accepted(&store, &keyless(), T0).await;

    assert_ne!(one.id, two.id);
    assert_eq!((one.bind, two.bind), (0, 0));
    assert_eq!(events(&store, TEAM).await.len(), 2);
}

pub(super) async fn what_was_accepted_is_read_back_whole(store: Ledger) {
    let draft = keyed("k").to(&["b@example.com", "a@example.com"]).cc(&["c@example.com"]).apart().ttl(HOUR);
    let wish = draft.wish(T0);
    let email = super::first(store.accept(wish.clone(), T0).await.unwrap());

    let found = detail(&store, wish.id).await;

    assert_eq!(found.email, email);
    assert_eq!(
        (found.email.head, found.email.digest, found.email.ttl),
        (std::sync::Arc::new(wish.head), wish.digest, wish.ttl)
    );
    assert_eq!(found.body.as_deref(), Some(&*wish.body));
    assert_eq!((found.attempts, found.suppressed), (vec![], vec![]));
}

pub(super) async fn what_a_call_is_called_is_kept_and_told_with_the_acceptance(store: Ledger) {
    let first = accepted(&store, &keyed("k").called("toolu_1"), T0).await;
    let quiet = accepted(&store, &keyed("quiet"), T0).await;
    capture(&store, 2, T0.plus(1)).await;

    let found = replayed(&store, &keyed("k").called("toolu_2"), T0.plus(2)).await;

    assert_eq!(found.head.call, keyed("k").called("toolu_1").wish(T0).head.call);
    assert_eq!((found.id, &found.digest), (first.id, &first.digest));
    assert_eq!(the(&store, quiet.id).await.head.call, None);
    let told: Vec<_> = events(&store, TEAM).await.into_iter().map(|event| event.event).collect();
    let calls: Vec<_> = told.iter().filter(|event| event.data.get("call").is_some()).collect();
    assert_eq!(calls.len(), 1, "{told:?}");
    assert_eq!((calls[0].kind, calls[0].about), (Kind::EmailAccepted, first.id.0));
    assert_eq!(calls[0].data["call"], serde_json::json!({ "id": "toolu_1" }));
}

pub(super) async fn each_envelope_becomes_a_handoff_in_order(store: Ledger) {
    let draft = keyed("k").to(&["a@example.com", "b@example.com"]).apart().by("relay");
    let id = accepted(&store, &draft, T0).await.id;

    let email = the(&store, id).await;
    let handoffs: Vec<_> = email.handoffs.iter().map(|h| (h.number, h.recipients[0].as_str(), h.state)).collect();

    assert_eq!(handoffs, [(0, "a@example.com", State::Queued), (1, "b@example.com", State::Queued)]);
    assert!(email.handoffs.iter().all(|h| h.transport == "relay" && h.attempts == 0 && h.due_at == Some(T0)));
}

pub(super) async fn a_replay_shows_the_current_state(store: Ledger) {
    let first = accepted(&store, &keyed("k"), T0).await;
    capture(&store, 1, T0.plus(1)).await;

    let found = replayed(&store, &keyed("k"), T0.plus(2)).await;

    assert_eq!((found.id, found.state(), found.rev), (first.id, EmailState::Sent, 2));
}

pub(super) async fn a_wish_for_later_is_scheduled(store: Ledger) {
    let due = T0.plus(HOUR);
    let email = accepted(&store, &keyed("k").due(due), T0).await;

    assert_eq!((email.state(), email.handoffs[0].due_at), (EmailState::Scheduled, Some(due)));
    assert_eq!(the(&store, email.id).await, email);
}

pub(super) async fn a_due_time_makes_a_wish_scheduled_whatever_ledger_time_says(store: Ledger) {
    for (key, due) in [("k1", T0.plus(-HOUR)), ("k2", T0), ("k3", T0.plus(HOUR))] {
        let email = accepted(&store, &keyed(key).due(due), T0).await;
        assert_eq!((email.state(), email.handoffs[0].due_at), (EmailState::Scheduled, Some(due)), "{key}");
    }
}

pub(super) async fn times_keep_their_milliseconds(store: Ledger) {
    let (now, due) = (T0.plus(7), T0.plus(HOUR + 13));
    let id = accepted(&store, &keyed("k").due(due).ttl(DAY + 17), now).await.id;
    capture(&store, 1, due.plus(1)).await;

    let email = the(&store, id).await;

    assert_eq!((email.head.created_at, email.settled_at), (now, Some(due.plus(1))));
    assert_eq!(email.expires_at(), Some(due.plus(1 + DAY + 17)));
}

pub(super) async fn a_long_body_and_an_empty_one_are_kept(store: Ledger) {
    for (key, size) in [("none", 0), ("odd", 4_099), ("long", 3 << 20)] {
        let mut wish = keyed(key).wish(T0);
        wish.body = (0..size).map(|i: usize| (i % 251) as u8).collect();
        let _first = super::first(store.accept(wish.clone(), T0).await.unwrap());
        assert!(detail(&store, wish.id).await.body.as_deref() == Some(&*wish.body), "{key}");
    }
}

pub(super) async fn an_unknown_id_is_nobody(store: Ledger) {
    let nobody = EmailId(super::next_id(Time(0)));
    assert_eq!(store.email(TEAM, nobody).await.unwrap(), None);
    assert_eq!(store.email_detail(TEAM, nobody).await.unwrap(), None);
}

pub(super) async fn an_id_with_other_unordered_bits_is_nobody(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let near = EmailId(uuid::Uuid::from_u128(email.id.0.as_u128() ^ 1));

    assert_eq!(store.email(TEAM, near).await.unwrap(), None);
    assert_eq!(store.email_detail(TEAM, near).await.unwrap(), None);
    assert!(matches!(accept(&store, &keyed("k"), T0).await, mailonce_core::port::store::Accept::Bound(_)));
}

pub(super) async fn the_highest_id_is_remembered(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let last = mailonce_core::id::ordered_bits(email.id.0);

    assert!(store.install().await.unwrap().last_id >= last);
}
