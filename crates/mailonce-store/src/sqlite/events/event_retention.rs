//! Retention of events: deletes the oldest blocks of a team. The newest block stays, because it says how far the numbers
//! are.

use mailonce_core::{events::retention::EventRetention, id::TeamId, ports::store::Result};
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use crate::sqlite::{events::event_log::read_block, schema::store_error, write_session::WriteSession};

const OLDEST: &str = "SELECT last, events FROM event_blocks WHERE team = ?1 \
     AND last < (SELECT MAX(last) FROM event_blocks WHERE team = ?1) ORDER BY last LIMIT ?2";
const FIRST_CURSOR: &str = "SELECT MIN(cursor) FROM endpoints WHERE team = ?1 AND removed IS NULL";
const FIRST_PENDING: &str = "SELECT MIN(n.seq) FROM endpoints e JOIN notices n ON n.endpoint = e.endpoint \
     WHERE e.team = ?1 AND e.removed IS NULL AND n.seq <= ?2 AND n.state = 'pending'";
const INDEXED: &str = "SELECT seq FROM search_cursors WHERE team = ?1";
const LAST_BLOCK: &str = "SELECT MAX(last) FROM event_blocks WHERE team = ?1 AND last <= ?2";
const DELETE_NOTICES: &str = "DELETE FROM notices WHERE endpoint IN (SELECT endpoint FROM endpoints WHERE team = ?1) \
     AND seq <= ?2 AND state <> 'pending'";
const DELETE_BLOCKS: &str = "DELETE FROM event_blocks WHERE team = ?1 AND last <= ?2";

/// The last event of the oldest blocks whose events all happened by a time. `None` when there is no such block.
pub(crate) fn last_old(conn: &Connection, team: i64, retention: EventRetention) -> Result<Option<u64>> {
    let mut statement = conn.prepare_cached(OLDEST).map_err(store_error)?;
    let mut rows = statement.query(params![team, retention.max_rows as i64]).map_err(store_error)?;
    let mut last = None;
    while let Some(row) = rows.next().map_err(store_error)? {
        let block = read_block(row)?;
        if block.iter().any(|event| event.event.at > retention.happened_by) {
            break;
        }
        last = block.last().map(|event| event.seq).or(last);
    }
    Ok(last)
}

fn number(conn: &Connection, sql: &str, asked: impl Params) -> Result<Option<u64>> {
    let mut statement = conn.prepare_cached(sql).map_err(store_error)?;
    let found = statement.query_row(asked, |row| row.get::<_, Option<i64>>(0)).optional().map_err(store_error)?;
    Ok(found.flatten().map(|number| number as u64))
}

/// Deletes the blocks up to an event, as far as nobody needs them any more, with the settled notices about their events.
/// Returns whether it deleted any.
pub(crate) fn drop_blocks(
    ledger: &WriteSession<'_>,
    team: TeamId,
    retention: EventRetention,
    old: u64,
) -> Result<bool> {
    let Some(team) = ledger.team_number(team) else { return Ok(false) };
    let conn = ledger.conn;
    let cursor = number(conn, FIRST_CURSOR, [team])?;
    let pending = number(conn, FIRST_PENDING, params![team, old as i64])?;
    let indexed = number(conn, INDEXED, [team])?.unwrap_or(0);
    let until = retention.last_deleted(old, cursor, pending, indexed);
    let Some(last) = number(conn, LAST_BLOCK, params![team, until as i64])? else { return Ok(false) };
    ledger.execute(DELETE_NOTICES, params![team, last as i64])?;
    Ok(ledger.execute(DELETE_BLOCKS, params![team, last as i64])? > 0)
}
