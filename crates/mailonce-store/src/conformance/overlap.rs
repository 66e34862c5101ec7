//! Promises about intents that share recipients: nobody gets the same news by two emails unnoticed.

use mailonce_core::{
    email::{Email, EmailState, Guard},
    port::store::{Accept, BatchWish, Once, Resend},
    time::Time,
};

use super::{
    Draft, HOUR, Ledger, SECOND, T0, TEAM, about, accepted, cancelled, capture, given, keyed, kinds, next_version,
    replayed, sent, the,
};

const A: &str = "a@example.com";
const B: &str = "b@example.com";
const C: &str = "c@example.com";

fn is_held(email: &Email) -> bool {
    assert_eq!(email.guard.is_some(), email.state() == EmailState::Held);
    email.guard == Some(Guard::Overlaps)
}

/// Accepts drafts one after another and compares who is held.
async fn check(store: &Ledger, drafts: &[(Draft, bool)]) {
    for (i, (draft, held)) in drafts.iter().enumerate() {
        let email = accepted(store, draft, T0).await;
        assert_eq!(is_held(&email), *held, "draft {i}");
        assert_eq!(the(store, email.id).await, email, "draft {i}");
    }
}

pub(super) async fn one_then_several_is_held(store: Ledger) {
    check(&store, &[(about("o", &[A]), false), (about("o", &[A, B]), true)]).await;
    assert_eq!(kinds(&store).await, ["email.accepted", "email.held"]);
}

pub(super) async fn several_then_one_is_held_under_its_own_key(store: Ledger) {
    let several = accepted(&store, &about("o", &[A, B]), T0).await;
    let one = accepted(&store, &about("o", &[A]), T0).await;

    assert!(is_held(&one) && !is_held(&several));
    assert_eq!(one.bind, 1);
    assert_eq!(replayed(&store, &about("o", &[A]), T0).await, one);
    assert_eq!(replayed(&store, &about("o", &[A, B]), T0).await, several);
}

pub(super) async fn several_that_share_a_recipient_are_held(store: Ledger) {
    check(&store, &[(about("o", &[A, B]), false), (about("o", &[B, C]), true)]).await;
}

pub(super) async fn several_that_share_nobody_are_not_held(store: Ledger) {
    let d = "d@example.com";
    check(&store, &[(about("o", &[A, B]), false), (about("o", &[C, d]), false)]).await;
}

pub(super) async fn other_intents_to_the_same_people_are_not_held(store: Ledger) {
    let drafts = [about("o", &[A, B]), about("p", &[A, B]), about("p2", &[A]), keyed("k").to(&[A, B])];
    check(&store, &drafts.map(|draft| (draft, false))).await;
}

pub(super) async fn copies_do_not_overlap(store: Ledger) {
    check(&store, &[(about("o", &[A]).cc(&[B]), false), (about("o", &[B, C]), false)]).await;
}

pub(super) async fn a_recipients_own_key_is_not_bound_by_an_email_to_several(store: Ledger) {
    check(&store, &[(about("o", &[A, B]), false)]).await;

    let alone = about("o", &[A]).hash();

    assert_eq!(store.bound(TEAM, alone, T0).await.unwrap(), None);
    assert_eq!(store.key(TEAM, alone, T0).await.unwrap(), None);
}

pub(super) async fn recipients_are_free_again_after_a_cancel(store: Ledger) {
    let several = accepted(&store, &about("o", &[A, B]), T0).await;
    let single = accepted(&store, &about("p", &[A]), T0).await;
    cancelled(&store, several.id, T0).await;
    cancelled(&store, single.id, T0).await;

    check(&store, &[(about("o", &[A]), false), (about("o", &[B, C]), false), (about("p", &[A, B]), false)]).await;
}

pub(super) async fn recipients_freed_by_a_cancel_are_taken_again(store: Ledger) {
    let several = accepted(&store, &about("o", &[A, B]), T0).await;
    cancelled(&store, several.id, T0).await;

    check(&store, &[(about("o", &[A, C]), false), (about("o", &[A]), true), (about("o", &[B]), false)]).await;
}

pub(super) async fn what_left_with_a_later_version_stands_for_the_earlier(store: Ledger) {
    let several = accepted(&store, &about("o", &[A, B]), T0).await;
    let single = accepted(&store, &about("p", &[A]), T0).await;
    for email in [&several, &single] {
        let cancelled = cancelled(&store, email.id, T0).await;
        assert!(!is_held(&resent(&store, &cancelled, T0).await));
    }

    check(&store, &[(about("o", &[B]), true), (about("o", &[A, C]), true), (about("p", &[A, B]), true)]).await;
    assert_eq!(replayed(&store, &about("o", &[A, B]), T0).await.id, several.id);
    assert_eq!(replayed(&store, &about("p", &[A]), T0).await.id, single.id);
}

pub(super) async fn an_earlier_version_after_a_later_one_is_held(store: Ledger) {
    let drafts = [(about("o", &[A]).version(2), false), (about("o", &[A]), true), (about("o", &[B]), false)];
    check(&store, &drafts).await;
    let drafts =
        [(about("p", &[A]).version(3), false), (about("p", &[A, B]).version(2), true), (about("p", &[A]), true)];
    check(&store, &drafts).await;
}

