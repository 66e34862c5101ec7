//! The audit log: one hash chain per team, and the names of the ids in it.
//!
//! Appending locks the row of the chain until the transaction ends, so that entries of a team are numbered one after
//! the other on all nodes. The lock is always the last of its transaction, so that it deadlocks with none of the others.

use async_trait::async_trait;
use deadpool_postgres::Transaction;
use mailonce_core::{
    access::call_origin::{Alias, CallOrigin},
    control::audit::{
        AuditPage, ChainEnds, RecordedAct, UsedName,
        act::Act,
        chain::{self, AuditRow, ChainLink},
        wants_events,
    },
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    ports::{audit_store::AuditStore, store::Result},
    record::{RecordKind, TEAM_SETTINGS},
    time::Time,
};
use tokio_postgres::Row;

use crate::postgres::{
    Postgres, SharedState,
    control::records::bind_or_replay,
    error::{TxResult, call_until_final},
    into_store_result, when_durable,
    write::{execute, query_rows, write_events},
};

const TEAMS: &str = "SELECT id FROM teams ORDER BY id";
/// Creates the row of a chain, or locks it.
const LOCK: &str = "
    INSERT INTO audit_chains (team) VALUES ($1) ON CONFLICT (team) DO UPDATE SET team = excluded.team
    RETURNING start_seq, start_hash, seq, hash";
const SAVE_HEAD: &str = "UPDATE audit_chains SET seq = $2, hash = $3 WHERE team = $1";
const SAVE_START: &str = "UPDATE audit_chains SET start_seq = $2, start_hash = $3 WHERE team = $1";
const INSERT: &str = "INSERT INTO audit_entries (team, seq, entry, hash) VALUES ($1, $2, $3, $4)";
/// The ends and the entries in one statement, which is one snapshot. There is a row even if both are missing, and
/// entries are found without the ends, so that ends that were removed are noticed.
const PAGE: &str = "
    SELECT coalesce(c.start_seq, 0), coalesce(c.start_hash, ''), coalesce(c.seq, 0), coalesce(c.hash, ''),
           e.seq, e.entry, e.hash
      FROM (SELECT $1::uuid AS team) t LEFT JOIN audit_chains c ON c.team = t.team
      LEFT JOIN LATERAL (SELECT seq, entry, hash FROM audit_entries WHERE team = t.team AND seq > $2
                          ORDER BY seq LIMIT $3) e ON true
     ORDER BY e.seq";
const DELETE_UP_TO: &str = "DELETE FROM audit_entries WHERE team = $1 AND seq <= $2";
const SAVE_NAME: &str = "
    INSERT INTO audit_names (team, id, name) VALUES ($1, $2, $3) ON CONFLICT (team, id) DO UPDATE SET name = $3";
const NAMES: &str = "
    SELECT w.id, n.name FROM unnest($2::text[]) WITH ORDINALITY AS w (id, place)
      JOIN audit_names n ON n.team = $1 AND n.id = w.id ORDER BY w.place";
const DROP_UNUSED_NAME: &str = "
    DELETE FROM audit_names n
     WHERE n.team = $1 AND n.id = $2
       AND NOT EXISTS (SELECT FROM records r WHERE r.team = $1 AND r.id = $4::uuid)
       AND NOT EXISTS (SELECT FROM audit_entries e WHERE e.team = $1 AND position($3::bytea IN e.entry) > 0)";
const FORGET_NAME: &str = "DELETE FROM audit_names WHERE team = $1 AND name = $2";
const SETTINGS: &str = "SELECT about FROM records WHERE team = $1 AND kind = $2 AND name = $3";

/// A place in a chain. A hash that was tampered with may have another length, and then reads as zeros, which is the hash
/// of no entry.
fn read_link(row: &Row, at: usize) -> TxResult<ChainLink> {
    let (seq, hash): (i64, &[u8]) = (row.try_get(at)?, row.try_get(at + 1)?);
    Ok(ChainLink { seq: seq as u64, hash: hash.try_into().unwrap_or_default() })
}

fn read_ends(row: &Row) -> TxResult<ChainEnds> {
    Ok(ChainEnds { start: read_link(row, 0)?, head: read_link(row, 2)? })
}

/// Records an act of the running call, in its transaction.
pub(crate) async fn record_act(tx: &Transaction<'_>, act: Option<&Act>, now: Time) -> TxResult<()> {
    let origin = CallOrigin::current();
    let Some(act) = act else { return Ok(()) };
    let Some(recorded) = act.recorded(origin.as_deref(), now) else { return Ok(()) };
    if let Some(team) = act.team.or(origin.and_then(|origin| origin.team)) {
        return append(tx, team, &recorded).await;
    }
    for row in query_rows(tx, TEAMS, &[]).await? {
        append(tx, TeamId(row.try_get(0)?), &recorded).await?;
    }
    Ok(())
}

