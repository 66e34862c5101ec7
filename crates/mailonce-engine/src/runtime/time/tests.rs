//! Clocks that jump, drift, are set, and disagree with the database.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const START: i64 = 1_000_000_000;
const BOOT: i64 = 5_000;

#[derive(Default)]
struct SettableClock {
    wall: AtomicI64,
    boot: AtomicI64,
    was_set: AtomicBool,
    synchronized: AtomicBool,
    /// How long the process is suspended between the next two reads.
    pause: AtomicI64,
}

impl Clock for SettableClock {
    fn now(&self) -> Time {
        let wall = self.wall.load(Ordering::Relaxed);
        let pause = self.pause.swap(0, Ordering::Relaxed);
        self.advance(pause, pause);
        Time(wall)
    }

    fn boot_clock_ms(&self) -> i64 {
        self.boot.load(Ordering::Relaxed)
    }

    fn was_wall_clock_set(&self) -> bool {
        self.was_set.load(Ordering::Relaxed)
    }

    fn is_synchronized(&self) -> bool {
        self.synchronized.load(Ordering::Relaxed)
    }
}

impl SettableClock {
    fn new() -> Arc<Self> {
        let hands = Arc::new(Self::default());
        hands.advance(START, BOOT);
        hands
    }

    fn advance(&self, wall: i64, boot_ms: i64) {
        self.wall.fetch_add(wall, Ordering::Relaxed);
        self.boot.fetch_add(boot_ms, Ordering::Relaxed);
    }
}

fn reading(before: i64, after: i64) -> BootInterval {
    BootInterval { before, after }
}

fn timekeeper(last: Option<i64>) -> (Arc<SettableClock>, Timekeeper) {
    let hands = SettableClock::new();
    (Arc::clone(&hands), Timekeeper::new(hands, last.map(Time), None, reading(0, 0)))
}

/// A node that starts with a database whose clock is this far ahead of its own.
fn timekeeper_with_database(database_ahead: i64, other_host: bool) -> (Arc<SettableClock>, Timekeeper) {
    let hands = SettableClock::new();
    let database = DatabaseClock { now: Time(START + database_ahead), is_on_other_host: other_host };
    let time = Timekeeper::new(Arc::clone(&hands) as Arc<dyn Clock>, None, Some(database), reading(BOOT, BOOT));
    (hands, time)
}

/// A heartbeat at which the database's clock is this far ahead of the node's.
fn heartbeat(clock: &SettableClock, time: &Timekeeper, database_ahead: i64, other_host: bool) {
    let boot = clock.boot_clock_ms();
    let now = Time(clock.wall.load(Ordering::Relaxed) + database_ahead);
    time.on_heartbeat(Time(0), Some(DatabaseClock { now, is_on_other_host: other_host }), reading(boot, boot));
}

#[test]
fn small_corrections_are_followed_and_time_never_goes_back() {
    let (hands, time) = timekeeper(None);
    hands.advance(1_000, 1_020);
    assert_eq!(time.now(), Time(START + 1_000));
    hands.advance(-20_000, 0);
    assert_eq!(time.now(), Time(START + 1_000));
    hands.advance(40_001, 40_001);
    assert_eq!(time.now(), Time(START + 21_001));
    assert!(time.is_trusted());
}

#[test]
fn time_never_stands_still_after_a_clock_was_set_back() {
    let (hands, time) = timekeeper(None);
    time.now();
    hands.advance(-23 * HOUR, 0);
    assert_eq!(time.now(), Time(START));
    time.confirm(ConfirmedBy::Operator);
    let mut before = time.now();
    for _ in 0..100 {
        hands.advance(10, 10);
        let now = time.now();
        assert_eq!(now.since(before), 5, "half speed, however often it is asked");
        before = now;
    }
    hands.advance(46 * HOUR, 46 * HOUR);
    assert_eq!(time.now(), Time(START + 23 * HOUR + 1_000), "and the wall clock again once it caught up");
}

#[test]
fn a_corrected_clock_decides_schedules_at_once() {
    let (hands, time) = timekeeper(None);
    time.now();
    hands.advance(-23 * HOUR, 0);
    time.now();
    assert_eq!(time.earlier_time(), None);
    time.confirm(ConfirmedBy::Operator);
    assert_eq!(time.earlier_time(), Some(Time(START - 23 * HOUR)), "by the wall clock, not by ledger time");
}

#[test]
fn one_that_is_not_sure_goes_by_the_time_of_others() {
    let (hands, time) = timekeeper(None);
    time.follow_peer_time(Time(2_000_000_000));
    assert_eq!(time.now(), Time(START), "a trusted process keeps its own time");
    assert_eq!(time.measured_since(), Time(2_000_120_001), "and cannot measure by the other's");
    hands.advance(-86_400_000, 0);
    assert_eq!(time.now(), Time(START));
    time.follow_peer_time(Time(1_090_000_000));
    hands.advance(7, 7);
    assert_eq!(time.now(), Time(1_090_000_007));
    time.follow_peer_time(Time(START));
    assert_eq!(time.now(), Time(1_090_000_007), "and never back");
}

