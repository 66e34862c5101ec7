//! Rows: how endpoints and notices are stored in tables, read and written.

use deadpool_postgres::Transaction;
use mailonce_core::{
    events::{
        endpoint::{Endpoint, EndpointReason, EndpointState},
        event::EventKind,
        notice::{Notice, NoticeState},
    },
    id::{EndpointId, NodeId, NoticeId, TeamId},
    time::Time,
};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use crate::postgres::{
    error::{TxError, TxResult},
    row::{read_json, write_json},
    statements::execute,
};

/// The columns of an endpoint: its row `e`.
macro_rules! endpoint_columns {
    () => {
        "e.team, e.id, e.rev, e.created_at, e.since, e.cursor, e.redo_until, e.failing_since, e.state, e.reason, e.about"
    };
}
/// The columns of a notice: its row `n`.
macro_rules! notice_columns {
    () => {
        "n.team, n.endpoint, n.seq, n.id, n.about, n.rev, n.attempts, n.failures, n.waited_ms, n.next_at, n.holder,
         n.owed_at, n.settled_at, n.kind, n.state, n.log"
    };
}
pub(crate) use {endpoint_columns, notice_columns};

/// Inserts notices, or updates existing ones.
const UPSERT_NOTICES: &str = "
    INSERT INTO notices (team, endpoint, seq, id, about, rev, attempts, failures, waited_ms, next_at, holder, owed_at,
                         settled_at, sweep_at, kind, state, log)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::uuid[], $5::uuid[], $6::int[], $7::int[], $8::int[],
                         $9::bigint[], $10::bigint[], $11::uuid[], $12::bigint[], $13::bigint[], $14::bigint[],
                         $15::text[], $16::text[], $17::text[])
    ON CONFLICT (endpoint, seq) DO UPDATE
       SET rev = excluded.rev, attempts = excluded.attempts, failures = excluded.failures,
           waited_ms = excluded.waited_ms, next_at = excluded.next_at, holder = excluded.holder,
           settled_at = excluded.settled_at, sweep_at = excluded.sweep_at, state = excluded.state, log = excluded.log";

/// Parses a column that holds an enum value.
fn parse_column<T>(parse: impl Fn(&str) -> Option<T>, text: &str, what: &str) -> TxResult<T> {
    parse(text).ok_or_else(|| TxError::corrupt(what))
}

fn optional_time(row: &Row, at: usize) -> TxResult<Option<Time>> {
    Ok(row.try_get::<_, Option<i64>>(at)?.map(Time))
}

/// Reads an endpoint.
pub(crate) fn read_endpoint(row: &Row) -> TxResult<Endpoint> {
    let reason: Option<&str> = row.try_get(9)?;
    Ok(Endpoint {
        team: TeamId(row.try_get(0)?),
        id: EndpointId(row.try_get(1)?),
        rev: row.try_get::<_, i32>(2)? as u32,
        created_at: Time(row.try_get(3)?),
        state_since: Time(row.try_get(4)?),
        cursor: row.try_get::<_, i64>(5)? as u64,
        resend_until_seq: row.try_get::<_, i64>(6)? as u64,
        failing_since: optional_time(row, 7)?,
        state: parse_column(EndpointState::parse, row.try_get(8)?, "the state of an endpoint")?,
        reason: reason
            .map(|text| parse_column(EndpointReason::parse, text, "the reason of an endpoint"))
            .transpose()?,
        config: read_json(row.try_get(10)?, "an endpoint")?,
    })
}

/// Reads a notice.
pub(crate) fn read_notice(row: &Row) -> TxResult<Notice> {
    let log: Option<&str> = row.try_get(15)?;
    Ok(Notice {
        team: TeamId(row.try_get(0)?),
        endpoint: EndpointId(row.try_get(1)?),
        seq: row.try_get::<_, i64>(2)? as u64,
        id: NoticeId(row.try_get(3)?),
        subject_id: row.try_get(4)?,
        rev: row.try_get::<_, i32>(5)? as u32,
        attempts: row.try_get::<_, i32>(6)? as u32,
        failures: row.try_get::<_, i32>(7)? as u32,
        total_pause_ms: row.try_get(8)?,
        due_at: optional_time(row, 9)?,
        holder: row.try_get::<_, Option<Uuid>>(10)?.map(NodeId),
        created_at: Time(row.try_get(11)?),
        settled_at: optional_time(row, 12)?,
        kind: parse_column(EventKind::parse, row.try_get(13)?, "the kind of a notice")?,
        state: parse_column(NoticeState::parse, row.try_get(14)?, "the state of a notice")?,
        attempt_log: log.map_or(Ok(Vec::new()), |json| read_json(json, "the attempts of a notice"))?,
    })
}

/// Reads all rows.
pub(crate) fn read_all<T>(rows: &[Row], read: impl Fn(&Row) -> TxResult<T>) -> TxResult<Vec<T>> {
    rows.iter().map(read).collect()
}

/// Inserts notices, or updates existing ones.
pub(crate) async fn save_notices<'a>(
    tx: &Transaction<'_>,
    notices: impl IntoIterator<Item = &'a Notice>,
) -> TxResult<()> {
    let all: Vec<&Notice> = notices.into_iter().collect();
    if all.is_empty() {
        return Ok(());
    }
    let uuids = |get: fn(&Notice) -> Uuid| all.iter().map(|n| get(n)).collect::<Vec<Uuid>>();
    let counts = |get: fn(&Notice) -> u32| all.iter().map(|n| get(n) as i32).collect::<Vec<i32>>();
    let times = |get: fn(&Notice) -> Option<Time>| all.iter().map(|n| get(n).map(|at| at.0)).collect::<Vec<_>>();
    let words = |get: fn(&Notice) -> &'static str| all.iter().map(|n| get(n)).collect::<Vec<_>>();
    let (team, endpoint) = (uuids(|n| n.team.0), uuids(|n| n.endpoint.0));
    let (id, about) = (uuids(|n| n.id.0), uuids(|n| n.subject_id));
    let seq: Vec<i64> = all.iter().map(|n| n.seq as i64).collect();
    let (rev, attempts, failures) = (counts(|n| n.rev), counts(|n| n.attempts), counts(|n| n.failures));
    let waited_ms: Vec<i64> = all.iter().map(|n| n.total_pause_ms).collect();
    let holder: Vec<Option<Uuid>> = all.iter().map(|n| n.holder.map(|node| node.0)).collect();
    let (next_at, owed_at) = (times(|n| n.due_at), times(|n| Some(n.created_at)));
    let (settled_at, sweep_at) = (times(|n| n.settled_at), times(Notice::sweep_at));
    let (kind, state) = (words(|n| n.kind.as_str()), words(|n| n.state.as_str()));
    let write_log =
        |n: &&Notice| if n.attempt_log.is_empty() { Ok(None) } else { write_json(&n.attempt_log).map(Some) };
    let log = all.iter().map(write_log).collect::<TxResult<Vec<Option<String>>>>()?;
    let params: [&(dyn ToSql + Sync); 17] = [
        &team,
        &endpoint,
        &seq,
        &id,
        &about,
        &rev,
        &attempts,
        &failures,
        &waited_ms,
        &next_at,
        &holder,
        &owed_at,
        &settled_at,
        &sweep_at,
        &kind,
        &state,
        &log,
    ];
    execute(tx, UPSERT_NOTICES, &params).await.map(drop)
}
