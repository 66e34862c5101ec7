//! Promises about telling others when many come at the same moment.

use mailonce_core::{
    endpoint::Endpoint,
    id::EmailId,
    notice::{Answer, NoticeState},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use super::{
    Ledger, T0, TEAM, accepted, all_at_once, cancelled,
    deed::node,
    herald::{all, happen, lease, lease_as, listening, settle, spread},
    keyless,
};

pub(super) async fn of_16_spreads_each_event_is_owed_once(store: Ledger) {
    let endpoints = [listening(&store, &["*"]).await, listening(&store, &["*"]).await];
    happen(&store, 40, T0).await;
    let work: Vec<Ledger> = (0..16).map(|_| store.clone()).collect();
    let spreads = all_at_once(work.into_iter().map(|store| async move { store.spread(30, T0).await.unwrap() })).await;
    let owed: usize = spreads.iter().map(|spread| spread.owed).sum();
    assert_eq!(owed + spread(&store, T0).await, 80);
    for endpoint in &endpoints {
        let seqs: Vec<u64> = all(&store, endpoint).await.iter().map(|notice| notice.seq).collect();
        assert_eq!(seqs, (1..=40).collect::<Vec<u64>>());
    }
}

pub(super) async fn many_processes_lease_each_notice_once(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    happen(&store, 40, T0).await;
    spread(&store, T0).await;
    let work: Vec<(Ledger, Endpoint, u8)> = (0..8).map(|n| (store.clone(), made.clone(), n)).collect();
    let leased = all_at_once(work.into_iter().map(|(store, made, n)| async move {
        let mut all = Vec::new();
        for _ in 0..10 {
            all.extend(lease_as(&store, &made, node(n), 3, T0).await);
        }
        all
    }))
    .await;
    let mut seqs: Vec<u64> = leased.concat().iter().map(|owed| owed.notice.seq).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=40).collect::<Vec<u64>>());
}

pub(super) async fn of_16_equal_settles_one_counts(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    let email = accepted(&store, &keyless(), T0).await;
    cancelled(&store, email.id, T0).await;
    spread(&store, T0).await;
    let owed = lease(&store, &made, 9, T0).await.remove(0).notice;
    let work: Vec<_> = (0..16).map(|_| (store.clone(), owed.clone())).collect();
    let settled = all_at_once(
        work.into_iter().map(|(store, notice)| async move { settle(&store, &notice, Answer::Again(None), T0).await }),
    )
    .await;
    assert!(settled.iter().all(|notice| (notice.failures, notice.rev) == (1, 2)), "{settled:?}");
    let line: Vec<_> = all(&store, &made).await.iter().map(|notice| notice.next_at).collect();
    assert_eq!(line, [Some(T0.plus(5_000)), None]);
}

/// Writers, spreaders and tellers at once, and some failures: in the end everything was told, each subject in its order.
pub(super) async fn nobody_stays_in_line_behind_nothing(store: Ledger) {
    let made = listening(&store, &["*"]).await;
    let mut emails = Vec::new();
    for _ in 0..12 {
        emails.push(accepted(&store, &keyless(), T0).await.id);
    }
    let told: Arc<Mutex<BTreeMap<EmailId, Vec<u64>>>> = Arc::default();
    let workers = (0..12_u8).map(|n| {
        let (store, made, told, emails) = (store.clone(), made.clone(), told.clone(), emails.clone());
        async move {
            for round in 0..25_usize {
                match n % 3 {
                    0 => note(&store, emails[(round + usize::from(n)) % emails.len()]).await,
                    1 => drop(store.spread(7, T0).await.unwrap()),
                    _ => tell_some(&store, &made, n, &told).await,
                }
            }
        }
    });
    all_at_once(workers).await;
    spread(&store, T0).await;
    for _ in 0..400 {
        tell_some(&store, &made, 99, &told).await;
    }
    let notices = all(&store, &made).await;
    assert_eq!(notices.len(), 12 + 4 * 25);
    assert!(notices.iter().all(|notice| notice.state == NoticeState::Delivered), "{notices:?}");
    for (about, seqs) in told.lock().unwrap().iter() {
        assert!(seqs.is_sorted(), "{about}: {seqs:?}");
        assert_eq!(seqs.iter().collect::<BTreeSet<_>>().len(), seqs.len());
    }
}

async fn note(store: &Ledger, email: EmailId) {
    let call = mailonce_core::port::store::Suppressed { team: TEAM, email, count: 1, latest: Vec::new() };
    store.note_suppressed(vec![call], T0).await.unwrap();
}

/// Takes what is due and tells it. What it hears first of a subject is noted before the next of it can be leased.
async fn tell_some(store: &Ledger, made: &Endpoint, n: u8, told: &Mutex<BTreeMap<EmailId, Vec<u64>>>) {
    // Failures are put off; here time goes on with each attempt of a notice.
    for owed in lease_as(store, made, node(n), 4, T0.plus(3_600_000)).await {
        let answer =
            if owed.notice.attempts == 1 && owed.notice.seq % 3 == 0 { Answer::Again(None) } else { Answer::Delivered };
        if answer == Answer::Delivered {
            told.lock().unwrap().entry(EmailId(owed.notice.about)).or_default().push(owed.notice.seq);
        }
        settle(store, &owed.notice, answer, T0).await;
    }
}
