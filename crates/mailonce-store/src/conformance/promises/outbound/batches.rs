//! Promises about batches: results in the order of the items, and the same results for a retry.

use mailonce_core::outbound::{
    accept::{AcceptResult, BatchAcceptResult, NewBatch},
    key_binding::KeyBinding,
};

use crate::conformance::{
    DAY, EmailFixture, T0, TEAM, TestStore, accept_batch_items, accept_first, accept_replay, all_events, event_kinds,
    expect_bound_email, expect_first, given_key_hash, intent_email, keyed_email, keyless_email, list_all,
    new_operation,
};

/// Items with keys derived from the key of the batch.
fn batch_items(batch: &str, count: u32) -> Vec<EmailFixture> {
    (0..count).map(|i| keyless_email().batch_item(batch, i).text(&format!("item {i}"))).collect()
}

/// A batch under a key, at T0.
fn keyed_batch(key: &str, digest: u8, fixtures: &[EmailFixture]) -> NewBatch {
    NewBatch { operation: Some(new_operation(key, digest, T0)), ..keyless_batch(fixtures) }
}

/// A batch without a key, at T0.
fn keyless_batch(fixtures: &[EmailFixture]) -> NewBatch {
    NewBatch {
        team: TEAM,
        operation: None,
        items: fixtures.iter().map(|fixture| fixture.to_new_email(T0)).collect(),
        strict: false,
    }
}

pub(super) async fn batch_results_are_in_the_order_of_the_items(store: TestStore) {
    let batch = keyed_batch("b", 1, &batch_items("b", 5));
    let ids: Vec<_> = batch.items.iter().map(|item| item.id).collect();

    let answers: Vec<_> = accept_batch_items(&store, batch, T0).await.into_iter().map(expect_first).collect();

    assert_eq!(answers.iter().map(|email| email.id).collect::<Vec<_>>(), ids);
    assert!(answers.iter().all(|email| (email.rev, email.bind_number) == (1, 1)));
    let event_subjects: Vec<_> = all_events(&store, TEAM).await.iter().map(|event| event.event.subject_id).collect();
    assert_eq!(event_subjects, ids.iter().map(|id| id.0).collect::<Vec<_>>());
}

pub(super) async fn a_retried_batch_returns_its_first_emails(store: TestStore) {
    let fixtures = batch_items("b", 5);
    let firsts: Vec<_> =
        accept_batch_items(&store, keyed_batch("b", 1, &fixtures), T0).await.into_iter().map(expect_first).collect();

    let again: Vec<_> = accept_batch_items(&store, keyed_batch("b", 1, &fixtures), T0.plus(1))
        .await
        .into_iter()
        .map(expect_bound_email)
        .collect();

    assert_eq!(again, firsts);
    assert_eq!(all_events(&store, TEAM).await.len(), 5);
}

pub(super) async fn a_batch_of_1000_items_is_accepted_once(store: TestStore) {
    let fixtures = batch_items("b", 1000);
    let firsts: Vec<_> =
        accept_batch_items(&store, keyed_batch("b", 1, &fixtures), T0).await.into_iter().map(expect_first).collect();

    let again: Vec<_> = accept_batch_items(&store, keyed_batch("b", 1, &fixtures), T0)
        .await
        .into_iter()
        .map(expect_bound_email)
        .collect();

    assert_eq!(again, firsts);
    assert_eq!(list_all(&store, TEAM).await.len(), 1000);
    assert_eq!(all_events(&store, TEAM).await.len(), 1000);
}

