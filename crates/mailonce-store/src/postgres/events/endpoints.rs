//! Webhook endpoints: creating, changing and removing them, and their backlog.

use deadpool_postgres::Transaction;
use mailonce_core::{
    control::audit::act::Act,
    events::{
        endpoint::{
            Endpoint, EndpointChangeResult, EndpointEdit, EndpointGauge, EndpointReason, EndpointStart, EndpointState,
        },
        event::NewEvent,
    },
    id::{EndpointId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::row::{endpoint_columns, read_all, read_endpoint};
use crate::postgres::{
    SharedState,
    control::audit_chain,
    error::{TxError, TxResult},
    events::pending_events::write_events,
    operation_keys::bind_or_replay,
    row::write_json,
    statements::{execute, query_rows},
};

macro_rules! endpoints {
    ($rest:literal) => {
        concat!("SELECT ", endpoint_columns!(), " FROM endpoints e WHERE NOT e.removed AND ", $rest)
    };
}

const BY_ID: &str = endpoints!("e.team = $1 AND e.id = $2");
const BY_ID_LOCKED: &str = endpoints!("e.team = $1 AND e.id = $2 FOR UPDATE");
const LIST: &str = endpoints!("e.team = $1 AND e.id < $2 ORDER BY e.id DESC LIMIT $3");
const DUE: &str = concat!(
    "SELECT ",
    endpoint_columns!(),
    " FROM endpoints e CROSS JOIN LATERAL (SELECT min(n.next_at) AS at FROM notices n
       WHERE n.endpoint = e.id AND n.next_at IS NOT NULL) due
      WHERE NOT e.removed AND e.state = 'enabled' AND due.at <= $1 ORDER BY due.at, e.id LIMIT $2"
);
const NEXT_DUE: &str = "
    SELECT min(due.at) FROM endpoints e CROSS JOIN LATERAL (SELECT min(n.next_at) AS at FROM notices n
      WHERE n.endpoint = e.id AND n.next_at IS NOT NULL) due
     WHERE NOT e.removed AND e.state = 'enabled'";
const GAUGES: &str = "
    SELECT e.team, e.id, e.state, coalesce(c.seq, 0) - e.cursor,
           (SELECT count(*) FROM notices n WHERE n.endpoint = e.id AND n.state = 'pending'),
           (SELECT count(*) FROM notices n WHERE n.endpoint = e.id AND n.state = 'dead')
      FROM endpoints e LEFT JOIN event_counters c ON c.team = e.team WHERE NOT e.removed ORDER BY e.id";
const LAST_EVENT_SEQ: &str = "SELECT seq FROM event_counters WHERE team = $1";
const INSERT: &str = "
    INSERT INTO endpoints (team, id, rev, created_at, since, cursor, redo_until, failing_since, state, reason, about)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING";
const UPDATE: &str = "
    UPDATE endpoints SET rev = $3, since = $4, cursor = $5, redo_until = $6, failing_since = $7, state = $8, reason = $9,
           about = $10
     WHERE team = $1 AND id = $2";
const REMOVE: &str = concat!(
    "UPDATE endpoints e SET removed = true WHERE e.team = $1 AND e.id = $2 AND NOT e.removed RETURNING ",
    endpoint_columns!()
);

/// Locks and reads one endpoint.
pub(crate) async fn lock_endpoint(tx: &Transaction<'_>, team: TeamId, id: EndpointId) -> TxResult<Option<Endpoint>> {
    Ok(read_all(&query_rows(tx, BY_ID_LOCKED, &[&team.0, &id.0]).await?, read_endpoint)?.pop())
}

/// The sequence number of a team's newest event.
pub(crate) async fn last_event_seq(tx: &Transaction<'_>, team: TeamId) -> TxResult<u64> {
    let rows = query_rows(tx, LAST_EVENT_SEQ, &[&team.0]).await?;
    Ok(rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))? as u64)
}

/// Saves an endpoint, with its event if there is one.
pub(crate) async fn save_endpoint(tx: &Transaction<'_>, endpoint: &Endpoint, event: Option<NewEvent>) -> TxResult<()> {
    let (rev, reason) = (endpoint.rev as i32, endpoint.reason.map(EndpointReason::as_str));
    let (cursor, redo_until) = (endpoint.cursor as i64, endpoint.resend_until_seq as i64);
    let (failing_since, about) = (endpoint.failing_since.map(|at| at.0), write_json(&endpoint.config)?);
    let params: [&(dyn ToSql + Sync); 10] = [
        &endpoint.team.0,
        &endpoint.id.0,
        &rev,
        &endpoint.state_since.0,
        &cursor,
        &redo_until,
        &failing_since,
        &endpoint.state.as_str(),
        &reason,
        &about,
    ];
    execute(tx, UPDATE, &params).await?;
    let events: Vec<(TeamId, NewEvent)> = event.map(|event| (endpoint.team, event)).into_iter().collect();
    write_events(tx, &events).await
}

