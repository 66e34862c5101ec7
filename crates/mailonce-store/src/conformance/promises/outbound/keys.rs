//! Promises about the lifetime of keys: TTL, expiry, tombstones, sweeps, and suppressed calls.

use mailonce_core::{
    call_trace::CallTrace,
    handoff::{action::HandoffActionStatus, reply::ReplyMeaning},
    id::ordered_bits,
    installation::SweepCounts,
    limits,
    outbound::{
        email::{Channel, Email, Guard},
        key_binding::{KeyBinding, KeyChangeResult},
        suppressed_call::{SuppressedCall, SuppressedCalls, SuppressedReason},
    },
    ports::store::{LedgerClock, StoreHooks},
    time::Time,
    ttl::Ttl,
};
use std::sync::Arc;

use crate::conformance::{
    DAY, HOUR, SECOND, T0, TEAM, TestStore, accept_and_send, accept_email, accept_first, accept_replay, all_events,
    cancel_email, capture_due, event_kinds, expect_bound_email, fixtures::handoffs, given_key_hash, intent_email,
    keyed_email, keyless_email, list_all, load_detail, load_email, next_id, next_version,
};

async fn sweep(store: &TestStore, now: Time) -> SweepCounts {
    store.sweep(1_000, now).await.unwrap()
}

async fn extend(store: &TestStore, key: &str, ms: i64, now: Time) -> KeyChangeResult {
    store.extend_key(TEAM, given_key_hash(TEAM, key), Ttl(ms), now).await.unwrap()
}

async fn forget(store: &TestStore, key: &str, now: Time) -> KeyChangeResult {
    store.forget_key(TEAM, given_key_hash(TEAM, key), now).await.unwrap()
}

fn suppressed_calls(email: &Email, count: u64, times: std::ops::Range<i64>) -> SuppressedCalls {
    let call = |ms| SuppressedCall {
        at: T0.plus(ms),
        caller: None,
        channel: Channel::Http,
        reason: SuppressedReason::KeyReplay,
        call: CallTrace::from_parts(Some(format!("toolu_{ms}")), None),
    };
    SuppressedCalls { team: email.team, email: email.id, count, latest: times.map(call).collect() }
}

pub(super) async fn a_key_is_kept_while_its_email_is_unfinished(store: TestStore) {
    let fixtures = [
        keyed_email("queued").ttl(SECOND),
        keyed_email("scheduled").ttl(SECOND).due(T0.plus(2_000 * DAY)),
        intent_email("o", &["a@example.com", "b@example.com"]).ttl(SECOND),
        intent_email("o", &["a@example.com"]).ttl(SECOND),
    ];
    let mut emails = Vec::new();
    for fixture in &fixtures {
        emails.push(accept_first(&store, fixture, T0).await);
    }
    let later = T0.plus(1_000 * DAY);

    assert_eq!(sweep(&store, later).await, SweepCounts::default());

    for (fixture, email) in fixtures.iter().zip(emails) {
        assert_eq!(accept_replay(&store, fixture, later).await, email);
        assert!(load_detail(&store, email.id).await.body.is_some());
    }
}

pub(super) async fn a_keys_ttl_starts_when_its_email_is_terminal(store: TestStore) {
    let _queued = accept_first(&store, &keyed_email("k").ttl(DAY), T0).await;
    let settled = T0.plus(100 * DAY);
    capture_due(&store, 1, settled).await;

    let email = accept_replay(&store, &keyed_email("k"), settled.plus(DAY - 1)).await;

    assert_eq!((email.settled_at, email.expires_at()), (Some(settled), Some(settled.plus(DAY))));
    assert_eq!(store.key_binding(TEAM, given_key_hash(TEAM, "k"), settled.plus(DAY)).await.unwrap(), None);
}

/// A clock that does not advance.
struct FixedClock {
    now: Time,
    forget_by: Time,
}

impl LedgerClock for FixedClock {
    fn now(&self) -> Time {
        self.now
    }

    fn expiry_cutoff(&self) -> Time {
        self.forget_by
    }
}

