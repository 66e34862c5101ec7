//! The time that a commit is written with.

use crate::{ports::store::SharedLedgerClock, time::Time};
use std::{
    fmt,
    sync::{PoisonError, RwLock},
};

/// The timestamp of a commit. A caller may stall between reading the clock and its commit, for longer than a key is
/// remembered. So the end of an email is dated by the commit; otherwise its key could be forgotten at once.
#[derive(Default)]
pub struct CommitClock(RwLock<Option<SharedLedgerClock>>);

impl CommitClock {
    /// Sets the clock to read from now on.
    pub fn set_clock(&self, clock: SharedLedgerClock) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(clock);
    }

    /// The timestamp of a commit that was requested at `asked`; never earlier than `asked`. To be read inside the
    /// commit.
    pub fn commit_time(&self, asked: Time) -> Time {
        let clock = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match clock.as_ref() {
            Some(clock) => clock.now().max(asked),
            None => asked,
        }
    }

    /// Keys and operations that expired by this time count as forgotten in a call made at `asked`.
    pub fn expiry_cutoff(&self, asked: Time) -> Time {
        let clock = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match clock.as_ref() {
            Some(clock) => clock.expiry_cutoff().min(asked),
            None => asked,
        }
    }
}

impl fmt::Debug for CommitClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommitTime")
    }
}
