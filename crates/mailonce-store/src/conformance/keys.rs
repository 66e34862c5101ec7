//! Promises about the memory of keys: how long, what is left of it, and the calls it stopped.

use mailonce_core::{
    call::CallMark,
    dispatch::Verdict,
    email::{Channel, Email, Guard},
    id::ordered_bits,
    limits,
    port::{
        store::{Bound, KeyChange, LedgerClock, Suppressed, SuppressedCall, SuppressedReason, Swept},
        transport::Meaning,
    },
    time::Time,
    ttl::Ttl,
};
use std::sync::Arc;

use super::{
    DAY, HOUR, Ledger, SECOND, T0, TEAM, about, accepted, bound_email, cancelled, capture, detail, events, given,
    keyed, keyless, kinds, listed, next_version, replayed, sent, the, work,
};

async fn sweep(store: &Ledger, now: Time) -> Swept {
    store.sweep(1_000, now).await.unwrap()
}

async fn extend(store: &Ledger, key: &str, ms: i64, now: Time) -> KeyChange {
    store.extend_key(TEAM, given(TEAM, key), Ttl(ms), now).await.unwrap()
}

async fn forget(store: &Ledger, key: &str, now: Time) -> KeyChange {
    store.forget_key(TEAM, given(TEAM, key), now).await.unwrap()
}

fn calls(email: &Email, count: u64, times: std::ops::Range<i64>) -> Suppressed {
    let call = |ms| SuppressedCall {
        at: T0.plus(ms),
        caller: None,
        channel: Channel::Http,
        reason: SuppressedReason::KeyReplay,
        call: CallMark::of(Some(format!("toolu_{ms}")), None),
    };
    Suppressed { team: email.team, email: email.id, count, latest: times.map(call).collect() }
}

pub(super) async fn a_key_is_remembered_while_its_email_is_under_way(store: Ledger) {
    let drafts = [
        keyed("queued").ttl(SECOND),
        keyed("scheduled").ttl(SECOND).due(T0.plus(2_000 * DAY)),
        about("o", &["a@example.com", "b@example.com"]).ttl(SECOND),
        about("o", &["a@example.com"]).ttl(SECOND),
    ];
    let mut emails = Vec::new();
    for draft in &drafts {
        emails.push(accepted(&store, draft, T0).await);
    }
    let later = T0.plus(1_000 * DAY);

    assert_eq!(sweep(&store, later).await, Swept::default());

    for (draft, email) in drafts.iter().zip(emails) {
        assert_eq!(replayed(&store, draft, later).await, email);
        assert!(detail(&store, email.id).await.body.is_some());
    }
}

pub(super) async fn memory_counts_from_the_end_of_the_email(store: Ledger) {
    let _queued = accepted(&store, &keyed("k").ttl(DAY), T0).await;
    let settled = T0.plus(100 * DAY);
    capture(&store, 1, settled).await;

    let email = replayed(&store, &keyed("k"), settled.plus(DAY - 1)).await;

    assert_eq!((email.settled_at, email.expires_at()), (Some(settled), Some(settled.plus(DAY))));
    assert_eq!(store.bound(TEAM, given(TEAM, "k"), settled.plus(DAY)).await.unwrap(), None);
}

/// A clock that stands.
struct Hands {
    now: Time,
    forget_by: Time,
}

impl LedgerClock for Hands {
    fn now(&self) -> Time {
        self.now
    }

    fn forget_by(&self) -> Time {
        self.forget_by
    }
}

pub(super) async fn nothing_is_forgotten_at_look_up_before_the_clock_allows_it(store: Ledger) {
    let email = sent(&store, &keyed("k").ttl(DAY), T0).await;
    let expired = T0.plus(2 * DAY);
    for forget_by in [Time(i64::MIN), T0.plus(DAY - 1)] {
        store.keep_time(Arc::new(Hands { now: T0, forget_by }));
        assert_eq!(replayed(&store, &keyed("k").ttl(DAY), expired).await.id, email.id);
        assert!(store.bound(TEAM, given(TEAM, "k"), expired).await.unwrap().is_some());
        let view = store.key(TEAM, given(TEAM, "k"), expired).await.unwrap().unwrap();
        assert_eq!((view.bound.is_some(), view.forgotten_at), (true, None));
    }
    store.keep_time(Arc::new(Hands { now: T0, forget_by: T0.plus(DAY) }));
    assert_eq!(store.bound(TEAM, given(TEAM, "k"), expired).await.unwrap(), None);
    assert_ne!(accepted(&store, &keyed("k"), expired).await.id, email.id);
}

