//! Endpoints: their rows, and what people do with them.

use mailonce_core::{
    endpoint::{Endpoint, EndpointChange, EndpointEdit, EndpointGauge, EndpointReason, EndpointState, Start},
    event::NewEvent,
    id::{EndpointId, TeamId, ordered_bits, tail_bits},
    port::store::{Once, Operation, Result, StoreError},
    time::Time,
};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::{
    accept,
    ledger::Ledger,
    rows::{damaged, json, maybe_time, split_id, to_json, word},
    schema::told,
};

macro_rules! endpoints {
    ($rest:literal) => {
        concat!(
            "SELECT e.endpoint, e.tail, t.id, e.rev, e.created_at, e.state, e.reason, e.since, e.cursor, e.redo_until, \
             e.failing_since, e.about FROM endpoints e JOIN teams t ON t.number = e.team WHERE e.removed IS NULL AND ",
            $rest
        )
    };
}

const ONE: &str = endpoints!("e.team = ?1 AND e.endpoint = ?2");
const LIST: &str = endpoints!("e.team = ?1 AND e.endpoint < ?2 ORDER BY e.endpoint DESC LIMIT ?3");
/// Enabled ones that events lie before, those that waited longest first.
const LAGGING: &str = endpoints!(
    "e.state = 'enabled' AND e.cursor < (SELECT MAX(last) FROM event_blocks b WHERE b.team = e.team) \
     ORDER BY e.spread_at, e.endpoint LIMIT ?1"
);
const DUE: &str = endpoints!(
    "e.state = 'enabled' AND (SELECT MIN(next_at) FROM notices n WHERE n.endpoint = e.endpoint AND next_at IS NOT NULL) \
     <= ?1 ORDER BY (SELECT MIN(next_at) FROM notices n WHERE n.endpoint = e.endpoint AND next_at IS NOT NULL), \
     e.endpoint LIMIT ?2"
);
const NEXT_DUE: &str = "SELECT MIN((SELECT MIN(next_at) FROM notices n WHERE n.endpoint = e.endpoint \
     AND next_at IS NOT NULL)) FROM endpoints e WHERE e.state = 'enabled' AND e.removed IS NULL";
const GAUGES: &str = "SELECT t.id, e.endpoint, e.tail, e.state, \
     COALESCE((SELECT MAX(last) FROM event_blocks b WHERE b.team = e.team), 0) - e.cursor, \
     (SELECT COUNT(*) FROM notices n WHERE n.endpoint = e.endpoint AND n.state = 'pending'), \
     (SELECT COUNT(*) FROM notices n WHERE n.endpoint = e.endpoint AND n.state = 'dead') \
     FROM endpoints e JOIN teams t ON t.number = e.team WHERE e.removed IS NULL ORDER BY e.endpoint";
const MAKE: &str = "INSERT INTO endpoints (endpoint, tail, team, rev, created_at, state, reason, since, cursor, \
     redo_until, failing_since, about) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const SAVE: &str = "UPDATE endpoints SET rev = ?2, state = ?3, reason = ?4, since = ?5, cursor = ?6, redo_until = ?7, \
     failing_since = ?8, about = ?9 WHERE endpoint = ?1";
const REMOVE: &str = "UPDATE endpoints SET removed = 1 WHERE endpoint = ?1";

fn endpoint_row(row: &Row<'_>) -> Result<Endpoint> {
    let reason: Option<String> = row.get(6).map_err(told)?;
    Ok(Endpoint {
        id: EndpointId(split_id(row, 0)?),
        team: TeamId(row.get(2).map(Uuid::from_bytes).map_err(told)?),
        rev: row.get(3).map_err(told)?,
        created_at: Time(row.get(4).map_err(told)?),
        state: word(row, 5, EndpointState::parse)?,
        reason: reason.map(|_| word(row, 6, EndpointReason::parse)).transpose()?,
        since: Time(row.get(7).map_err(told)?),
        cursor: row.get::<_, i64>(8).map_err(told)? as u64,
        redo_until: row.get::<_, i64>(9).map_err(told)? as u64,
        failing_since: maybe_time(row, 10)?,
        about: json(row, 11)?,
    })
}

fn read(conn: &Connection, sql: &str, asked: impl rusqlite::Params) -> Result<Vec<Endpoint>> {
    let mut statement = conn.prepare_cached(sql).map_err(told)?;
    let mut rows = statement.query(asked).map_err(told)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(told)? {
        found.push(endpoint_row(row)?);
    }
    Ok(found)
}

/// One endpoint of a team.
pub(super) fn one(conn: &Connection, team: i64, id: EndpointId) -> Result<Option<Endpoint>> {
    let found = read(conn, ONE, params![team, ordered_bits(id.0)])?;
    Ok(found.into_iter().find(|endpoint| endpoint.id == id))
}

/// Endpoints older than `before`, newest first.
pub(super) fn list(conn: &Connection, team: i64, before: Option<EndpointId>, limit: usize) -> Result<Vec<Endpoint>> {
    let before = before.map_or(i64::MAX, |id| ordered_bits(id.0));
    read(conn, LIST, params![team, before, limit as i64])
}

