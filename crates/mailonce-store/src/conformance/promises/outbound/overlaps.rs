//! Promises about emails of one intent that share recipients: nobody gets the same notification twice.

use mailonce_core::{
    operation::IdempotentResult,
    outbound::{
        accept::{AcceptResult, NewBatch},
        email::{Email, EmailState, Guard},
        email_commands::EmailResendResult,
    },
    time::Time,
};

use crate::conformance::{
    EmailFixture, HOUR, SANDBOX, SECOND, T0, TEAM, TestStore, accept_and_send, accept_batch_items, accept_first,
    accept_replay, cancel_email, capture_due, event_kinds, given_key_hash, intent_email, keyed_email, load_email,
    next_version,
};

const A: &str = "a@example.com";
const B: &str = "b@example.com";
const C: &str = "c@example.com";

fn is_held(email: &Email) -> bool {
    assert_eq!(email.guard.is_some(), email.state() == EmailState::Held);
    email.guard == Some(Guard::Overlaps)
}

/// Accepts emails one after another and checks which of them are held.
async fn check_held(store: &TestStore, fixtures: &[(EmailFixture, bool)]) {
    for (i, (fixture, held)) in fixtures.iter().enumerate() {
        let email = accept_first(store, fixture, T0).await;
        assert_eq!(is_held(&email), *held, "draft {i}");
        assert_eq!(load_email(store, email.id).await, email, "draft {i}");
    }
}

pub(super) async fn an_email_to_several_is_held_after_the_same_intent_went_to_one(store: TestStore) {
    check_held(&store, &[(intent_email("o", &[A]), false), (intent_email("o", &[A, B]), true)]).await;
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.held"]);
}

pub(super) async fn an_email_to_one_is_held_after_the_same_intent_went_to_several(store: TestStore) {
    let several = accept_first(&store, &intent_email("o", &[A, B]), T0).await;
    let one = accept_first(&store, &intent_email("o", &[A]), T0).await;

    assert!(is_held(&one) && !is_held(&several));
    assert_eq!(one.bind_number, 1);
    assert_eq!(accept_replay(&store, &intent_email("o", &[A]), T0).await, one);
    assert_eq!(accept_replay(&store, &intent_email("o", &[A, B]), T0).await, several);
}

pub(super) async fn emails_of_one_intent_that_share_a_recipient_are_held(store: TestStore) {
    check_held(&store, &[(intent_email("o", &[A, B]), false), (intent_email("o", &[B, C]), true)]).await;
}

pub(super) async fn emails_of_one_intent_without_a_shared_recipient_are_not_held(store: TestStore) {
    let d = "d@example.com";
    check_held(&store, &[(intent_email("o", &[A, B]), false), (intent_email("o", &[C, d]), false)]).await;
}

pub(super) async fn other_intents_to_the_same_recipients_are_not_held(store: TestStore) {
    let fixtures = [
        intent_email("o", &[A, B]),
        intent_email("p", &[A, B]),
        intent_email("p2", &[A]),
        keyed_email("k").to(&[A, B]),
    ];
    check_held(&store, &fixtures.map(|fixture| (fixture, false))).await;
}

pub(super) async fn cc_recipients_do_not_overlap(store: TestStore) {
    check_held(&store, &[(intent_email("o", &[A]).cc(&[B]), false), (intent_email("o", &[B, C]), false)]).await;
}

pub(super) async fn an_email_to_several_does_not_bind_a_recipients_own_key(store: TestStore) {
    check_held(&store, &[(intent_email("o", &[A, B]), false)]).await;

    let alone = intent_email("o", &[A]).hash();

    assert_eq!(store.key_binding(TEAM, alone, T0).await.unwrap(), None);
    assert_eq!(store.key(TEAM, alone, T0).await.unwrap(), None);
}

pub(super) async fn recipients_are_released_by_a_cancel(store: TestStore) {
    let several = accept_first(&store, &intent_email("o", &[A, B]), T0).await;
    let single = accept_first(&store, &intent_email("p", &[A]), T0).await;
    cancel_email(&store, several.id, T0).await;
    cancel_email(&store, single.id, T0).await;

    check_held(
        &store,
        &[(intent_email("o", &[A]), false), (intent_email("o", &[B, C]), false), (intent_email("p", &[A, B]), false)],
    )
    .await;
}

