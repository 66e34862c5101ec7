//! The inbound sweep: deletes old suppressed deliveries, expired delivery keys, outdated reply tallies, and the rows of
//! removed inboxes.

use mailonce_core::{
    conversation::caps::DAY_MS,
    id::{from_bits, ordered_bits},
    limits,
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use uuid::Uuid;

use crate::sqlite::inbound::deliveries;
use crate::sqlite::{control::budgets, outbound::content_guard, schema::store_error, write_session::WriteSession};

const SELECT_KEYS: &str = "SELECT team, hash, known_until FROM delivery_keys WHERE (team, hash) > (?1, ?2) \
     ORDER BY team, hash LIMIT ?3";
const DROP_KEY: &str = "DELETE FROM delivery_keys WHERE team = ?1 AND hash = ?2 AND known_until <= ?3";
const OLD_DUPLICATES: &str = "SELECT team, delivery, raw FROM deliveries WHERE state IN ('duplicate', 'refused') \
     AND received_at <= ?1 ORDER BY received_at LIMIT ?2";
const DELETE_STALE_TALLIES: &str = "DELETE FROM tallies WHERE (team, person) IN \
     (SELECT team, person FROM tallies WHERE latest_at <= ?1 LIMIT ?2)";
const REMOVED_INBOXES: &str = "SELECT inbox, tail FROM inboxes WHERE removed = 1 ORDER BY inbox";
const SELECT_MESSAGES: &str = "SELECT message, team, delivery FROM messages WHERE inbox = ?1 ORDER BY seq LIMIT ?2";
const SELECT_RAW: &str = "SELECT raw FROM deliveries WHERE team = ?1 AND delivery = ?2";
/// Repeats the condition of a partial index literally, so that SQLite uses the index.
const ENDED_DELIVERIES: &str = "SELECT team, delivery, raw FROM deliveries WHERE inbox = ?1 AND state <> 'waiting' \
     AND (state <> 'done' OR raw IS NULL) LIMIT ?2";
const HAS_WAITING: &str = "SELECT 1 FROM deliveries WHERE state = 'waiting' AND due_at IS NOT NULL AND inbox = ?1";
const DELETE_DELIVERY: &str = "DELETE FROM deliveries WHERE team = ?1 AND delivery = ?2";
/// Deletes the other rows of a removed inbox, up to a limit per table.
const DELETE_INBOX_LEFTOVERS: [&str; 6] = [
    "DELETE FROM message_names WHERE inbox = ?1 AND name IN \
     (SELECT name FROM message_names WHERE inbox = ?1 LIMIT ?2)",
    "DELETE FROM message_contents WHERE inbox = ?1 AND (name, content) IN \
     (SELECT name, content FROM message_contents WHERE inbox = ?1 LIMIT ?2)",
    "DELETE FROM artifacts WHERE artifact IN (SELECT artifact FROM artifacts WHERE inbox = ?1 LIMIT ?2)",
    "DELETE FROM thread_emails WHERE thread IN \
     (SELECT thread FROM threads WHERE inbox = ?1 ORDER BY latest_at, thread LIMIT ?2)",
    "DELETE FROM threads WHERE thread IN \
     (SELECT thread FROM threads WHERE inbox = ?1 ORDER BY latest_at, thread LIMIT ?2)",
    "DELETE FROM watches WHERE watch IN (SELECT watch FROM watches WHERE inbox = ?1 LIMIT ?2)",
];

/// The deduplication key of a delivery: the team's number and the hash.
pub(crate) type DeliveryKeyRef = (i64, [u8; 32]);
/// A delivery to delete: team number, ordered bits of its id, and the row of its raw bytes.
type DeletedDelivery = (i64, i64, Option<i64>);

/// The expired keys among the next `SCAN_ROWS` keys after `from`, and where to continue. `None` means the start of the
/// table.
pub(crate) fn expired_keys(
    conn: &Connection,
    from: Option<&DeliveryKeyRef>,
    now: Time,
) -> Result<(Vec<DeliveryKeyRef>, Option<DeliveryKeyRef>)> {
    let (team, hash) = from.map_or((0, &[][..]), |(team, hash)| (*team, hash.as_slice()));
    let mut statement = conn.prepare_cached(SELECT_KEYS).map_err(store_error)?;
    let mut rows = statement.query(params![team, hash, limits::SCAN_ROWS as i64]).map_err(store_error)?;
    let (mut expired, mut last, mut looked) = (Vec::new(), None, 0);
    while let Some(row) = rows.next().map_err(store_error)? {
        let place: DeliveryKeyRef = (row.get(0).map_err(store_error)?, row.get(1).map_err(store_error)?);
        if row.get::<_, i64>(2).map_err(store_error)? <= now.0 {
            expired.push(place);
        }
        (last, looked) = (Some(place), looked + 1);
    }
    Ok((expired, last.filter(|_| looked == limits::SCAN_ROWS)))
}

/// Deletes up to `max` deliveries with everything that belongs to them. Returns how many were deleted.
pub(crate) fn sweep(ledger: &WriteSession<'_>, expired: &[DeliveryKeyRef], max: usize, now: Time) -> Result<usize> {
    for (team, hash) in expired {
        ledger.execute(DROP_KEY, params![team, hash, now.0])?;
    }
    ledger.execute(DELETE_STALE_TALLIES, params![now.plus(-DAY_MS).0, max as i64])?;
    content_guard::sweep(ledger, now)?;
    budgets::sweep(ledger, now)?;
    let old = now.plus(-limits::SUPPRESSED_DELIVERY_RETENTION_MS);
    let mut swept =
        drop_deliveries(ledger, &read_deleted_deliveries(ledger, OLD_DUPLICATES, params![old.0, max as i64])?)?;
    let inboxes: Vec<(i64, i64)> = {
        let mut statement = ledger.conn.prepare_cached(REMOVED_INBOXES).map_err(store_error)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.and_then(|rows| rows.take(max).collect()).map_err(store_error)?
    };
    for (bits, tail) in inboxes {
        if swept == max {
            break;
        }
        swept += clear_inbox(ledger, (bits, from_bits(bits, tail)), max - swept)?;
    }
    Ok(swept)
}

fn read_deleted_deliveries(
    ledger: &WriteSession<'_>,
    sql: &str,
    asked: impl rusqlite::Params,
) -> Result<Vec<DeletedDelivery>> {
    let mut statement = ledger.conn.prepare_cached(sql).map_err(store_error)?;
    let rows = statement.query_map(asked, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.and_then(Iterator::collect).map_err(store_error)
}

fn drop_deliveries(ledger: &WriteSession<'_>, gone: &[DeletedDelivery]) -> Result<usize> {
    for (team, bits, raw) in gone {
        if let Some(raw) = raw {
            deliveries::release_raw(ledger, *raw)?;
        }
        ledger.execute(DELETE_DELIVERY, params![team, bits])?;
    }
    Ok(gone.len())
}

/// Deletes up to `left` deliveries of a removed inbox. Marks the inbox as cleared when nothing of it is left.
fn clear_inbox(ledger: &WriteSession<'_>, (bits, id): (i64, Uuid), left: usize) -> Result<usize> {
    let mut swept = clear_messages(ledger, bits, left)?;
    swept += drop_deliveries(
        ledger,
        &read_deleted_deliveries(ledger, ENDED_DELIVERIES, params![id.as_bytes(), (left - swept) as i64])?,
    )?;
    let mut empty = swept < left;
    for sql in DELETE_INBOX_LEFTOVERS {
        empty &= ledger.execute(sql, params![bits, left as i64])? < left;
    }
    // A waiting delivery is still processed: a worker refuses it, so that the refusal is recorded.
    let waits = ledger.conn.prepare_cached(HAS_WAITING).and_then(|mut s| s.exists([id.as_bytes()]));
    if empty && !waits.map_err(store_error)? {
        ledger.execute("UPDATE inboxes SET removed = 0 WHERE inbox = ?1", [bits])?;
    }
    Ok(swept)
}

/// Deletes messages with the deliveries that they came from. Returns how many.
fn clear_messages(ledger: &WriteSession<'_>, inbox: i64, left: usize) -> Result<usize> {
    let messages: Vec<(i64, i64, [u8; 16])> = {
        let mut statement = ledger.conn.prepare_cached(SELECT_MESSAGES).map_err(store_error)?;
        let rows = statement.query_map(params![inbox, left as i64], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.and_then(Iterator::collect).map_err(store_error)?
    };
    for (message, team, delivery) in &messages {
        let place = ordered_bits(Uuid::from_bytes(*delivery));
        let raw = ledger
            .conn
            .prepare_cached(SELECT_RAW)
            .and_then(|mut s| s.query_row(params![team, place], |row| row.get(0)));
        drop_deliveries(ledger, &[(*team, place, raw.optional().map_err(store_error)?.flatten())])?;
        ledger.execute("DELETE FROM messages WHERE message = ?1", [message])?;
    }
    Ok(messages.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{Sqlite, schema};
    use mailonce_core::{
        conversation::caps::DAY_MS, outbound::content_guard::MAX_IDENTICAL_WINDOW_MS, ports::store::Store as _,
    };

    /// Counts rows. `from` is a table name, optionally with a `WHERE` clause.
    fn count(conn: &Connection, from: &str) -> i64 {
        conn.query_row(&format!("SELECT COUNT(*) FROM {from}"), [], |row| row.get(0)).unwrap()
    }

    /// Inserts three threads of a removed inbox and one of another inbox, each with two emails. Also inserts one
    /// expired and one current tally, and the same for fingerprints.
    fn fill(conn: &Connection, now: Time) {
        for (bits, removed) in [(1, Some(1)), (2, None::<i64>)] {
            let inbox = "INSERT INTO inboxes (inbox, tail, team, rev, seq, address, created_at, about, removed) \
                 VALUES (?1, 1, 1, 1, 0, 'a', 1, '{}', ?2)";
            conn.execute(inbox, params![bits, removed]).unwrap();
        }
        for (thread, inbox) in [(1_u8, 1), (2, 1), (3, 1), (4, 2)] {
            let row = params![[thread; 16], inbox];
            conn.execute("INSERT INTO threads VALUES (?1, 1, ?2, 1, 1, '{}')", row).unwrap();
            for email in [1_u8, 2] {
                conn.execute("INSERT INTO thread_emails VALUES (?1, ?2)", params![[thread; 16], [email; 16]]).unwrap();
            }
        }
        for (n, ago) in [(1_u8, 0), (2, 1)] {
            let (day, window) = (now.0 - DAY_MS + ago, now.0 - MAX_IDENTICAL_WINDOW_MS + ago);
            conn.execute("INSERT INTO tallies VALUES (1, ?1, ?2, '[]')", params![[n; 16], day]).unwrap();
            conn.execute("INSERT INTO likenesses VALUES (NULL, 1, ?1, ?2, 1, x'', x'')", params![[n; 16], window])
                .unwrap();
        }
    }

    #[tokio::test]
    async fn sweeps_leave_nothing_of_conversations_that_nobody_can_see() {
        let home = tempfile::tempdir().unwrap();
        let (path, now) = (home.path().join("ledger.db"), Time(1_731_628_800_000));
        fill(&schema::open_writer(&path, &[7; 32]).unwrap().0, now);
        let store = Sqlite::open(home.path(), [7; 32]).unwrap();
        store.sweep(2, now).await.unwrap();
        let conn = schema::open_reader(&path).unwrap();
        assert_eq!((count(&conn, "threads WHERE inbox = 1"), count(&conn, "inboxes WHERE removed = 1")), (1, 1));
        for _ in 0..3 {
            store.sweep(2, now).await.unwrap();
        }
        assert_eq!((count(&conn, "threads"), count(&conn, "threads WHERE inbox = 2")), (1, 1));
        assert_eq!((count(&conn, "thread_emails"), count(&conn, "inboxes WHERE removed = 0")), (2, 1));
        assert_eq!((count(&conn, "tallies"), count(&conn, "likenesses")), (1, 1));
        store.close().await;
    }
}
