//! Limits on replies: per thread within minutes, within a day and in total, and per person within a day.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{mutant, time::Time};

/// A day in milliseconds, the longest period that a cap covers.
pub const DAY_MS: i64 = 86_400_000;
/// The maximum number of times that are kept. No cap exceeds it.
const MAX_TALLIED: usize = 1_000;

/// The limits on the replies of an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplyCaps {
    /// Replies in a thread within the window.
    pub per_window: u32,
    /// The window, in milliseconds.
    pub window_ms: i64,
    /// Replies in a thread within a day.
    pub per_day: u32,
    /// Replies to one person within a day, over all threads of the team.
    pub per_person: u32,
    /// Replies in a thread in total. `None`: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_thread: Option<u32>,
}

impl Default for ReplyCaps {
    fn default() -> Self {
        Self { per_window: 3, window_ms: 300_000, per_day: 20, per_person: 20, per_thread: None }
    }
}

impl ReplyCaps {
    /// The largest limit that can be set.
    pub const MAX: u32 = MAX_TALLIED as u32;

    /// Whether one more reply would exceed a limit, given the recent and total replies of the thread and those to the
    /// person.
    pub fn are_exceeded(
        &self,
        thread: &RecentReplyTimes,
        thread_total: u32,
        person: &RecentReplyTimes,
        now: Time,
    ) -> bool {
        let full = |tally: &RecentReplyTimes, within, most: u32| tally.count_within(within, now) >= most as usize;
        full(thread, self.window_ms, self.per_window)
            || self.per_thread.is_some_and(|most| thread_total >= most)
            || full(thread, DAY_MS, self.per_day)
            || full(person, DAY_MS, self.per_person)
    }
}

/// The times of recent replies, oldest first, for as long as a cap needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecentReplyTimes(Vec<Time>);

impl RecentReplyTimes {
    /// The number of replies in the last `ms` milliseconds. Times in the future count, because a clock that was set
    /// back must not lift a cap.
    pub fn count_within(&self, ms: i64, now: Time) -> usize {
        self.0.iter().filter(|at| now.since(**at) < ms).count()
    }

    /// Records one more, and drops times that no cap needs.
    pub fn record(&mut self, now: Time) {
        self.0.retain(|at| now.since(*at) < DAY_MS);
        if mutant!("tally-uncounted") {
            return;
        }
        self.0.push(now);
        let over = self.0.len().saturating_sub(MAX_TALLIED);
        self.0.drain(..over);
    }

    /// Whether it no longer contains a time that a cap needs.
    pub fn is_stale(&self, now: Time) -> bool {
        self.count_within(DAY_MS, now) == 0
    }
}

/// The hash by which replies to one person are counted. It ignores a plus tag.
pub fn recipient_hash(address: &str) -> [u8; 16] {
    let plain = match address.rsplit_once('@') {
        Some((local, domain)) => format!("{}@{domain}", local.split('+').next().unwrap_or(local)),
        None => address.to_owned(),
    };
    let mut half = [0; 16];
    half.copy_from_slice(&Sha256::digest(plain.as_bytes())[..16]);
    half
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_one_whatever_stands_behind_the_plus() {
        assert_eq!(recipient_hash("ann+1@x.test"), recipient_hash("ann@x.test"));
        assert_ne!(recipient_hash("ann@x.test"), recipient_hash("ann@y.test"));
    }

    fn tally(times: &[i64]) -> RecentReplyTimes {
        let mut tally = RecentReplyTimes::default();
        times.iter().for_each(|at| tally.record(Time(*at)));
        tally
    }

    #[test]
    fn the_fourth_answer_within_the_window_is_too_many() {
        let caps = ReplyCaps::default();
        let none = RecentReplyTimes::default();
        assert!(!caps.are_exceeded(&tally(&[0, 1]), 2, &none, Time(2)));
        assert!(caps.are_exceeded(&tally(&[0, 1, 2]), 3, &none, Time(299_999)));
        assert!(!caps.are_exceeded(&tally(&[0, 1, 2]), 3, &none, Time(300_000)));
    }

    #[test]
    fn a_day_and_a_person_have_their_own_limits() {
        let caps = ReplyCaps::default();
        let spread: Vec<i64> = (0..20).map(|n| n * 1_000_000).collect();
        assert!(caps.are_exceeded(&tally(&spread), 20, &RecentReplyTimes::default(), Time(20_000_000)));
        assert!(caps.are_exceeded(&RecentReplyTimes::default(), 0, &tally(&spread), Time(20_000_000)));
        assert!(!caps.are_exceeded(&RecentReplyTimes::default(), 0, &tally(&spread), Time(DAY_MS)));
    }

    #[test]
    fn a_thread_has_a_limit_in_all_where_one_is_set() {
        let (caps, none) = (ReplyCaps { per_thread: Some(2), ..ReplyCaps::default() }, RecentReplyTimes::default());
        assert!(!caps.are_exceeded(&none, 1, &none, Time(9 * DAY_MS)));
        assert!(caps.are_exceeded(&none, 2, &none, Time(9 * DAY_MS)));
        assert!(!ReplyCaps::default().are_exceeded(&none, 9_999, &none, Time(9 * DAY_MS)));
    }

    #[test]
    fn a_clock_that_went_back_opens_nothing() {
        assert!(ReplyCaps::default().are_exceeded(&tally(&[10, 11, 12]), 3, &RecentReplyTimes::default(), Time(5)));
    }

    #[test]
    fn a_tally_stays_small() {
        let mut tally = RecentReplyTimes::default();
        (0..3_000).for_each(|at| tally.record(Time(at)));
        assert_eq!(tally.0.len(), MAX_TALLIED);
        tally.record(Time(2 * DAY_MS));
        assert_eq!(tally.0.len(), 1);
        assert!(!tally.is_stale(Time(2 * DAY_MS)) && tally.is_stale(Time(3 * DAY_MS)));
    }
}
