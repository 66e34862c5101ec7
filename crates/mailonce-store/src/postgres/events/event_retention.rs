//! Retention of events: deletes the oldest blocks of a team. The latest block stays.
//!
//! Endpoints are locked, so that no cursor moves back meanwhile. Settled notices are deleted before the events, so that
//! none is replayed after its event is gone.

use mailonce_core::{events::retention::EventRetention, id::TeamId};
use tokio_postgres::Row;

use crate::postgres::{
    SharedState,
    error::TxResult,
    statements::{execute, query_rows},
};

/// The oldest blocks, and whether all of their events happened by a time.
const OLDEST: &str = "
    SELECT e.seq, $2 >= ALL (e.at) FROM events e
     WHERE e.team = $1 AND e.seq < (SELECT c.seq FROM event_counters c WHERE c.team = $1) ORDER BY e.seq LIMIT $3";
const LOCK_ENDPOINTS: &str =
    "SELECT e.cursor FROM endpoints e WHERE e.team = $1 AND NOT e.removed ORDER BY e.id FOR UPDATE";
const FIRST_PENDING: &str = "
    SELECT min(n.seq) FROM endpoints e JOIN notices n ON n.endpoint = e.id
     WHERE e.team = $1 AND NOT e.removed AND n.seq <= $2 AND n.state = 'pending'";
const INDEXED: &str = "SELECT seq FROM search_cursors WHERE team = $1";
const LAST_BLOCK: &str = "SELECT max(seq) FROM events WHERE team = $1 AND seq <= $2";
/// Leaves out notices that others have locked, because they may be about to be replayed.
const DELETE_NOTICES: &str = "
    DELETE FROM notices n
     USING (SELECT n.endpoint, n.seq FROM endpoints e JOIN notices n ON n.endpoint = e.id
             WHERE e.team = $1 AND n.seq <= $2 AND n.state <> 'pending'
             ORDER BY n.seq FOR UPDATE OF n SKIP LOCKED) due
     WHERE n.endpoint = due.endpoint AND n.seq = due.seq";
const ANY_NOTICE: &str = "
    SELECT FROM endpoints e JOIN notices n ON n.endpoint = e.id
     WHERE e.team = $1 AND NOT e.removed AND n.seq <= $2 LIMIT 1";
const DELETE_EVENTS: &str = "DELETE FROM events WHERE team = $1 AND seq <= $2";

fn number(rows: &[Row]) -> TxResult<Option<u64>> {
    let found = rows.first().map_or(Ok(None), |row| row.try_get::<_, Option<i64>>(0))?;
    Ok(found.map(|number| number as u64))
}

/// Deletes the oldest events, with the settled notices about them. Returns whether it deleted any.
pub(crate) async fn drop_events(shared: &SharedState, team: TeamId, retention: EventRetention) -> TxResult<bool> {
    let mut client = shared.connections.client().await?;
    let oldest =
        query_rows(&client, OLDEST, &[&team.0, &retention.happened_by.0, &(retention.max_rows as i64)]).await?;
    let mut old = None;
    for row in &oldest {
        if !row.try_get::<_, bool>(1)? {
            break;
        }
        old = Some(row.try_get::<_, i64>(0)?);
    }
    let Some(old) = old else { return Ok(false) };
    let tx = client.transaction().await?;
    let mut cursors = Vec::new();
    for row in query_rows(&tx, LOCK_ENDPOINTS, &[&team.0]).await? {
        cursors.push(row.try_get::<_, i64>(0)? as u64);
    }
    let pending = number(&query_rows(&tx, FIRST_PENDING, &[&team.0, &old]).await?)?;
    let indexed = number(&query_rows(&tx, INDEXED, &[&team.0]).await?)?.unwrap_or(0);
    let until = retention.last_deleted(old as u64, cursors, pending, indexed) as i64;
    let Some(last) = number(&query_rows(&tx, LAST_BLOCK, &[&team.0, &until]).await?)? else { return Ok(false) };
    let last = last as i64;
    execute(&tx, DELETE_NOTICES, &[&team.0, &last]).await?;
    // One that another transaction had locked keeps its event until the next round.
    if !query_rows(&tx, ANY_NOTICE, &[&team.0, &last]).await?.is_empty() {
        return Ok(false);
    }
    execute(&tx, DELETE_EVENTS, &[&team.0, &last]).await?;
    shared.commit(tx, 1).await?;
    Ok(true)
}
