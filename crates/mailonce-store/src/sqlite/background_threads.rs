//! The background threads of the store: the checkpointer and the key counter.

use mailonce_core::ports::store::StoreError;
use rusqlite::Connection;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::sqlite::{fresh_keys::FreshKeys, schema::store_error, write_session::WalState, writer::Writer};

/// Rows written before the WAL is checkpointed, and the pause between two checks of that number.
const ROWS_PER_CHECKPOINT: u64 = 20_000;
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(100);
/// Pause between two counts of the `keys` table: this minimum, or this multiple of the last count's duration if longer.
const KEY_COUNT_MIN_PAUSE: Duration = Duration::from_mins(1);
const KEY_COUNT_PAUSE_FACTOR: u32 = 500;

/// The checkpointer thread: checkpoints the WAL after every `ROWS_PER_CHECKPOINT` rows, and once when writes pause.
pub(crate) fn run_checkpointer(conn: &Connection, writer: &Writer, log: &WalState, closing: &AtomicBool) {
    let (mut moved, mut seen) = (0, 0);
    while !closing.load(Ordering::Relaxed) {
        std::thread::park_timeout(CHECKPOINT_PAUSE);
        let written = log.rows_written.load(Ordering::Relaxed);
        let quiet = written == seen;
        seen = written;
        if written - moved < ROWS_PER_CHECKPOINT && !(quiet && written > moved) {
            continue;
        }
        moved = written;
        match conn
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
        {
            Ok((frames, done)) => log.has_leftover_frames.store(done < frames || !quiet, Ordering::Relaxed),
            Err(error) => match store_error(error) {
                error @ StoreError::Corrupt(_) => return writer.fail(error),
                error => tracing::warn!(%error, "moving the log into the file"),
            },
        }
    }
}

/// The key counter thread: counts the rows of the `keys` table. It does so rarely, because a count scans the whole
/// table. Between two counts the writer updates the number.
pub(crate) fn run_key_counter(conn: &Connection, fresh: &FreshKeys, closing: &AtomicBool) {
    while !closing.load(Ordering::Relaxed) {
        let began = Instant::now();
        if let Ok(count) = conn.query_row("SELECT COUNT(*) FROM keys", [], |row| row.get::<_, i64>(0)) {
            fresh.in_tree.store(count as u64, Ordering::Relaxed);
        }
        std::thread::park_timeout(KEY_COUNT_MIN_PAUSE.max(began.elapsed() * KEY_COUNT_PAUSE_FACTOR));
    }
}