pub(super) async fn released_recipients_can_be_occupied_again(store: TestStore) {
    let several = accept_first(&store, &intent_email("o", &[A, B]), T0).await;
    cancel_email(&store, several.id, T0).await;

    check_held(
        &store,
        &[(intent_email("o", &[A, C]), false), (intent_email("o", &[A]), true), (intent_email("o", &[B]), false)],
    )
    .await;
}

pub(super) async fn a_later_version_occupies_the_recipients_of_a_cancelled_earlier_one(store: TestStore) {
    let several = accept_first(&store, &intent_email("o", &[A, B]), T0).await;
    let single = accept_first(&store, &intent_email("p", &[A]), T0).await;
    for email in [&several, &single] {
        let cancelled = cancel_email(&store, email.id, T0).await;
        assert!(!is_held(&expect_resent(&store, &cancelled, T0).await));
    }

    check_held(
        &store,
        &[(intent_email("o", &[B]), true), (intent_email("o", &[A, C]), true), (intent_email("p", &[A, B]), true)],
    )
    .await;
    assert_eq!(accept_replay(&store, &intent_email("o", &[A, B]), T0).await.id, several.id);
    assert_eq!(accept_replay(&store, &intent_email("p", &[A]), T0).await.id, single.id);
}

pub(super) async fn a_version_that_takes_back_a_held_email_takes_its_recipients(store: TestStore) {
    let held = accept_first(&store, &intent_email("o", &[A, B]).held(Guard::Approval), T0).await;
    let mut email = next_version(&held).to_new_email(T0);
    email.guard_input.cancels_previous = true;

    let resent = store.resend(email, None, T0).await.unwrap();

    let IdempotentResult::Done(EmailResendResult::First(next)) = resent else { panic!("{resent:?}") };
    assert!(!is_held(&next));
    check_held(&store, &[(intent_email("o", &[B]), true), (intent_email("o", &[C]), false)]).await;
    let mut told = event_kinds(&store).await;
    // Stores differ in the order of the events of one resend.
    told[1..4].sort_unstable();
    assert_eq!(
        told,
        ["email.held", "email.accepted", "email.cancelled", "email.resent", "email.held", "email.accepted"]
    );
}

pub(super) async fn an_earlier_version_after_a_later_one_is_held(store: TestStore) {
    let fixtures = [
        (intent_email("o", &[A]).version(2), false),
        (intent_email("o", &[A]), true),
        (intent_email("o", &[B]), false),
    ];
    check_held(&store, &fixtures).await;
    let fixtures = [
        (intent_email("p", &[A]).version(3), false),
        (intent_email("p", &[A, B]).version(2), true),
        (intent_email("p", &[A]), true),
    ];
    check_held(&store, &fixtures).await;
}

pub(super) async fn a_later_version_does_not_overlap_the_version_it_replaces(store: TestStore) {
    let several = accept_and_send(&store, &intent_email("o", &[A, B]), T0).await;
    let single = accept_and_send(&store, &intent_email("p", &[A]), T0).await;
    for email in [several, single] {
        assert!(!is_held(&expect_resent(&store, &email, T0).await));
    }
}

pub(super) async fn an_expired_later_version_occupies_no_recipient(store: TestStore) {
    for (i, sweep) in [false, true].into_iter().enumerate() {
        let (now, entity) = (T0.plus(i as i64 * HOUR), format!("o{i}"));
        let first = accept_first(&store, &intent_email(&entity, &[A, B]).ttl(SECOND), now).await;
        let first = cancel_email(&store, first.id, now).await;
        let new_email = next_version(&first).ttl(SECOND).to_new_email(now);
        let IdempotentResult::Done(EmailResendResult::First(_)) = store.resend(new_email, None, now).await.unwrap()
        else {
            panic!()
        };
        capture_due(&store, 10, now).await;
        assert!(is_held(&accept_first(&store, &intent_email(&entity, &[B]), now).await), "swept between: {sweep}");
        let later = now.plus(SECOND);
        if sweep {
            let _swept = store.sweep(100, later).await.unwrap();
        }
        assert!(!is_held(&accept_first(&store, &intent_email(&entity, &[A]), later).await), "swept between: {sweep}");
    }
}

