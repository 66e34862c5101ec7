//! Stops, and the handoffs that they parked. All writes share one thread, so a stop is a barrier once it is committed.

use mailonce_core::{
    control::{
        audit::act::Act,
        stop::{CreateStopResult, Stop, StopChange, StopKind, Stops},
    },
    events::event::EventKind,
    id::{StopId, TeamId, ordered_bits},
    operation::{IdempotentResult, KeyedOperation},
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, Row, params};
use std::collections::BTreeMap;

use crate::sqlite::{
    control::audit,
    events::event_blocks::PackedEvent,
    outbound::{
        email_rows::{HandoffRef, save_handoff},
        key_bindings,
    },
    rows,
    schema::store_error,
    write_session::WriteSession,
};

const ALL: &str = "SELECT stop FROM stops";
const BY_TEAM: &str = "SELECT stop FROM stops WHERE team IS ?1 ORDER BY id";
const SAVE: &str = "INSERT INTO stops (id, team, scope, stop) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (id) DO UPDATE SET stop = ?4";
const REMOVE: &str = "DELETE FROM stops WHERE id = ?1";
const PARKED: &str = "SELECT team, email, number FROM handoffs WHERE parked_by = ?1 \
     ORDER BY due_at, email, number LIMIT ?2";
const COUNT_PARKED: &str = "SELECT count(*) FROM (SELECT 1 FROM handoffs INDEXED BY handoffs_parked \
     WHERE parked_by = ?1 AND (?2 IS NULL OR team = ?2) LIMIT ?3)";
/// What is due at one transport, or at all of them.
const COUNT_DUE: &str = "SELECT count(*) FROM (SELECT 1 FROM handoffs INDEXED BY handoffs_due \
     WHERE state IN ('queued', 'scheduled') AND parked_by IS NULL AND due_at <= ?4 \
       AND (?1 IS NULL OR transport = ?1) AND (?2 IS NULL OR team = ?2) LIMIT ?3)";

fn read_stop(row: &Row<'_>) -> rusqlite::Result<Stop> {
    let json = row.get_ref(0)?.as_str()?;
    serde_json::from_str(json)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error)))
}

/// All stops.
pub(crate) fn load(conn: &Connection) -> Result<Stops> {
    let mut statement = conn.prepare_cached(ALL).map_err(store_error)?;
    let rows = statement.query_map([], read_stop);
    rows.and_then(Iterator::collect).map(Stops).map_err(store_error)
}

/// The stops of a team, or those that belong to no team.
pub(crate) fn by_team(conn: &Connection, team: Option<i64>) -> Result<Vec<Stop>> {
    let mut statement = conn.prepare_cached(BY_TEAM).map_err(store_error)?;
    let rows = statement.query_map([team], read_stop);
    rows.and_then(Iterator::collect).map_err(store_error)
}

/// How many stops are in force, by kind.
pub(crate) fn counts(conn: &Connection) -> Result<BTreeMap<StopKind, u64>> {
    let mut counts = BTreeMap::new();
    for stop in load(conn)?.0.iter().filter(|stop| stop.is_in_force()) {
        *counts.entry(stop.scope.kind()).or_default() += 1;
    }
    Ok(counts)
}

/// How many handoffs of a team, or of all teams, wait for each stop, up to `max`.
pub(crate) fn waiting_counts(
    conn: &Connection,
    stops: &[Stop],
    team: Option<i64>,
    max: usize,
    now: Time,
) -> Result<Vec<u64>> {
    let mut parked = conn.prepare_cached(COUNT_PARKED).map_err(store_error)?;
    let mut due = conn.prepare_cached(COUNT_DUE).map_err(store_error)?;
    let mut count = |stop: &Stop| {
        let mut found: i64 = parked.query_row(params![stop.id.0.as_bytes(), team, max as i64], |row| row.get(0))?;
        if stop.closes_queues() {
            let transport = stop.scope.transport();
            found += due.query_row(params![transport, team, max as i64, now.0], |row| row.get::<_, i64>(0))?;
        }
        Ok(found.unsigned_abs().min(max as u64))
    };
    stops.iter().map(&mut count).collect::<rusqlite::Result<_>>().map_err(store_error)
}

