//! Dead nodes: their peers detect them with their own monotonic clocks, not with a wall clock.

use mailonce_core::{
    handoff::{
        action::{HandoffAction, HandoffActionStatus, LeaseRef},
        lease::{HandoffActionResult, LeaseRequest, TransportAccount},
    },
    id::{EmailId, NodeId},
    installation::RecoveryCounts,
    operation::IdempotentResult,
    outbound::email::EmailState,
    ports::store::Store,
    time::Time,
};
use std::time::Duration;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{NOW, TEAM, TestDatabase, email_of, new_email, rows};
use crate::postgres::Postgres;

const FIRST: NodeId = NodeId(Uuid::from_u128(0xa1));
const SECOND: NodeId = NodeId(Uuid::from_u128(0xa2));
const THIRD: NodeId = NodeId(Uuid::from_u128(0xa3));

/// Accepts an email and leases it to a node, which also sets the marker if `marks`.
async fn lease_email(store: &Postgres, node: NodeId, marks: bool) -> EmailId {
    let id = email_of(store.accept(new_email(None), NOW).await.unwrap()).0.id;
    let all = LeaseRequest {
        transport: "sandbox".into(),
        node,
        max: 10,
        excluded_domains: Vec::new(),
        schedule_cutoff: Some(NOW),
    };
    let leased = store.lease_handoffs(all, NOW).await.unwrap();
    assert_eq!(leased.iter().map(|leased| leased.email.id).collect::<Vec<_>>(), [id]);
    if marks {
        let hold = LeaseRef { number: 0, fence: 1, transport: "sandbox".into(), account: "A".into() };
        let marker =
            HandoffAction::Mark { lease: hold, frozen_bytes: Some(b"bytes".as_slice().into()), contacts: Vec::new() };
        let acted = store.apply_action(TEAM, id, marker, None, NOW).await.unwrap();
        assert!(
            matches!(acted, IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, _))),
            "{acted:?}"
        );
    }
    id
}

/// Simulates a change of the database's clock: moves the heartbeats of all nodes back by this much.
async fn set_database_clock(session: &Client, ago: &str) {
    let sql = format!("UPDATE nodes SET seen_at = seen_at - interval '{ago}'");
    session.execute(&sql, &[]).await.unwrap();
}

/// Simulates that this node has observed no change of its peers for this long.
pub(crate) fn age_peers(store: &Postgres, seconds: u64) {
    store.shared.peers.lock().unwrap().age(Duration::from_secs(seconds));
}