/// Creates an endpoint, unless it exists already.
pub(crate) async fn create_endpoint(
    shared: &SharedState,
    endpoint: &Endpoint,
    start: EndpointStart,
    operation: Option<&KeyedOperation>,
) -> TxResult<IdempotentResult<Endpoint>> {
    // Events that were committed before this call must be numbered before the cursor is set.
    shared.wait_until_numbered(Some(endpoint.team)).await?;
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, endpoint.created_at).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let newest = last_event_seq(&tx, endpoint.team).await?;
    let mut made = endpoint.clone();
    made.cursor = match start {
        EndpointStart::NextEvent => newest,
        EndpointStart::After(seq) => seq.min(newest),
    };
    let (rev, reason) = (made.rev as i32, made.reason.map(EndpointReason::as_str));
    let (cursor, redo_until) = (made.cursor as i64, made.resend_until_seq as i64);
    let (failing_since, about) = (made.failing_since.map(|at| at.0), write_json(&made.config)?);
    let params: [&(dyn ToSql + Sync); 11] = [
        &made.team.0,
        &made.id.0,
        &rev,
        &made.created_at.0,
        &made.state_since.0,
        &cursor,
        &redo_until,
        &failing_since,
        &made.state.as_str(),
        &reason,
        &about,
    ];
    if execute(&tx, INSERT, &params).await? == 0 {
        let before = read_all(&query_rows(&tx, BY_ID, &[&made.team.0, &made.id.0]).await?, read_endpoint)?.pop();
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(before.ok_or_else(|| TxError::corrupt("an endpoint that was removed"))?));
    }
    audit_chain::record_act(&tx, Act::of_endpoint(None, Some(&made)).as_ref(), made.created_at).await?;
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(made))
}

/// One endpoint.
pub(crate) async fn endpoint(shared: &SharedState, team: TeamId, id: EndpointId) -> TxResult<Option<Endpoint>> {
    Ok(read_all(&query_rows(&shared.connections.client().await?, BY_ID, &[&team.0, &id.0]).await?, read_endpoint)?
        .pop())
}

/// Endpoints older than `before`, newest first.
pub(crate) async fn endpoints(
    shared: &SharedState,
    team: TeamId,
    before: Option<EndpointId>,
    limit: usize,
) -> TxResult<Vec<Endpoint>> {
    let before = before.map_or(Uuid::max(), |id| id.0);
    let rows = query_rows(&shared.connections.client().await?, LIST, &[&team.0, &before, &(limit as i64)]).await?;
    read_all(&rows, read_endpoint)
}

/// Changes an endpoint, if its revision is still the expected one.
pub(crate) async fn change_endpoint(
    shared: &SharedState,
    edit: &EndpointEdit,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<EndpointChangeResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let mut endpoint = match lock_endpoint(&tx, edit.team, edit.id).await? {
        Some(endpoint) if endpoint.rev == edit.rev => endpoint,
        other => {
            tx.rollback().await?;
            return Ok(IdempotentResult::Done(
                other.map_or(EndpointChangeResult::Missing, EndpointChangeResult::Stale),
            ));
        }
    };
    let before = endpoint.clone();
    let event = endpoint.edit(edit.config.clone(), edit.state, now);
    save_endpoint(&tx, &endpoint, event).await?;
    audit_chain::record_act(&tx, Act::of_endpoint(Some(&before), Some(&endpoint)).as_ref(), now).await?;
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(EndpointChangeResult::Changed(endpoint)))
}

/// Removes an endpoint. Its rows are swept later.
pub(crate) async fn remove_endpoint(shared: &SharedState, team: TeamId, id: EndpointId) -> TxResult<Option<Endpoint>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let removed = read_all(&query_rows(&tx, REMOVE, &[&team.0, &id.0]).await?, read_endpoint)?.pop();
    let now = shared.time.commit_time(Time(0));
    audit_chain::record_act(&tx, Act::of_endpoint(removed.as_ref(), None).as_ref(), now).await?;
    shared.commit(tx, 1).await?;
    Ok(removed)
}

/// Enabled endpoints with due notices, the longest waiting first.
pub(crate) async fn endpoints_with_due_notices(shared: &SharedState, max: usize, now: Time) -> TxResult<Vec<Endpoint>> {
    read_all(&query_rows(&shared.connections.client().await?, DUE, &[&now.0, &(max as i64)]).await?, read_endpoint)
}

/// When the next notice of an enabled endpoint is due.
pub(crate) async fn next_notice_due(shared: &SharedState) -> TxResult<Option<Time>> {
    let rows = query_rows(&shared.connections.client().await?, NEXT_DUE, &[]).await?;
    Ok(rows.first().map_or(Ok(None), |row| row.try_get::<_, Option<i64>>(0))?.map(Time))
}

/// The lag of each endpoint and its counts of notices.
pub(crate) async fn endpoint_gauges(shared: &SharedState) -> TxResult<Vec<EndpointGauge>> {
    shared.wait_until_numbered(None).await?;
    let gauge = |row: &Row| {
        let state = EndpointState::parse(row.try_get(2)?);
        Ok(EndpointGauge {
            team: TeamId(row.try_get(0)?),
            id: EndpointId(row.try_get(1)?),
            state: state.ok_or_else(|| TxError::corrupt("the state of an endpoint"))?,
            lag: row.try_get::<_, i64>(3)?.max(0) as u64,
            pending: row.try_get::<_, i64>(4)? as u64,
            dead: row.try_get::<_, i64>(5)? as u64,
        })
    };
    read_all(&query_rows(&shared.connections.client().await?, GAUGES, &[]).await?, gauge)
}
