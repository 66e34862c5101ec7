//! Promises about concurrent sends, batches, cancels, resends and sweeps.

use mailonce_core::{
    operation::IdempotentResult,
    outbound::{
        accept::AcceptResult,
        email::{Email, EmailState},
        email_commands::{EmailChangeResult, EmailResendResult},
        key_binding::KeyBinding,
        suppressed_call::SuppressedCalls,
    },
};
use std::collections::BTreeSet;

use crate::conformance::{
    DAY, EmailFixture, SANDBOX, SECOND, T0, TEAM, TestStore, accept_and_send, accept_batch_items, accept_first,
    accept_replay, all_at_once, all_events, capture_due, event_kinds, expect_first, intent_email, keyed_email,
    keyless_batch, keyless_email, list_all, load_detail, load_email, new_operation, next_version,
};

const A: &str = "a@example.com";
const B: &str = "b@example.com";

/// Accepts all emails concurrently.
async fn accept_concurrently(store: &TestStore, fixtures: &[EmailFixture], at: i64) -> Vec<AcceptResult> {
    let now = T0.plus(at);
    let work = fixtures.iter().map(|fixture| (store.clone(), fixture.to_new_email(now)));
    all_at_once(work.map(|(store, new_email)| async move { store.accept(new_email, now).await.unwrap() })).await
}

/// The one email that all results name, and how many calls created it.
fn expect_one_email(answers: Vec<AcceptResult>) -> (Email, usize) {
    let firsts = answers.iter().filter(|answer| matches!(answer, AcceptResult::First(_))).count();
    let mut emails: Vec<Email> = answers
        .into_iter()
        .map(|answer| match answer {
            AcceptResult::First(email) | AcceptResult::KeyBound(KeyBinding::Email(email)) => email,
            other => panic!("{other:?}"),
        })
        .collect();
    emails.dedup();
    assert_eq!(emails.len(), 1, "every caller gets the same email");
    (emails.remove(0), firsts)
}

pub(super) async fn of_64_equal_concurrent_sends_one_is_accepted(store: TestStore) {
    let (email, firsts) = expect_one_email(accept_concurrently(&store, &vec![keyed_email("k"); 64], 0).await);

    assert_eq!((firsts, email.bind_number), (1, 1));
    assert_eq!(list_all(&store, TEAM).await, [email]);
    assert_eq!(all_events(&store, TEAM).await.len(), 1);
}

pub(super) async fn of_1000_equal_concurrent_sends_one_is_accepted(store: TestStore) {
    let (_email, firsts) = expect_one_email(accept_concurrently(&store, &vec![keyed_email("k"); 1000], 0).await);

    assert_eq!(firsts, 1);
    assert_eq!(all_events(&store, TEAM).await.len(), 1);
}

pub(super) async fn of_64_different_concurrent_sends_under_one_key_one_is_accepted(store: TestStore) {
    let fixtures: Vec<_> = (0..64).map(|i| keyed_email("k").text(&format!("wording {i}"))).collect();

    let (email, firsts) = expect_one_email(accept_concurrently(&store, &fixtures, 0).await);

    assert_eq!(firsts, 1);
    let digests: Vec<_> = fixtures.iter().map(|fixture| fixture.to_new_email(T0).digest).collect();
    assert!(digests.contains(&email.digest));
}

pub(super) async fn of_200_concurrent_sends_with_own_keys_all_are_accepted(store: TestStore) {
    let fixtures: Vec<_> = (0..200).map(|i| keyed_email(&format!("k{i}"))).collect();

    let ids: BTreeSet<_> =
        accept_concurrently(&store, &fixtures, 0).await.into_iter().map(|answer| expect_first(answer).id).collect();

    assert_eq!((ids.len(), all_events(&store, TEAM).await.len()), (200, 200));
}

pub(super) async fn of_64_concurrent_sends_under_an_expired_key_one_is_accepted(store: TestStore) {
    let old = accept_and_send(&store, &keyed_email("k").ttl(SECOND), T0).await;

    let (email, firsts) = expect_one_email(accept_concurrently(&store, &vec![keyed_email("k"); 64], SECOND).await);

    assert_eq!((firsts, email.bind_number), (1, 2));
    assert_ne!(email.id, old.id);
}

