//! Cursors and the epoch of the store's history. A restore or a failover renews the epoch and invalidates cursors.

use crate::runtime::context::Context;
use mailonce_core::{
    events::event::EventCursor,
    problem::{Code, Problem},
};

/// The problem for a cursor of another epoch.
pub(crate) fn cursor_reset() -> Problem {
    Problem::new(
        Code::CursorReset,
        "this cursor was issued before a restore or failover of the database; read again from the start",
    )
}

impl Context {
    /// The current epoch of the store's history.
    pub fn epoch(&self) -> u32 {
        self.store.epoch().unwrap_or(self.initial_epoch)
    }

    /// Refuses cursors of another epoch. Call it after a read, because the read may be the first to reach the new
    /// history.
    pub(crate) fn check_epoch(&self, epoch: u32) -> Result<(), Problem> {
        if self.epoch() == epoch { Ok(()) } else { Err(cursor_reset()) }
    }

    /// The cursor for a sequence number in the current epoch.
    pub fn cursor(&self, seq: u64) -> EventCursor {
        EventCursor { epoch: self.epoch(), seq }
    }

    /// The sequence number of a cursor; 0 without a cursor. Refuses a cursor of another epoch.
    pub fn seq_of(&self, cursor: Option<EventCursor>) -> Result<u64, Problem> {
        match cursor {
            None => Ok(0),
            Some(cursor) if cursor.epoch == self.epoch() => Ok(cursor.seq),
            Some(_) => Err(cursor_reset()),
        }
    }
}