pub(super) async fn a_later_version_does_not_overlap_what_it_is_made_of(store: Ledger) {
    let several = sent(&store, &about("o", &[A, B]), T0).await;
    let single = sent(&store, &about("p", &[A]), T0).await;
    for email in [several, single] {
        assert!(!is_held(&resent(&store, &email, T0).await));
    }
}

pub(super) async fn a_forgotten_later_version_stands_for_nobody(store: Ledger) {
    for (i, sweep) in [false, true].into_iter().enumerate() {
        let (now, entity) = (T0.plus(i as i64 * HOUR), format!("o{i}"));
        let first = accepted(&store, &about(&entity, &[A, B]).ttl(SECOND), now).await;
        let first = cancelled(&store, first.id, now).await;
        let wish = next_version(&first).ttl(SECOND).wish(now);
        let Once::Done(Resend::First(_)) = store.resend(wish, None, now).await.unwrap() else { panic!() };
        capture(&store, 10, now).await;
        assert!(is_held(&accepted(&store, &about(&entity, &[B]), now).await), "swept between: {sweep}");
        let later = now.plus(SECOND);
        if sweep {
            let _swept = store.sweep(100, later).await.unwrap();
        }
        assert!(!is_held(&accepted(&store, &about(&entity, &[A]), later).await), "swept between: {sweep}");
    }
}

/// Makes the next version of an email.
async fn resent(store: &Ledger, of: &Email, now: Time) -> Email {
    match store.resend(next_version(of).wish(now), None, now).await.unwrap() {
        Once::Done(Resend::First(email)) => email,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn recipients_stay_taken_after_sending(store: Ledger) {
    let _several = sent(&store, &about("o", &[A, B]), T0).await;
    let _single = sent(&store, &about("p", &[A]), T0).await;
    check(&store, &[(about("o", &[A]), true), (about("p", &[A, B]), true)]).await;
}

pub(super) async fn recipients_are_free_again_when_the_key_is_forgotten(store: Ledger) {
    let swept_between = [false, true];
    for (i, sweep) in swept_between.into_iter().enumerate() {
        let (now, entity) = (T0.plus(i as i64 * HOUR), format!("o{i}"));
        let _sent = sent(&store, &about(&entity, &[A, B]).ttl(SECOND).by(&entity), now).await;
        let later = now.plus(SECOND);
        if sweep {
            let _swept = store.sweep(100, later).await.unwrap();
        }
        let one = accepted(&store, &about(&entity, &[A]), later).await;
        let several = accepted(&store, &about(&entity, &[B, C]), later).await;
        assert!(!is_held(&one) && !is_held(&several), "swept between: {sweep}");
    }
}

pub(super) async fn a_held_email_is_never_handed_over(store: Ledger) {
    let due = T0.plus(HOUR);
    let first = accepted(&store, &about("o", &[A, B]), T0).await;
    let held = accepted(&store, &about("o", &[A]), T0).await;
    let held_for_later = accepted(&store, &about("o", &[B]).due(due), T0).await;

    assert_eq!(capture(&store, 10, due.plus(HOUR)).await, 1);

    assert_eq!(the(&store, first.id).await.state(), EmailState::Sent);
    for email in [held, held_for_later] {
        assert_eq!(the(&store, email.id).await, email);
    }
    assert_eq!(store.next_due(super::SANDBOX).await.unwrap(), None);
}

pub(super) async fn a_held_email_can_be_cancelled(store: Ledger) {
    check(&store, &[(about("o", &[A, B]), false)]).await;
    let held = accepted(&store, &about("o", &[A]), T0).await;

    let after = cancelled(&store, held.id, T0.plus(1)).await;

    assert_eq!((after.state(), after.settled_at), (EmailState::Cancelled, Some(T0.plus(1))));
    assert_eq!(replayed(&store, &about("o", &[A]), T0.plus(2)).await, after);
}

pub(super) async fn items_of_one_batch_overlap_too(store: Ledger) {
    let drafts = [about("o", &[A, B]), about("o", &[A]), about("p", &[A]), about("p", &[A, C]), about("o", &[B, C])];
    let items = drafts.iter().map(|draft| draft.wish(T0)).collect();
    let answers = super::items(&store, BatchWish { team: TEAM, operation: None, items, strict: false }, T0).await;

    let held: Vec<bool> =
        answers.iter().map(|answer| matches!(answer, Accept::First(email) if is_held(email))).collect();

    assert_eq!(held, [false, true, false, true, true]);
}

pub(super) async fn a_key_that_a_caller_gives_is_the_intents_when_it_is_equal(store: Ledger) {
    let derived = about("o", &[A]).wish(T0).head.key.unwrap().shown();
    let several = accepted(&store, &about("o", &[A, B]), T0).await;

    let given_by_hand = accepted(&store, &keyed(&derived).to(&[A]), T0).await;

    assert!(is_held(&given_by_hand) && !is_held(&several));
    assert_eq!(given(TEAM, &derived), about("o", &[A]).hash());
}