pub(super) async fn of_concurrent_overlapping_sends_to_one_and_to_several_only_one_is_sent(store: TestStore) {
    for round in 0..50 {
        let entity = format!("o{round}");
        let (one, several) = (intent_email(&entity, &[A]), intent_email(&entity, &[A, B]));
        let pair = if round % 2 == 0 { [one, several] } else { [several, one] };

        let emails: Vec<_> = accept_concurrently(&store, &pair, 0).await.into_iter().map(expect_first).collect();

        let held = emails.iter().filter(|email| email.state() == EmailState::Held).count();
        assert_eq!(held, 1, "round {round}: {emails:?}");
    }
}

pub(super) async fn of_concurrent_sends_to_groups_that_share_a_recipient_only_one_is_sent(store: TestStore) {
    for round in 0..10 {
        let names: Vec<String> = (0..12).map(|i| format!("p{i}@example.com")).collect();
        let fixtures: Vec<_> =
            names.iter().map(|name| intent_email(&format!("o{round}"), &[name.as_str(), A])).collect();

        let emails: Vec<_> = accept_concurrently(&store, &fixtures, 0).await.into_iter().map(expect_first).collect();

        let queued = emails.iter().filter(|email| email.state() == EmailState::Queued).count();
        assert_eq!(queued, 1, "round {round}");
    }
}

pub(super) async fn batches_with_reversed_keys_do_not_deadlock(store: TestStore) {
    let keys: Vec<_> = (0..40).map(|i| keyed_email(&format!("k{i}"))).collect();
    let backwards: Vec<_> = keys.iter().rev().cloned().collect();
    let batches = (0..16).map(|i| if i % 2 == 0 { &keys } else { &backwards });
    let new_emails: Vec<_> =
        batches.map(|fixtures| fixtures.iter().map(|fixture| fixture.to_new_email(T0)).collect::<Vec<_>>()).collect();
    let work = new_emails.into_iter().map(|new_emails| (store.clone(), keyless_batch(&new_emails)));

    let answers =
        all_at_once(work.map(|(store, batch)| async move { accept_batch_items(&store, batch, T0).await })).await;

    let firsts = answers.iter().flatten().filter(|answer| matches!(answer, AcceptResult::First(_))).count();
    assert_eq!(firsts, 40);
    assert_eq!((list_all(&store, TEAM).await.len(), all_events(&store, TEAM).await.len()), (40, 40));
}

pub(super) async fn a_batch_sent_several_times_concurrently_creates_its_items_once(store: TestStore) {
    let fixtures: Vec<_> = (0..30).map(|i| keyless_email().batch_item("b", i)).collect();
    let new_emails: Vec<Vec<_>> =
        (0..8).map(|_| fixtures.iter().map(|fixture| fixture.to_new_email(T0)).collect()).collect();
    let work = new_emails.into_iter().map(|new_emails| {
        let mut batch = keyless_batch(&new_emails);
        batch.operation = Some(new_operation("b", 1, T0));
        (store.clone(), batch)
    });

    let answers =
        all_at_once(work.map(|(store, batch)| async move { accept_batch_items(&store, batch, T0).await })).await;

    for index in 0..30 {
        let (_email, firsts) = expect_one_email(answers.iter().map(|items| items[index].clone()).collect());
        assert_eq!(firsts, 1, "item {index}");
    }
}

pub(super) async fn of_32_concurrent_cancels_one_emits_an_event(store: TestStore) {
    let id = accept_first(&store, &keyed_email("k"), T0).await.id;
    let work = (0..32).map(|_| store.clone());

    let answers = all_at_once(work.map(|store| async move { store.cancel(TEAM, id, None, T0).await.unwrap() })).await;

    let after = load_email(&store, id).await;
    assert!(answers.iter().all(|answer| *answer == IdempotentResult::Done(EmailChangeResult::Changed(after.clone()))));
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.cancelled"]);
}

pub(super) async fn a_cancel_and_a_capture_never_both_win(store: TestStore) {
    for round in 0..30 {
        let id = accept_first(&store, &keyed_email(&format!("k{round}")), T0).await.id;
        let (canceller, capturer) = (store.clone(), store.clone());
        let cancel = tokio::spawn(async move { canceller.cancel(TEAM, id, None, T0).await.unwrap() });
        let taken = tokio::spawn(async move { capture_due(&capturer, 10, T0).await });

        let (cancel, taken) = (cancel.await.unwrap(), taken.await.unwrap());

        let won = matches!(cancel, IdempotentResult::Done(EmailChangeResult::Changed(_)));
        let state = load_email(&store, id).await.state();
        let wanted = if won { EmailState::Cancelled } else { EmailState::Sent };
        assert_eq!((state, taken), (wanted, usize::from(!won)), "round {round}");
    }
}

