//! Concurrent actions share a transaction, and none of them waits for another email's row lock.

use mailonce_core::{
    handoff::{
        action::{HandoffAction, HandoffActionStatus, LeaseRef},
        lease::{HandoffActionResult, LeaseRequest},
    },
    id::{EmailId, NodeId},
    operation::IdempotentResult,
    outbound::email::EmailState,
    ports::store::Store,
};
use std::{sync::Arc, time::Duration};
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

use super::{NOW, TEAM, TestDatabase, email_of, new_email};
use crate::postgres::Postgres;

const NODE: NodeId = NodeId(Uuid::from_u128(0xa1));
const EMAIL_COUNT: usize = 64;

/// Accepts emails and leases them to this node.
async fn lease_emails(store: &Postgres, count: usize) -> Vec<EmailId> {
    for _ in 0..count {
        email_of(store.accept(new_email(None), NOW).await.unwrap());
    }
    let all = LeaseRequest {
        transport: "sandbox".into(),
        node: NODE,
        max: count,
        excluded_domains: Vec::new(),
        schedule_cutoff: Some(NOW),
    };
    let leased = store.lease_handoffs(all, NOW).await.unwrap();
    assert!(leased.iter().all(|leased| leased.body.is_some() && leased.frozen_bytes.is_none()));
    leased.iter().map(|leased| leased.email.id).collect()
}

async fn mark(store: Arc<Postgres>, id: EmailId) -> IdempotentResult<HandoffActionResult> {
    let hold = LeaseRef { number: 0, fence: 1, transport: "sandbox".into(), account: "A".into() };
    let marker = HandoffAction::Mark {
        lease: hold,
        frozen_bytes: Some(id.0.as_bytes().as_slice().into()),
        contacts: Vec::new(),
    };
    store.apply_action(TEAM, id, marker, None, NOW).await.unwrap()
}

fn verdict(acted: &IdempotentResult<HandoffActionResult>) -> Option<(EmailId, HandoffActionStatus)> {
    match acted {
        IdempotentResult::Done(HandoffActionResult::Applied(verdict, email)) => Some((email.id, *verdict)),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acts_that_come_together_share_a_commit_and_each_gets_its_own_answer() {
    let fresh = TestDatabase::create().await;
    let store = Arc::new(fresh.node().await);
    let ids = lease_emails(&store, EMAIL_COUNT).await;
    let before = store.gauges().commits;
    let mut marking = JoinSet::new();
    // The second call for each email is too late: the marker is already set.
    for id in ids.iter().chain(&ids).copied() {
        let store = Arc::clone(&store);
        marking.spawn(async move { (id, verdict(&mark(store, id).await)) });
    }
    let answers = marking.join_all().await;
    assert!(answers.iter().all(|(id, acted)| acted.is_some_and(|(about, _)| about == *id)), "{answers:?}");
    let done = answers.iter().filter(|(_, acted)| matches!(acted, Some((_, HandoffActionStatus::Done)))).count();
    assert_eq!(done, EMAIL_COUNT);
    let commits = store.gauges().commits - before;
    assert!(commits < EMAIL_COUNT as u64 / 2, "{commits} commits");
    for id in ids {
        let leased = store.leased_handoff(TEAM, id, 0).await.unwrap().unwrap();
        assert_eq!(leased.email.state(), EmailState::Sending);
        assert_eq!(leased.frozen_bytes.as_deref(), Some(id.0.as_bytes().as_slice()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_an_email_that_somebody_else_holds() {
    let fresh = TestDatabase::create().await;
    let (store, session) = (Arc::new(fresh.node().await), fresh.session().await);
    let ids = lease_emails(&store, 3).await;
    session.batch_execute("BEGIN").await.unwrap();
    session.query("SELECT FROM emails WHERE id = $1 FOR UPDATE", &[&ids[0].0]).await.unwrap();

    let busy: JoinHandle<_> = tokio::spawn(mark(Arc::clone(&store), ids[0]));
    for id in &ids[1..] {
        let free = tokio::time::timeout(Duration::from_secs(10), mark(Arc::clone(&store), *id)).await;
        assert_eq!(verdict(&free.expect("waits for another email")), Some((*id, HandoffActionStatus::Done)));
    }
    assert!(!busy.is_finished());
    session.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(verdict(&busy.await.unwrap()), Some((ids[0], HandoffActionStatus::Done)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_act_on_an_email_that_is_not_there_says_so() {
    let fresh = TestDatabase::create().await;
    let store = Arc::new(fresh.node().await);
    let acted = mark(store, EmailId(Uuid::from_u128(7))).await;
    assert!(matches!(acted, IdempotentResult::Done(HandoffActionResult::Missing)), "{acted:?}");
}
