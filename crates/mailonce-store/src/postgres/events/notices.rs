//! Notices: leasing, recording outcomes, replaying and sweeping.
//!
//! A transaction that changes a notice first locks it together with the scheduled notices of its subject, in the
//! order of their sequence numbers. Then it reads them again. If two transactions finish notices of one
//! subject, the second sees the changes of the first. So no notice stays queued behind a finished one.

use deadpool_postgres::Transaction;
use mailonce_core::{
    events::{
        endpoint::Endpoint,
        notice::{
            LeasedNotice, Notice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult, NoticeState,
            ReplayFrom, schedule_in_order,
        },
    },
    id::{EndpointId, NodeId, NoticeId, TeamId},
    limits,
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::row::{endpoint_columns, notice_columns, read_all, read_endpoint, read_notice, save_notices};
use crate::postgres::{
    SharedState,
    error::{TxError, TxResult},
    events::endpoints,
    operation_keys::bind_or_replay,
    peers::{SilentPeers, beat, holder_is_gone},
    statements::{execute, query_rows},
};

macro_rules! notices {
    ($rest:literal) => {
        concat!("SELECT ", notice_columns!(), " FROM notices n ", $rest)
    };
}

const BY_ID: &str = notices!(
    "JOIN endpoints e ON e.team = n.team AND e.id = n.endpoint AND NOT e.removed WHERE n.team = $1 AND n.id = $2"
);
const ENDPOINT_BY_ID: &str =
    concat!("SELECT ", endpoint_columns!(), " FROM endpoints e WHERE e.team = $1 AND e.id = $2");
const BY_SEQ: &str = notices!("WHERE n.endpoint = $1 AND n.seq = $2");
const LOCK_NOTICES_OF_SUBJECT: &str = "
    SELECT FROM notices n
     WHERE n.endpoint = $1 AND n.seq = ANY (array_append(ARRAY(
           SELECT m.seq FROM notices m WHERE m.endpoint = $1 AND m.about = $2 AND m.next_at IS NOT NULL), $3::bigint))
     ORDER BY n.seq FOR UPDATE";
/// The first pending notice of a subject, and other notices that are scheduled.
const SUBJECT_QUEUE_HEAD: &str = notices!(
    "WHERE n.endpoint = $1 AND n.seq = ANY (array_append(
           ARRAY(SELECT m.seq FROM notices m WHERE m.endpoint = $1 AND m.about = $2 AND m.next_at IS NOT NULL),
           (SELECT min(m.seq) FROM notices m WHERE m.endpoint = $1 AND m.about = $2 AND m.state = 'pending')))
     ORDER BY n.seq"
);
/// Due notices of an enabled endpoint, skipping those that other nodes have locked.
const DUE: &str = notices!(
    "JOIN endpoints e ON e.team = n.team AND e.id = n.endpoint AND NOT e.removed AND e.state = 'enabled'
     WHERE n.team = $1 AND n.endpoint = $2 AND n.next_at <= $3
     ORDER BY n.next_at, n.seq LIMIT $4 FOR UPDATE OF n SKIP LOCKED"
);
const LIST: &str = notices!(
    "JOIN endpoints e ON e.team = n.team AND e.id = n.endpoint AND NOT e.removed
     WHERE n.team = $1 AND n.endpoint = $2 AND n.seq < $3 AND n.seq >= (SELECT coalesce(min(looked.seq), 0) FROM
           (SELECT m.seq FROM notices m WHERE m.endpoint = $2 AND m.seq < $3 ORDER BY m.seq DESC LIMIT $8) looked)
       AND ($4::text IS NULL OR n.state = $4) AND ($5::text IS NULL OR n.kind = $5)
       AND ($6::uuid IS NULL OR n.about = $6)
     ORDER BY n.seq DESC LIMIT $7"
);
/// Notices leased by dead nodes.
const LEASED_BY_GONE_NODES: &str = concat!(
    notices!("WHERE n.holder IS NOT NULL AND n.holder <> $1 AND "),
    holder_is_gone!("n"),
    " ORDER BY n.endpoint, n.seq LIMIT $4 FOR UPDATE SKIP LOCKED"
);
const FAILED: &str = "
    SELECT seq FROM (
        SELECT seq FROM notices WHERE endpoint = $1 AND seq > $2 AND state = 'dead'
        UNION ALL
        SELECT seq FROM notices WHERE endpoint = $1 AND seq > $2 AND next_at > $3 AND failures > 0 AND holder IS NULL
    ) failed ORDER BY seq LIMIT $4";
