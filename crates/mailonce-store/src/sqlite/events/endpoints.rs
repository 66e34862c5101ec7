//! Webhook endpoints: their rows, creation, changes and removal.

use mailonce_core::{
    control::audit::act::Act,
    events::{
        endpoint::{
            Endpoint, EndpointChangeResult, EndpointEdit, EndpointGauge, EndpointReason, EndpointStart, EndpointState,
        },
        event::NewEvent,
    },
    id::{EndpointId, TeamId, ordered_bits, random_bits},
    operation::{IdempotentResult, KeyedOperation},
    ports::store::{Result, StoreError},
    time::Time,
};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use crate::sqlite::{
    control::audit,
    outbound::key_bindings,
    rows::{corrupt_row, json_column, optional_time, parse_column, split_id, to_json},
    schema::store_error,
    write_session::WriteSession,
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

const BY_ID: &str = endpoints!("e.team = ?1 AND e.endpoint = ?2");
const LIST: &str = endpoints!("e.team = ?1 AND e.endpoint < ?2 ORDER BY e.endpoint DESC LIMIT ?3");
/// Enabled endpoints with events after their cursor, those with the oldest fan-out first.
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
const INSERT: &str = "INSERT INTO endpoints (endpoint, tail, team, rev, created_at, state, reason, since, cursor, \
     redo_until, failing_since, about) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const UPDATE: &str = "UPDATE endpoints SET rev = ?2, state = ?3, reason = ?4, since = ?5, cursor = ?6, redo_until = ?7, \
     failing_since = ?8, about = ?9 WHERE endpoint = ?1";
const REMOVE: &str = "UPDATE endpoints SET removed = 1 WHERE endpoint = ?1";

fn endpoint_row(row: &Row<'_>) -> Result<Endpoint> {
    let reason: Option<String> = row.get(6).map_err(store_error)?;
    Ok(Endpoint {
        id: EndpointId(split_id(row, 0)?),
        team: TeamId(row.get(2).map(Uuid::from_bytes).map_err(store_error)?),
        rev: row.get(3).map_err(store_error)?,
        created_at: Time(row.get(4).map_err(store_error)?),
        state: parse_column(row, 5, EndpointState::parse)?,
        reason: reason.map(|_| parse_column(row, 6, EndpointReason::parse)).transpose()?,
        state_since: Time(row.get(7).map_err(store_error)?),
        cursor: row.get::<_, i64>(8).map_err(store_error)? as u64,
        resend_until_seq: row.get::<_, i64>(9).map_err(store_error)? as u64,
        failing_since: optional_time(row, 10)?,
        config: json_column(row, 11)?,
    })
}

fn query_endpoints(conn: &Connection, sql: &str, asked: impl rusqlite::Params) -> Result<Vec<Endpoint>> {
    let mut statement = conn.prepare_cached(sql).map_err(store_error)?;
    let mut rows = statement.query(asked).map_err(store_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        found.push(endpoint_row(row)?);
    }
    Ok(found)
}

/// One endpoint of a team.
pub(crate) fn by_id(conn: &Connection, team: i64, id: EndpointId) -> Result<Option<Endpoint>> {
    let found = query_endpoints(conn, BY_ID, params![team, ordered_bits(id.0)])?;
    Ok(found.into_iter().find(|endpoint| endpoint.id == id))
}

/// Endpoints older than `before`, newest first.
pub(crate) fn list(conn: &Connection, team: i64, before: Option<EndpointId>, limit: usize) -> Result<Vec<Endpoint>> {
    let before = before.map_or(i64::MAX, |id| ordered_bits(id.0));
    query_endpoints(conn, LIST, params![team, before, limit as i64])
}

/// Enabled endpoints with events after their cursor, those with the oldest fan-out first.
pub(crate) fn lagging(conn: &Connection, max: usize) -> Result<Vec<Endpoint>> {
    query_endpoints(conn, LAGGING, [max as i64])
}

/// Enabled endpoints with a due notice, those with the earliest due time first.
pub(crate) fn with_due_notices(conn: &Connection, max: usize, now: Time) -> Result<Vec<Endpoint>> {
    query_endpoints(conn, DUE, params![now.0, max as i64])
}

/// When the next notice of an enabled endpoint is due.
pub(crate) fn next_due(conn: &Connection) -> Result<Option<Time>> {
    let mut statement = conn.prepare_cached(NEXT_DUE).map_err(store_error)?;
    Ok(statement.query_row([], |row| row.get::<_, Option<i64>>(0)).map_err(store_error)?.map(Time))
}

/// The lag and the number of pending and dead notices of each endpoint.
pub(crate) fn gauges(conn: &Connection) -> Result<Vec<EndpointGauge>> {
    let mut statement = conn.prepare_cached(GAUGES).map_err(store_error)?;
    let mut rows = statement.query([]).map_err(store_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        let count = |at| row.get::<_, i64>(at).map(|count| count as u64).map_err(store_error);
        found.push(EndpointGauge {
            team: TeamId(row.get(0).map(Uuid::from_bytes).map_err(store_error)?),
            id: EndpointId(split_id(row, 1)?),
            state: parse_column(row, 3, EndpointState::parse)?,
            lag: count(4)?,
            pending: count(5)?,
            dead: count(6)?,
        });
    }
    Ok(found)
}

/// Creates an endpoint, or returns the existing one on a retry.
pub(crate) fn create(
    ledger: &mut WriteSession<'_>,
    mut endpoint: Endpoint,
    start: EndpointStart,
    operation: Option<&KeyedOperation>,
) -> Result<IdempotentResult<Endpoint>> {
    let no_team = || StoreError::Corrupt(format!("there is no team {}", endpoint.team));
    let team = ledger.team_number(endpoint.team).ok_or_else(no_team)?;
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, endpoint.created_at)?
    {
        return Ok(answer);
    }
    if let Some(known) = by_id(ledger.conn, team, endpoint.id)? {
        return Ok(IdempotentResult::Done(known));
    }
    let newest = ledger.last_event_seq(team);
    endpoint.cursor = match start {
        EndpointStart::NextEvent => newest,
        EndpointStart::After(seq) => seq.min(newest),
    };
    let Endpoint {
        id,
        rev,
        created_at,
        config: about,
        state,
        reason,
        state_since: since,
        cursor,
        resend_until_seq: redo_until,
        failing_since,
        ..
    } = &endpoint;
    let row = params![
        ordered_bits(id.0),
        random_bits(id.0),
        team,
        rev,
        created_at.0,
        state.as_str(),
        reason.map(EndpointReason::as_str),
        since.0,
        *cursor as i64,
        *redo_until as i64,
        failing_since.map(|at| at.0),
        to_json(about)?
    ];
    if ledger.execute(INSERT, row)? != 1 {
        return Err(corrupt_row("the id of a new endpoint is taken"));
    }
    ledger.reserve_id(id.0);
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    audit::record_act(ledger, Act::of_endpoint(None, Some(&endpoint)), endpoint.created_at)?;
    Ok(IdempotentResult::Done(endpoint))
}

