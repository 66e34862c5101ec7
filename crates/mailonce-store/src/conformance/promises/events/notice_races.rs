//! Promises about concurrent fan-outs, leases and outcomes of notices.

use mailonce_core::{
    events::{
        endpoint::Endpoint,
        notice::{NoticeState, WebhookVerdict},
    },
    id::EmailId,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use crate::conformance::{
    T0, TEAM, TestStore, accept_first, all_at_once, cancel_email,
    fixtures::{
        handoffs::node_id,
        webhooks::{
            accept_emails, all_notices, endpoint_from_start, fan_out_all, lease_notices, lease_notices_as,
            record_outcome,
        },
    },
    keyless_email,
};

pub(super) async fn of_16_concurrent_fan_outs_each_event_makes_one_notice(store: TestStore) {
    let endpoints = [endpoint_from_start(&store, &["*"]).await, endpoint_from_start(&store, &["*"]).await];
    accept_emails(&store, 40, T0).await;
    let work: Vec<TestStore> = (0..16).map(|_| store.clone()).collect();
    let fan_outs = all_at_once(work.into_iter().map(|store| async move { store.fan_out(30, T0).await.unwrap() })).await;
    let created: usize = fan_outs.iter().map(|counts| counts.notices_created).sum();
    assert_eq!(created + fan_out_all(&store, T0).await, 80);
    for endpoint in &endpoints {
        let seqs: Vec<u64> = all_notices(&store, endpoint).await.iter().map(|notice| notice.seq).collect();
        assert_eq!(seqs, (1..=40).collect::<Vec<u64>>());
    }
}

pub(super) async fn many_nodes_lease_each_notice_once(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 40, T0).await;
    fan_out_all(&store, T0).await;
    let work: Vec<(TestStore, Endpoint, u8)> = (0..8).map(|n| (store.clone(), endpoint.clone(), n)).collect();
    let leased = all_at_once(work.into_iter().map(|(store, endpoint, n)| async move {
        let mut all = Vec::new();
        for _ in 0..10 {
            all.extend(lease_notices_as(&store, &endpoint, node_id(n), 3, T0).await);
        }
        all
    }))
    .await;
    let mut seqs: Vec<u64> = leased.concat().iter().map(|leased| leased.notice.seq).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=40).collect::<Vec<u64>>());
}

pub(super) async fn of_16_equal_concurrent_outcomes_one_counts(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    cancel_email(&store, email.id, T0).await;
    fan_out_all(&store, T0).await;
    let notice = lease_notices(&store, &endpoint, 9, T0).await.remove(0).notice;
    let work: Vec<_> = (0..16).map(|_| (store.clone(), notice.clone())).collect();
    let results =
        all_at_once(work.into_iter().map(|(store, notice)| async move {
            record_outcome(&store, &notice, WebhookVerdict::Retry(None), T0).await
        }))
        .await;
    assert!(results.iter().all(|notice| (notice.failures, notice.rev) == (1, 2)), "{results:?}");
    let due_times: Vec<_> = all_notices(&store, &endpoint).await.iter().map(|notice| notice.due_at).collect();
    assert_eq!(due_times, [Some(T0.plus(5_000)), None]);
}

/// Runs writers, fan-outs and deliveries concurrently, with some failures. In the end every notice is delivered.
pub(super) async fn no_notice_waits_behind_a_finished_one(store: TestStore) {
    let endpoint = endpoint_from_start(&store, &["*"]).await;
    let mut emails = Vec::new();
    for _ in 0..12 {
        emails.push(accept_first(&store, &keyless_email(), T0).await.id);
    }
    let delivered: Arc<Mutex<BTreeMap<EmailId, Vec<u64>>>> = Arc::default();
    let workers = (0..12_u8).map(|n| {
        let (store, endpoint, delivered, emails) = (store.clone(), endpoint.clone(), delivered.clone(), emails.clone());
        async move {
            for round in 0..25_usize {
                match n % 3 {
                    0 => emit_duplicate_event(&store, emails[(round + usize::from(n)) % emails.len()]).await,
                    1 => drop(store.fan_out(7, T0).await.unwrap()),
                    _ => deliver_some(&store, &endpoint, n, &delivered).await,
                }
            }
        }
    });
    all_at_once(workers).await;
    fan_out_all(&store, T0).await;
    for _ in 0..400 {
        deliver_some(&store, &endpoint, 99, &delivered).await;
    }
    let notices = all_notices(&store, &endpoint).await;
    assert_eq!(notices.len(), 12 + 4 * 25);
    assert!(notices.iter().all(|notice| notice.state == NoticeState::Delivered), "{notices:?}");
    for (subject, seqs) in delivered.lock().unwrap().iter() {
        assert!(seqs.is_sorted(), "{subject}: {seqs:?}");
        assert_eq!(seqs.iter().collect::<BTreeSet<_>>().len(), seqs.len());
    }
}

async fn emit_duplicate_event(store: &TestStore, email: EmailId) {
    let call =
        mailonce_core::outbound::suppressed_call::SuppressedCalls { team: TEAM, email, count: 1, latest: Vec::new() };
    store.record_suppressed_calls(vec![call], T0).await.unwrap();
}

/// Delivers due notices. The delivery is noted before the next notice of the subject can be leased.
async fn deliver_some(store: &TestStore, endpoint: &Endpoint, n: u8, delivered: &Mutex<BTreeMap<EmailId, Vec<u64>>>) {
    // The time is an hour later, so that notices with a failed attempt are due again.
    for leased in lease_notices_as(store, endpoint, node_id(n), 4, T0.plus(3_600_000)).await {
        let answer = if leased.notice.attempts == 1 && leased.notice.seq % 3 == 0 {
            WebhookVerdict::Retry(None)
        } else {
            WebhookVerdict::Delivered
        };
        if answer == WebhookVerdict::Delivered {
            delivered.lock().unwrap().entry(EmailId(leased.notice.subject_id)).or_default().push(leased.notice.seq);
        }
        record_outcome(store, &leased.notice, answer, T0).await;
    }
}
