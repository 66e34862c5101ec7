//! Promises about batches: every item or none, in order, and again the same.

use mailonce_core::port::store::{Accept, AcceptBatch, BatchWish, Bound};

use super::{
    DAY, Draft, Ledger, T0, TEAM, about, accepted, bound_email, events, first, given, items, keyed, keyless, kinds,
    listed, operation, replayed,
};

/// Items under the batch's own key.
fn children(batch: &str, count: u32) -> Vec<Draft> {
    (0..count).map(|i| keyless().item(batch, i).text(&format!("item {i}"))).collect()
}

/// A batch under a key, at T0.
fn batch(key: &str, digest: u8, drafts: &[Draft]) -> BatchWish {
    BatchWish { operation: Some(operation(key, digest, T0)), ..loose(drafts) }
}

/// A batch without a key, at T0.
fn loose(drafts: &[Draft]) -> BatchWish {
    BatchWish { team: TEAM, operation: None, items: drafts.iter().map(|draft| draft.wish(T0)).collect(), strict: false }
}

pub(super) async fn a_batch_is_answered_in_order(store: Ledger) {
    let wish = batch("b", 1, &children("b", 5));
    let ids: Vec<_> = wish.items.iter().map(|item| item.id).collect();

    let answers: Vec<_> = items(&store, wish, T0).await.into_iter().map(first).collect();

    assert_eq!(answers.iter().map(|email| email.id).collect::<Vec<_>>(), ids);
    assert!(answers.iter().all(|email| (email.rev, email.bind) == (1, 1)));
    let told: Vec<_> = events(&store, TEAM).await.iter().map(|event| event.event.about).collect();
    assert_eq!(told, ids.iter().map(|id| id.0).collect::<Vec<_>>());
}

pub(super) async fn a_retried_batch_finds_its_items(store: Ledger) {
    let drafts = children("b", 5);
    let firsts: Vec<_> = items(&store, batch("b", 1, &drafts), T0).await.into_iter().map(first).collect();

    let again: Vec<_> = items(&store, batch("b", 1, &drafts), T0.plus(1)).await.into_iter().map(bound_email).collect();

    assert_eq!(again, firsts);
    assert_eq!(events(&store, TEAM).await.len(), 5);
}

pub(super) async fn a_batch_of_1000_is_accepted_and_found_again(store: Ledger) {
    let drafts = children("b", 1000);
    let firsts: Vec<_> = items(&store, batch("b", 1, &drafts), T0).await.into_iter().map(first).collect();

    let again: Vec<_> = items(&store, batch("b", 1, &drafts), T0).await.into_iter().map(bound_email).collect();

    assert_eq!(again, firsts);
    assert_eq!(listed(&store, TEAM).await.len(), 1000);
    assert_eq!(events(&store, TEAM).await.len(), 1000);
}

pub(super) async fn another_batch_under_the_same_key_writes_nothing(store: Ledger) {
    let _firsts = items(&store, batch("b", 1, &children("b", 2)), T0).await;

    let other = batch("b", 2, &[keyed("free"), keyless()]);
    let answer = store.accept_batch(other, T0).await.unwrap();

    assert_eq!(answer, AcceptBatch::Mismatch(Bound::Operation { digest: [1; 32] }));
    assert_eq!((listed(&store, TEAM).await.len(), events(&store, TEAM).await.len()), (2, 2));
    let _free = accepted(&store, &keyed("free"), T0).await;
}

pub(super) async fn a_batch_under_an_emails_key_writes_nothing(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;

    let answer = store.accept_batch(batch("k", 1, &children("k", 2)), T0).await.unwrap();

    assert_eq!(answer, AcceptBatch::Mismatch(Bound::Email(email)));
    assert_eq!(events(&store, TEAM).await.len(), 1);
}

pub(super) async fn items_that_share_a_key_become_one_email(store: Ledger) {
    let drafts = [keyed("k").text("one"), keyed("k").text("two"), keyed("other"), keyed("k").text("one")];
    let answers = items(&store, loose(&drafts), T0).await;

    let email = first(answers[0].clone());

    assert_eq!(answers[1], Accept::Bound(Bound::Email(email.clone())));
    assert_eq!(answers[3], answers[1]);
    assert_ne!(first(answers[2].clone()).id, email.id);
    assert_eq!(events(&store, TEAM).await.len(), 2);
    assert_eq!(replayed(&store, &keyed("k"), T0).await, email);
}