#[test]
fn a_jump_is_not_followed_until_it_is_confirmed() {
    for jump in [HOUR, -HOUR, 20 * 365 * 24 * HOUR, -24 * HOUR] {
        let (hands, time) = timekeeper(None);
        assert_eq!(time.now(), Time(START));
        hands.advance(jump + 10, 10);
        assert_eq!(time.now(), Time(START + 10), "{jump}");
        assert!(!time.is_trusted());
        hands.advance(500, 500);
        assert_eq!(time.now(), Time(START + 510));
        assert_eq!((time.earlier_time(), time.expiry_cutoff()), (None, None));
        time.confirm(ConfirmedBy::Operator);
        assert!(time.is_trusted());
        assert_eq!(time.now(), Time((START + 510).max(START + 510 + jump)));
    }
}

#[test]
fn a_process_that_stood_still_between_two_clocks_sees_no_jump() {
    let (hands, time) = timekeeper(None);
    time.now();
    hands.pause.store(45_000, Ordering::Relaxed);
    assert_eq!(time.now(), Time(START + 45_000));
    assert!(time.is_trusted());
}

#[test]
fn times_before_a_clock_was_set_back_are_not_measured() {
    let (hands, time) = timekeeper(None);
    let before = time.now();
    assert!(before >= time.measured_since());
    hands.advance(-HOUR, 0);
    assert_eq!(time.now(), before);
    time.confirm(ConfirmedBy::Operator);
    assert!(before < time.measured_since());
    hands.advance(2 * HOUR + UNREPORTED_MS, 2 * HOUR + UNREPORTED_MS);
    assert!(time.now() >= time.measured_since());
    hands.advance(HOUR, 0);
    time.now();
    time.confirm(ConfirmedBy::Operator);
    assert!(before < time.measured_since(), "a later jump forward does not make it known");
}

#[test]
fn what_a_process_that_ended_did_last_is_not_measured_by_a_clock_that_was_set_back() {
    // The process reported its time, sent something a moment later by a fast clock, and ended.
    let (reported_at, sent) = (START + HOUR, START + HOUR + 12);
    let (_, time) = timekeeper(Some(reported_at));
    assert!(!time.is_trusted());
    time.confirm(ConfirmedBy::Operator);
    assert!(Time(sent) < time.measured_since());
}

#[test]
fn a_start_after_the_clock_was_set_is_not_sure_however_near_it_is() {
    for (last, sure) in [(None, true), (Some(START - HOUR), false)] {
        let hands = SettableClock::new();
        hands.was_set.store(true, Ordering::Relaxed);
        assert_eq!(Timekeeper::new(hands, last.map(Time), None, reading(0, 0)).is_trusted(), sure, "{last:?}");
    }
}

#[test]
fn a_start_far_from_the_last_known_time_is_not_sure() {
    for (last, sure) in
        [(START - HOUR, true), (START + 20_000, true), (START + 60_000, false), (START - 25 * HOUR, false)]
    {
        let (_, time) = timekeeper(Some(last));
        assert_eq!(time.is_trusted(), sure, "{last}");
        assert!(time.now().0 >= last);
    }
}

#[test]
fn nothing_is_forgotten_after_a_start_until_the_time_is_confirmed() {
    let (hands, time) = timekeeper(Some(START - HOUR));
    assert!(time.is_trusted() && time.earlier_time().is_some(), "schedules go on");
    assert_eq!((time.expiry_cutoff(), LedgerClock::expiry_cutoff(&time)), (None, Time(i64::MIN)));
    hands.synchronized.store(true, Ordering::Relaxed);
    time.on_heartbeat(Time(0), None, reading(0, 0));
    assert_eq!(time.expiry_cutoff(), Some(Time(START)));
    assert_eq!(time.clock_state().confirmed_by, Some(ConfirmedBy::Kernel));
}

#[test]
fn a_day_of_the_boot_clock_confirms_the_time() {
    let (hands, time) = timekeeper(None);
    hands.advance(24 * HOUR - 1, 24 * HOUR - 1);
    time.on_heartbeat(Time(0), None, reading(0, 0));
    assert_eq!(time.expiry_cutoff(), None);
    hands.advance(1, 1);
    time.on_heartbeat(Time(0), None, reading(0, 0));
    assert_eq!(time.clock_state().confirmed_by, Some(ConfirmedBy::BootClock));
}

#[test]
fn no_number_of_days_makes_a_clock_right_that_jumped() {
    let (hands, time) = timekeeper(None);
    hands.advance(30 * HOUR, 0);
    assert!(!time.is_trusted());
    for _ in 0..10 {
        hands.advance(25 * HOUR, 25 * HOUR);
        time.on_heartbeat(Time(0), None, reading(0, 0));
        assert!(!time.is_trusted(), "an unconfirmed clock was trusted");
    }
    time.confirm(ConfirmedBy::Operator);
    assert!(time.is_trusted());
}