fn attach_clock(store: &TestStore, clock: FixedClock) {
    store.attach(StoreHooks { clock: Some(Arc::new(clock)), ..StoreHooks::default() });
}

pub(super) async fn a_lookup_expires_no_key_before_the_ledger_clock_allows_it(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k").ttl(DAY), T0).await;
    let expired = T0.plus(2 * DAY);
    for forget_by in [Time(i64::MIN), T0.plus(DAY - 1)] {
        attach_clock(&store, FixedClock { now: T0, forget_by });
        assert_eq!(accept_replay(&store, &keyed_email("k").ttl(DAY), expired).await.id, email.id);
        assert!(store.key_binding(TEAM, given_key_hash(TEAM, "k"), expired).await.unwrap().is_some());
        let view = store.key(TEAM, given_key_hash(TEAM, "k"), expired).await.unwrap().unwrap();
        assert_eq!((view.binding.is_some(), view.forgotten_at), (true, None));
    }
    attach_clock(&store, FixedClock { now: T0, forget_by: T0.plus(DAY) });
    assert_eq!(store.key_binding(TEAM, given_key_hash(TEAM, "k"), expired).await.unwrap(), None);
    assert_ne!(accept_first(&store, &keyed_email("k"), expired).await.id, email.id);
}

pub(super) async fn an_email_settles_at_the_time_of_its_commit(store: TestStore) {
    let (asked, committed) = (T0.plus(SECOND), T0.plus(30 * DAY));
    let job = handoffs::accept_and_mark(&store, &keyed_email("answered").ttl(DAY)).await;
    accept_first(&store, &keyed_email("captured").ttl(DAY), T0).await;
    let later = accept_first(&store, &keyed_email("taken back").ttl(DAY).due(T0.plus(DAY)), T0).await;
    // Every caller was suspended between reading the clock and its commit.
    attach_clock(&store, FixedClock { now: committed, forget_by: Time(i64::MAX) });
    assert_eq!(
        handoffs::record_attempt(&store, &job, ReplyMeaning::Accepted, asked).await.0,
        HandoffActionStatus::Done
    );
    assert_eq!(capture_due(&store, 1, asked).await, 1);
    cancel_email(&store, later.id, asked).await;

    sweep(&store, committed.plus(DAY - 1)).await;

    for key in ["answered", "captured", "taken back"] {
        let email = accept_replay(&store, &keyed_email(key), committed.plus(DAY - 1)).await;
        assert_eq!(email.settled_at, Some(committed), "{key}");
    }
}

async fn check_rebinding(store: &TestStore, swept: bool) {
    let old = accept_and_send(store, &keyed_email("k").ttl(DAY), T0).await;
    let end = T0.plus(DAY);
    if swept {
        assert_eq!(sweep(store, end).await, SweepCounts { keys: 1, ..SweepCounts::default() });
    }

    let new = accept_first(store, &keyed_email("k"), end).await;

    assert_eq!((new.bind_number, new.rev), (2, 1));
    assert_ne!(new.id, old.id);
    assert_eq!(accept_replay(store, &keyed_email("k"), end).await, new);
    assert_eq!(load_email(store, old.id).await, old);
    sweep(store, end.plus(60 * DAY)).await;
    assert_eq!(accept_replay(store, &keyed_email("k"), end.plus(60 * DAY)).await, new);
}

pub(super) async fn an_expired_key_accepts_a_new_email_before_the_sweep(store: TestStore) {
    check_rebinding(&store, false).await;
}

pub(super) async fn an_expired_key_accepts_a_new_email_after_the_sweep(store: TestStore) {
    check_rebinding(&store, true).await;
}

pub(super) async fn an_expired_key_leaves_a_tombstone(store: TestStore) {
    let _old = accept_and_send(&store, &keyed_email("k").ttl(DAY), T0).await;
    let end = T0.plus(DAY);
    let before = store.key(TEAM, given_key_hash(TEAM, "k"), end).await.unwrap().unwrap();
    sweep(&store, end.plus(HOUR)).await;

    let view = store.key(TEAM, given_key_hash(TEAM, "k"), end.plus(HOUR)).await.unwrap().unwrap();

    assert_eq!((view.bind_number, &view.binding, view.forgotten_at), (1, &None, Some(end)));
    assert_eq!(view, before);
}