pub(super) async fn the_end_of_an_email_is_dated_by_its_commit(store: Ledger) {
    let (asked, committed) = (T0.plus(SECOND), T0.plus(30 * DAY));
    let job = work::marked(&store, &keyed("answered").ttl(DAY)).await;
    accepted(&store, &keyed("captured").ttl(DAY), T0).await;
    let later = accepted(&store, &keyed("taken back").ttl(DAY).due(T0.plus(DAY)), T0).await;
    // Every caller stood still between its look at the clock and its commit.
    store.keep_time(Arc::new(Hands { now: committed, forget_by: Time(i64::MAX) }));
    assert_eq!(work::answer(&store, &job, Meaning::Accepted, asked).await.0, Verdict::Done);
    assert_eq!(capture(&store, 1, asked).await, 1);
    cancelled(&store, later.id, asked).await;

    sweep(&store, committed.plus(DAY - 1)).await;

    for key in ["answered", "captured", "taken back"] {
        let email = replayed(&store, &keyed(key), committed.plus(DAY - 1)).await;
        assert_eq!(email.settled_at, Some(committed), "{key}");
    }
}

async fn a_new_wish_after(store: &Ledger, swept: bool) {
    let old = sent(store, &keyed("k").ttl(DAY), T0).await;
    let end = T0.plus(DAY);
    if swept {
        assert_eq!(sweep(store, end).await, Swept { keys: 1, ..Swept::default() });
    }

    let new = accepted(store, &keyed("k"), end).await;

    assert_eq!((new.bind, new.rev), (2, 1));
    assert_ne!(new.id, old.id);
    assert_eq!(replayed(store, &keyed("k"), end).await, new);
    assert_eq!(the(store, old.id).await, old);
    sweep(store, end.plus(60 * DAY)).await;
    assert_eq!(replayed(store, &keyed("k"), end.plus(60 * DAY)).await, new);
}

pub(super) async fn a_forgotten_key_names_a_new_wish_before_the_sweep(store: Ledger) {
    a_new_wish_after(&store, false).await;
}

pub(super) async fn a_forgotten_key_names_a_new_wish_after_the_sweep(store: Ledger) {
    a_new_wish_after(&store, true).await;
}

pub(super) async fn a_forgotten_key_leaves_a_tombstone(store: Ledger) {
    let _old = sent(&store, &keyed("k").ttl(DAY), T0).await;
    let end = T0.plus(DAY);
    let before = store.key(TEAM, given(TEAM, "k"), end).await.unwrap().unwrap();
    sweep(&store, end.plus(HOUR)).await;

    let view = store.key(TEAM, given(TEAM, "k"), end.plus(HOUR)).await.unwrap().unwrap();

    assert_eq!((view.bind, &view.bound, view.forgotten_at), (1, &None, Some(end)));
    assert_eq!(view, before);
}

pub(super) async fn a_bound_key_shows_its_email(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;

    let view = store.key(TEAM, given(TEAM, "k"), T0).await.unwrap().unwrap();

    assert_eq!((view.bind, view.bound, view.forgotten_at), (1, Some(Bound::Email(email)), None));
    assert_eq!(store.key(TEAM, given(TEAM, "never"), T0).await.unwrap(), None);
}

pub(super) async fn every_trace_is_gone_in_the_end(store: Ledger) {
    let email = sent(&store, &keyed("k").ttl(35 * DAY), T0).await;
    let highest = store.install().await.unwrap().last_id;
    let end = T0.plus(35 * DAY + limits::TOMBSTONE_MS);
    sweep(&store, end.plus(-1)).await;
    assert!(store.key(TEAM, given(TEAM, "k"), end.plus(-1)).await.unwrap().is_some());

    assert_eq!(sweep(&store, end).await, Swept { tombstones: 1, ..Swept::default() });

    assert_eq!(store.key(TEAM, given(TEAM, "k"), end).await.unwrap(), None);
    assert_eq!(store.email(TEAM, email.id).await.unwrap(), None);
    assert_eq!(store.email_detail(TEAM, email.id).await.unwrap(), None);
    assert_eq!(listed(&store, TEAM).await, []);
    assert!(highest >= ordered_bits(email.id.0));
    assert_eq!(store.install().await.unwrap().last_id, highest);
    assert_eq!(accepted(&store, &keyed("k"), end).await.bind, 1);
}

pub(super) async fn a_keyless_email_goes_in_the_end_too(store: Ledger) {
    let _email = sent(&store, &keyless().ttl(DAY), T0).await;
    let end = T0.plus(limits::BODY_KEPT_MS + limits::TOMBSTONE_MS);

    assert_eq!(sweep(&store, end).await, Swept { bodies: 1, ..Swept::default() });

    assert_eq!(listed(&store, TEAM).await, []);
}

