//! Stops, and the handoffs that they parked.
//!
//! An advisory lock makes a stop a barrier: every transaction that writes a marker holds it shared and reads the stops
//! after it has the lock, and creating a stop holds it exclusively. So a stop waits for the markers that are being
//! written, and every later one sees it. Transactions that park handoffs hold it shared too, and those that release them
//! hold it exclusively, so that no handoff is parked by a stop that is gone. The lock is always the first of its
//! transaction, so that it deadlocks with none of the others.

use deadpool_postgres::{GenericClient, Transaction};
use mailonce_core::{
    control::{
        audit::act::Act,
        stop::{CreateStopResult, Stop, StopChange, StopKind, StopRelease, Stops},
    },
    events::event::EventKind,
    handoff::action::HandoffAction,
    id::{StopId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use crate::postgres::{
    SharedState,
    control::audit_chain::{self, team_ids},
    error::{TxError, TxResult},
    events::pending_events::write_events,
    handoff::handoff_rows::{load_locked_emails, read_handoff_ref},
    operation_keys::bind_or_replay,
    row::{read_json, write_json},
    statements::{execute, query_pipelined, query_rows},
    unit_of_work::EmailRef,
    write::write_unit_of_work,
};

const LOCK_SHARED: &str = "SELECT pg_advisory_xact_lock_shared(7883366248)";
const LOCK_EXCLUSIVE: &str = "SELECT pg_advisory_xact_lock(7883366248)";
const BY_TEAMS: &str = "SELECT stop FROM stops WHERE team IS NULL OR team = ANY($1)";
const BY_TEAM: &str = "SELECT stop FROM stops WHERE team IS NOT DISTINCT FROM $1 ORDER BY id";
const BY_ID_LOCKED: &str = "SELECT stop FROM stops WHERE team IS NOT DISTINCT FROM $1 AND id = $2 FOR UPDATE";
const SAVE: &str = "
    INSERT INTO stops (id, team, scope, stop) VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE SET stop = $4";
const REMOVE: &str = "DELETE FROM stops WHERE id = $1";
const HAS_ENDED: &str = "SELECT FROM stops WHERE stop::json -> 'release' IS NOT NULL LIMIT 1";
const ENDED: &str = "SELECT stop FROM stops WHERE stop::json -> 'release' IS NOT NULL ORDER BY id FOR UPDATE";
const PARKED: &str = "
    SELECT h.team, h.email, h.number
      FROM handoffs h JOIN emails e ON e.team = h.team AND e.id = h.email
     WHERE h.parked_by = $1
     ORDER BY h.due_at, h.email, h.number LIMIT $2
       FOR UPDATE OF e";
const COUNTS: &str = "
    SELECT split_part(scope, '/', 1), count(*) FROM stops WHERE stop::json -> 'release' IS NULL GROUP BY 1";
/// What each stop parked, and what is due in the queues that it closes: that of one transport, or all of them.
const COUNT_WAITING: &str = "
    SELECT (SELECT count(*) FROM (
               SELECT 1 FROM handoffs h WHERE h.parked_by = s.stop AND ($4::uuid IS NULL OR h.team = $4)
               UNION ALL
               SELECT 1 FROM handoffs h
                WHERE s.closes_queues AND h.state IN ('queued', 'scheduled') AND h.parked_by IS NULL
                  AND h.due_at IS NOT NULL AND h.due_at <= $6 AND (s.transport IS NULL OR h.transport = s.transport)
                  AND ($4::uuid IS NULL OR h.team = $4)
               LIMIT $5) waiting)
      FROM unnest($1::uuid[], $2::boolean[], $3::text[]) WITH ORDINALITY AS s (stop, closes_queues, transport, place)
     ORDER BY s.place";

fn read_stop(row: &Row) -> TxResult<Stop> {
    read_json(row.try_get(0)?, "a stop")
}

fn teams_of(emails: &BTreeSet<EmailRef>) -> Vec<Uuid> {
    emails.iter().map(|(team, _)| team.0).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The stops that apply to these emails. Without a lock, a stop that is being created may be missing.
pub(crate) async fn load(client: &(impl GenericClient + ?Sized), emails: &BTreeSet<EmailRef>) -> TxResult<Stops> {
    if emails.is_empty() {
        return Ok(Stops::default());
    }
    let rows = query_rows(client, BY_TEAMS, &[&teams_of(emails)]).await?;
    rows.iter().map(read_stop).collect::<TxResult<_>>().map(Stops)
}

/// The stops that apply to actions on these emails. Keeps stops from being created until the transaction ends, if one of
/// the actions can be stopped.
pub(crate) async fn load_for<'a>(
    tx: &Transaction<'_>,
    mut actions: impl Iterator<Item = &'a HandoffAction>,
    emails: &BTreeSet<EmailRef>,
) -> TxResult<Stops> {
    if !actions.any(HandoffAction::is_stoppable) {
        return Ok(Stops::default());
    }
    let answers = query_pipelined(tx, &[(LOCK_SHARED, &[]), (BY_TEAMS, &[&teams_of(emails)])]).await?;
    answers.iter().skip(1).flatten().map(read_stop).collect::<TxResult<_>>().map(Stops)
}

/// The stops that apply to this team. To be read after [`lock_shared`].
pub(crate) async fn load_of_team(tx: &Transaction<'_>, team: TeamId) -> TxResult<Stops> {
    let rows = query_rows(tx, BY_TEAMS, &[&vec![team.0]]).await?;
    rows.iter().map(read_stop).collect::<TxResult<_>>().map(Stops)
}

/// Keeps stops from being created until the transaction ends.
pub(crate) async fn lock_shared(tx: &Transaction<'_>) -> TxResult<()> {
    execute(tx, LOCK_SHARED, &[]).await.map(drop)
}

async fn save(tx: &Transaction<'_>, stop: &Stop) -> TxResult<()> {
    let team = stop.scope.team().map(|team| team.0);
    execute(tx, SAVE, &[&stop.id.0, &team, &stop.name(), &write_json(stop)?]).await.map(drop)
}

async fn emit(tx: &Transaction<'_>, stop: &Stop, kind: EventKind, now: Time) -> TxResult<()> {
    let teams = match stop.scope.team() {
        Some(team) => vec![team],
        None => team_ids(tx).await?,
    };
    let events: Vec<_> = teams.into_iter().map(|team| (team, stop.event(kind, now))).collect();
    write_events(tx, &events).await
}

/// Creates a stop, unless its scope is stopped already.
pub(crate) async fn create_stop(
    shared: &SharedState,
    new: &Stop,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<CreateStopResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    execute(&tx, LOCK_EXCLUSIVE, &[]).await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let team = new.scope.team().map(|team| team.0);
    let rows = query_rows(&tx, BY_TEAM, &[&team]).await?;
    let existing = rows.iter().map(read_stop).collect::<TxResult<Vec<_>>>()?;
    let result = CreateStopResult::decide(new.clone(), &existing);
    match &result {
        CreateStopResult::Created(stop) => {
            save(&tx, stop).await?;
            emit(&tx, stop, EventKind::StopCreated, now).await?;
            audit_chain::record_act(&tx, Some(&Act::of_stop("created", stop, None)), now).await?;
        }
        CreateStopResult::AlreadyStopped(_) => {}
        CreateStopResult::TooMany => {
            tx.rollback().await?;
            return Ok(IdempotentResult::Done(result));
        }
    }
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(result))
}

/// The stops of a team, or those that belong to no team.
pub(crate) async fn stops(shared: &SharedState, team: Option<TeamId>) -> TxResult<Vec<Stop>> {
    let rows = query_rows(&shared.connections.client().await?, BY_TEAM, &[&team.map(|team| team.0)]).await?;
    rows.iter().map(read_stop).collect()
}

/// How many stops are in force, by kind.
pub(crate) async fn stop_counts(shared: &SharedState) -> TxResult<BTreeMap<StopKind, u64>> {
    let rows = query_rows(&shared.connections.client().await?, COUNTS, &[]).await?;
    let mut counts = BTreeMap::new();
    for row in &rows {
        let kind = StopKind::parse(row.try_get(0)?).ok_or_else(|| TxError::corrupt("the scope of a stop"))?;
        counts.insert(kind, row.try_get::<_, i64>(1)?.unsigned_abs());
    }
    Ok(counts)
}

/// How many handoffs of a team, or of all teams, wait for each stop, up to `max`.
pub(crate) async fn waiting_counts(
    shared: &SharedState,
    stops: &[Stop],
    team: Option<TeamId>,
    max: usize,
    now: Time,
) -> TxResult<Vec<u64>> {
    let ids: Vec<Uuid> = stops.iter().map(|stop| stop.id.0).collect();
    let closes_queues: Vec<bool> = stops.iter().map(Stop::closes_queues).collect();
    let transports: Vec<Option<&str>> = stops.iter().map(|stop| stop.scope.transport()).collect();
    let (team, max) = (team.map(|team| team.0), i64::try_from(max).unwrap_or(i64::MAX));
    let parameters: [&(dyn ToSql + Sync); 6] = [&ids, &closes_queues, &transports, &team, &max, &now.0];
    let rows = query_rows(&shared.connections.client().await?, COUNT_WAITING, &parameters).await?;
    rows.iter().map(|row| Ok(row.try_get::<_, i64>(0)?.unsigned_abs())).collect()
}

/// Ends a stop.
pub(crate) async fn end_stop(
    shared: &SharedState,
    team: Option<TeamId>,
    id: StopId,
    rate_per_s: Option<u32>,
    now: Time,
) -> TxResult<Option<Stop>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let rows = query_rows(&tx, BY_ID_LOCKED, &[&team.map(|team| team.0), &id.0]).await?;
    let Some(mut stop) = rows.first().map(read_stop).transpose()? else {
        tx.rollback().await?;
        return Ok(None);
    };
    let now = shared.time.commit_time(now);
    let change = stop.end(rate_per_s, now);
    if change == StopChange::Ended {
        emit(&tx, &stop, EventKind::StopEnded, now).await?;
    }
    let act = change.audit_verb().map(|verb| Act::of_stop(verb, &stop, rate_per_s));
    audit_chain::record_act(&tx, act.as_ref(), now).await?;
    save(&tx, &stop).await?;
    shared.commit(tx, 1).await?;
    Ok(Some(stop))
}

