//! Ledger time: it never goes back and never leaps, whatever the clock does.
//!
//! The wall clock is believed as long as it moves with the machine's even counter. When the two part by more than
//! [`JUMP_MS`], time goes on along the even counter and is no longer sure: nothing is forgotten, nothing scheduled
//! becomes due and no provider's window counts as open until an operator confirms the clock.

use mailonce_core::{
    mutant,
    port::Clock,
    time::{JUMP_MS, Time},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

/// How much later than the ledger's latest time another process may have dated something since.
const UNTOLD_MS: i64 = 120_000;
/// How long the program may have been away before its start has to be confirmed.
const AWAY_MS: i64 = 24 * 3_600_000;

/// See the module's words.
pub(crate) struct Timekeeper {
    clock: Arc<dyn Clock>,
    /// What is added to the even counter to give the time.
    offset: AtomicI64,
    /// The highest time ever told.
    highest: AtomicI64,
    unsure: AtomicBool,
    /// Times up to here were told by a clock that was set back since: how long they are ago cannot be measured.
    unmeasured: AtomicI64,
}

impl Timekeeper {
    /// A keeper that goes on from the latest time known to the ledger.
    pub(crate) fn new(clock: Arc<dyn Clock>, last: Option<Time>) -> Self {
        let (wall, even) = (clock.now().0, clock.even());
        let last = last.map(|last| last.0);
        let strange = |last: i64| wall < last - JUMP_MS || wall > last + AWAY_MS;
        let unsure = last.is_some_and(|last| strange(last) || clock.was_set());
        // While it is not sure, time goes on from where it stood.
        let start = last.filter(|_| unsure).unwrap_or(wall);
        Self {
            clock,
            offset: AtomicI64::new(start - even),
            highest: AtomicI64::new(last.unwrap_or(start).max(start)),
            unsure: AtomicBool::new(unsure),
            unmeasured: AtomicI64::new(i64::MIN),
        }
    }

    /// Now.
    pub(crate) fn now(&self) -> Time {
        let (wall, even) = (self.clock.now().0, self.clock.even());
        let offset = self.offset.load(Ordering::Relaxed);
        let expected = even + offset;
        let time = if self.unsure.load(Ordering::Relaxed) {
            expected
        } else if (wall - expected).abs() > JUMP_MS && !mutant!("jump-followed") {
            self.unsure.store(true, Ordering::Relaxed);
            tracing::error!(wall, expected, "the clock jumped; time-bound work rests until it is confirmed");
            expected
        } else {
            self.offset.store(wall - even, Ordering::Relaxed);
            wall
        };
        let highest = self.highest.fetch_max(time, Ordering::Relaxed);
        Time(if mutant!("time-goes-back") { time } else { highest.max(time) })
    }

    /// The ledger knows of a later time, from another process. Only one that is not sure of its own goes by it: it may
    /// have started from a time that was old, and would date what it does before what others have forgotten. Whoever is
    /// sure knows at least that the clocks differ: how long ago it is what the other dated cannot be measured here.
    pub(crate) fn follow(&self, latest: Time) {
        if !self.is_sure() {
            self.offset.fetch_max(latest.0 - self.clock.even(), Ordering::Relaxed);
        } else if latest.0 > self.now().0 + JUMP_MS {
            self.unmeasured.fetch_max(latest.0 + UNTOLD_MS, Ordering::Relaxed);
        }
    }

    /// The even counter, for pauses and deadlines inside this process.
    pub(crate) fn even(&self) -> i64 {
        self.clock.even()
    }

    /// Whether time can be trusted.
    pub(crate) fn is_sure(&self) -> bool {
        !self.unsure.load(Ordering::Relaxed)
    }

    /// Since when it can be measured how long something is ago.
    pub(crate) fn measured_since(&self) -> Time {
        Time(self.unmeasured.load(Ordering::Relaxed).saturating_add(1))
    }

    /// An operator says that the wall clock is right.
    pub(crate) fn confirm(&self) {
        // Time stands still until a clock that was set back has caught up, while a provider's window does not wait.
        let highest = self.highest.load(Ordering::Relaxed);
        if self.clock.now().0 < highest {
            // What a process did after it last told the ledger the time is dated later still.
            self.unmeasured.fetch_max(highest + UNTOLD_MS, Ordering::Relaxed);
        }
        self.offset.store(self.clock.now().0 - self.clock.even(), Ordering::Relaxed);
        self.unsure.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Hands {
        wall: AtomicI64,
        even: AtomicI64,
        was_set: AtomicBool,
    }

    impl Clock for Hands {
        fn now(&self) -> Time {
            Time(self.wall.load(Ordering::Relaxed))
        }

        fn even(&self) -> i64 {
            self.even.load(Ordering::Relaxed)
        }

        fn was_set(&self) -> bool {
            self.was_set.load(Ordering::Relaxed)
        }
    }

    impl Hands {
        fn pass(&self, wall: i64, even: i64) {
            self.wall.fetch_add(wall, Ordering::Relaxed);
            self.even.fetch_add(even, Ordering::Relaxed);
        }
    }

    fn keeper(last: Option<i64>) -> (Arc<Hands>, Timekeeper) {
        let hands = Arc::new(Hands::default());
        hands.pass(1_000_000_000, 5_000);
        (Arc::clone(&hands), Timekeeper::new(hands, last.map(Time)))
    }

    #[test]
    fn small_corrections_are_followed_and_time_never_goes_back() {
        let (hands, time) = keeper(None);
        hands.pass(1_000, 1_020);
        assert_eq!(time.now(), Time(1_000_001_000));
        hands.pass(-20_000, 0);
        assert_eq!(time.now(), Time(1_000_001_000));
        hands.pass(20_001, 20_001);
        assert_eq!(time.now(), Time(1_000_001_001));
        assert!(time.is_sure());
    }

    #[test]
    fn one_that_is_not_sure_goes_by_the_time_of_others() {
        let (hands, time) = keeper(None);
        time.follow(Time(2_000_000_000));
        assert_eq!(time.now(), Time(1_000_000_000), "whoever is sure of the time keeps to it");
        assert_eq!(time.measured_since(), Time(2_000_120_001), "and cannot measure by the other's");
        hands.pass(-86_400_000, 0);
        assert_eq!(time.now(), Time(1_000_000_000));
        time.follow(Time(1_090_000_000));
        hands.pass(7, 7);
        assert_eq!(time.now(), Time(1_090_000_007));
        time.follow(Time(1_000_000_000));
        assert_eq!(time.now(), Time(1_090_000_007), "and never back");
    }

    #[test]
    fn a_jump_is_not_followed_until_it_is_confirmed() {
        for jump in [3_600_000, -3_600_000, 20 * 365 * 86_400_000, -86_400_000] {
            let (hands, time) = keeper(None);
            assert_eq!(time.now(), Time(1_000_000_000));
            hands.pass(jump + 10, 10);
            assert_eq!(time.now(), Time(1_000_000_010), "{jump}");
            assert!(!time.is_sure());
            hands.pass(500, 500);
            assert_eq!(time.now(), Time(1_000_000_510));
            time.confirm();
            assert!(time.is_sure());
            assert_eq!(time.now(), Time(1_000_000_510.max(1_000_000_510 + jump)));
        }
    }

    #[test]
    fn what_a_clock_told_that_was_set_back_is_not_measured() {
        let (hands, time) = keeper(None);
        let before = time.now();
        assert!(before >= time.measured_since());
        hands.pass(-3_600_000, 0);
        assert_eq!(time.now(), before);
        time.confirm();
        assert!(before < time.measured_since());
        hands.pass(3_600_001 + UNTOLD_MS, 3_600_001 + UNTOLD_MS);
        assert!(time.now() >= time.measured_since());
        hands.pass(3_600_000, 0);
        time.now();
        time.confirm();
        assert!(before < time.measured_since(), "a later jump forward does not make it known");
    }

    #[test]
    fn what_a_process_that_ended_did_last_is_not_measured_by_a_clock_that_was_set_back() {
        // It told the ledger the time, sent something a moment later by a clock that was fast, and ended.
        let (told, sent) = (1_000_000_000 + 3_600_000, 1_000_000_000 + 3_600_012);
        let (_, time) = keeper(Some(told));
        assert!(!time.is_sure());
        time.confirm();
        assert!(Time(sent) < time.measured_since());
    }

    #[test]
    fn a_start_after_the_clock_was_set_is_not_sure_however_near_it_is() {
        for (last, sure) in [(None, true), (Some(1_000_000_000 - 3_600_000), false)] {
            let hands = Arc::new(Hands::default());
            hands.pass(1_000_000_000, 5_000);
            hands.was_set.store(true, Ordering::Relaxed);
            assert_eq!(Timekeeper::new(hands, last.map(Time)).is_sure(), sure, "{last:?}");
        }
    }

    #[test]
    fn a_start_far_from_the_last_known_time_is_not_sure() {
        for (last, sure) in [
            (1_000_000_000 - 3_600_000, true),
            (1_000_000_000 + 20_000, true),
            (1_000_000_000 + 60_000, false),
            (1_000_000_000 - 25 * 3_600_000, false),
        ] {
            let (_, time) = keeper(Some(last));
            assert_eq!(time.is_sure(), sure, "{last}");
            assert!(time.now().0 >= last);
        }
    }
}