pub(super) async fn another_batch_under_the_same_key_writes_nothing(store: TestStore) {
    let _firsts = accept_batch_items(&store, keyed_batch("b", 1, &batch_items("b", 2)), T0).await;

    let other = keyed_batch("b", 2, &[keyed_email("free"), keyless_email()]);
    let answer = store.accept_batch(other, T0).await.unwrap();

    assert_eq!(answer, BatchAcceptResult::BatchKeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
    assert_eq!((list_all(&store, TEAM).await.len(), all_events(&store, TEAM).await.len()), (2, 2));
    let _free = accept_first(&store, &keyed_email("free"), T0).await;
}

pub(super) async fn a_batch_under_an_emails_key_writes_nothing(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;

    let answer = store.accept_batch(keyed_batch("k", 1, &batch_items("k", 2)), T0).await.unwrap();

    assert_eq!(answer, BatchAcceptResult::BatchKeyMismatch(KeyBinding::Email(email)));
    assert_eq!(all_events(&store, TEAM).await.len(), 1);
}

pub(super) async fn items_that_share_a_key_become_one_email(store: TestStore) {
    let fixtures = [
        keyed_email("k").text("one"),
        keyed_email("k").text("two"),
        keyed_email("other"),
        keyed_email("k").text("one"),
    ];
    let answers = accept_batch_items(&store, keyless_batch(&fixtures), T0).await;

    let email = expect_first(answers[0].clone());

    assert_eq!(answers[1], AcceptResult::KeyBound(KeyBinding::Email(email.clone())));
    assert_eq!(answers[3], answers[1]);
    assert_ne!(expect_first(answers[2].clone()).id, email.id);
    assert_eq!(all_events(&store, TEAM).await.len(), 2);
    assert_eq!(accept_replay(&store, &keyed_email("k"), T0).await, email);
}

pub(super) async fn items_without_a_key_are_always_new(store: TestStore) {
    let fixtures = [keyless_email(), keyless_email()];
    for round in 1..=2 {
        let answers = accept_batch_items(&store, keyless_batch(&fixtures), T0).await;
        assert!(answers.into_iter().map(expect_first).all(|email| email.bind_number == 0));
        assert_eq!(list_all(&store, TEAM).await.len(), round * 2);
    }
}

pub(super) async fn a_batch_can_mix_new_and_replayed_items(store: TestStore) {
    let known = accept_first(&store, &keyed_email("known"), T0).await;
    let answers = accept_batch_items(
        &store,
        keyless_batch(&[keyed_email("new"), keyed_email("known"), intent_email("o", &["a@example.com"])]),
        T0,
    )
    .await;

    assert_eq!(answers[1], AcceptResult::KeyBound(KeyBinding::Email(known)));
    assert_eq!((expect_first(answers[0].clone()).bind_number, expect_first(answers[2].clone()).bind_number), (1, 1));
}

pub(super) async fn a_batch_retried_after_its_key_expired_still_returns_its_first_emails(store: TestStore) {
    let fixtures = batch_items("b", 3);
    let firsts: Vec<_> =
        accept_batch_items(&store, keyed_batch("b", 1, &fixtures), T0).await.into_iter().map(expect_first).collect();
    let later = T0.plus(2 * DAY);
    let _swept = store.sweep(100, later).await.unwrap();

    let again: Vec<_> = accept_batch_items(&store, keyed_batch("b", 1, &fixtures), later)
        .await
        .into_iter()
        .map(expect_bound_email)
        .collect();

    assert_eq!(again, firsts);
}

pub(super) async fn no_given_key_collides_with_a_batch_items_key(store: TestStore) {
    let item = expect_first(accept_batch_items(&store, keyed_batch("b", 1, &batch_items("b", 1)), T0).await.remove(0));

    let similar_key = accept_first(&store, &keyed_email("b[0]"), T0).await;

    assert_ne!(similar_key.id, item.id);
}

pub(super) async fn batches_of_one_and_of_zero_items_are_accepted(store: TestStore) {
    assert_eq!(accept_batch_items(&store, keyed_batch("one", 1, &batch_items("one", 1)), T0).await.len(), 1);
    assert_eq!(accept_batch_items(&store, keyed_batch("none", 1, &[]), T0).await, []);
    let other = store.accept_batch(keyed_batch("none", 2, &[keyless_email()]), T0).await.unwrap();
    assert_eq!(other, BatchAcceptResult::BatchKeyMismatch(KeyBinding::Operation { digest: [1; 32] }));
}

pub(super) async fn a_strict_batch_with_one_key_mismatch_writes_nothing(store: TestStore) {
    let first = accept_first(&store, &keyed_email("taken").text("one"), T0).await;
    let fixtures = [keyed_email("free"), keyed_email("taken").text("two"), keyed_email("free too")];
    let strict = |fixtures: &[EmailFixture]| NewBatch { strict: true, ..keyed_batch("b", 1, fixtures) };
    let before = event_kinds(&store).await;

    let answer = store.accept_batch(strict(&fixtures), T0).await.unwrap();

    assert_eq!(answer, BatchAcceptResult::ItemKeyMismatch(1, KeyBinding::Email(first.clone())));
    assert_eq!(event_kinds(&store).await, before);
    for free in [keyed_email("free").hash(), keyed_email("free too").hash(), given_key_hash(TEAM, "b")] {
        assert_eq!(store.key_binding(TEAM, free, T0).await.unwrap(), None);
    }
    let equal = [keyed_email("free"), keyed_email("taken").text("one")];
    let BatchAcceptResult::Items(items) = store.accept_batch(strict(&equal), T0).await.unwrap() else { panic!() };
    assert!(
        matches!(&items[..], [AcceptResult::First(_), AcceptResult::KeyBound(KeyBinding::Email(email))] if email.id == first.id)
    );
}

pub(super) async fn a_strict_batch_accepts_a_reworded_replay_of_an_intent(store: TestStore) {
    let first = accept_first(&store, &intent_email("order", &["a@example.com"]).text("one"), T0).await;
    let other = intent_email("order", &["a@example.com"]).text("two");
    let batch = NewBatch { strict: true, ..keyless_batch(&[other]) };
    let BatchAcceptResult::Items(items) = store.accept_batch(batch, T0).await.unwrap() else { panic!() };
    assert!(matches!(&items[..], [AcceptResult::KeyBound(KeyBinding::Email(email))] if email.id == first.id));
}