pub(super) async fn a_bound_key_shows_its_email(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;

    let view = store.key(TEAM, given_key_hash(TEAM, "k"), T0).await.unwrap().unwrap();

    assert_eq!((view.bind_number, view.binding, view.forgotten_at), (1, Some(KeyBinding::Email(email)), None));
    assert_eq!(store.key(TEAM, given_key_hash(TEAM, "never"), T0).await.unwrap(), None);
}

pub(super) async fn an_email_and_its_key_are_deleted_after_the_tombstone_period(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k").ttl(35 * DAY), T0).await;
    let highest = store.installation().await.unwrap().last_id;
    let end = T0.plus(35 * DAY + limits::TOMBSTONE_MS);
    sweep(&store, end.plus(-1)).await;
    assert!(store.key(TEAM, given_key_hash(TEAM, "k"), end.plus(-1)).await.unwrap().is_some());

    assert_eq!(sweep(&store, end).await, SweepCounts { tombstones: 1, ..SweepCounts::default() });

    assert_eq!(store.key(TEAM, given_key_hash(TEAM, "k"), end).await.unwrap(), None);
    assert_eq!(store.email(TEAM, email.id).await.unwrap(), None);
    assert_eq!(store.email_detail(TEAM, email.id).await.unwrap(), None);
    assert_eq!(list_all(&store, TEAM).await, []);
    assert!(highest >= ordered_bits(email.id.0));
    assert_eq!(store.installation().await.unwrap().last_id, highest);
    assert_eq!(accept_first(&store, &keyed_email("k"), end).await.bind_number, 1);
}

pub(super) async fn an_email_without_a_key_is_deleted_too(store: TestStore) {
    let _email = accept_and_send(&store, &keyless_email().ttl(DAY), T0).await;
    let end = T0.plus(limits::BODY_RETENTION_MS + limits::TOMBSTONE_MS);

    assert_eq!(sweep(&store, end).await, SweepCounts { bodies: 1, ..SweepCounts::default() });

    assert_eq!(list_all(&store, TEAM).await, []);
}

pub(super) async fn sweeping_an_old_email_keeps_the_keys_new_binding(store: TestStore) {
    let old = accept_and_send(&store, &keyed_email("k").ttl(SECOND), T0).await;
    let again = T0.plus(429 * DAY);
    let new = accept_first(&store, &keyed_email("k"), again).await;
    let end = T0.plus(limits::BODY_RETENTION_MS + limits::TOMBSTONE_MS);

    sweep(&store, end).await;

    assert_eq!(store.email(TEAM, old.id).await.unwrap(), None);
    assert_eq!(accept_replay(&store, &keyed_email("k"), end).await, new);
    assert_eq!(new.bind_number, 2);
}

pub(super) async fn a_tombstone_is_swept_while_another_email_occupies_the_recipient(store: TestStore) {
    let alone = intent_email("o", &["a@example.com"]);
    let _old = accept_and_send(&store, &alone.clone().ttl(SECOND), T0).await;
    let several = intent_email("o", &["a@example.com", "b@example.com"]).ttl(SECOND);
    let several = accept_first(&store, &several, T0.plus(SECOND)).await;
    let end = T0.plus(limits::BODY_RETENTION_MS + limits::TOMBSTONE_MS);

    sweep(&store, end).await;

    assert_eq!(store.key(TEAM, alone.hash(), end).await.unwrap(), None);
    let held = accept_first(&store, &alone, end).await;
    assert_eq!((several.guard, held.guard, held.bind_number), (None, Some(Guard::Overlaps), 1));
}

pub(super) async fn a_change_does_not_delay_a_due_sweep(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k").ttl(SECOND), T0).await;
    let now = T0.plus(31 * DAY);
    let _resent = store.resend(next_version(&email).to_new_email(now), None, now).await.unwrap();

    assert_eq!(sweep(&store, now).await, SweepCounts { keys: 1, bodies: 1, ..SweepCounts::default() });

    assert_eq!(load_detail(&store, email.id).await.body, None);
}

