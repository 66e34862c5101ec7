//! Promises about telling others when many come at the same moment.

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

use super::{
    T0, TEAM, TestStore, accept_first, all_at_once, cancel_email,
    deed::node_id,
    herald::{
        accept_emails, all_notices, endpoint_from_start, fan_out_all, lease_notices, lease_notices_as, record_outcome,
    },
    keyless_email,
};

pub(super) async fn of_16_spreads_each_event_is_owed_once(store: TestStore) {
    let endpoints = [endpoint_from_start(&store, &["*"]).await, endpoint_from_start(&store, &["*"]).await];
    accept_emails(&store, 40, T0).await;
    let work: Vec<TestStore> = (0..16).map(|_| store.clone()).collect();
    let spreads = all_at_once(work.into_iter().map(|store| async move { store.fan_out(30, T0).await.unwrap() })).await;
    let owed: usize = spreads.iter().map(|spread| spread.notices_created).sum();
    assert_eq!(owed + fan_out_all(&store, T0).await, 80);
    for endpoint in &endpoints {
        let seqs: Vec<u64> = all_notices(&store, endpoint).await.iter().map(|notice| notice.seq).collect();
        assert_eq!(seqs, (1..=40).collect::<Vec<u64>>());
    }
}

pub(super) async fn many_processes_lease_each_notice_once(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    accept_emails(&store, 40, T0).await;
    fan_out_all(&store, T0).await;
    let work: Vec<(TestStore, Endpoint, u8)> = (0..8).map(|n| (store.clone(), made.clone(), n)).collect();
    let leased = all_at_once(work.into_iter().map(|(store, made, n)| async move {
        let mut all = Vec::new();
        for _ in 0..10 {
            all.extend(lease_notices_as(&store, &made, node_id(n), 3, T0).await);
        }
        all
    }))
    .await;
    let mut seqs: Vec<u64> = leased.concat().iter().map(|owed| owed.notice.seq).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=40).collect::<Vec<u64>>());
}

pub(super) async fn of_16_equal_settles_one_counts(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    let email = accept_first(&store, &keyless_email(), T0).await;
    cancel_email(&store, email.id, T0).await;
    fan_out_all(&store, T0).await;
    let owed = lease_notices(&store, &made, 9, T0).await.remove(0).notice;
    let work: Vec<_> = (0..16).map(|_| (store.clone(), owed.clone())).collect();
    let settled =
        all_at_once(work.into_iter().map(|(store, notice)| async move {
            record_outcome(&store, &notice, WebhookVerdict::Retry(None), T0).await
        }))
        .await;
    assert!(settled.iter().all(|notice| (notice.failures, notice.rev) == (1, 2)), "{settled:?}");
    let line: Vec<_> = all_notices(&store, &made).await.iter().map(|notice| notice.due_at).collect();
    assert_eq!(line, [Some(T0.plus(5_000)), None]);
}

/// Writers, spreaders and tellers at once, and some failures: in the end everything was told, each subject in its order.
pub(super) async fn nobody_stays_in_line_behind_nothing(store: TestStore) {
    let made = endpoint_from_start(&store, &["*"]).await;
    let mut emails = Vec::new();
    for _ in 0..12 {
        emails.push(accept_first(&store, &keyless_email(), T0).await.id);
    }
    let told: Arc<Mutex<BTreeMap<EmailId, Vec<u64>>>> = Arc::default();
    let workers = (0..12_u8).map(|n| {
        let (store, made, told, emails) = (store.clone(), made.clone(), told.clone(), emails.clone());
        async move {
            for round in 0..25_usize {
                match n % 3 {
                    0 => emit_duplicate_event(&store, emails[(round + usize::from(n)) % emails.len()]).await,
                    1 => drop(store.fan_out(7, T0).await.unwrap()),
                    _ => deliver_some(&store, &made, n, &told).await,
                }
            }
        }
    });
    all_at_once(workers).await;
    fan_out_all(&store, T0).await;
    for _ in 0..400 {
        deliver_some(&store, &made, 99, &told).await;
    }
    let notices = all_notices(&store, &made).await;
    assert_eq!(notices.len(), 12 + 4 * 25);
    assert!(notices.iter().all(|notice| notice.state == NoticeState::Delivered), "{notices:?}");
    for (about, seqs) in told.lock().unwrap().iter() {
        assert!(seqs.is_sorted(), "{about}: {seqs:?}");
        assert_eq!(seqs.iter().collect::<BTreeSet<_>>().len(), seqs.len());
    }
}

async fn emit_duplicate_event(store: &TestStore, email: EmailId) {
    let call =
        mailonce_core::outbound::suppressed_call::SuppressedCalls { team: TEAM, email, count: 1, latest: Vec::new() };
    store.record_suppressed_calls(vec![call], T0).await.unwrap();
}

/// Takes what is due and tells it. What it hears first of a subject is noted before the next of it can be leased.
async fn deliver_some(store: &TestStore, made: &Endpoint, n: u8, told: &Mutex<BTreeMap<EmailId, Vec<u64>>>) {
    // Failures are put off; here time goes on with each attempt of a notice.
    for owed in lease_notices_as(store, made, node_id(n), 4, T0.plus(3_600_000)).await {
        let answer = if owed.notice.attempts == 1 && owed.notice.seq % 3 == 0 {
            WebhookVerdict::Retry(None)
        } else {
            WebhookVerdict::Delivered
        };
        if answer == WebhookVerdict::Delivered {
            told.lock().unwrap().entry(EmailId(owed.notice.subject_id)).or_default().push(owed.notice.seq);
        }
        record_outcome(store, &owed.notice, answer, T0).await;
    }
}
