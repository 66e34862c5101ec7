//! Promises about handing envelopes to the sandbox.

use mailonce_core::{
    email::EmailState,
    handoff::{Attempt, AttemptAbout, Outcome, State},
};

use super::{HOUR, Ledger, SANDBOX, T0, TEAM, accepted, capture, detail, events, keyed, keyless, kinds, the};

pub(super) async fn a_capture_sends_and_leaves_an_attempt(store: Ledger) {
    let id = accepted(&store, &keyed("k"), T0).await.id;
    let now = T0.plus(3);

    assert_eq!(capture(&store, 10, now).await, 1);

    let found = detail(&store, id).await;
    let handoff = &found.email.handoffs[0];
    assert_eq!((found.email.state(), found.email.rev), (EmailState::Sent, 2));
    assert_eq!((handoff.state, handoff.attempts, handoff.fence, handoff.due_at), (State::Sent, 1, 1, None));
    let reply = found.attempts[0].reply.clone();
    let attempt = Attempt {
        handoff: 0,
        number: 1,
        at: now,
        ended_at: Some(now),
        outcome: Some(Outcome::Accepted),
        reply,
        about: AttemptAbout::default(),
    };
    assert_eq!(found.attempts, [attempt]);
    let last = events(&store, TEAM).await.pop().unwrap();
    assert_eq!((last.event.kind.word(), last.event.about, last.event.rev, last.event.at), ("email.sent", id.0, 2, now));
}

pub(super) async fn nothing_is_captured_twice(store: Ledger) {
    let _email = accepted(&store, &keyed("k"), T0).await;

    assert_eq!(capture(&store, 10, T0).await, 1);
    assert_eq!(capture(&store, 10, T0.plus(HOUR)).await, 0);
    assert_eq!(kinds(&store).await, ["email.accepted", "email.sent"]);
}

pub(super) async fn only_envelopes_of_the_transport_are_captured(store: Ledger) {
    let mine = accepted(&store, &keyed("mine"), T0).await;
    let other = accepted(&store, &keyed("other").by("relay"), T0).await;

    assert_eq!(capture(&store, 10, T0).await, 1);

    assert_eq!(the(&store, mine.id).await.state(), EmailState::Sent);
    assert_eq!(the(&store, other.id).await, other);
    assert_eq!(store.next_due("relay").await.unwrap(), Some(T0));
    assert_eq!(store.next_due("nowhere").await.unwrap(), None);
}

pub(super) async fn the_longest_due_are_captured_first_and_at_most_so_many(store: Ledger) {
    let mut ids = Vec::new();
    for (key, due) in [("late", 30), ("early", 10), ("middle", 20), ("not yet", 2_000)] {
        ids.push(accepted(&store, &keyed(key).due(T0.plus(due)), T0).await.id);
    }
    let now = T0.plus(1_000);

    let taken = [capture(&store, 2, now).await, capture(&store, 2, now).await, capture(&store, 2, now).await];

    assert_eq!(taken, [2, 1, 0]);
    let told = events(&store, TEAM).await;
    let order: Vec<_> = told.iter().skip(4).map(|event| event.event.about).collect();
    assert_eq!(order, [ids[1].0, ids[2].0, ids[0].0]);
    assert_eq!(the(&store, ids[3]).await.state(), EmailState::Scheduled);
}

pub(super) async fn envelopes_of_one_email_are_captured_one_by_one(store: Ledger) {
    let draft = keyed("k").to(&["a@example.com", "b@example.com", "c@example.com"]).apart();
    let id = accepted(&store, &draft, T0).await.id;

    assert_eq!(capture(&store, 2, T0.plus(1)).await, 2);
    let between = the(&store, id).await;
    assert_eq!(capture(&store, 2, T0.plus(2)).await, 1);
    let after = detail(&store, id).await;

    assert_eq!((between.state(), between.rev, between.settled_at), (EmailState::Queued, 3, None));
    assert_eq!((after.email.state(), after.email.rev), (EmailState::Sent, 4));
    assert_eq!(after.email.settled_at, Some(T0.plus(2)));
    let attempts: Vec<_> = after.attempts.iter().map(|a| (a.handoff, a.number, a.at)).collect();
    assert_eq!(attempts, [(0, 1, T0.plus(1)), (1, 1, T0.plus(1)), (2, 1, T0.plus(2))]);
}

pub(super) async fn the_next_due_time_is_the_earliest(store: Ledger) {
    assert_eq!(store.next_due(SANDBOX).await.unwrap(), None);
    let _late = accepted(&store, &keyed("late").due(T0.plus(2 * HOUR)), T0).await;
    let _early = accepted(&store, &keyed("early").due(T0.plus(HOUR)), T0).await;
    assert_eq!(store.next_due(SANDBOX).await.unwrap(), Some(T0.plus(HOUR)));
    let _now = accepted(&store, &keyless(), T0).await;
    assert_eq!(store.next_due(SANDBOX).await.unwrap(), Some(T0));

    assert_eq!(capture(&store, 10, T0.plus(HOUR)).await, 2);

    assert_eq!(store.next_due(SANDBOX).await.unwrap(), Some(T0.plus(2 * HOUR)));
}

pub(super) async fn envelopes_of_every_team_are_captured(store: Ledger) {
    let _mine = accepted(&store, &keyed("k"), T0).await;
    let _theirs = accepted(&store, &keyed("k").team(super::OTHER), T0).await;

    assert_eq!(capture(&store, 10, T0).await, 2);

    assert_eq!(kinds(&store).await, ["email.accepted", "email.sent"]);
    assert_eq!(events(&store, super::OTHER).await.len(), 2);
}