/// Returns parked handoffs of ended stops to the queue, in order, and removes ended stops that have none left.
pub(crate) async fn release_stopped(shared: &SharedState, max: usize, now: Time) -> TxResult<usize> {
    let mut client = shared.connections.client().await?;
    // Usually no stop has ended, and the lock would delay every marker.
    if query_rows(&client, HAS_ENDED, &[]).await?.is_empty() {
        return Ok(0);
    }
    let tx = client.transaction().await?;
    execute(&tx, LOCK_EXCLUSIVE, &[]).await?;
    let rows = query_rows(&tx, ENDED, &[]).await?;
    let mut released = 0;
    for row in &rows {
        let mut stop = read_stop(row)?;
        let Some(mut release) = stop.release else { continue };
        let room = release.allowance(now).min(max - released);
        // One more than there is room for, so that an empty result means that nothing is parked.
        let parked = read_parked(&tx, stop.id, room + 1).await?;
        if parked.is_empty() && release.is_over(now) {
            execute(&tx, REMOVE, &[&stop.id.0]).await?;
            continue;
        }
        let count = release_some(&tx, &parked[..room.min(parked.len())], stop.id, &release, now).await?;
        release.use_rate(count, now);
        released += count;
        if stop.release != Some(release) {
            stop.release = Some(release);
            save(&tx, &stop).await?;
        }
    }
    shared.commit(tx, 1).await?;
    Ok(released)
}

/// Handoffs that a stop parked, in the order of their due times. Their emails are locked.
async fn read_parked(tx: &Transaction<'_>, stop: StopId, max: usize) -> TxResult<Vec<(EmailRef, u16)>> {
    let max = i64::try_from(max).unwrap_or(i64::MAX);
    query_rows(tx, PARKED, &[&stop.0, &max]).await?.iter().map(read_handoff_ref).collect()
}

async fn release_some(
    tx: &Transaction<'_>,
    parked: &[(EmailRef, u16)],
    stop: StopId,
    release: &StopRelease,
    now: Time,
) -> TxResult<usize> {
    let mut work = load_locked_emails(tx, &parked.iter().map(|(scoped, _)| *scoped).collect()).await?;
    let mut released = 0;
    for ((team, id), number) in parked {
        let Some(mut email) = work.email_of_team(*team, *id) else { continue };
        if email.release_parked(*number, stop, release, now) {
            work.changed_emails.insert(*id, Time(i64::MIN));
            work.emails.insert(*id, email);
            released += 1;
        }
    }
    write_unit_of_work(tx, &work).await?;
    Ok(released)
}
