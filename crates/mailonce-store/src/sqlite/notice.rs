//! Notices: their rows, and what becomes of them.

use mailonce_core::{
    endpoint::EndpointState,
    event::Kind,
    id::{EndpointId, NodeId, NoticeId, TeamId, ordered_bits},
    limits,
    notice::{Notice, NoticeQuery, NoticeSettle, NoticeState, Recovering, Recovery, line_up},
    port::store::{Once, Operation, Result},
    time::Time,
};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::{
    accept, endpoint,
    ledger::Ledger,
    rows::{maybe_id, maybe_json, maybe_time, split_id, to_json, whole_id, word},
    schema::told,
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

const ONE: &str = notices!("n.team = ?1 AND n.id = ?2 AND e.removed IS NULL");
const AT: &str = notices!("n.endpoint = ?1 AND n.seq = ?2");
const LIST: &str =
    notices!("n.team = ?1 AND n.endpoint = ?2 AND n.seq < ?3 AND e.removed IS NULL ORDER BY n.seq DESC LIMIT ?4");
const DUE: &str = notices!("n.endpoint = ?1 AND n.next_at <= ?2 ORDER BY n.next_at, n.seq LIMIT ?3");
const HELD: &str = notices!("n.holder IS NOT NULL ORDER BY n.endpoint, n.seq");
/// The first about a subject, and those that have a time although they are not.
const IN_LINE: &str = notices!(
    "n.endpoint = ?1 AND n.seq IN (SELECT seq FROM notices WHERE endpoint = ?1 AND about = ?2 AND next_at IS NOT NULL \
     UNION SELECT MIN(seq) FROM notices WHERE endpoint = ?1 AND about = ?2 AND state = 'pending') ORDER BY n.seq"
);
const IS_OPEN: &str = "SELECT 1 FROM notices WHERE endpoint = ?1 AND about = ?2 AND state = 'pending' LIMIT 1";
const FAILED: &str = "SELECT seq FROM notices WHERE endpoint = ?1 AND seq > ?2 AND state = 'dead' UNION ALL \
     SELECT seq FROM notices WHERE endpoint = ?1 AND seq > ?2 AND next_at > ?3 AND failures > 0 AND holder IS NULL \
     ORDER BY 1 LIMIT ?4";
const SAVE: &str = "INSERT INTO notices (endpoint, seq, team, id, kind, about, rev, state, attempts, failures, \
     waited_ms, next_at, holder, owed_at, settled_at, sweep_at, log) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17) \
     ON CONFLICT (endpoint, seq) DO UPDATE SET rev = ?7, state = ?8, attempts = ?9, failures = ?10, waited_ms = ?11, \
     next_at = ?12, holder = ?13, settled_at = ?15, sweep_at = ?16, log = ?17";
const OLD: &str = "DELETE FROM notices WHERE (endpoint, seq) IN \
     (SELECT endpoint, seq FROM notices WHERE sweep_at <= ?1 ORDER BY sweep_at, endpoint, seq LIMIT ?2)";
const LEFT: &str = "SELECT endpoint FROM endpoints WHERE removed = 1 ORDER BY endpoint";
const HOMELESS: &str = "DELETE FROM notices WHERE endpoint = ?1 AND seq IN \
     (SELECT seq FROM notices WHERE endpoint = ?1 ORDER BY seq LIMIT ?2)";
const FORGET: &str = "DELETE FROM endpoints WHERE removed = 1 AND endpoint = ?1 \
     AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.endpoint = ?1)";

fn notice_row(row: &Row<'_>) -> Result<Notice> {
    Ok(Notice {
        endpoint: EndpointId(split_id(row, 0)?),
        team: TeamId(whole_id(row, 2)?),
        seq: row.get::<_, i64>(3).map_err(told)? as u64,
        id: NoticeId(whole_id(row, 4)?),
        kind: word(row, 5, Kind::parse)?,
        about: whole_id(row, 6)?,
        rev: row.get(7).map_err(told)?,
        state: word(row, 8, NoticeState::parse)?,
        attempts: row.get(9).map_err(told)?,
        failures: row.get(10).map_err(told)?,
        waited_ms: row.get(11).map_err(told)?,
        next_at: maybe_time(row, 12)?,
        holder: maybe_id(row, 13)?.map(NodeId),
        owed_at: Time(row.get(14).map_err(told)?),
        settled_at: maybe_time(row, 15)?,
        log: maybe_json(row, 16)?.unwrap_or_default(),
    })
}

fn read(
    conn: &Connection,
    sql: &str,
    asked: impl rusqlite::Params,
    mut wanted: impl FnMut(&Notice) -> bool,
    limit: usize,
) -> Result<Vec<Notice>> {
    let mut statement = conn.prepare_cached(sql).map_err(told)?;
    let mut rows = statement.query(asked).map_err(told)?;
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(row) = rows.next().map_err(told)?
    {
        found.extend(Some(notice_row(row)?).filter(&mut wanted));
    }
    Ok(found)
}

/// One notice of a team.
pub(super) fn one(conn: &Connection, team: i64, id: NoticeId) -> Result<Option<Notice>> {
    Ok(read(conn, ONE, params![team, id.0.as_bytes()], |_| true, 1)?.pop())
}

/// The notice of an event to an endpoint.
pub(super) fn at(conn: &Connection, endpoint: EndpointId, seq: u64) -> Result<Option<Notice>> {
    Ok(read(conn, AT, params![ordered_bits(endpoint.0), seq as i64], |_| true, 1)?.pop())
}

/// Whether something about a subject is owed to an endpoint.
pub(super) fn is_open(ledger: &Ledger<'_>, endpoint: EndpointId, about: Uuid) -> Result<bool> {
    let mut statement = ledger.conn.prepare_cached(IS_OPEN).map_err(told)?;
    statement.exists(params![ordered_bits(endpoint.0), about.as_bytes()]).map_err(told)
}

/// Notices of an endpoint, those of the latest events first.
pub(super) fn list(conn: &Connection, team: i64, endpoint: EndpointId, query: &NoticeQuery) -> Result<Vec<Notice>> {
    let before = query.before.map_or(i64::MAX, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
    let asked = params![team, ordered_bits(endpoint.0), before, limits::SCAN_ROWS as i64];
    read(conn, LIST, asked, |notice| notice.endpoint == endpoint && query.matches(notice), query.limit)
}

/// Writes a notice as it is now.
pub(super) fn save(ledger: &Ledger<'_>, team: i64, notice: &Notice) -> Result<()> {
    let log = (!notice.log.is_empty()).then(|| to_json(&notice.log)).transpose()?;
    let row = params![
        ordered_bits(notice.endpoint.0),
        notice.seq as i64,
        team,
        notice.id.0.as_bytes(),
        notice.kind.word(),
        notice.about.as_bytes(),
        notice.rev,
        notice.state.word(),
        notice.attempts,
        notice.failures,
        notice.waited_ms,
        notice.next_at.map(|at| at.0),
        notice.holder.map(|node| *node.0.as_bytes()),
        notice.owed_at.0,
        notice.settled_at.map(|at| at.0),
        notice.sweep_at().map(|at| at.0),
        log
    ];
    ledger.execute(SAVE, row).map(drop)
}

/// Writes what became of a notice, and who is next in line. What it is then.
pub(super) fn change(ledger: &Ledger<'_>, team: i64, mut notice: Notice, now: Time) -> Result<Notice> {
    save(ledger, team, &notice)?;
    let asked = params![ordered_bits(notice.endpoint.0), notice.about.as_bytes()];
    let mut open = read(ledger.conn, IN_LINE, asked, |_| true, usize::MAX)?;
    for place in line_up(&mut open, now) {
        let Some(moved) = open.get(place) else { continue };
        save(ledger, team, moved)?;
        if moved.seq == notice.seq {
            notice.clone_from(moved);
        }
    }
    Ok(notice)
}

/// Gives due notices of an enabled endpoint to a process.
pub(super) fn lease(
    ledger: &Ledger<'_>,
    (team, id): (TeamId, EndpointId),
    node: NodeId,
    max: usize,
    now: Time,
) -> Result<Vec<Notice>> {
    let Some(number) = ledger.team_number(team) else { return Ok(Vec::new()) };
    let found = endpoint::one(ledger.conn, number, id)?;
    if found.is_none_or(|endpoint| endpoint.state != EndpointState::Enabled) {
        return Ok(Vec::new());
    }
    let mut due = read(ledger.conn, DUE, params![ordered_bits(id.0), now.0, max as i64], |_| true, max)?;
    for notice in &mut due {
        notice.lease(node, now);
        save(ledger, number, notice)?;
    }
    Ok(due)
}

/// Writes down how an attempt ended.
pub(super) fn settle(ledger: &mut Ledger<'_>, settle: NoticeSettle, now: Time) -> Result<Option<Notice>> {
    let NoticeSettle { team, id, attempt, answer, chance } = settle;
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(mut notice) = one(ledger.conn, number, id)? else { return Ok(None) };
    if !notice.settle(attempt, answer, chance, now) {
        return Ok(Some(notice));
    }
    let notice = change(ledger, number, notice, now)?;
    if let Some(mut endpoint) = endpoint::one(ledger.conn, number, notice.endpoint)? {
        let before = endpoint.clone();
        let event = endpoint.heard(answer, now);
        if endpoint != before {
            endpoint::save(ledger, &endpoint, event.as_ref())?;
        }
    }
    Ok(Some(notice))
}

/// Owes a notice anew and at once.
pub(super) fn replay(
    ledger: &Ledger<'_>,
    (team, id): (TeamId, NoticeId),
    operation: Option<&Operation>,
    now: Time,
) -> Result<Once<Option<Notice>>> {
    let Some(number) = ledger.team_number(team) else { return Ok(Once::Done(None)) };
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(mut notice) = one(ledger.conn, number, id)? else { return Ok(Once::Done(None)) };
    if notice.replay(now) {
        notice = change(ledger, number, notice, now)?;
    }
    if let Some(operation) = operation {
        accept::bind_operation(ledger, operation)?;
    }
    Ok(Once::Done(Some(notice)))
}

/// Tells an endpoint again, from the events after a number.
pub(super) fn recover(
    ledger: &mut Ledger<'_>,
    (team, id): (TeamId, EndpointId),
    (recovery, after): (Recovery, u64),
    operation: Option<&Operation>,
    now: Time,
) -> Result<Once<Option<Recovering>>> {
    let Some(number) = ledger.team_number(team) else { return Ok(Once::Done(None)) };
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(mut endpoint) = endpoint::one(ledger.conn, number, id)? else { return Ok(Once::Done(None)) };
    let mut due = 0;
    if recovery.everything {
        endpoint.look_again(after);
        endpoint::save(ledger, &endpoint, None)?;
    } else {
        due = replay_failed(ledger, number, id, after, now)?;
    }
    if let Some(operation) = operation {
        accept::bind_operation(ledger, operation)?;
    }
    Ok(Once::Done(Some(Recovering { after, due })))
}

fn replay_failed(ledger: &Ledger<'_>, team: i64, id: EndpointId, after: u64, now: Time) -> Result<usize> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let asked = params![ordered_bits(id.0), after, now.0, limits::NOTICES_RECOVERED as i64];
    let mut statement = ledger.conn.prepare_cached(FAILED).map_err(told)?;
    let failed =
        statement.query_map(asked, |row| row.get::<_, i64>(0)).and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>);
    let failed = failed.map_err(told)?;
    for seq in &failed {
        let Some(mut notice) = at(ledger.conn, id, *seq as u64)? else { continue };
        notice.replay(now);
        change(ledger, team, notice, now)?;
    }
    Ok(failed.len())
}

/// Makes notices due that a process which ended was telling. How many.
pub(super) fn give_back(ledger: &Ledger<'_>, alive: impl Fn(NodeId) -> bool, max: usize, now: Time) -> Result<usize> {
    let ended = |notice: &Notice| notice.holder.is_some_and(|holder| !alive(holder));
    let left = read(ledger.conn, HELD, [], ended, max)?;
    let count = left.len();
    for mut notice in left {
        let Some(team) = ledger.team_number(notice.team) else { continue };
        notice.give_back(now);
        change(ledger, team, notice, now)?;
    }
    Ok(count)
}

/// Removes settled notices that are old, and what removed endpoints left. How many.
pub(super) fn sweep(ledger: &Ledger<'_>, max: usize, now: Time) -> Result<usize> {
    let mut gone = ledger.execute(OLD, params![now.0, max as i64])?;
    let mut statement = ledger.conn.prepare_cached(LEFT).map_err(told)?;
    let left =
        statement.query_map([], |row| row.get::<_, i64>(0)).and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>);
    for endpoint in left.map_err(told)? {
        if gone < max {
            gone += ledger.execute(HOMELESS, params![endpoint, (max - gone) as i64])?;
        }
        ledger.execute(FORGET, [endpoint])?;
    }
    Ok(gone)
}