pub(super) async fn many_workers_capture_each_envelope_once(store: TestStore) {
    let mut ids = Vec::new();
    for i in 0..60 {
        ids.push(accept_first(&store, &keyed_email(&format!("k{i}")), T0).await.id);
    }
    let work = (0..12).map(|_| store.clone());

    let taken: Vec<usize> = all_at_once(work.map(|store| async move {
        let mut taken = 0;
        for _ in 0..12 {
            taken += store.capture(SANDBOX, 7, Some(T0), T0).await.unwrap();
        }
        taken
    }))
    .await;

    assert_eq!(taken.iter().sum::<usize>(), 60);
    for id in ids {
        let found = load_detail(&store, id).await;
        assert_eq!((found.email.state(), found.attempts.len()), (EmailState::Sent, 1));
    }
    assert_eq!(all_events(&store, TEAM).await.len(), 120);
}

pub(super) async fn of_32_concurrent_resends_one_creates_a_version(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k"), T0).await;
    let work: Vec<_> = (0..32).map(|_| (store.clone(), next_version(&email).to_new_email(T0))).collect();
    let resends =
        work.into_iter().map(|(store, new_email)| async move { store.resend(new_email, None, T0).await.unwrap() });

    let answers = all_at_once(resends).await;

    let firsts =
        answers.iter().filter(|answer| matches!(answer, IdempotentResult::Done(EmailResendResult::First(_)))).count();
    let versions: BTreeSet<_> = answers
        .iter()
        .map(|answer| match answer {
            IdempotentResult::Done(EmailResendResult::First(next) | EmailResendResult::Replayed(next)) => next.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((firsts, versions.len()), (1, 1));
    assert_eq!(load_email(&store, email.id).await.resent_as, versions.first().copied());
    assert_eq!(list_all(&store, TEAM).await.len(), 2);
}

pub(super) async fn of_32_concurrent_operations_under_one_key_one_is_executed(store: TestStore) {
    let mut work = Vec::new();
    for i in 0..32 {
        let id = accept_first(&store, &keyed_email(&format!("k{i}")), T0).await.id;
        work.push((store.clone(), id, new_operation("op", 1, T0)));
    }
    let cancels =
        work.into_iter().map(|(store, id, op)| async move { store.cancel(TEAM, id, Some(op), T0).await.unwrap() });

    let answers = all_at_once(cancels).await;

    assert_eq!(answers.iter().filter(|answer| matches!(answer, IdempotentResult::Done(_))).count(), 1);
    assert_eq!(answers.iter().filter(|answer| matches!(answer, IdempotentResult::Replayed(_))).count(), 31);
    assert_eq!(event_kinds(&store).await.iter().filter(|kind| **kind == "email.cancelled").count(), 1);
}

pub(super) async fn suppressed_counts_of_many_nodes_add_up(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let note = SuppressedCalls { team: TEAM, email: email.id, count: 3, latest: vec![] };
    let work = (0..40).map(|_| (store.clone(), note.clone()));

    all_at_once(work.map(|(store, note)| async move { store.record_suppressed_calls(vec![note], T0).await.unwrap() }))
        .await;

    assert_eq!(load_email(&store, email.id).await.suppressed, 120);
    assert_eq!(all_events(&store, TEAM).await.len(), 41);
}

pub(super) async fn a_sweep_concurrent_with_sends_loses_nothing(store: TestStore) {
    for i in 0..20 {
        let _old = accept_and_send(&store, &keyed_email(&format!("k{i}")).ttl(SECOND), T0).await;
    }
    let now = T0.plus(40 * DAY);
    let new_emails: Vec<_> =
        (0..20).map(|i| (store.clone(), keyed_email(&format!("k{i}")).to_new_email(now))).collect();
    let sweeps: Vec<_> = (0..10).map(|_| store.clone()).collect();
    let sweeps = sweeps.into_iter().map(move |store| async move { store.sweep(5, now).await.unwrap() });
    let sweeper = tokio::spawn(all_at_once(sweeps));
    let accepts =
        new_emails.into_iter().map(|(store, new_email)| async move { store.accept(new_email, now).await.unwrap() });

    let new: Vec<_> = all_at_once(accepts).await.into_iter().map(expect_first).collect();
    let _swept = sweeper.await.unwrap();

    let _rest = store.sweep(100, now).await.unwrap();
    for (i, email) in new.into_iter().enumerate() {
        assert_eq!(email.bind_number, 2, "k{i}");
        assert_eq!(accept_replay(&store, &keyed_email(&format!("k{i}")), now).await, email);
    }
}
