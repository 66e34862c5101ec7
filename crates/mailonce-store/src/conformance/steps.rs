//! Steps that many promises take.

use mailonce_core::{
    events::event::Event,
    id::{EmailId, TeamId},
    limits,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        email::Email,
        email_commands::EmailChangeResult,
        email_query::{EmailDetail, EmailQuery},
        key_binding::KeyBinding,
    },
    time::Time,
};
use std::sync::Arc;

use super::{
    TEAM, TestStore,
    draft::{EmailFixture, SANDBOX, given_key_hash},
};

pub(super) async fn accept_email(store: &TestStore, draft: &EmailFixture, now: Time) -> AcceptResult {
    store.accept(draft.to_new_email(now), now).await.unwrap()
}

/// The email that a draft becomes. It must be the first of its key.
pub(super) async fn accept_first(store: &TestStore, draft: &EmailFixture, now: Time) -> Email {
    expect_first(accept_email(store, draft, now).await)
}

/// The email that a draft finds. It must not be the first of its key.
pub(super) async fn accept_replay(store: &TestStore, draft: &EmailFixture, now: Time) -> Email {
    expect_bound_email(accept_email(store, draft, now).await)
}

/// A draft that was accepted and handed over, and nothing else with it.
pub(super) async fn accept_and_send(store: &TestStore, draft: &EmailFixture, now: Time) -> Email {
    let email = accept_first(store, draft, now).await;
    let transport = &email.handoffs[0].transport;
    assert_eq!(store.capture(transport, 1_000, Some(now), now).await.unwrap(), email.handoffs.len());
    load_email(store, email.id).await
}

pub(super) async fn cancel_email(store: &TestStore, id: EmailId, now: Time) -> Email {
    match store.cancel(TEAM, id, None, now).await.unwrap() {
        IdempotentResult::Done(EmailChangeResult::Changed(email)) => email,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn capture_due(store: &TestStore, max: usize, now: Time) -> usize {
    store.capture(SANDBOX, max, Some(now), now).await.unwrap()
}

/// A batch without a key.
pub(super) fn keyless_batch(items: &[NewEmail]) -> NewBatch {
    NewBatch { team: TEAM, operation: None, items: items.to_vec(), strict: false }
}

pub(super) async fn accept_batch_items(store: &TestStore, batch: NewBatch, now: Time) -> Vec<AcceptResult> {
    match store.accept_batch(batch, now).await.unwrap() {
        BatchAcceptResult::Items(items) => items,
        other => panic!("{other:?}"),
    }
}

pub(super) fn expect_first(answer: AcceptResult) -> Email {
    match answer {
        AcceptResult::First(email) => email,
        other => panic!("{other:?}"),
    }
}

pub(super) fn expect_bound_email(answer: AcceptResult) -> Email {
    match answer {
        AcceptResult::KeyBound(KeyBinding::Email(email)) => email,
        other => panic!("{other:?}"),
    }
}

/// A call of our team that asks for `digest`, remembered for a day.
pub(super) fn new_operation(key: &str, digest: u8, now: Time) -> KeyedOperation {
    let (key, answer) = (given_key_hash(TEAM, key), format!("answer {digest}").into_bytes());
    KeyedOperation {
        team: TEAM,
        key,
        digest: [digest; 32],
        response: answer,
        expires_at: now.plus(limits::OPERATION_RETENTION_MS),
    }
}

/// Our team's email as it is now.
pub(super) async fn load_email(store: &TestStore, id: EmailId) -> Email {
    store.email(TEAM, id).await.unwrap().unwrap()
}

pub(super) async fn load_detail(store: &TestStore, id: EmailId) -> EmailDetail {
    store.email_detail(TEAM, id).await.unwrap().unwrap()
}

/// Everything a query finds, page by page.
pub(super) async fn list_all_pages(store: &TestStore, team: TeamId, query: EmailQuery) -> Vec<Email> {
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

pub(super) async fn list_all(store: &TestStore, team: TeamId) -> Vec<Email> {
    list_all_pages(store, team, EmailQuery { limit: 100, ..EmailQuery::default() }).await
}

pub(super) async fn all_events(store: &TestStore, team: TeamId) -> Vec<Event> {
    store.events(team, 0, 10_000).await.unwrap()
}

/// The words of our team's events, in order.
pub(super) async fn event_kinds(store: &TestStore) -> Vec<&'static str> {
    all_events(store, TEAM).await.iter().map(|event| event.event.kind.as_str()).collect()
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
