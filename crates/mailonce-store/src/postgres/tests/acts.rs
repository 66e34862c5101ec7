//! Acts that come together travel together, and nobody waits for an email that somebody else holds.

use mailonce_core::{
    dispatch::{Act, Hold, Verdict},
    email::EmailState,
    id::{EmailId, NodeId},
    port::store::{Acted, LeaseWish, Once, Store},
};
use std::{sync::Arc, time::Duration};
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

use super::{Fresh, NOW, TEAM, email_of, wish};
use crate::postgres::Postgres;

const NODE: NodeId = NodeId(Uuid::from_u128(0xa1));
const MANY: usize = 64;

/// Emails that this node leased.
async fn leased(store: &Postgres, count: usize) -> Vec<EmailId> {
    for _ in 0..count {
        email_of(store.accept(wish(None), NOW).await.unwrap());
    }
    let all =
        LeaseWish { transport: "sandbox".into(), node: NODE, max: count, but: Vec::new(), scheduled_by: Some(NOW) };
    let leased = store.lease(all, NOW).await.unwrap();
    assert!(leased.iter().all(|leased| leased.body.is_some() && leased.wire.is_none()));
    leased.iter().map(|leased| leased.email.id).collect()
}

async fn mark(store: Arc<Postgres>, id: EmailId) -> Once<Acted> {
    let hold = Hold { number: 0, fence: 1, transport: "sandbox".into(), account: "A".into() };
    let marker = Act::Mark { hold, wire: Some(id.0.as_bytes().as_slice().into()) };
    store.act(TEAM, id, marker, None, NOW).await.unwrap()
}

fn verdict(acted: &Once<Acted>) -> Option<(EmailId, Verdict)> {
    match acted {
        Once::Done(Acted::Email(verdict, email)) => Some((email.id, *verdict)),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acts_that_come_together_share_a_commit_and_each_gets_its_own_answer() {
    let fresh = Fresh::make().await;
    let store = Arc::new(fresh.node().await);
    let ids = leased(&store, MANY).await;
    let before = store.gauges().commits;
    let mut marking = JoinSet::new();
    // The second of each comes too late: the marker is there.
    for id in ids.iter().chain(&ids).copied() {
        let store = Arc::clone(&store);
        marking.spawn(async move { (id, verdict(&mark(store, id).await)) });
    }
    let answers = marking.join_all().await;
    assert!(answers.iter().all(|(id, acted)| acted.is_some_and(|(about, _)| about == *id)), "{answers:?}");
    let done = answers.iter().filter(|(_, acted)| matches!(acted, Some((_, Verdict::Done)))).count();
    assert_eq!(done, MANY);
    let commits = store.gauges().commits - before;
    assert!(commits < MANY as u64 / 2, "{commits} commits");
    for id in ids {
        let leased = store.leased(TEAM, id, 0).await.unwrap().unwrap();
        assert_eq!(leased.email.state(), EmailState::Sending);
        assert_eq!(leased.wire.as_deref(), Some(id.0.as_bytes().as_slice()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_an_email_that_somebody_else_holds() {
    let fresh = Fresh::make().await;
    let (store, session) = (Arc::new(fresh.node().await), fresh.session().await);
    let ids = leased(&store, 3).await;
    session.batch_execute("BEGIN").await.unwrap();
    session.query("SELECT FROM emails WHERE id = $1 FOR UPDATE", &[&ids[0].0]).await.unwrap();

    let busy: JoinHandle<_> = tokio::spawn(mark(Arc::clone(&store), ids[0]));
    for id in &ids[1..] {
        let free = tokio::time::timeout(Duration::from_secs(10), mark(Arc::clone(&store), *id)).await;
        assert_eq!(verdict(&free.expect("waits for another email")), Some((*id, Verdict::Done)));
    }
    assert!(!busy.is_finished());
    session.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(verdict(&busy.await.unwrap()), Some((ids[0], Verdict::Done)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_act_on_an_email_that_is_not_there_says_so() {
    let fresh = Fresh::make().await;
    let store = Arc::new(fresh.node().await);
    let acted = mark(store, EmailId(Uuid::from_u128(7))).await;
    assert!(matches!(acted, Once::Done(Acted::Missing)), "{acted:?}");
}