pub(super) async fn the_body_is_swept_before_the_key(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k").text("one"), T0).await;
    let later = T0.plus(limits::BODY_RETENTION_MS);
    sweep(&store, later.plus(-1)).await;
    assert!(load_detail(&store, email.id).await.body.is_some());

    assert_eq!(sweep(&store, later).await, SweepCounts { bodies: 1, ..SweepCounts::default() });

    let found = load_detail(&store, email.id).await;
    assert_eq!((found.body, found.attempts.len()), (None, 1));
    assert_eq!(accept_replay(&store, &keyed_email("k").text("two"), later).await, email);
    assert_eq!(email.digest, keyed_email("k").text("one").to_new_email(T0).digest);
}

pub(super) async fn a_sweep_is_bounded_and_finishes(store: TestStore) {
    for i in 0..7 {
        let _email = accept_and_send(&store, &keyed_email(&format!("k{i}")).ttl(DAY), T0).await;
    }
    let later = T0.plus(DAY);
    let mut rounds = Vec::new();
    for _ in 0..4 {
        rounds.push(store.sweep(3, later).await.unwrap().keys);
    }

    assert_eq!(rounds, [3, 3, 1, 0]);
}

pub(super) async fn a_sweep_emits_no_event(store: TestStore) {
    let _email = accept_and_send(&store, &keyed_email("k").ttl(DAY), T0).await;
    sweep(&store, T0.plus(500 * DAY)).await;
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.sent"]);
}

pub(super) async fn a_keys_ttl_can_be_changed(store: TestStore) {
    let email = accept_and_send(&store, &keyed_email("k").ttl(DAY), T0).await;

    let KeyChangeResult::Done(after) = extend(&store, "k", 90 * DAY, T0.plus(HOUR)).await else { panic!("refused") };

    assert_eq!((after.rev, after.expires_at()), (email.rev + 1, Some(T0.plus(90 * DAY))));
    sweep(&store, T0.plus(2 * DAY)).await;
    assert_eq!(accept_replay(&store, &keyed_email("k"), T0.plus(90 * DAY - 1)).await, after);
    assert_eq!(accept_first(&store, &keyed_email("k"), T0.plus(90 * DAY)).await.bind_number, 2);
    assert_eq!(all_events(&store, TEAM).await[2].event.kind.as_str(), "key.extended");
}

pub(super) async fn a_keys_ttl_can_be_changed_before_its_email_is_terminal(store: TestStore) {
    let _queued = accept_first(&store, &keyed_email("k").ttl(SECOND), T0).await;
    let KeyChangeResult::Done(after) = extend(&store, "k", 5 * DAY, T0).await else { panic!("refused") };
    capture_due(&store, 1, T0.plus(HOUR)).await;

    assert_eq!((after.ttl, after.expires_at()), (Ttl(5 * DAY), None));
    assert_eq!(
        accept_replay(&store, &keyed_email("k"), T0.plus(DAY)).await.expires_at(),
        Some(T0.plus(HOUR + 5 * DAY))
    );
}

pub(super) async fn a_shorter_ttl_takes_effect_at_once(store: TestStore) {
    let _sent = accept_and_send(&store, &keyed_email("k").ttl(90 * DAY), T0).await;
    let _changed = extend(&store, "k", DAY, T0.plus(2 * DAY)).await;

    assert_eq!(accept_first(&store, &keyed_email("k"), T0.plus(2 * DAY)).await.bind_number, 2);
}

pub(super) async fn an_expired_or_unknown_key_cannot_be_changed(store: TestStore) {
    let _sent = accept_and_send(&store, &keyed_email("k").ttl(DAY), T0).await;
    let end = T0.plus(DAY);

    for key in ["k", "never"] {
        assert_eq!(extend(&store, key, DAY, end).await, KeyChangeResult::Missing, "{key}");
        assert_eq!(forget(&store, key, end).await, KeyChangeResult::Missing, "{key}");
    }
    assert_eq!(event_kinds(&store).await.len(), 2);
}

