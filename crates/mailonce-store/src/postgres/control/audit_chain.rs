//! Appends entries to the chains of the audit log, in the transaction of the act.
//!
//! Appending locks the row of the chain until the transaction ends, so that entries of a team are numbered one after
//! the other on all nodes. The lock is always the last of its transaction, so that it deadlocks with none of the others.

use deadpool_postgres::Transaction;
use mailonce_core::{
    access::call_origin::{Alias, CallOrigin},
    control::audit::{
        ChainEnds, RecordedAct,
        act::Act,
        chain::{self, ChainLink},
        wants_events,
    },
    id::TeamId,
    record::{RecordKind, TEAM_SETTINGS},
    time::Time,
};
use tokio_postgres::Row;

use crate::postgres::{
    error::TxResult,
    events::pending_events::write_events,
    statements::{execute, query_rows},
};

const TEAMS: &str = "SELECT id FROM teams ORDER BY id";
/// Creates the row of a chain, or locks it.
pub(super) const LOCK: &str = "
    INSERT INTO audit_chains (team) VALUES ($1) ON CONFLICT (team) DO UPDATE SET team = excluded.team
    RETURNING start_seq, start_hash, seq, hash";
const SAVE_HEAD: &str = "UPDATE audit_chains SET seq = $2, hash = $3 WHERE team = $1";
const INSERT: &str = "INSERT INTO audit_entries (team, seq, entry, hash) VALUES ($1, $2, $3, $4)";
const SAVE_NAME: &str = "
    INSERT INTO audit_names (team, id, name) VALUES ($1, $2, $3) ON CONFLICT (team, id) DO UPDATE SET name = $3";
const SETTINGS: &str = "SELECT about FROM records WHERE team = $1 AND kind = $2 AND name = $3";

/// A place in a chain. A hash that was tampered with may have another length, and then reads as zeros, which is the hash
/// of no entry.
fn read_link(row: &Row, at: usize) -> TxResult<ChainLink> {
    let (seq, hash): (i64, &[u8]) = (row.try_get(at)?, row.try_get(at + 1)?);
    Ok(ChainLink { seq: seq as u64, hash: hash.try_into().unwrap_or_default() })
}

pub(super) fn read_ends(row: &Row) -> TxResult<ChainEnds> {
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
    for team in team_ids(tx).await? {
        append(tx, team, &recorded).await?;
    }
    Ok(())
}

/// The ids of all teams, in order.
pub(super) async fn team_ids(tx: &Transaction<'_>) -> TxResult<Vec<TeamId>> {
    query_rows(tx, TEAMS, &[]).await?.iter().map(|row| Ok(TeamId(row.try_get(0)?))).collect()
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