fn save(ledger: &WriteSession<'_>, team: Option<i64>, stop: &Stop) -> Result<()> {
    let json = serde_json::to_string(stop).unwrap_or_default();
    ledger.execute(SAVE, params![stop.id.0.as_bytes(), team, stop.name(), json]).map(drop)
}

/// Creates a stop, unless its scope is stopped already.
pub(crate) fn create(
    ledger: &mut WriteSession<'_>,
    new: Stop,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<CreateStopResult>> {
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let number = new.scope.team().and_then(|team| ledger.team_number(team));
    let existing = by_team(ledger.conn, number)?;
    let result = CreateStopResult::decide(new, &existing);
    let saved = match &result {
        CreateStopResult::Created(stop) => {
            save(ledger, number, stop)?;
            emit(ledger, stop, EventKind::StopCreated, now);
            audit::record_act(ledger, Some(Act::of_stop("created", stop, None)), now)?;
            true
        }
        CreateStopResult::AlreadyStopped(_) => true,
        CreateStopResult::TooMany => false,
    };
    if let Some(operation) = operation.filter(|_| saved) {
        key_bindings::bind_operation(ledger, operation)?;
    }
    Ok(IdempotentResult::Done(result))
}

fn emit(ledger: &mut WriteSession<'_>, stop: &Stop, kind: EventKind, now: Time) {
    let event = PackedEvent::pack(&stop.event(kind, now));
    let teams = stop.scope.team().map_or_else(|| ledger.team_ids(), |team| vec![team]);
    for team in teams {
        if let Some(number) = ledger.team_number(team) {
            ledger.emit_packed(number, &event);
        }
    }
}

/// Ends a stop.
pub(crate) fn end(
    ledger: &mut WriteSession<'_>,
    team: Option<TeamId>,
    id: StopId,
    rate_per_s: Option<u32>,
    now: Time,
) -> Result<Option<Stop>> {
    let number = team.and_then(|team| ledger.team_number(team));
    let Some(mut stop) = by_team(ledger.conn, number)?.into_iter().find(|stop| stop.id == id) else { return Ok(None) };
    let now = ledger.time.commit_time(now);
    let change = stop.end(rate_per_s, now);
    if change == StopChange::Ended {
        emit(ledger, &stop, EventKind::StopEnded, now);
    }
    audit::record_act(ledger, change.audit_verb().map(|verb| Act::of_stop(verb, &stop, rate_per_s)), now)?;
    save(ledger, number, &stop)?;
    Ok(Some(stop))
}

/// Returns parked handoffs of ended stops to the queue, in order, and removes ended stops that have none left.
pub(crate) fn release(ledger: &mut WriteSession<'_>, max: usize, now: Time) -> Result<usize> {
    let mut released = 0;
    for mut stop in load(ledger.conn)?.0 {
        let Some(mut release) = stop.release else { continue };
        let before = released;
        let room = release.allowance(now).min(max - released);
        // One more than there is room for, so that an empty result means that nothing is parked.
        let parked = parked_by(ledger.conn, stop.id, room + 1)?;
        let is_empty = parked.is_empty();
        for (team, bits, number) in parked.into_iter().take(room) {
            let id = ledger.team_id(team)?;
            let Some(mut email) = rows::email_by_bits(ledger.conn, id, team, bits)? else { continue };
            if email.release_parked(number, stop.id, &release, now) {
                let handoff = &email.handoffs[usize::from(number)];
                save_handoff(ledger, team, ordered_bits(email.id.0), handoff)?;
                ledger.queue_changed_email(email);
                released += 1;
            }
        }
        release.use_rate(released - before, now);
        if is_empty && release.is_over(now) {
            ledger.execute(REMOVE, params![stop.id.0.as_bytes()])?;
        } else if stop.release != Some(release) {
            let number = stop.scope.team().and_then(|team| ledger.team_number(team));
            stop.release = Some(release);
            save(ledger, number, &stop)?;
        }
    }
    Ok(released)
}

fn parked_by(conn: &Connection, stop: StopId, max: usize) -> Result<Vec<HandoffRef>> {
    let mut statement = conn.prepare_cached(PARKED).map_err(store_error)?;
    let rows =
        statement.query_map(params![stop.0.as_bytes(), max as i64], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.and_then(Iterator::collect).map_err(store_error)
}
