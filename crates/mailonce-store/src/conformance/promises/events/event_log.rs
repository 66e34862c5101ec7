//! Promises about the event log and its subscribers: every change once, in order.

use mailonce_core::{
    events::event::Event,
    handoff::reply::ReplyMeaning,
    id::EmailId,
    outbound::{email::Email, email_commands::RescheduleRequest, suppressed_call::SuppressedCalls},
    ports::store::{EmailSubscriber, SharedEmailSubscriber, Store, StoreHooks},
    ttl::Ttl,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::runtime::Handle;

use crate::conformance::{
    DAY, HOUR, OTHER_TEAM, T0, TEAM, TestStore, accept_and_send, accept_batch_items, accept_first, accept_replay,
    all_at_once, all_events, cancel_email, capture_due, check_promise, event_kinds, expect_first,
    fixtures::{
        handoffs::{SECOND_NODE, accept_and_lease, apply_action, marker_action, record_attempt, write_marker},
        open_store,
    },
    given_key_hash, keyed_email, keyless_batch, keyless_email, load_email, next_version,
};

fn seqs(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

pub(super) async fn every_change_emits_one_event(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k").due(T0.plus(HOUR)), T0).await;
    let _moved =
        store.reschedule(TEAM, email.id, RescheduleRequest::without_charges(T0.plus(2)), T0.plus(1)).await.unwrap();
    capture_due(&store, 1, T0.plus(2)).await;
    let _extended = store.extend_key(TEAM, given_key_hash(TEAM, "k"), Ttl(DAY), T0.plus(3)).await.unwrap();
    let now = load_email(&store, email.id).await;
    let _resent = store.resend(next_version(&now).to_new_email(T0.plus(4)), None, T0.plus(4)).await.unwrap();
    let _forgotten = store.forget_key(TEAM, given_key_hash(TEAM, "k"), T0.plus(5)).await.unwrap();

    let events = all_events(&store, TEAM).await;
    let own_events: Vec<_> = events.iter().map(|e| &e.event).filter(|e| e.subject_id == email.id.0).collect();
    let found: Vec<_> = own_events.iter().map(|e| (e.kind.as_str(), e.rev, e.at.since(T0))).collect();

    let wanted = [
        ("email.accepted", 1, 0),
        ("email.rescheduled", 2, 1),
        ("email.sent", 3, 2),
        ("key.extended", 4, 3),
        ("email.resent", 5, 4),
        ("key.forgotten", 6, 5),
    ];
    assert_eq!(found, wanted);
    assert_eq!(load_email(&store, email.id).await.rev, 6);
    assert_eq!(events.len(), 7);
}

pub(super) async fn an_event_has_the_state_of_its_email(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let _cancelled = cancel_email(&store, email.id, T0).await;

    let events = all_events(&store, TEAM).await;

    assert_eq!(events[0].event.data, serde_json::json!({"key": "k", "state": "queued"}));
    assert_eq!(events[1].event.data, serde_json::json!({"key": "k", "state": "cancelled"}));
}

pub(super) async fn a_call_that_changes_nothing_emits_no_event(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k"), T0).await;

    let _replay = accept_replay(&store, &keyed_email("k"), T0).await;
    let _too_late = store.cancel(TEAM, email.id, None, T0).await.unwrap();
    let _not_scheduled = store.reschedule(TEAM, email.id, RescheduleRequest::without_charges(T0), T0).await.unwrap();
    capture_due(&store, 10, T0).await;
    let _swept = store.sweep(10, T0).await.unwrap();

    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.sent"]);
}

pub(super) async fn events_are_numbered_from_1_in_each_team(store: TestStore) {
    for (i, team) in [TEAM, OTHER_TEAM, TEAM, TEAM, OTHER_TEAM].into_iter().enumerate() {
        let _email = accept_first(&store, &keyed_email(&format!("k{i}")).team(team), T0).await;
    }

    assert_eq!(seqs(&all_events(&store, TEAM).await), [1, 2, 3]);
    assert_eq!(seqs(&all_events(&store, OTHER_TEAM).await), [1, 2]);
}

pub(super) async fn events_are_read_in_pages(store: TestStore) {
    for _ in 0..7 {
        let _email = accept_first(&store, &keyless_email(), T0).await;
    }
    for (after, limit, wanted) in
        [(0, 3, vec![1, 2, 3]), (3, 3, vec![4, 5, 6]), (6, 3, vec![7]), (7, 3, vec![]), (99, 3, vec![]), (2, 0, vec![])]
    {
        let page = store.events(TEAM, after, limit).await.unwrap();
        assert_eq!(seqs(&page), wanted, "after {after}, at most {limit}");
    }
}

pub(super) async fn events_of_many_writers_have_no_gaps(store: TestStore) {
    let (writers, each) = (50, 4);
    let work: Vec<Vec<_>> =
        (0..writers).map(|_| (0..each).map(|_| keyless_email().to_new_email(T0)).collect()).collect();
    let writers_work = work.into_iter().map(|new_emails| {
        let store = store.clone();
        async move {
            for new_email in new_emails {
                let id = expect_first(store.accept(new_email, T0).await.unwrap()).id;
                let _cancelled = cancel_email(&store, id, T0).await;
            }
        }
    });

    all_at_once(writers_work).await;

    let events = all_events(&store, TEAM).await;
    assert_eq!(seqs(&events), (1..=writers * each * 2).collect::<Vec<u64>>());
    let mut last_rev = std::collections::BTreeMap::new();
    for event in &events {
        let before = last_rev.insert(event.event.subject_id, event.event.rev).unwrap_or(0);
        assert_eq!(event.event.rev, before + 1, "events of an email are in the order of its changes");
    }
}

pub(super) async fn a_reader_that_follows_the_log_misses_nothing(store: TestStore) {
    let new_emails: Vec<_> = (0..150).map(|_| keyless_email().to_new_email(T0)).collect();
    let count = new_emails.len();
    let follower = tokio::spawn(follow_events(store.clone(), count));
    let writers = new_emails.into_iter().map(|new_email| {
        let store = store.clone();
        async move { expect_first(store.accept(new_email, T0).await.unwrap()) }
    });

    all_at_once(writers).await;

    let seen = follower.await.unwrap();
    assert_eq!(seqs(&seen), (1..=count as u64).collect::<Vec<_>>());
    assert_eq!(seen, all_events(&store, TEAM).await);
}

/// Follows the log until `count` events were read.
async fn follow_events(store: TestStore, count: usize) -> Vec<Event> {
    let mut seen: Vec<Event> = Vec::new();
    while seen.len() < count {
        let after = seen.last().map_or(0, |event| event.seq);
        seen.extend(store.events(TEAM, after, 7).await.unwrap());
        tokio::task::yield_now().await;
    }
    seen
}

/// What a subscriber was notified of, in order. `None` when the store has no subscriptions.
fn subscribe_emails(store: &TestStore) -> Option<Arc<Mutex<Vec<Email>>>> {
    let notified = Arc::new(Mutex::new(Vec::new()));
    let recorder = notified.clone();
    let emails = Arc::new(move |email: &Email| {
        recorder.lock().unwrap_or_else(PoisonError::into_inner).push(email.clone());
    });
    store.attach(StoreHooks { emails: Some(emails), ..StoreHooks::default() }).emails.then_some(notified)
}

async fn assert_notified_current(store: &TestStore, notified: &Mutex<Vec<Email>>, id: EmailId, step: &str) {
    let current = load_email(store, id).await;
    let notified = notified.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect::<Vec<_>>();
    let last = notified.iter().rev().find(|email| email.id == id);
    assert_eq!(last, Some(&current), "after {step}");
}

pub(super) async fn a_subscriber_is_notified_of_each_change_before_its_caller(store: TestStore) {
    let Some(notified) = subscribe_emails(&store) else { return };
    let email = accept_first(&store, &keyed_email("k").due(T0.plus(HOUR)), T0).await;
    let id = email.id;
    assert_notified_current(&store, &notified, id, "accept").await;
    let _moved = store.reschedule(TEAM, id, RescheduleRequest::without_charges(T0.plus(1)), T0).await.unwrap();
    assert_notified_current(&store, &notified, id, "reschedule").await;
    capture_due(&store, 1, T0.plus(1)).await;
    assert_notified_current(&store, &notified, id, "capture").await;
    let note = SuppressedCalls { team: TEAM, email: id, count: 2, latest: vec![] };
    store.record_suppressed_calls(vec![note], T0.plus(2)).await.unwrap();
    assert_notified_current(&store, &notified, id, "note").await;
    let _extended = store.extend_key(TEAM, given_key_hash(TEAM, "k"), Ttl(DAY), T0.plus(2)).await.unwrap();
    assert_notified_current(&store, &notified, id, "extend").await;
    let _next = store.resend(next_version(&email).to_new_email(T0.plus(2)), None, T0.plus(2)).await.unwrap();
    assert_notified_current(&store, &notified, id, "resend").await;
    let _forgotten = store.forget_key(TEAM, given_key_hash(TEAM, "k"), T0.plus(3)).await.unwrap();
    assert_notified_current(&store, &notified, id, "forget").await;

    let mut other = accept_first(&store, &keyless_email(), T0.plus(4)).await;
    assert_notified_current(&store, &notified, other.id, "accept without a key").await;
    other = cancel_email(&store, other.id, T0.plus(4)).await;
    assert_notified_current(&store, &notified, other.id, "cancel").await;
    let batch = keyless_batch(&[keyed_email("b").to_new_email(T0), keyless_email().to_new_email(T0)]);
    for answer in accept_batch_items(&store, batch, T0).await {
        let item = expect_first(answer);
        assert!(notified.lock().unwrap_or_else(PoisonError::into_inner).contains(&item), "after a batch");
    }
}

pub(super) async fn a_subscriber_is_notified_of_each_handoff_step(store: TestStore) {
    let Some(notified) = subscribe_emails(&store) else { return };
    let job = accept_and_lease(&store, &keyed_email("k")).await;
    assert_notified_current(&store, &notified, job.id, "lease").await;
    let job = write_marker(&store, job, T0).await;
    assert_notified_current(&store, &notified, job.id, "mark").await;
    let _recovered = store.recover_dead_nodes(SECOND_NODE, 10, T0).await.unwrap();
    assert_notified_current(&store, &notified, job.id, "recover").await;
    let _late = record_attempt(&store, &job, ReplyMeaning::Accepted, T0).await;
    assert_notified_current(&store, &notified, job.id, "late answer").await;

    notified.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let _stale = apply_action(&store, job.id, marker_action(&job, b"late"), T0).await;
    assert_eq!(*notified.lock().unwrap_or_else(PoisonError::into_inner), []);
}

pub(super) async fn a_subscriber_is_not_notified_of_replays(store: TestStore) {
    let _email = accept_first(&store, &keyed_email("k"), T0).await;
    let Some(notified) = subscribe_emails(&store) else { return };

    let _replay = accept_replay(&store, &keyed_email("k"), T0).await;

    assert_eq!(*notified.lock().unwrap_or_else(PoisonError::into_inner), []);
}

pub(super) async fn a_subscriber_is_notified_of_an_emails_changes_in_order(store: TestStore) {
    let Some(notified) = subscribe_emails(&store) else { return };
    for round in 0..10 {
        let new_emails: Vec<_> = (0..40).map(|n| keyed_email(&format!("k{round}-{n}")).to_new_email(T0)).collect();
        let work = new_emails.into_iter().map(Some).chain([None, None]).map(|new_email| (store.clone(), new_email));
        // Captures run in the same commit as accepts, or in a later one.
        all_at_once(work.map(|(store, new_email)| async move {
            match new_email {
                Some(new_email) => drop(store.accept(new_email, T0).await.unwrap()),
                None => drop(capture_due(&store, 40, T0).await),
            }
        }))
        .await;
    }
    while capture_due(&store, 100, T0).await > 0 {}

    let mut revs: HashMap<EmailId, Vec<u32>> = HashMap::new();
    for email in notified.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        revs.entry(email.id).or_default().push(email.rev);
    }
    assert_eq!(revs.len(), 400);
    assert!(revs.values().all(|revs| *revs == [1, 2]), "{:?}", revs.values().find(|revs| **revs != [1, 2]));
}

/// Reads each email at the moment its next change is announced.
struct ReadsAtAnnouncement {
    store: Weak<dyn Store>,
    runtime: Handle,
    seen: Mutex<Vec<(u32, u32)>>,
}

impl EmailSubscriber for ReadsAtAnnouncement {
    fn before_commit(&self, email: &Email) {
        let Some(store) = self.store.upgrade() else { return };
        let read = self.runtime.block_on(store.email(email.team, email.id)).unwrap().unwrap();
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push((read.rev, email.rev));
    }

    fn after_commit(&self, _email: &Email) {}
}

/// SQLite only: the memory store notifies under its lock, and PostgreSQL has no subscribers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_announced_before_readers_can_see_it() {
    let promise = async |store: TestStore| {
        let (seen, runtime) = (Mutex::default(), Handle::current());
        let subscriber = Arc::new(ReadsAtAnnouncement { store: Arc::downgrade(&store), runtime, seen });
        let emails = Arc::clone(&subscriber) as SharedEmailSubscriber;
        store.attach(StoreHooks { emails: Some(emails), ..StoreHooks::default() });
        let email = accept_and_send(&store, &keyed_email("k"), T0).await;
        let _extended = store.extend_key(TEAM, given_key_hash(TEAM, "k"), Ttl(DAY), T0).await.unwrap();
        assert_eq!(email.rev, 2);
        assert_eq!(*subscriber.seen.lock().unwrap_or_else(PoisonError::into_inner), [(1, 2), (2, 3)]);
    };
    check_promise(open_store::sqlite(), promise).await;
}
