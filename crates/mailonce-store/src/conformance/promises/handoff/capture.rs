//! Promises about captures by the sandbox transport.

use mailonce_core::{
    handoff::{Attempt, AttemptDetails, HandoffState, Outcome},
    outbound::email::EmailState,
};

use crate::conformance::{
    HOUR, OTHER_TEAM, SANDBOX, T0, TEAM, TestStore, accept_first, all_events, capture_due, event_kinds, keyed_email,
    keyless_email, load_detail, load_email,
};

pub(super) async fn a_capture_marks_the_email_sent_and_records_an_attempt(store: TestStore) {
    let id = accept_first(&store, &keyed_email("k"), T0).await.id;
    let now = T0.plus(3);

    assert_eq!(capture_due(&store, 10, now).await, 1);

    let found = load_detail(&store, id).await;
    let handoff = &found.email.handoffs[0];
    assert_eq!((found.email.state(), found.email.rev), (EmailState::Sent, 2));
    assert_eq!((handoff.state, handoff.attempts, handoff.fence, handoff.due_at), (HandoffState::Sent, 1, 1, None));
    let reply = found.attempts[0].reply.clone();
    let attempt = Attempt {
        handoff: 0,
        number: 1,
        at: now,
        ended_at: Some(now),
        outcome: Some(Outcome::Accepted),
        reply,
        details: AttemptDetails::default(),
    };
    assert_eq!(found.attempts, [attempt]);
    let last = all_events(&store, TEAM).await.pop().unwrap();
    assert_eq!(
        (last.event.kind.as_str(), last.event.subject_id, last.event.rev, last.event.at),
        ("email.sent", id.0, 2, now)
    );
}

pub(super) async fn nothing_is_captured_twice(store: TestStore) {
    let _email = accept_first(&store, &keyed_email("k"), T0).await;

    assert_eq!(capture_due(&store, 10, T0).await, 1);
    assert_eq!(capture_due(&store, 10, T0.plus(HOUR)).await, 0);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.sent"]);
}

pub(super) async fn only_envelopes_of_the_transport_are_captured(store: TestStore) {
    let mine = accept_first(&store, &keyed_email("mine"), T0).await;
    let other = accept_first(&store, &keyed_email("other").via_transport("relay"), T0).await;

    assert_eq!(capture_due(&store, 10, T0).await, 1);

    assert_eq!(load_email(&store, mine.id).await.state(), EmailState::Sent);
    assert_eq!(load_email(&store, other.id).await, other);
    assert_eq!(store.next_handoff_due("relay").await.unwrap(), Some(T0));
    assert_eq!(store.next_handoff_due("nowhere").await.unwrap(), None);
}

pub(super) async fn captures_take_the_longest_due_first_up_to_the_limit(store: TestStore) {
    let mut ids = Vec::new();
    for (key, due) in [("late", 30), ("early", 10), ("middle", 20), ("not yet", 2_000)] {
        ids.push(accept_first(&store, &keyed_email(key).due(T0.plus(due)), T0).await.id);
    }
    let now = T0.plus(1_000);

    let taken =
        [capture_due(&store, 2, now).await, capture_due(&store, 2, now).await, capture_due(&store, 2, now).await];

    assert_eq!(taken, [2, 1, 0]);
    let events = all_events(&store, TEAM).await;
    let order: Vec<_> = events.iter().skip(4).map(|event| event.event.subject_id).collect();
    assert_eq!(order, [ids[1].0, ids[2].0, ids[0].0]);
    assert_eq!(load_email(&store, ids[3]).await.state(), EmailState::Scheduled);
}

pub(super) async fn envelopes_of_one_email_are_captured_separately(store: TestStore) {
    let fixture = keyed_email("k").to(&["a@example.com", "b@example.com", "c@example.com"]).separate_envelopes();
    let id = accept_first(&store, &fixture, T0).await.id;

    assert_eq!(capture_due(&store, 2, T0.plus(1)).await, 2);
    let between = load_email(&store, id).await;
    assert_eq!(capture_due(&store, 2, T0.plus(2)).await, 1);
    let after = load_detail(&store, id).await;

    assert_eq!((between.state(), between.rev, between.settled_at), (EmailState::Queued, 3, None));
    assert_eq!((after.email.state(), after.email.rev), (EmailState::Sent, 4));
    assert_eq!(after.email.settled_at, Some(T0.plus(2)));
    let attempts: Vec<_> = after.attempts.iter().map(|a| (a.handoff, a.number, a.at)).collect();
    assert_eq!(attempts, [(0, 1, T0.plus(1)), (1, 1, T0.plus(1)), (2, 1, T0.plus(2))]);
}

pub(super) async fn the_next_due_time_is_the_earliest(store: TestStore) {
    assert_eq!(store.next_handoff_due(SANDBOX).await.unwrap(), None);
    let _late = accept_first(&store, &keyed_email("late").due(T0.plus(2 * HOUR)), T0).await;
    let _early = accept_first(&store, &keyed_email("early").due(T0.plus(HOUR)), T0).await;
    assert_eq!(store.next_handoff_due(SANDBOX).await.unwrap(), Some(T0.plus(HOUR)));
    let _now = accept_first(&store, &keyless_email(), T0).await;
    assert_eq!(store.next_handoff_due(SANDBOX).await.unwrap(), Some(T0));

    assert_eq!(capture_due(&store, 10, T0.plus(HOUR)).await, 2);

    assert_eq!(store.next_handoff_due(SANDBOX).await.unwrap(), Some(T0.plus(2 * HOUR)));
}

pub(super) async fn envelopes_of_every_team_are_captured(store: TestStore) {
    let _mine = accept_first(&store, &keyed_email("k"), T0).await;
    let _theirs = accept_first(&store, &keyed_email("k").team(OTHER_TEAM), T0).await;

    assert_eq!(capture_due(&store, 10, T0).await, 2);

    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.sent"]);
    assert_eq!(all_events(&store, OTHER_TEAM).await.len(), 2);
}