async fn state(store: &Postgres, id: EmailId) -> EmailState {
    store.email(TEAM, id).await.unwrap().unwrap().state()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_fell_silent_loses_its_handoffs_and_a_fresh_one_does_not() {
    let fresh = TestDatabase::create().await;
    let store = fresh.node().await;
    let (leased, sending) = (lease_email(&store, FIRST, false).await, lease_email(&store, FIRST, true).await);
    let alive = lease_email(&store, SECOND, true).await;
    for node in [FIRST, SECOND] {
        // The node's own time does not matter.
        store.heartbeat(node, Time(0)).await.unwrap();
    }
    let later = NOW.plus(86_400_000);

    assert_eq!(store.recover_dead_nodes(THIRD, 10, later).await.unwrap(), RecoveryCounts::default());
    age_peers(&store, 13);
    assert_eq!(store.recover_dead_nodes(THIRD, 10, later).await.unwrap(), RecoveryCounts::default());
    store.heartbeat(SECOND, Time(0)).await.unwrap();
    age_peers(&store, 2);
    assert_eq!(
        store.recover_dead_nodes(THIRD, 10, NOW).await.unwrap(),
        RecoveryCounts { queued: 1, unknown: 1, ..RecoveryCounts::default() }
    );

    assert_eq!(state(&store, leased).await, EmailState::Queued);
    assert_eq!(state(&store, sending).await, EmailState::Unknown);
    assert_eq!(state(&store, alive).await, EmailState::Sending);
    assert_eq!(store.recover_dead_nodes(THIRD, 10, later).await.unwrap(), RecoveryCounts::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_heard_of_again_in_time_keeps_its_handoffs() {
    let fresh = TestDatabase::create().await;
    let store = fresh.node().await;
    let id = lease_email(&store, FIRST, true).await;
    store.heartbeat(FIRST, NOW).await.unwrap();
    assert_eq!(store.recover_dead_nodes(THIRD, 10, NOW).await.unwrap(), RecoveryCounts::default());
    age_peers(&store, 3_600);
    store.heartbeat(FIRST, NOW).await.unwrap();

    assert_eq!(store.recover_dead_nodes(THIRD, 10, NOW).await.unwrap(), RecoveryCounts::default());
    assert_eq!(state(&store, id).await, EmailState::Sending);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_clock_is_set_takes_nothing_from_a_living_node() {
    let fresh = TestDatabase::create().await;
    let (store, session) = (fresh.node().await, fresh.session().await);
    let id = lease_email(&store, FIRST, true).await;
    for ago in ["0 seconds", "23 hours", "3 days", "-5 days"] {
        store.heartbeat(FIRST, NOW).await.unwrap();
        set_database_clock(&session, ago).await;
        assert_eq!(store.recover_dead_nodes(THIRD, 10, NOW).await.unwrap(), RecoveryCounts::default(), "{ago}");
    }
    assert_eq!(state(&store, id).await, EmailState::Sending);
    assert_eq!(rows(&session, "nodes").await, 1, "and its row stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_long_gone_are_forgotten() {
    let fresh = TestDatabase::create().await;
    let (store, session) = (fresh.node().await, fresh.session().await);
    for node in [FIRST, SECOND] {
        store.heartbeat(node, NOW).await.unwrap();
    }
    assert_eq!(store.recover_dead_nodes(THIRD, 10, NOW).await.unwrap(), RecoveryCounts::default());
    age_peers(&store, 600);
    store.heartbeat(SECOND, NOW).await.unwrap();
    assert_eq!(store.recover_dead_nodes(THIRD, 10, NOW).await.unwrap(), RecoveryCounts::default());
    assert_eq!(rows(&session, "nodes").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_email_that_another_node_works_on_is_passed_over() {
    let fresh = TestDatabase::create().await;
    let (store, session) = (fresh.node().await, fresh.session().await);
    let busy = lease_email(&store, FIRST, true).await;
    let free = lease_email(&store, FIRST, true).await;
    session.batch_execute("BEGIN").await.unwrap();
    session.query("SELECT FROM emails WHERE id = $1 FOR UPDATE", &[&busy.0]).await.unwrap();

    assert_eq!(
        store.recover_dead_nodes(THIRD, 10, NOW).await.unwrap(),
        RecoveryCounts { queued: 0, unknown: 1, ..RecoveryCounts::default() }
    );
    assert_eq!((state(&store, free).await, state(&store, busy).await), (EmailState::Unknown, EmailState::Sending));
    session.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(
        store.recover_dead_nodes(THIRD, 10, NOW).await.unwrap(),
        RecoveryCounts { queued: 0, unknown: 1, ..RecoveryCounts::default() }
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transport_is_missing_once_its_nodes_fell_silent() {
    let fresh = TestDatabase::create().await;
    let (store, session) = (fresh.node().await, fresh.session().await);
    let _accepted = store.accept(new_email(None), NOW).await.unwrap();
    let has = |account: &str| [TransportAccount { name: "sandbox".into(), account: account.into() }];
    store.publish_transports(FIRST, &has("A"), NOW).await.unwrap();
    let silent_for = async |ago: &str| {
        let sql = format!("UPDATE transports SET seen_at = now() - interval '{ago}'");
        assert_eq!(session.execute(&sql, &[]).await.unwrap(), 1);
    };

    assert_eq!(store.published_transports().await.unwrap(), ["sandbox"]);
    // The node's own time does not matter.
    assert_eq!(store.orphan_backlogs(&[], NOW.plus(86_400_000)).await.unwrap(), []);
    silent_for("13 seconds").await;
    assert_eq!(store.orphan_backlogs(&[], NOW).await.unwrap(), []);
    silent_for("15 seconds").await;
    assert_eq!(store.orphan_backlogs(&[], NOW).await.unwrap().len(), 1);
    store.publish_transports(FIRST, &has("A"), NOW).await.unwrap();
    assert_eq!(store.orphan_backlogs(&[], NOW).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_in_doubt_is_left_to_its_account_for_five_minutes() {
    let fresh = TestDatabase::create().await;
    let (store, session) = (fresh.node().await, fresh.session().await);
    lease_email(&store, FIRST, true).await;
    let _unknown = store.recover_dead_nodes(THIRD, 10, NOW).await.unwrap();
    let has = |account: &str| [TransportAccount { name: "sandbox".into(), account: account.into() }];
    store.publish_transports(FIRST, &has("A"), NOW).await.unwrap();
    let later = NOW.plus(60_000);
    for (ago, found) in [("0 seconds", 0), ("4 minutes", 0), ("5 minutes", 1)] {
        let sql = format!("UPDATE transports SET seen_at = now() - interval '{ago}'");
        session.execute(&sql, &[]).await.unwrap();
        assert_eq!(store.due_unknown_handoffs(&has("B"), 10, later).await.unwrap().len(), found, "{ago}");
    }
}