/// Saves a changed endpoint, and emits its event.
pub(crate) fn save(ledger: &mut WriteSession<'_>, endpoint: &Endpoint, event: Option<&NewEvent>) -> Result<()> {
    let row = params![
        ordered_bits(endpoint.id.0),
        endpoint.rev,
        endpoint.state.as_str(),
        endpoint.reason.map(EndpointReason::as_str),
        endpoint.state_since.0,
        endpoint.cursor as i64,
        endpoint.resend_until_seq as i64,
        endpoint.failing_since.map(|at| at.0),
        to_json(&endpoint.config)?
    ];
    ledger.execute(UPDATE, row)?;
    if let (Some(event), Some(team)) = (event, ledger.team_number(endpoint.team)) {
        ledger.emit(team, event);
    }
    Ok(())
}

/// Changes an endpoint, if its `rev` is still the one that the caller read.
pub(crate) fn change(
    ledger: &mut WriteSession<'_>,
    edit: EndpointEdit,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<EndpointChangeResult>> {
    let Some(team) = ledger.team_number(edit.team) else {
        return Ok(IdempotentResult::Done(EndpointChangeResult::Missing));
    };
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(mut endpoint) = by_id(ledger.conn, team, edit.id)? else {
        return Ok(IdempotentResult::Done(EndpointChangeResult::Missing));
    };
    if endpoint.rev != edit.rev {
        return Ok(IdempotentResult::Done(EndpointChangeResult::Stale(endpoint)));
    }
    let before = endpoint.clone();
    let event = endpoint.edit(edit.config, edit.state, now);
    save(ledger, &endpoint, event.as_ref())?;
    audit::record_act(ledger, Act::of_endpoint(Some(&before), Some(&endpoint)), now)?;
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    Ok(IdempotentResult::Done(EndpointChangeResult::Changed(endpoint)))
}

/// Removes an endpoint. Sweeps delete its rows later.
pub(crate) fn remove(ledger: &mut WriteSession<'_>, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
    let Some(team) = ledger.team_number(team) else { return Ok(None) };
    let found = by_id(ledger.conn, team, id)?;
    if found.is_some() {
        ledger.execute(REMOVE, [ordered_bits(id.0)])?;
        let now = ledger.time.commit_time(Time(0));
        audit::record_act(ledger, Act::of_endpoint(found.as_ref(), None), now)?;
    }
    Ok(found)
}