/// Resends an email and returns its next version.
async fn expect_resent(store: &TestStore, of: &Email, now: Time) -> Email {
    match store.resend(next_version(of).to_new_email(now), None, now).await.unwrap() {
        IdempotentResult::Done(EmailResendResult::First(email)) => email,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn recipients_stay_occupied_after_sending(store: TestStore) {
    let _several = accept_and_send(&store, &intent_email("o", &[A, B]), T0).await;
    let _single = accept_and_send(&store, &intent_email("p", &[A]), T0).await;
    check_held(&store, &[(intent_email("o", &[A]), true), (intent_email("p", &[A, B]), true)]).await;
}

pub(super) async fn recipients_are_released_when_the_key_expires(store: TestStore) {
    let swept_between = [false, true];
    for (i, sweep) in swept_between.into_iter().enumerate() {
        let (now, entity) = (T0.plus(i as i64 * HOUR), format!("o{i}"));
        let _sent =
            accept_and_send(&store, &intent_email(&entity, &[A, B]).ttl(SECOND).via_transport(&entity), now).await;
        let later = now.plus(SECOND);
        if sweep {
            let _swept = store.sweep(100, later).await.unwrap();
        }
        let one = accept_first(&store, &intent_email(&entity, &[A]), later).await;
        let several = accept_first(&store, &intent_email(&entity, &[B, C]), later).await;
        assert!(!is_held(&one) && !is_held(&several), "swept between: {sweep}");
    }
}

pub(super) async fn a_held_email_is_never_handed_over(store: TestStore) {
    let due = T0.plus(HOUR);
    let first = accept_first(&store, &intent_email("o", &[A, B]), T0).await;
    let held = accept_first(&store, &intent_email("o", &[A]), T0).await;
    let held_for_later = accept_first(&store, &intent_email("o", &[B]).due(due), T0).await;

    assert_eq!(capture_due(&store, 10, due.plus(HOUR)).await, 1);

    assert_eq!(load_email(&store, first.id).await.state(), EmailState::Sent);
    for email in [held, held_for_later] {
        assert_eq!(load_email(&store, email.id).await, email);
    }
    assert_eq!(store.next_handoff_due(SANDBOX).await.unwrap(), None);
}

pub(super) async fn a_held_email_can_be_cancelled(store: TestStore) {
    check_held(&store, &[(intent_email("o", &[A, B]), false)]).await;
    let held = accept_first(&store, &intent_email("o", &[A]), T0).await;

    let after = cancel_email(&store, held.id, T0.plus(1)).await;

    assert_eq!((after.state(), after.settled_at), (EmailState::Cancelled, Some(T0.plus(1))));
    assert_eq!(accept_replay(&store, &intent_email("o", &[A]), T0.plus(2)).await, after);
}

pub(super) async fn overlapping_items_of_one_batch_are_held(store: TestStore) {
    let fixtures = [
        intent_email("o", &[A, B]),
        intent_email("o", &[A]),
        intent_email("p", &[A]),
        intent_email("p", &[A, C]),
        intent_email("o", &[B, C]),
    ];
    let items = fixtures.iter().map(|fixture| fixture.to_new_email(T0)).collect();
    let answers = accept_batch_items(&store, NewBatch { team: TEAM, operation: None, items, strict: false }, T0).await;

    let held: Vec<bool> =
        answers.iter().map(|answer| matches!(answer, AcceptResult::First(email) if is_held(email))).collect();

    assert_eq!(held, [false, true, false, true, true]);
}

pub(super) async fn a_given_key_that_equals_the_derived_key_counts_as_the_intent(store: TestStore) {
    let derived = intent_email("o", &[A]).to_new_email(T0).head.key.unwrap().display_name();
    let several = accept_first(&store, &intent_email("o", &[A, B]), T0).await;

    let given_by_hand = accept_first(&store, &keyed_email(&derived).to(&[A]), T0).await;

    assert!(is_held(&given_by_hand) && !is_held(&several));
    assert_eq!(given_key_hash(TEAM, &derived), intent_email("o", &[A]).hash());
}