pub(super) async fn the_old_traces_leave_the_new_binding_alone(store: Ledger) {
    let old = sent(&store, &keyed("k").ttl(SECOND), T0).await;
    let again = T0.plus(429 * DAY);
    let new = accepted(&store, &keyed("k"), again).await;
    let end = T0.plus(limits::BODY_KEPT_MS + limits::TOMBSTONE_MS);

    sweep(&store, end).await;

    assert_eq!(store.email(TEAM, old.id).await.unwrap(), None);
    assert_eq!(replayed(&store, &keyed("k"), end).await, new);
    assert_eq!(new.bind, 2);
}

pub(super) async fn a_tombstone_goes_although_another_email_stands_for_its_recipient(store: Ledger) {
    let alone = about("o", &["a@example.com"]);
    let _old = sent(&store, &alone.clone().ttl(SECOND), T0).await;
    let several = about("o", &["a@example.com", "b@example.com"]).ttl(SECOND);
    let several = accepted(&store, &several, T0.plus(SECOND)).await;
    let end = T0.plus(limits::BODY_KEPT_MS + limits::TOMBSTONE_MS);

    sweep(&store, end).await;

    assert_eq!(store.key(TEAM, alone.hash(), end).await.unwrap(), None);
    let held = accepted(&store, &alone, end).await;
    assert_eq!((several.guard, held.guard, held.bind), (None, Some(Guard::Overlaps), 1));
}

pub(super) async fn a_change_does_not_put_off_what_is_due_to_be_forgotten(store: Ledger) {
    let email = sent(&store, &keyed("k").ttl(SECOND), T0).await;
    let now = T0.plus(31 * DAY);
    let _resent = store.resend(next_version(&email).wish(now), None, now).await.unwrap();

    assert_eq!(sweep(&store, now).await, Swept { keys: 1, bodies: 1, ..Swept::default() });

    assert_eq!(detail(&store, email.id).await.body, None);
}

pub(super) async fn the_body_goes_before_the_key(store: Ledger) {
    let email = sent(&store, &keyed("k").text("one"), T0).await;
    let later = T0.plus(limits::BODY_KEPT_MS);
    sweep(&store, later.plus(-1)).await;
    assert!(detail(&store, email.id).await.body.is_some());

    assert_eq!(sweep(&store, later).await, Swept { bodies: 1, ..Swept::default() });

    let found = detail(&store, email.id).await;
    assert_eq!((found.body, found.attempts.len()), (None, 1));
    assert_eq!(replayed(&store, &keyed("k").text("two"), later).await, email);
    assert_eq!(email.digest, keyed("k").text("one").wish(T0).digest);
}

pub(super) async fn a_sweep_is_bounded_and_ends(store: Ledger) {
    for i in 0..7 {
        let _email = sent(&store, &keyed(&format!("k{i}")).ttl(DAY), T0).await;
    }
    let later = T0.plus(DAY);
    let mut rounds = Vec::new();
    for _ in 0..4 {
        rounds.push(store.sweep(3, later).await.unwrap().keys);
    }

    assert_eq!(rounds, [3, 3, 1, 0]);
}

pub(super) async fn a_sweep_tells_no_event(store: Ledger) {
    let _email = sent(&store, &keyed("k").ttl(DAY), T0).await;
    sweep(&store, T0.plus(500 * DAY)).await;
    assert_eq!(kinds(&store).await, ["email.accepted", "email.sent"]);
}

pub(super) async fn a_key_gets_another_memory(store: Ledger) {
    let email = sent(&store, &keyed("k").ttl(DAY), T0).await;

    let KeyChange::Done(after) = extend(&store, "k", 90 * DAY, T0.plus(HOUR)).await else { panic!("refused") };

    assert_eq!((after.rev, after.expires_at()), (email.rev + 1, Some(T0.plus(90 * DAY))));
    sweep(&store, T0.plus(2 * DAY)).await;
    assert_eq!(replayed(&store, &keyed("k"), T0.plus(90 * DAY - 1)).await, after);
    assert_eq!(accepted(&store, &keyed("k"), T0.plus(90 * DAY)).await.bind, 2);
    assert_eq!(events(&store, TEAM).await[2].event.kind.word(), "key.extended");
}

pub(super) async fn a_key_gets_another_memory_before_its_email_ends(store: Ledger) {
    let _queued = accepted(&store, &keyed("k").ttl(SECOND), T0).await;
    let KeyChange::Done(after) = extend(&store, "k", 5 * DAY, T0).await else { panic!("refused") };
    capture(&store, 1, T0.plus(HOUR)).await;

    assert_eq!((after.ttl, after.expires_at()), (Ttl(5 * DAY), None));
    assert_eq!(replayed(&store, &keyed("k"), T0.plus(DAY)).await.expires_at(), Some(T0.plus(HOUR + 5 * DAY)));
}