const FIRST_SINCE: &str = "
    SELECT min(e.seq - cardinality(e.about) + x.place) FROM events e, unnest(e.at) WITH ORDINALITY AS x (at, place)
     WHERE e.team = $1 AND x.at >= $2";
const DROP_OLD: &str = "
    DELETE FROM notices n
     USING (SELECT endpoint, seq FROM notices WHERE sweep_at <= $1 ORDER BY sweep_at, endpoint, seq LIMIT $2
             FOR UPDATE SKIP LOCKED) due
     WHERE n.endpoint = due.endpoint AND n.seq = due.seq";
const DROP_OF_REMOVED_ENDPOINTS: &str = "
    DELETE FROM notices n
     USING (SELECT n.endpoint, n.seq FROM endpoints e JOIN notices n ON n.endpoint = e.id WHERE e.removed
             ORDER BY n.endpoint, n.seq LIMIT $1 FOR UPDATE OF n SKIP LOCKED) due
     WHERE n.endpoint = due.endpoint AND n.seq = due.seq";
const DROP_REMOVED_ENDPOINTS: &str = "
    WITH gone AS (
        DELETE FROM endpoints e WHERE e.removed AND NOT EXISTS (SELECT FROM notices n WHERE n.endpoint = e.id)
        RETURNING e.id
    )
    SELECT id FROM gone ORDER BY id DESC LIMIT 1";

/// Locks the rows that a change of a notice may affect, and reads the notice again.
async fn lock_notices_of_subject(
    tx: &Transaction<'_>,
    endpoint: EndpointId,
    about: Uuid,
    seq: u64,
) -> TxResult<Option<Notice>> {
    let seq = seq as i64;
    query_rows(tx, LOCK_NOTICES_OF_SUBJECT, &[&endpoint.0, &about, &seq]).await?;
    Ok(read_all(&query_rows(tx, BY_SEQ, &[&endpoint.0, &seq]).await?, read_notice)?.pop())
}

/// Saves a notice and schedules the next one of its subject. Returns the notice as saved. Its subject must be locked.
async fn save_and_reschedule(tx: &Transaction<'_>, mut notice: Notice, now: Time) -> TxResult<Notice> {
    save_notices(tx, [&notice]).await?;
    let mut open =
        read_all(&query_rows(tx, SUBJECT_QUEUE_HEAD, &[&notice.endpoint.0, &notice.subject_id]).await?, read_notice)?;
    let moved: Vec<usize> = schedule_in_order(&mut open, now);
    let moved: Vec<&Notice> = moved.into_iter().filter_map(|place| open.get(place)).collect();
    save_notices(tx, moved.iter().copied()).await?;
    if let Some(same) = moved.into_iter().find(|moved| moved.seq == notice.seq) {
        notice.clone_from(same);
    }
    Ok(notice)
}

/// Makes an event pending for an endpoint again. Returns false if it was still pending. The endpoint must be locked.
pub(crate) async fn recreate_notice(tx: &Transaction<'_>, fresh: Notice, now: Time) -> TxResult<bool> {
    let owed = match lock_notices_of_subject(tx, fresh.endpoint, fresh.subject_id, fresh.seq).await? {
        None => fresh,
        Some(mut notice) if !notice.is_open() => {
            notice.replay(now);
            notice
        }
        Some(_) => return Ok(false),
    };
    save_and_reschedule(tx, owed, now).await.map(|_| true)
}

