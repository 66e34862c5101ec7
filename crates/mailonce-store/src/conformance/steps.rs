//! Steps that many promises take.

use mailonce_core::{
    email::Email,
    event::Event,
    id::{EmailId, TeamId},
    limits,
    port::store::{Accept, AcceptBatch, BatchWish, Bound, Change, EmailDetail, EmailQuery, Once, Operation, Wish},
    time::Time,
};
use std::sync::Arc;

use super::{
    Ledger, TEAM,
    draft::{Draft, SANDBOX, given},
};

pub(super) async fn accept(store: &Ledger, draft: &Draft, now: Time) -> Accept {
    store.accept(draft.wish(now), now).await.unwrap()
}

/// The email that a draft becomes. It must be the first of its key.
pub(super) async fn accepted(store: &Ledger, draft: &Draft, now: Time) -> Email {
    first(accept(store, draft, now).await)
}

/// The email that a draft finds. It must not be the first of its key.
pub(super) async fn replayed(store: &Ledger, draft: &Draft, now: Time) -> Email {
    bound_email(accept(store, draft, now).await)
}

/// A draft that was accepted and handed over, and nothing else with it.
pub(super) async fn sent(store: &Ledger, draft: &Draft, now: Time) -> Email {
    let email = accepted(store, draft, now).await;
    let transport = &email.handoffs[0].transport;
    assert_eq!(store.capture(transport, 1_000, Some(now), now).await.unwrap(), email.handoffs.len());
    the(store, email.id).await
}

pub(super) async fn cancelled(store: &Ledger, id: EmailId, now: Time) -> Email {
    match store.cancel(TEAM, id, None, now).await.unwrap() {
        Once::Done(Change::Email(email)) => email,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn capture(store: &Ledger, max: usize, now: Time) -> usize {
    store.capture(SANDBOX, max, Some(now), now).await.unwrap()
}

/// A batch without a key.
pub(super) fn loose(items: &[Wish]) -> BatchWish {
    BatchWish { team: TEAM, operation: None, items: items.to_vec(), strict: false }
}

pub(super) async fn items(store: &Ledger, batch: BatchWish, now: Time) -> Vec<Accept> {
    match store.accept_batch(batch, now).await.unwrap() {
        AcceptBatch::Items(items) => items,
        other => panic!("{other:?}"),
    }
}

pub(super) fn first(answer: Accept) -> Email {
    match answer {
        Accept::First(email) => email,
        other => panic!("{other:?}"),
    }
}

pub(super) fn bound_email(answer: Accept) -> Email {
    match answer {
        Accept::Bound(Bound::Email(email)) => email,
        other => panic!("{other:?}"),
    }
}

/// A call of our team that asks for `digest`, remembered for a day.
pub(super) fn operation(key: &str, digest: u8, now: Time) -> Operation {
    let (key, answer) = (given(TEAM, key), format!("answer {digest}").into_bytes());
    Operation { team: TEAM, key, digest: [digest; 32], answer, expires_at: now.plus(limits::OPERATION_MS) }
}

/// Our team's email as it is now.
pub(super) async fn the(store: &Ledger, id: EmailId) -> Email {
    store.email(TEAM, id).await.unwrap().unwrap()
}

pub(super) async fn detail(store: &Ledger, id: EmailId) -> EmailDetail {
    store.email_detail(TEAM, id).await.unwrap().unwrap()
}

/// Everything a query finds, page by page.
pub(super) async fn pages(store: &Ledger, team: TeamId, query: EmailQuery) -> Vec<Email> {
    let (mut found, mut before) = (Vec::new(), query.before);
    loop {
        let page = store.emails(team, EmailQuery { before, ..query.clone() }).await.unwrap();
        assert!(page.rows.len() <= query.limit);
        found.extend(page.rows);
        if page.next.is_none() {
            return found;
        }
        assert!(before.is_none() || page.next < before, "a cursor goes on");
        before = page.next;
    }
}

pub(super) async fn listed(store: &Ledger, team: TeamId) -> Vec<Email> {
    pages(store, team, EmailQuery { limit: 100, ..EmailQuery::default() }).await
}

pub(super) async fn events(store: &Ledger, team: TeamId) -> Vec<Event> {
    store.events(team, 0, 10_000).await.unwrap()
}

/// The words of our team's events, in order.
pub(super) async fn kinds(store: &Ledger) -> Vec<&'static str> {
    events(store, TEAM).await.iter().map(|event| event.event.kind.word()).collect()
}

/// Starts all work at the same moment and gathers what came of it, in order.
pub(super) async fn all_at_once<T, W>(work: impl Iterator<Item = W>) -> Vec<T>
where
    T: Send + 'static,
    W: Future<Output = T> + Send + 'static,
{
    let work: Vec<W> = work.collect();
    let line = Arc::new(tokio::sync::Barrier::new(work.len()));
    let start = |one: W| {
        let line = line.clone();
        tokio::spawn(async move {
            line.wait().await;
            one.await
        })
    };
    let tasks: Vec<_> = work.into_iter().map(start).collect();
    let mut done = Vec::with_capacity(tasks.len());
    for task in tasks {
        done.push(task.await.unwrap());
    }
    done
}
