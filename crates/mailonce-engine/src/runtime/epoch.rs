//! Cursors and the epoch of the store's history. A restore or a failover renews the epoch and invalidates cursors.

use crate::runtime::context::Context;
use mailonce_core::{
    events::event::EventCursor,
    problem::{Code, Problem},
};
pub(crate) fn cursor_reset() -> Problem {
    Problem::new(Code::CursorReset, "this cursor is from before a restore or a failover of the database: begin anew")
}

impl Context {
    /// The epoch of the history that is read now. A restore or a failover of the database renews it.
    pub fn epoch(&self) -> u32 {
        self.store.epoch().unwrap_or(self.initial_epoch)
    }

    /// Refuses to go on with places from before a restore or a failover. Asked after a read, because the read may have
    /// been the first to reach another history.
    pub(crate) fn check_epoch(&self, epoch: u32) -> Result<(), Problem> {
        if self.epoch() == epoch { Ok(()) } else { Err(cursor_reset()) }
    }

    /// A place in an inbox.
    pub fn cursor(&self, seq: u64) -> EventCursor {
        EventCursor { epoch: self.epoch(), seq }
    }

    /// The number behind a cursor of this installation. `None` is the very start.
    pub fn seq_of(&self, cursor: Option<EventCursor>) -> Result<u64, Problem> {
        match cursor {
            None => Ok(0),
            Some(cursor) if cursor.epoch == self.epoch() => Ok(cursor.seq),
            Some(_) => Err(cursor_reset()),
        }
    }
}