pub(super) async fn a_key_can_be_deleted_only_when_its_email_is_terminal(store: TestStore) {
    let queued = accept_first(&store, &keyed_email("k"), T0).await;

    assert_eq!(forget(&store, "k", T0).await, KeyChangeResult::NotTerminal(queued.clone()));
    capture_due(&store, 1, T0).await;
    let now = T0.plus(HOUR);
    let KeyChangeResult::Done(after) = forget(&store, "k", now).await else { panic!("refused") };

    assert_eq!((after.id, after.expires_at()), (queued.id, Some(now)));
    let view = store.key(TEAM, given_key_hash(TEAM, "k"), now).await.unwrap().unwrap();
    assert_eq!((view.bind_number, view.binding, view.forgotten_at), (1, None, Some(now)));
    assert_eq!(accept_first(&store, &keyed_email("k"), now).await.bind_number, 2);
    assert_eq!(event_kinds(&store).await, ["email.accepted", "email.sent", "key.forgotten", "email.accepted"]);
}

pub(super) async fn a_key_can_be_bound_many_times(store: TestStore) {
    for bind in 1..=5 {
        let email = accept_first(&store, &keyed_email("k"), T0.plus(i64::from(bind))).await;
        assert_eq!(email.bind_number, bind);
        let _cancelled = cancel_email(&store, email.id, T0.plus(i64::from(bind))).await;
        let _forgotten = forget(&store, "k", T0.plus(i64::from(bind))).await;
    }
}

pub(super) async fn suppressed_calls_are_counted_and_the_latest_are_stored(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    store.record_suppressed_calls(vec![suppressed_calls(&email, 3, 0..3)], T0.plus(10)).await.unwrap();
    store
        .record_suppressed_calls(
            vec![suppressed_calls(&email, 100, 3..23), suppressed_calls(&email, 2, 23..25)],
            T0.plus(40),
        )
        .await
        .unwrap();

    let found = load_detail(&store, email.id).await;
    let view = store.key(TEAM, given_key_hash(TEAM, "k"), T0.plus(40)).await.unwrap().unwrap();

    assert_eq!((found.email.suppressed, found.email.rev), (105, email.rev));
    let latest: Vec<_> = suppressed_calls(&email, 20, 5..25).latest.into_iter().rev().collect();
    assert_eq!(found.suppressed_calls, latest);
    assert_eq!(view.suppressed_calls, found.suppressed_calls);
    assert_eq!(expect_bound_email(accept_email(&store, &keyed_email("k"), T0.plus(41)).await).suppressed, 105);
}

pub(super) async fn the_duplicate_event_counts_suppressed_calls(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    store.record_suppressed_calls(vec![suppressed_calls(&email, 7, 0..7)], T0.plus(10)).await.unwrap();

    let event = all_events(&store, TEAM).await.pop().unwrap().event;

    assert_eq!(
        (event.kind.as_str(), event.at, event.subject_id, event.rev),
        ("email.duplicate", T0.plus(10), email.id.0, 1)
    );
    assert_eq!((&event.data["call_count"], &event.data["key"]), (&7.into(), &"k".into()));
}

pub(super) async fn suppressed_calls_survive_a_change_of_their_email(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    store.record_suppressed_calls(vec![suppressed_calls(&email, 4, 0..4)], T0).await.unwrap();

    let after = cancel_email(&store, email.id, T0).await;

    assert_eq!(after.suppressed, 4);
    assert_eq!(load_detail(&store, email.id).await.suppressed_calls.len(), 4);
}

pub(super) async fn suppressed_calls_of_unknown_emails_are_dropped(store: TestStore) {
    let email = accept_first(&store, &keyed_email("k"), T0).await;
    let mut unknown = suppressed_calls(&email, 1, 0..1);
    unknown.email = mailonce_core::id::EmailId(next_id(T0));

    store.record_suppressed_calls(vec![unknown], T0).await.unwrap();

    assert_eq!(event_kinds(&store).await, ["email.accepted"]);
}