async fn append(tx: &Transaction<'_>, team: TeamId, RecordedAct { entry, aliases }: &RecordedAct) -> TxResult<()> {
    let locked = query_rows(tx, LOCK, &[&team.0]).await?;
    let ends = locked.first().map(read_ends).transpose()?.unwrap_or_default();
    let row = chain::append(ends.head, team, entry);
    let (seq, hash) = (row.seq as i64, row.hash.as_slice());
    execute(tx, INSERT, &[&team.0, &seq, &row.entry, &hash]).await?;
    execute(tx, SAVE_HEAD, &[&team.0, &seq, &hash]).await?;
    for Alias { id, name } in aliases {
        execute(tx, SAVE_NAME, &[&team.0, id, name]).await?;
    }
    let settings = query_rows(tx, SETTINGS, &[&team.0, &RecordKind::Settings.as_str(), &TEAM_SETTINGS]).await?;
    let settings: Option<&str> = settings.first().map(|row| row.try_get(0)).transpose()?;
    if settings.is_some_and(wants_events) {
        write_events(tx, &[(team, row.event(team, entry))]).await?;
    }
    Ok(())
}

async fn record_alone(shared: &SharedState, act: &Act, now: Time) -> TxResult<()> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    record_act(&tx, Some(act), now).await?;
    shared.commit(tx, 1).await
}

async fn record_keyed(
    shared: &SharedState,
    act: &Act,
    operation: &KeyedOperation,
    now: Time,
) -> TxResult<IdempotentResult<()>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, Some(operation), now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    record_act(&tx, Some(act), now).await?;
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(()))
}

fn read_page(rows: &[Row]) -> TxResult<AuditPage> {
    let mut page = AuditPage::default();
    for row in rows {
        page.ends = read_ends(row)?;
        if let Some(seq) = row.try_get::<_, Option<i64>>(4)? {
            let hash: &[u8] = row.try_get(6)?;
            let hash = hash.try_into().unwrap_or_default();
            page.rows.push(AuditRow { seq: seq as u64, entry: row.try_get(5)?, hash });
        }
    }
    Ok(page)
}

async fn page(shared: &SharedState, team: TeamId, after: u64, limit: usize) -> TxResult<AuditPage> {
    let (after, limit) = (i64::try_from(after).unwrap_or(i64::MAX), limit as i64);
    read_page(&query_rows(&shared.connections.client().await?, PAGE, &[&team.0, &after, &limit]).await?)
}

async fn names(shared: &SharedState, team: TeamId, ids: &[String]) -> TxResult<Vec<Alias>> {
    let rows = query_rows(&shared.connections.client().await?, NAMES, &[&team.0, &ids]).await?;
    rows.iter().map(|row| Ok(Alias { id: row.try_get(0)?, name: row.try_get(1)? })).collect()
}

async fn forget_name(shared: &SharedState, team: TeamId, name: &str) -> TxResult<usize> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let forgotten = execute(&tx, FORGET_NAME, &[&team.0, &name]).await?;
    shared.commit(tx, 1).await?;
    Ok(forgotten as usize)
}

async fn prune(shared: &SharedState, team: TeamId, cutoff: Time, max: usize) -> TxResult<usize> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    query_rows(&tx, LOCK, &[&team.0]).await?;
    let AuditPage { rows, .. } = read_page(&query_rows(&tx, PAGE, &[&team.0, &0_i64, &(max as i64)]).await?)?;
    let is_old = |row: &&AuditRow| row.at().is_some_and(|at| at < cutoff);
    let old: Vec<&AuditRow> = rows.iter().take_while(is_old).collect();
    let Some(last) = old.last() else {
        tx.rollback().await?;
        return Ok(0);
    };
    let seq = last.seq as i64;
    execute(&tx, DELETE_UP_TO, &[&team.0, &seq]).await?;
    execute(&tx, SAVE_START, &[&team.0, &seq, &last.hash.as_slice()]).await?;
    for name in UsedName::of_rows(old.iter().copied()) {
        let (needle, record) = (name.needle().as_bytes(), name.actor_record());
        execute(&tx, DROP_UNUSED_NAME, &[&team.0, &name.id, &needle, &record]).await?;
    }
    shared.commit(tx, 1).await?;
    Ok(old.len())
}

#[async_trait]
impl AuditStore for Postgres {
    async fn record_act(&self, act: Act, now: Time) -> Result<()> {
        into_store_result(call_until_final!(record_alone(&self.shared, &act, now)))
    }

    async fn record_keyed_act(&self, act: Act, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>> {
        when_durable!(self, call_until_final!(record_keyed(&self.shared, &act, &operation, now)))
    }

    async fn audit_page(&self, team: TeamId, after: u64, limit: usize) -> Result<AuditPage> {
        when_durable!(self, call_until_final!(page(&self.shared, team, after, limit)))
    }

    async fn audit_names(&self, team: TeamId, ids: &[String]) -> Result<Vec<Alias>> {
        when_durable!(self, call_until_final!(names(&self.shared, team, ids)))
    }

    async fn forget_audit_name(&self, team: TeamId, name: &str) -> Result<usize> {
        into_store_result(call_until_final!(forget_name(&self.shared, team, name)))
    }

    async fn prune_audit(&self, team: TeamId, cutoff: Time, max: usize) -> Result<usize> {
        into_store_result(call_until_final!(prune(&self.shared, team, cutoff, max)))
    }
}