pub(super) async fn items_without_a_key_are_always_new(store: Ledger) {
    let drafts = [keyless(), keyless()];
    for round in 1..=2 {
        let answers = items(&store, loose(&drafts), T0).await;
        assert!(answers.into_iter().map(first).all(|email| email.bind == 0));
        assert_eq!(listed(&store, TEAM).await.len(), round * 2);
    }
}

pub(super) async fn a_batch_mixes_what_is_new_with_what_is_known(store: Ledger) {
    let known = accepted(&store, &keyed("known"), T0).await;
    let answers = items(&store, loose(&[keyed("new"), keyed("known"), about("o", &["a@example.com"])]), T0).await;

    assert_eq!(answers[1], Accept::Bound(Bound::Email(known)));
    assert_eq!((first(answers[0].clone()).bind, first(answers[2].clone()).bind), (1, 1));
}

pub(super) async fn a_batch_retried_after_its_key_was_forgotten_still_finds_its_items(store: Ledger) {
    let drafts = children("b", 3);
    let firsts: Vec<_> = items(&store, batch("b", 1, &drafts), T0).await.into_iter().map(first).collect();
    let later = T0.plus(2 * DAY);
    let _swept = store.sweep(100, later).await.unwrap();

    let again: Vec<_> = items(&store, batch("b", 1, &drafts), later).await.into_iter().map(bound_email).collect();

    assert_eq!(again, firsts);
}

pub(super) async fn no_header_reaches_an_items_key(store: Ledger) {
    let item = first(items(&store, batch("b", 1, &children("b", 1)), T0).await.remove(0));

    let named_alike = accepted(&store, &keyed("b[0]"), T0).await;

    assert_ne!(named_alike.id, item.id);
}

pub(super) async fn a_batch_of_one_and_of_none_are_batches(store: Ledger) {
    assert_eq!(items(&store, batch("one", 1, &children("one", 1)), T0).await.len(), 1);
    assert_eq!(items(&store, batch("none", 1, &[]), T0).await, []);
    let other = store.accept_batch(batch("none", 2, &[keyless()]), T0).await.unwrap();
    assert_eq!(other, AcceptBatch::Mismatch(Bound::Operation { digest: [1; 32] }));
}

pub(super) async fn a_strict_batch_with_one_contradiction_writes_nothing(store: Ledger) {
    let first = accepted(&store, &keyed("taken").text("one"), T0).await;
    let drafts = [keyed("free"), keyed("taken").text("two"), keyed("free too")];
    let strict = |drafts: &[Draft]| BatchWish { strict: true, ..batch("b", 1, drafts) };
    let before = kinds(&store).await;

    let answer = store.accept_batch(strict(&drafts), T0).await.unwrap();

    assert_eq!(answer, AcceptBatch::Contradiction(1, Bound::Email(first.clone())));
    assert_eq!(kinds(&store).await, before);
    for free in [keyed("free").hash(), keyed("free too").hash(), given(TEAM, "b")] {
        assert_eq!(store.bound(TEAM, free, T0).await.unwrap(), None);
    }
    let equal = [keyed("free"), keyed("taken").text("one")];
    let AcceptBatch::Items(items) = store.accept_batch(strict(&equal), T0).await.unwrap() else { panic!() };
    assert!(matches!(&items[..], [Accept::First(_), Accept::Bound(Bound::Email(email))] if email.id == first.id));
}

pub(super) async fn a_strict_batch_forgives_other_words_of_an_intent(store: Ledger) {
    let first = accepted(&store, &about("order", &["a@example.com"]).text("one"), T0).await;
    let other = about("order", &["a@example.com"]).text("two");
    let wish = BatchWish { strict: true, ..loose(&[other]) };
    let AcceptBatch::Items(items) = store.accept_batch(wish, T0).await.unwrap() else { panic!() };
    assert!(matches!(&items[..], [Accept::Bound(Bound::Email(email))] if email.id == first.id));
}