pub(super) async fn a_shorter_memory_counts_at_once(store: Ledger) {
    let _sent = sent(&store, &keyed("k").ttl(90 * DAY), T0).await;
    let _changed = extend(&store, "k", DAY, T0.plus(2 * DAY)).await;

    assert_eq!(accepted(&store, &keyed("k"), T0.plus(2 * DAY)).await.bind, 2);
}

pub(super) async fn a_forgotten_or_unknown_key_cannot_be_changed(store: Ledger) {
    let _sent = sent(&store, &keyed("k").ttl(DAY), T0).await;
    let end = T0.plus(DAY);

    for key in ["k", "never"] {
        assert_eq!(extend(&store, key, DAY, end).await, KeyChange::Missing, "{key}");
        assert_eq!(forget(&store, key, end).await, KeyChange::Missing, "{key}");
    }
    assert_eq!(kinds(&store).await.len(), 2);
}

pub(super) async fn a_key_is_forgotten_by_hand_only_when_its_email_ended(store: Ledger) {
    let queued = accepted(&store, &keyed("k"), T0).await;

    assert_eq!(forget(&store, "k", T0).await, KeyChange::NotTerminal(queued.clone()));
    capture(&store, 1, T0).await;
    let now = T0.plus(HOUR);
    let KeyChange::Done(after) = forget(&store, "k", now).await else { panic!("refused") };

    assert_eq!((after.id, after.expires_at()), (queued.id, Some(now)));
    let view = store.key(TEAM, given(TEAM, "k"), now).await.unwrap().unwrap();
    assert_eq!((view.bind, view.bound, view.forgotten_at), (1, None, Some(now)));
    assert_eq!(accepted(&store, &keyed("k"), now).await.bind, 2);
    assert_eq!(kinds(&store).await, ["email.accepted", "email.sent", "key.forgotten", "email.accepted"]);
}

pub(super) async fn a_key_can_be_bound_many_times(store: Ledger) {
    for bind in 1..=5 {
        let email = accepted(&store, &keyed("k"), T0.plus(i64::from(bind))).await;
        assert_eq!(email.bind, bind);
        let _cancelled = cancelled(&store, email.id, T0.plus(i64::from(bind))).await;
        let _forgotten = forget(&store, "k", T0.plus(i64::from(bind))).await;
    }
}

pub(super) async fn suppressed_calls_add_up_and_the_latest_are_kept(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    store.note_suppressed(vec![calls(&email, 3, 0..3)], T0.plus(10)).await.unwrap();
    store.note_suppressed(vec![calls(&email, 100, 3..23), calls(&email, 2, 23..25)], T0.plus(40)).await.unwrap();

    let found = detail(&store, email.id).await;
    let view = store.key(TEAM, given(TEAM, "k"), T0.plus(40)).await.unwrap().unwrap();

    assert_eq!((found.email.suppressed, found.email.rev), (105, email.rev));
    let latest: Vec<_> = calls(&email, 20, 5..25).latest.into_iter().rev().collect();
    assert_eq!(found.suppressed, latest);
    assert_eq!(view.suppressed, found.suppressed);
    assert_eq!(bound_email(super::accept(&store, &keyed("k"), T0.plus(41)).await).suppressed, 105);
}

pub(super) async fn suppressed_calls_are_told_with_their_number(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    store.note_suppressed(vec![calls(&email, 7, 0..7)], T0.plus(10)).await.unwrap();

    let told = events(&store, TEAM).await.pop().unwrap().event;

    assert_eq!((told.kind.word(), told.at, told.about, told.rev), ("email.duplicate", T0.plus(10), email.id.0, 1));
    assert_eq!((&told.data["calls"], &told.data["key"]), (&7.into(), &"k".into()));
}

pub(super) async fn suppressed_calls_survive_a_change_of_their_email(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    store.note_suppressed(vec![calls(&email, 4, 0..4)], T0).await.unwrap();

    let after = cancelled(&store, email.id, T0).await;

    assert_eq!(after.suppressed, 4);
    assert_eq!(detail(&store, email.id).await.suppressed.len(), 4);
}

pub(super) async fn suppressed_calls_of_nobody_are_dropped(store: Ledger) {
    let email = accepted(&store, &keyed("k"), T0).await;
    let mut stray = calls(&email, 1, 0..1);
    stray.email = mailonce_core::id::EmailId(super::next_id(T0));

    store.note_suppressed(vec![stray], T0).await.unwrap();

    assert_eq!(kinds(&store).await, ["email.accepted"]);
}