#[test]
fn a_jump_that_nobody_saw_is_not_confirmed_by_the_day_before_it() {
    let (hands, time) = timekeeper(None);
    hands.advance(25 * HOUR + HOUR, 25 * HOUR);
    time.on_heartbeat(Time(0), None, reading(0, 0));
    assert!(!time.is_trusted() && time.clock_state().confirmed_by.is_none());
}

#[test]
fn a_database_confirms_the_time_only_from_another_host() {
    assert_eq!(timekeeper_with_database(10, true).1.clock_state().confirmed_by, Some(ConfirmedBy::Database));
    assert_eq!(timekeeper_with_database(10, false).1.clock_state().confirmed_by, None);
}

#[test]
fn a_node_that_is_off_goes_by_the_databases_clock_and_decides_nothing() {
    for ahead in [-48 * HOUR, -23 * HOUR, -31_000, 31_000, 23 * HOUR, 48 * HOUR] {
        // The node's clock is ahead by this much, so the database's is behind.
        let (hands, time) = timekeeper_with_database(-ahead, true);
        assert_eq!(time.now(), Time(START - ahead), "{ahead}");
        assert_eq!((time.is_trusted(), time.earlier_time(), time.expiry_cutoff()), (false, None, None), "{ahead}");
        let state = time.clock_state();
        assert!(state.is_off() && state.warning().is_some(), "{ahead}");
        assert_eq!(state.ahead_of_database_ms, Some(ahead));
        time.confirm(ConfirmedBy::Operator);
        assert!(!time.is_trusted(), "an operator's word does not make the clocks agree");
        // An operator corrects the node's clock.
        hands.advance(-ahead, 0);
        heartbeat(&hands, &time, 0, true);
        assert!(time.is_trusted() && time.expiry_cutoff().is_some(), "{ahead}");
    }
}

#[test]
fn a_reading_of_the_databases_clock_that_took_long_proves_nothing() {
    let (hands, time) = timekeeper_with_database(0, true);
    hands.advance(10 * MINUTE, 10 * MINUTE);
    let now = START + 10 * MINUTE;
    // The database answered before the machine was suspended, so the answer proves nothing about the node's clock now.
    let clock = DatabaseClock { now: Time(START), is_on_other_host: true };
    time.on_heartbeat(Time(0), Some(clock), reading(BOOT, BOOT + 10 * MINUTE));
    assert_eq!((time.earlier_time(), time.later_time()), (Some(Time(now)), Time(now)));

    let hands = SettableClock::new();
    let vague = Timekeeper::new(hands.clone(), None, Some(clock), reading(BOOT - HOUR, BOOT));
    assert_eq!((vague.is_trusted(), vague.earlier_time(), vague.expiry_cutoff()), (false, None, None));
    heartbeat(&hands, &vague, 0, true);
    assert!(vague.is_trusted() && vague.expiry_cutoff().is_some());
}

#[test]
fn a_node_that_is_off_and_follows_a_peer_schedules_by_the_database() {
    let (hands, time) = timekeeper_with_database(-23 * HOUR, true);
    time.on_heartbeat(Time(START - 23 * HOUR + 20_000), None, reading(BOOT, BOOT));
    hands.advance(5, 5);
    assert_eq!(time.now(), Time(START - 23 * HOUR + 20_005));
    assert_eq!(time.schedule_cutoff(), Time(START - 23 * HOUR + 5));
}

#[test]
fn a_database_that_goes_wrong_stops_every_decision_and_changes_no_date() {
    let (hands, time) = timekeeper_with_database(0, true);
    assert_eq!(time.now(), Time(START));
    hands.advance(3_000, 3_000);
    heartbeat(&hands, &time, 23 * HOUR, true);
    assert_eq!((time.now(), time.is_trusted()), (Time(START + 3_000), false));
    assert_eq!(time.clock_state().ahead_of_database_ms, Some(-23 * HOUR));
    heartbeat(&hands, &time, 0, true);
    assert!(time.is_trusted());
}

#[test]
fn of_two_clocks_that_nearly_agree_the_earlier_forgets_and_the_later_closes_windows() {
    for ahead in [-20_000, 20_000] {
        let (_, time) = timekeeper_with_database(ahead, true);
        let (own, database) = (Time(START), Time(START + ahead));
        assert_eq!(time.earlier_time(), Some(own.min(database)));
        assert_eq!(time.expiry_cutoff(), Some(own.min(database)));
        assert_eq!(time.later_time(), own.max(database));
    }
}

#[test]
fn a_slow_answer_of_the_database_widens_the_bounds_and_proves_nothing() {
    let hands = SettableClock::new();
    hands.advance(20_000, 20_000);
    let database = DatabaseClock { now: Time(START + 19_000), is_on_other_host: true };
    let time = Timekeeper::new(hands, None, Some(database), reading(BOOT, BOOT + 20_000));
    assert!(time.is_trusted());
    assert_eq!(time.clock_state().ahead_of_database_ms, Some(0), "it may be the same time");
    assert_eq!((time.earlier_time(), time.later_time()), (Some(Time(START + 19_000)), Time(START + 39_000)));
}
