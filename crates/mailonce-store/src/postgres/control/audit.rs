//! The audit log: one hash chain per team, and the names of the ids in it. `audit_chain` appends to it.

use async_trait::async_trait;
use mailonce_core::{
    access::call_origin::Alias,
    control::audit::{AuditNameRef, AuditPage, act::Act, chain::AuditRow},
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    ports::{audit_store::AuditStore, store::Result},
    time::Time,
};
use tokio_postgres::Row;

use crate::postgres::{
    Postgres, SharedState,
    control::audit_chain::{LOCK, read_ends, record_act},
    error::{TxResult, call_until_final},
    into_store_result,
    operation_keys::bind_or_replay,
    statements::{execute, query_rows},
    when_durable,
};

const SAVE_START: &str = "UPDATE audit_chains SET start_seq = $2, start_hash = $3 WHERE team = $1";
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
const NAMES: &str = "
    SELECT w.id, n.name FROM unnest($2::text[]) WITH ORDINALITY AS w (id, place)
      JOIN audit_names n ON n.team = $1 AND n.id = w.id ORDER BY w.place";
const DROP_UNUSED_NAME: &str = "
    DELETE FROM audit_names n
     WHERE n.team = $1 AND n.id = $2
       AND NOT EXISTS (SELECT FROM records r WHERE r.team = $1 AND r.id = $4::uuid)
       AND NOT EXISTS (SELECT FROM audit_entries e WHERE e.team = $1 AND position($3::bytea IN e.entry) > 0)";
const FORGET_NAME: &str = "DELETE FROM audit_names WHERE team = $1 AND name = $2";

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
    for name in AuditNameRef::of_rows(old.iter().copied()) {
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