/// Enabled endpoints that events lie before, those that waited longest first.
pub(super) fn lagging(conn: &Connection, max: usize) -> Result<Vec<Endpoint>> {
    read(conn, LAGGING, [max as i64])
}

/// Enabled endpoints with a notice that is due, those that waited longest first.
pub(super) fn due(conn: &Connection, max: usize, now: Time) -> Result<Vec<Endpoint>> {
    read(conn, DUE, params![now.0, max as i64])
}

/// When the next notice of an enabled endpoint is due.
pub(super) fn next_due(conn: &Connection) -> Result<Option<Time>> {
    let mut statement = conn.prepare_cached(NEXT_DUE).map_err(told)?;
    Ok(statement.query_row([], |row| row.get::<_, Option<i64>>(0)).map_err(told)?.map(Time))
}

/// How far each endpoint is.
pub(super) fn gauges(conn: &Connection) -> Result<Vec<EndpointGauge>> {
    let mut statement = conn.prepare_cached(GAUGES).map_err(told)?;
    let mut rows = statement.query([]).map_err(told)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(told)? {
        let count = |at| row.get::<_, i64>(at).map(|count| count as u64).map_err(told);
        found.push(EndpointGauge {
            team: TeamId(row.get(0).map(Uuid::from_bytes).map_err(told)?),
            id: EndpointId(split_id(row, 1)?),
            state: word(row, 3, EndpointState::parse)?,
            lag: count(4)?,
            pending: count(5)?,
            dead: count(6)?,
        });
    }
    Ok(found)
}

/// Makes an endpoint, unless it was made before.
pub(super) fn create(
    ledger: &mut Ledger<'_>,
    mut endpoint: Endpoint,
    start: Start,
    operation: Option<&Operation>,
) -> Result<Once<Endpoint>> {
    let no_team = || StoreError::Corrupt(format!("there is no team {}", endpoint.team));
    let team = ledger.team_number(endpoint.team).ok_or_else(no_team)?;
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, endpoint.created_at)?
    {
        return Ok(answer);
    }
    if let Some(known) = one(ledger.conn, team, endpoint.id)? {
        return Ok(Once::Done(known));
    }
    let newest = ledger.last_event(team);
    endpoint.cursor = match start {
        Start::End => newest,
        Start::After(seq) => seq.min(newest),
    };
    let Endpoint { id, rev, created_at, about, state, reason, since, cursor, redo_until, failing_since, .. } =
        &endpoint;
    let row = params![
        ordered_bits(id.0),
        tail_bits(id.0),
        team,
        rev,
        created_at.0,
        state.word(),
        reason.map(EndpointReason::word),
        since.0,
        *cursor as i64,
        *redo_until as i64,
        failing_since.map(|at| at.0),
        to_json(about)?
    ];
    if ledger.execute(MAKE, row)? != 1 {
        return Err(damaged("the id of a new endpoint is taken"));
    }
    ledger.note_id(id.0);
    if let Some(operation) = operation {
        accept::bind_operation(ledger, operation)?;
    }
    Ok(Once::Done(endpoint))
}

/// Writes what became of an endpoint, and tells of it.
pub(super) fn save(ledger: &mut Ledger<'_>, endpoint: &Endpoint, event: Option<&NewEvent>) -> Result<()> {
    let row = params![
        ordered_bits(endpoint.id.0),
        endpoint.rev,
        endpoint.state.word(),
        endpoint.reason.map(EndpointReason::word),
        endpoint.since.0,
        endpoint.cursor as i64,
        endpoint.redo_until as i64,
        endpoint.failing_since.map(|at| at.0),
        to_json(&endpoint.about)?
    ];
    ledger.execute(SAVE, row)?;
    if let (Some(event), Some(team)) = (event, ledger.team_number(endpoint.team)) {
        ledger.emit(team, event);
    }
    Ok(())
}

/// Changes an endpoint, if it is still as it was seen.
pub(super) fn change(
    ledger: &mut Ledger<'_>,
    edit: EndpointEdit,
    operation: Option<&Operation>,
    now: Time,
) -> Result<Once<EndpointChange>> {
    let Some(team) = ledger.team_number(edit.team) else { return Ok(Once::Done(EndpointChange::Missing)) };
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(mut endpoint) = one(ledger.conn, team, edit.id)? else {
        return Ok(Once::Done(EndpointChange::Missing));
    };
    if endpoint.rev != edit.rev {
        return Ok(Once::Done(EndpointChange::Stale(endpoint)));
    }
    let event = endpoint.edit(edit.about, edit.state, now);
    save(ledger, &endpoint, event.as_ref())?;
    if let Some(operation) = operation {
        accept::bind_operation(ledger, operation)?;
    }
    Ok(Once::Done(EndpointChange::Changed(endpoint)))
}

/// Removes an endpoint. What it leaves is swept.
pub(super) fn remove(ledger: &Ledger<'_>, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
    let Some(team) = ledger.team_number(team) else { return Ok(None) };
    let found = one(ledger.conn, team, id)?;
    if found.is_some() {
        ledger.execute(REMOVE, [ordered_bits(id.0)])?;
    }
    Ok(found)
}
