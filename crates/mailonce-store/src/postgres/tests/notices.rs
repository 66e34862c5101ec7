//! Events and notices on several nodes: the order of events, and the queue of notices per subject.

use mailonce_core::{
    events::{
        endpoint::{Endpoint, EndpointConfig, EndpointStart, EventTypePattern},
        event::{Event, EventKind, NewEvent},
        notice::{LeasedNotice, Notice, NoticeAttempt, NoticeOutcome, NoticeQuery, NoticeState, WebhookVerdict},
    },
    id::{EndpointId, NodeId},
    operation::IdempotentResult,
    outbound::suppressed_call::SuppressedCalls,
    ports::{notice_store::NoticeStore as _, store::Store as _},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use uuid::Uuid;

use super::{NOW, TEAM, TestDatabase, email_of, new_email, wait_until_blocked};
use crate::postgres::{Options, Postgres, events::pending_events::write_events, tests::two_nodes::two_nodes};

/// How many events the writers commit; set `MAILONCE_EVENTS=1000000` for a long run.
const EVENTS: usize = 20_000;
const SUBJECTS: usize = 40;
const WRITERS: usize = 6;

/// A small random number generator (splitmix64), deterministic for a given seed.
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)) % most as u64) as usize
    }
}

fn subject_id(n: usize) -> Uuid {
    Uuid::from_u128(1_000 + n as u128)
}

/// Commits a few events about one random subject in one transaction, sometimes after a random delay.
async fn commit_events(node: &Postgres, revs: &[AtomicU32], chance: &mut SplitMix64, most: usize) -> usize {
    let (n, count) = (chance.below(revs.len()), 1 + chance.below(most));
    let mut client = node.shared.connections.client().await.unwrap();
    let tx = client.transaction().await.unwrap();
    // A transaction that changes a subject normally locks its row; here an advisory lock replaces the row lock.
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&(n as i64)]).await.unwrap();
    let event = |_| {
        let rev = revs[n].fetch_add(1, Ordering::SeqCst) + 1;
        (TEAM, NewEvent { kind: EventKind::EmailSent, at: NOW, subject_id: subject_id(n), rev, data: json!({}) })
    };
    let events: Vec<_> = (0..count).map(event).collect();
    write_events(&tx, &events).await.unwrap();
    if chance.below(3) == 0 {
        tokio::time::sleep(Duration::from_millis(chance.below(4) as u64)).await;
    }
    node.shared.commit(tx, 1).await.unwrap();
    count
}

/// Reads events as they appear, up to `count`. Each must have the next number of its team and the next revision of
/// its subject.
async fn follow_events(node: Arc<Postgres>, count: u64) -> BTreeMap<Uuid, u32> {
    let (mut last, mut revs) = (0, BTreeMap::new());
    while last < count {
        for Event { seq, event } in node.events(TEAM, last, 1_000).await.unwrap() {
            assert_eq!(seq, last + 1, "no gap");
            let before = revs.insert(event.subject_id, event.rev).unwrap_or(0);
            assert_eq!(event.rev, before + 1, "the order of commits, at {seq}");
            last = seq;
        }
        tokio::task::yield_now().await;
    }
    revs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_many_transactions_have_no_gap_and_keep_the_order_of_their_subjects() {
    let wanted = std::env::var("MAILONCE_EVENTS").map_or(EVENTS, |text| text.parse().unwrap());
    let fresh = TestDatabase::create().await;
    let options = || Options { accept_workers: 2, sessions: 8 };
    let open = async || Arc::new(Postgres::open_with(&fresh.url, [7; 32], options()).await.unwrap());
    let nodes = [open().await, open().await];
    let revs: Arc<Vec<AtomicU32>> = Arc::new((0..SUBJECTS).map(|_| AtomicU32::new(0)).collect());
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let (node, revs, mut chance) = (nodes[n % 2].clone(), revs.clone(), SplitMix64(n as u64));
            tokio::spawn(async move {
                let mut left = 0;
                while left < wanted / WRITERS {
                    left += commit_events(&node, &revs, &mut chance, 60).await;
                }
            })
        })
        .collect();
    // One reader runs during the writes, another one afterwards.
    let early = tokio::spawn(follow_events(nodes[0].clone(), wanted as u64 / 2));
    for writer in writers {
        writer.await.unwrap();
    }
    early.await.unwrap();
    let written: Vec<u32> = revs.iter().map(|rev| rev.load(Ordering::SeqCst)).collect();
    let total = written.iter().map(|rev| u64::from(*rev)).sum();
    assert!(total >= (wanted - wanted % WRITERS) as u64);
    let seen = follow_events(nodes[1].clone(), total).await;
    let seen: Vec<u32> = (0..SUBJECTS).map(|n| seen.get(&subject_id(n)).copied().unwrap_or(0)).collect();
    assert_eq!(seen, written);
    assert_eq!(nodes[0].events(TEAM, total, 10).await.unwrap(), []);
}

async fn create_endpoint(node: &Postgres) -> Endpoint {
    let about = EndpointConfig {
        url: "https://receiver.test/".into(),
        description: String::new(),
        events: vec![EventTypePattern::parse("*").unwrap()],
        inboxes: Vec::new(),
        secrets: Vec::new(),
        headers: BTreeMap::new(),
        rate_per_s: None,
        version: "2026-11-15".into(),
        include_text: false,
        dialect: None,
        changed_at: None,
    };
    let endpoint = Endpoint::new(EndpointId(new_email(None).id.0), TEAM, about, NOW);
    match node.create_endpoint(endpoint, EndpointStart::After(0), None).await.unwrap() {
        IdempotentResult::Done(made) => made,
        other => panic!("{other:?}"),
    }
}

