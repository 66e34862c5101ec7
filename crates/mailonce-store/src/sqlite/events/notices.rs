//! Notices: their rows, leases, outcomes and replays.

use mailonce_core::{
    events::{
        endpoint::EndpointState,
        event::EventKind,
        notice::{
            Notice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult, NoticeState, schedule_in_order,
        },
    },
    id::{EndpointId, NodeId, NoticeId, TeamId, ordered_bits},
    limits,
    operation::{IdempotentResult, KeyedOperation},
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use crate::sqlite::{
    events::endpoints,
    outbound::key_bindings,
    rows::{id_column, optional_id, optional_json, optional_time, parse_column, split_id, to_json},
    schema::store_error,
    write_session::WriteSession,
};

macro_rules! notices {
    ($rest:literal) => {
        concat!(
            "SELECT e.endpoint, e.tail, t.id, n.seq, n.id, n.kind, n.about, n.rev, n.state, n.attempts, n.failures, \
             n.waited_ms, n.next_at, n.holder, n.owed_at, n.settled_at, n.log FROM notices n \
             JOIN endpoints e ON e.endpoint = n.endpoint JOIN teams t ON t.number = n.team WHERE ",
            $rest
        )
    };
}

const BY_ID: &str = notices!("n.team = ?1 AND n.id = ?2 AND e.removed IS NULL");
const BY_SEQ: &str = notices!("n.endpoint = ?1 AND n.seq = ?2");
const LIST: &str =
    notices!("n.team = ?1 AND n.endpoint = ?2 AND n.seq < ?3 AND e.removed IS NULL ORDER BY n.seq DESC LIMIT ?4");
const DUE: &str = notices!("n.endpoint = ?1 AND n.next_at <= ?2 ORDER BY n.next_at, n.seq LIMIT ?3");
const LEASED: &str = notices!("n.holder IS NOT NULL ORDER BY n.endpoint, n.seq");
/// The first pending notice about a subject, and all notices about it that have a due time.
const SUBJECT_QUEUE_HEAD: &str = notices!(
    "n.endpoint = ?1 AND n.seq IN (SELECT seq FROM notices WHERE endpoint = ?1 AND about = ?2 AND next_at IS NOT NULL \
     UNION SELECT MIN(seq) FROM notices WHERE endpoint = ?1 AND about = ?2 AND state = 'pending') ORDER BY n.seq"
);
const HAS_PENDING: &str = "SELECT 1 FROM notices WHERE endpoint = ?1 AND about = ?2 AND state = 'pending' LIMIT 1";
const FAILED: &str = "SELECT seq FROM notices WHERE endpoint = ?1 AND seq > ?2 AND state = 'dead' UNION ALL \
     SELECT seq FROM notices WHERE endpoint = ?1 AND seq > ?2 AND next_at > ?3 AND failures > 0 AND holder IS NULL \
     ORDER BY 1 LIMIT ?4";
const UPSERT: &str = "INSERT INTO notices (endpoint, seq, team, id, kind, about, rev, state, attempts, failures, \
     waited_ms, next_at, holder, owed_at, settled_at, sweep_at, log) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17) \
     ON CONFLICT (endpoint, seq) DO UPDATE SET rev = ?7, state = ?8, attempts = ?9, failures = ?10, waited_ms = ?11, \
     next_at = ?12, holder = ?13, settled_at = ?15, sweep_at = ?16, log = ?17";
const DELETE_OLD: &str = "DELETE FROM notices WHERE (endpoint, seq) IN \
     (SELECT endpoint, seq FROM notices WHERE sweep_at <= ?1 ORDER BY sweep_at, endpoint, seq LIMIT ?2)";
const REMOVED_ENDPOINTS: &str = "SELECT endpoint FROM endpoints WHERE removed = 1 ORDER BY endpoint";
const DELETE_OF_ENDPOINT: &str = "DELETE FROM notices WHERE endpoint = ?1 AND seq IN \
     (SELECT seq FROM notices WHERE endpoint = ?1 ORDER BY seq LIMIT ?2)";
const DELETE_ENDPOINT: &str = "DELETE FROM endpoints WHERE removed = 1 AND endpoint = ?1 \
     AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.endpoint = ?1)";

fn notice_row(row: &Row<'_>) -> Result<Notice> {
    Ok(Notice {
        endpoint: EndpointId(split_id(row, 0)?),
        team: TeamId(id_column(row, 2)?),
        seq: row.get::<_, i64>(3).map_err(store_error)? as u64,
        id: NoticeId(id_column(row, 4)?),
        kind: parse_column(row, 5, EventKind::parse)?,
        subject_id: id_column(row, 6)?,
        rev: row.get(7).map_err(store_error)?,
        state: parse_column(row, 8, NoticeState::parse)?,
        attempts: row.get(9).map_err(store_error)?,
        failures: row.get(10).map_err(store_error)?,
        total_pause_ms: row.get(11).map_err(store_error)?,
        due_at: optional_time(row, 12)?,
        holder: optional_id(row, 13)?.map(NodeId),
        created_at: Time(row.get(14).map_err(store_error)?),
        settled_at: optional_time(row, 15)?,
        attempt_log: optional_json(row, 16)?.unwrap_or_default(),
    })
}

fn query_notices(
    conn: &Connection,
    sql: &str,
    asked: impl rusqlite::Params,
    mut wanted: impl FnMut(&Notice) -> bool,
    limit: usize,
) -> Result<Vec<Notice>> {
    let mut statement = conn.prepare_cached(sql).map_err(store_error)?;
    let mut rows = statement.query(asked).map_err(store_error)?;
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(row) = rows.next().map_err(store_error)?
    {
        found.extend(Some(notice_row(row)?).filter(&mut wanted));
    }
    Ok(found)
}

/// One notice of a team.
pub(crate) fn by_id(conn: &Connection, team: i64, id: NoticeId) -> Result<Option<Notice>> {
    Ok(query_notices(conn, BY_ID, params![team, id.0.as_bytes()], |_| true, 1)?.pop())
}

/// The notice of an event for an endpoint.
pub(crate) fn by_seq(conn: &Connection, endpoint: EndpointId, seq: u64) -> Result<Option<Notice>> {
    Ok(query_notices(conn, BY_SEQ, params![ordered_bits(endpoint.0), seq as i64], |_| true, 1)?.pop())
}

/// Whether an endpoint has a pending notice about a subject.
pub(crate) fn has_pending(ledger: &WriteSession<'_>, endpoint: EndpointId, about: Uuid) -> Result<bool> {
    let mut statement = ledger.conn.prepare_cached(HAS_PENDING).map_err(store_error)?;
    statement.exists(params![ordered_bits(endpoint.0), about.as_bytes()]).map_err(store_error)
}

/// Notices of an endpoint, latest events first.
pub(crate) fn list(conn: &Connection, team: i64, endpoint: EndpointId, query: &NoticeQuery) -> Result<Vec<Notice>> {
    let before = query.before.map_or(i64::MAX, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
    let asked = params![team, ordered_bits(endpoint.0), before, limits::SCAN_ROWS as i64];
    query_notices(conn, LIST, asked, |notice| notice.endpoint == endpoint && query.matches(notice), query.limit)
}

/// Inserts or updates a notice.
pub(crate) fn save(ledger: &WriteSession<'_>, team: i64, notice: &Notice) -> Result<()> {
    let log = (!notice.attempt_log.is_empty()).then(|| to_json(&notice.attempt_log)).transpose()?;
    let row = params![
        ordered_bits(notice.endpoint.0),
        notice.seq as i64,
        team,
        notice.id.0.as_bytes(),
        notice.kind.as_str(),
        notice.subject_id.as_bytes(),
        notice.rev,
        notice.state.as_str(),
        notice.attempts,
        notice.failures,
        notice.total_pause_ms,
        notice.due_at.map(|at| at.0),
        notice.holder.map(|node| *node.0.as_bytes()),
        notice.created_at.0,
        notice.settled_at.map(|at| at.0),
        notice.sweep_at().map(|at| at.0),
        log
    ];
    ledger.execute(UPSERT, row).map(drop)
}

/// Saves a changed notice, and makes the next notice about the same subject due if it is first now. Returns the notice
/// as it was saved.
pub(crate) fn save_and_reschedule(
    ledger: &WriteSession<'_>,
    team: i64,
    mut notice: Notice,
    now: Time,
) -> Result<Notice> {
    save(ledger, team, &notice)?;
    let asked = params![ordered_bits(notice.endpoint.0), notice.subject_id.as_bytes()];
    let mut open = query_notices(ledger.conn, SUBJECT_QUEUE_HEAD, asked, |_| true, usize::MAX)?;
    for place in schedule_in_order(&mut open, now) {
        let Some(moved) = open.get(place) else { continue };
        save(ledger, team, moved)?;
        if moved.seq == notice.seq {
            notice.clone_from(moved);
        }
    }
    Ok(notice)
}

/// Leases due notices of an enabled endpoint to a node.
pub(crate) fn lease(
    ledger: &WriteSession<'_>,
    (team, id): (TeamId, EndpointId),
    node: NodeId,
    max: usize,
    now: Time,
) -> Result<Vec<Notice>> {
    let Some(number) = ledger.team_number(team) else { return Ok(Vec::new()) };
    let found = endpoints::by_id(ledger.conn, number, id)?;
    if found.is_none_or(|endpoint| endpoint.state != EndpointState::Enabled) {
        return Ok(Vec::new());
    }
    let mut due = query_notices(ledger.conn, DUE, params![ordered_bits(id.0), now.0, max as i64], |_| true, max)?;
    for notice in &mut due {
        notice.lease(node, now);
        save(ledger, number, notice)?;
    }
    Ok(due)
}

/// Records the outcome of an attempt, and updates the endpoint's state.
pub(crate) fn record_outcome(
    ledger: &mut WriteSession<'_>,
    settle: NoticeOutcome,
    now: Time,
) -> Result<Option<Notice>> {
    let NoticeOutcome { team, id, attempt, verdict: answer, jitter_seed: chance } = settle;
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(mut notice) = by_id(ledger.conn, number, id)? else { return Ok(None) };
    if !notice.record_outcome(attempt, answer, chance, now) {
        return Ok(Some(notice));
    }
    let notice = save_and_reschedule(ledger, number, notice, now)?;
    if let Some(mut endpoint) = endpoints::by_id(ledger.conn, number, notice.endpoint)? {
        let before = endpoint.clone();
        let event = endpoint.record_response(answer, now);
        if endpoint != before {
            endpoints::save(ledger, &endpoint, event.as_ref())?;
        }
    }
    Ok(Some(notice))
}

/// Replays a notice: makes it pending and due again.
pub(crate) fn replay(
    ledger: &WriteSession<'_>,
    (team, id): (TeamId, NoticeId),
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<Option<Notice>>> {
    let Some(number) = ledger.team_number(team) else { return Ok(IdempotentResult::Done(None)) };
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(mut notice) = by_id(ledger.conn, number, id)? else { return Ok(IdempotentResult::Done(None)) };
    if notice.replay(now) {
        notice = save_and_reschedule(ledger, number, notice, now)?;
    }
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    Ok(IdempotentResult::Done(Some(notice)))
}

/// Recovers the notices of an endpoint for the events after a sequence number: all of them, or only the failed ones.
pub(crate) fn recover(
    ledger: &mut WriteSession<'_>,
    (team, id): (TeamId, EndpointId),
    (recovery, after): (NoticeRecovery, u64),
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<Option<NoticeRecoveryResult>>> {
    let Some(number) = ledger.team_number(team) else { return Ok(IdempotentResult::Done(None)) };
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(mut endpoint) = endpoints::by_id(ledger.conn, number, id)? else {
        return Ok(IdempotentResult::Done(None));
    };
    let mut due = 0;
    if recovery.include_delivered {
        endpoint.rewind_to(after);
        endpoints::save(ledger, &endpoint, None)?;
    } else {
        due = replay_failed(ledger, number, id, after, now)?;
    }
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    Ok(IdempotentResult::Done(Some(NoticeRecoveryResult { after_seq: after, requeued: due })))
}

fn replay_failed(ledger: &WriteSession<'_>, team: i64, id: EndpointId, after: u64, now: Time) -> Result<usize> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let asked = params![ordered_bits(id.0), after, now.0, limits::NOTICES_RECOVERED as i64];
    let mut statement = ledger.conn.prepare_cached(FAILED).map_err(store_error)?;
    let failed =
        statement.query_map(asked, |row| row.get::<_, i64>(0)).and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>);
    let failed = failed.map_err(store_error)?;
    for seq in &failed {
        let Some(mut notice) = by_seq(ledger.conn, id, *seq as u64)? else { continue };
        notice.replay(now);
        save_and_reschedule(ledger, team, notice, now)?;
    }
    Ok(failed.len())
}

/// Makes notices due again whose lease holder is no longer alive. Returns how many.
pub(crate) fn reclaim(
    ledger: &WriteSession<'_>,
    alive: impl Fn(NodeId) -> bool,
    max: usize,
    now: Time,
) -> Result<usize> {
    let ended = |notice: &Notice| notice.holder.is_some_and(|holder| !alive(holder));
    let left = query_notices(ledger.conn, LEASED, [], ended, max)?;
    let count = left.len();
    for mut notice in left {
        let Some(team) = ledger.team_number(notice.team) else { continue };
        notice.reclaim_lease(now);
        save_and_reschedule(ledger, team, notice, now)?;
    }
    Ok(count)
}

/// Deletes old settled notices and the rows of removed endpoints. Returns how many notices were deleted.
pub(crate) fn sweep(ledger: &WriteSession<'_>, max: usize, now: Time) -> Result<usize> {
    let mut gone = ledger.execute(DELETE_OLD, params![now.0, max as i64])?;
    let mut statement = ledger.conn.prepare_cached(REMOVED_ENDPOINTS).map_err(store_error)?;
    let left =
        statement.query_map([], |row| row.get::<_, i64>(0)).and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>);
    for endpoint in left.map_err(store_error)? {
        if gone < max {
            gone += ledger.execute(DELETE_OF_ENDPOINT, params![endpoint, (max - gone) as i64])?;
        }
        ledger.execute(DELETE_ENDPOINT, [endpoint])?;
    }
    Ok(gone)
}