/// Leases due notices of an enabled endpoint to a node.
pub(crate) async fn lease_notices(
    shared: &SharedState,
    (team, endpoint): (TeamId, EndpointId),
    node: NodeId,
    max: usize,
    now: Time,
) -> TxResult<Vec<LeasedNotice>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let rows = query_rows(&tx, DUE, &[&team.0, &endpoint.0, &now.0, &(max as i64)]).await?;
    let mut leased = read_all(&rows, read_notice)?;
    leased.retain_mut(|notice| notice.lease(node, now));
    if leased.is_empty() {
        tx.rollback().await?;
        return Ok(Vec::new());
    }
    save_notices(&tx, &leased).await?;
    let numbers: Vec<u64> = leased.iter().map(|notice| notice.seq).collect();
    let mut events = shared.events_by_seq(&tx, team, &numbers).await?;
    shared.commit(tx, 1).await?;
    let owed = |notice: Notice| {
        let event = events.remove(&notice.seq).ok_or_else(|| TxError::corrupt("the event of a notice"))?;
        Ok(LeasedNotice { notice, event })
    };
    leased.into_iter().map(owed).collect()
}

/// Records the outcome of an attempt.
pub(crate) async fn record_notice_outcome(
    shared: &SharedState,
    settle: &NoticeOutcome,
    now: Time,
) -> TxResult<Option<Notice>> {
    let NoticeOutcome { team, id, attempt, verdict: answer, jitter_seed: chance } = settle;
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let Some(seen) = read_all(&query_rows(&tx, BY_ID, &[&team.0, &id.0]).await?, read_notice)?.pop() else {
        tx.rollback().await?;
        return Ok(None);
    };
    // An endpoint is locked before its notices, and only if the outcome changes it, which is rare.
    let mut endpoint =
        read_all(&query_rows(&tx, ENDPOINT_BY_ID, &[&team.0, &seen.endpoint.0]).await?, read_endpoint)?.pop();
    let changes = |endpoint: &Endpoint| {
        let mut after = endpoint.clone();
        after.record_response(*answer, now);
        after != *endpoint
    };
    endpoint = match endpoint.filter(changes) {
        Some(endpoint) => endpoints::lock_endpoint(&tx, *team, endpoint.id).await?,
        None => None,
    };
    let Some(mut notice) = lock_notices_of_subject(&tx, seen.endpoint, seen.subject_id, seen.seq).await? else {
        tx.rollback().await?;
        return Ok(None);
    };
    if !notice.record_outcome(attempt.clone(), *answer, *chance, now) {
        tx.rollback().await?;
        return Ok(Some(notice));
    }
    let notice = save_and_reschedule(&tx, notice, now).await?;
    if let Some(mut endpoint) = endpoint {
        let event = endpoint.record_response(*answer, now);
        endpoints::save_endpoint(&tx, &endpoint, event).await?;
    }
    shared.commit(tx, 1).await?;
    Ok(Some(notice))
}

/// One notice.
pub(crate) async fn notice(shared: &SharedState, team: TeamId, id: NoticeId) -> TxResult<Option<Notice>> {
    Ok(read_all(&query_rows(&shared.connections.client().await?, BY_ID, &[&team.0, &id.0]).await?, read_notice)?.pop())
}

/// Notices of an endpoint, latest events first.
pub(crate) async fn notices(
    shared: &SharedState,
    team: TeamId,
    endpoint: EndpointId,
    query: &NoticeQuery,
) -> TxResult<Vec<Notice>> {
    let before = query.before.map_or(i64::MAX, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
    let state = query.state.map(NoticeState::as_str);
    let kind = query.kind.map(mailonce_core::events::event::EventKind::as_str);
    let (limit, looked) = (i64::try_from(query.limit).unwrap_or(i64::MAX), limits::SCAN_ROWS as i64);
    let client = shared.connections.client().await?;
    let asked: [&(dyn ToSql + Sync); 8] =
        [&team.0, &endpoint.0, &before, &state, &kind, &query.subject_id, &limit, &looked];
    read_all(&query_rows(&client, LIST, &asked).await?, read_notice)
}

/// Makes a notice pending and due at once.
pub(crate) async fn replay_notice(
    shared: &SharedState,
    (team, id): (TeamId, NoticeId),
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<Option<Notice>>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let seen = read_all(&query_rows(&tx, BY_ID, &[&team.0, &id.0]).await?, read_notice)?.pop();
    let locked = match seen {
        Some(seen) => lock_notices_of_subject(&tx, seen.endpoint, seen.subject_id, seen.seq).await?,
        None => None,
    };
    let Some(mut notice) = locked else {
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(None));
    };
    if notice.replay(now) {
        notice = save_and_reschedule(&tx, notice, now).await?;
    }
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(Some(notice)))
}