async fn emit_duplicate_event(node: &Postgres, email: mailonce_core::id::EmailId) {
    node.record_suppressed_calls(vec![SuppressedCalls { team: TEAM, email, count: 1, latest: Vec::new() }], NOW)
        .await
        .unwrap();
}

async fn all_notices(node: &Postgres, endpoint: &Endpoint) -> Vec<Notice> {
    let query = NoticeQuery { limit: 10_000, ..NoticeQuery::default() };
    let mut all = node.notices(TEAM, endpoint.id, query).await.unwrap();
    all.reverse();
    all
}

fn delivered_outcome(notice: &Notice) -> NoticeOutcome {
    let (number, answer) = (notice.attempts, String::new());
    let attempt = NoticeAttempt { number, at: NOW, status: Some(200), latency_ms: 1, response: answer, error: None };
    NoticeOutcome { team: TEAM, id: notice.id, attempt, verdict: WebhookVerdict::Delivered, jitter_seed: 0 }
}

/// One subject with a leased notice and a second event that has no notice yet.
async fn endpoint_with_leased_notice() -> (TestDatabase, Arc<Postgres>, Endpoint, LeasedNotice) {
    let (fresh, node, _) = two_nodes().await;
    let endpoint = create_endpoint(&node).await;
    let (email, _) = email_of(node.accept(new_email(None), NOW).await.unwrap());
    node.fan_out(10, NOW).await.unwrap();
    let owed = node.lease_notices(TEAM, endpoint.id, NodeId(Uuid::from_u128(5)), 9, NOW).await.unwrap().remove(0);
    emit_duplicate_event(&node, email.id).await;
    (fresh, node, endpoint, owed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_notice_waits_for_a_concurrent_outcome() {
    let (fresh, node, endpoint, _) = endpoint_with_leased_notice().await;
    let mut session = fresh.session().await;
    let leaving = session.transaction().await.unwrap();
    leaving.execute("UPDATE notices SET state = 'delivered', next_at = NULL, holder = NULL", &[]).await.unwrap();
    let spreading = tokio::spawn({
        let node = node.clone();
        async move { node.fan_out(10, NOW).await.unwrap() }
    });
    wait_until_blocked(&fresh.session().await, 1).await;
    leaving.commit().await.unwrap();
    assert_eq!(spreading.await.unwrap().notices_created, 1);
    assert_eq!(all_notices(&node, &endpoint).await[1].due_at, Some(NOW), "nobody is ahead of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_outcome_waits_for_a_concurrent_new_notice() {
    let (fresh, node, endpoint, owed) = endpoint_with_leased_notice().await;
    let mut session = fresh.session().await;
    let joining = session.transaction().await.unwrap();
    joining.execute("SELECT FROM notices FOR UPDATE", &[]).await.unwrap();
    let settling = tokio::spawn({
        let (node, settle) = (node.clone(), delivered_outcome(&owed.notice));
        async move { node.record_notice_outcome(settle, NOW).await.unwrap().unwrap() }
    });
    wait_until_blocked(&fresh.session().await, 1).await;
    let copy =
        "INSERT INTO notices SELECT team, endpoint, 2, gen_random_uuid(), about, 1, 0, 0, 0, NULL, NULL, owed_at,
                       NULL, NULL, kind, 'pending', NULL FROM notices";
    joining.execute(copy, &[]).await.unwrap();
    joining.commit().await.unwrap();
    assert_eq!(settling.await.unwrap().state, NoticeState::Delivered);
    assert_eq!(all_notices(&node, &endpoint).await[1].due_at, Some(NOW), "it is its turn");
}

/// Fans out, leases and delivers notices on a node until none is left.
async fn deliver_all(node: Arc<Postgres>, endpoint: Endpoint, n: u128, told: Arc<Mutex<Vec<Notice>>>) {
    let mut idle = 0;
    while idle < 20 {
        let counts = node.fan_out(16, NOW).await.unwrap();
        let owed = node.lease_notices(TEAM, endpoint.id, NodeId(Uuid::from_u128(n)), 8, NOW).await.unwrap();
        idle = if owed.is_empty() && counts.notices_created == 0 { idle + 1 } else { 0 };
        for owed in owed {
            told.lock().unwrap().push(owed.notice.clone());
            node.record_notice_outcome(delivered_outcome(&owed.notice), NOW).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_deliver_each_event_once_and_each_subject_in_order() {
    let (_fresh, one, two) = two_nodes().await;
    let endpoint = create_endpoint(&one).await;
    let mut emails = Vec::new();
    for _ in 0..8 {
        emails.push(email_of(one.accept(new_email(None), NOW).await.unwrap()).0.id);
    }
    for round in 0..120 {
        emit_duplicate_event(if round % 2 == 0 { &one } else { &two }, emails[round % 8]).await;
    }
    let told: Arc<Mutex<Vec<Notice>>> = Arc::default();
    let tellers: Vec<_> = [&one, &two, &one, &two]
        .into_iter()
        .zip(1..)
        .map(|(node, n)| tokio::spawn(deliver_all(node.clone(), endpoint.clone(), n, told.clone())))
        .collect();
    for teller in tellers {
        teller.await.unwrap();
    }
    assert!(all_notices(&one, &endpoint).await.iter().all(|notice| notice.state == NoticeState::Delivered));
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 128);
    let mut last: BTreeMap<Uuid, u64> = BTreeMap::new();
    for notice in told.iter() {
        let before = last.insert(notice.subject_id, notice.seq).unwrap_or(0);
        assert!(before < notice.seq, "{notice:?} after {before}");
    }
}