/// Replays events to an endpoint: all of them, or those that failed.
pub(crate) async fn recover_notices(
    shared: &SharedState,
    (team, id): (TeamId, EndpointId),
    recovery: NoticeRecovery,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<Option<NoticeRecoveryResult>>> {
    shared.wait_until_numbered(Some(team)).await?;
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let Some(mut endpoint) = endpoints::lock_endpoint(&tx, team, id).await? else {
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(None));
    };
    let after = seq_before(&tx, team, recovery.from).await?;
    let mut due = 0;
    if recovery.include_delivered {
        endpoint.rewind_to(after);
        endpoints::save_endpoint(&tx, &endpoint, None).await?;
    } else {
        due = replay_failed(&tx, id, after, now).await?;
    }
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(Some(NoticeRecoveryResult { after_seq: after, requeued: due })))
}

/// The sequence number of the last event before the ones to replay.
async fn seq_before(tx: &Transaction<'_>, team: TeamId, since: ReplayFrom) -> TxResult<u64> {
    let time = match since {
        ReplayFrom::Event(seq) => return Ok(seq),
        ReplayFrom::Time(time) => time,
    };
    let rows = query_rows(tx, FIRST_SINCE, &[&team.0, &time.0]).await?;
    match rows.first().map_or(Ok(None), |row| row.try_get::<_, Option<i64>>(0))? {
        Some(first) => Ok(first as u64 - 1),
        None => endpoints::last_event_seq(tx, team).await,
    }
}

async fn replay_failed(tx: &Transaction<'_>, id: EndpointId, after: u64, now: Time) -> TxResult<usize> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let rows = query_rows(tx, FAILED, &[&id.0, &after, &now.0, &(limits::NOTICES_RECOVERED as i64)]).await?;
    for row in &rows {
        let seq: i64 = row.try_get(0)?;
        let Some(seen) = read_all(&query_rows(tx, BY_SEQ, &[&id.0, &seq]).await?, read_notice)?.pop() else { continue };
        if let Some(mut notice) = lock_notices_of_subject(tx, id, seen.subject_id, seen.seq).await?
            && notice.replay(now)
        {
            save_and_reschedule(tx, notice, now).await?;
        }
    }
    Ok(rows.len())
}

/// Makes notices due that dead nodes had leased. Returns how many.
pub(crate) async fn reclaim_notices(
    tx: &Transaction<'_>,
    node: NodeId,
    gone: &SilentPeers,
    max: usize,
    now: Time,
) -> TxResult<usize> {
    let left = read_all(
        &query_rows(tx, LEASED_BY_GONE_NODES, &[&node.0, &gone.nodes, &gone.beats, &(max as i64)]).await?,
        read_notice,
    )?;
    let mut given_back = 0;
    for seen in left {
        if let Some(mut notice) = lock_notices_of_subject(tx, seen.endpoint, seen.subject_id, seen.seq).await?
            && notice.reclaim_lease(now)
        {
            save_and_reschedule(tx, notice, now).await?;
            given_back += 1;
        }
    }
    Ok(given_back)
}

/// Deletes old settled notices and the rows of removed endpoints. Returns how many notices were deleted, and the
/// highest id of a deleted endpoint.
pub(crate) async fn sweep_notices(tx: &Transaction<'_>, max: usize, now: Time) -> TxResult<(usize, Option<Uuid>)> {
    let old = execute(tx, DROP_OLD, &[&now.0, &(max as i64)]).await? as usize;
    let from_removed_endpoints =
        execute(tx, DROP_OF_REMOVED_ENDPOINTS, &[&(max.saturating_sub(old) as i64)]).await? as usize;
    let gone = query_rows(tx, DROP_REMOVED_ENDPOINTS, &[]).await?;
    Ok((old + from_removed_endpoints, gone.first().map(|row| row.try_get(0)).transpose()?))
}
