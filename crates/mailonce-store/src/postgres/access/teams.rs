//! Teams and their API keys.

use deadpool_postgres::Transaction;
use mailonce_core::{
    access::team::{ApiKey, CreateTeamResult, Team},
    control::audit::act::Act,
    id::{ApiKeyId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use crate::postgres::{
    SharedState,
    control::audit_chain,
    error::{TxError, TxResult},
    locked_tx::{load_unit_of_work, lock_scopes},
    row::{TeamKey, read_json, write_json},
    statements::{execute, query_rows},
    write::write_unit_of_work,
};

const INSERT_TEAM: &str = "
    INSERT INTO teams (id, name, created_at, require_keys) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
/// Serializes the creation of teams with an advisory lock, because a new name has no row to lock.
const LOCK_TEAM_CREATION: &str = "SELECT pg_advisory_xact_lock(7883366247)";
const TEAM_WITH_SAME_NAME: &str = "SELECT 1 FROM teams WHERE name = $1 AND id <> $2 LIMIT 1";
const TEAMS: &str = "SELECT id, name, created_at, require_keys FROM teams ORDER BY id";
const REQUIRES_KEYS_LOCKED: &str = "SELECT require_keys FROM teams WHERE id = $1 FOR NO KEY UPDATE";
const SET_REQUIRE_KEYS: &str = "
    UPDATE teams SET require_keys = $2 WHERE id = $1 RETURNING id, name, created_at, require_keys";
const INSERT_API_KEY: &str = "
    INSERT INTO api_keys (id, team, hash, about, created_at, revoked_at, last_used_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";
const API_KEYS: &str = "
    SELECT id, team, hash, about, created_at, revoked_at, last_used_at FROM api_keys WHERE team = $1 ORDER BY id DESC";
const BY_HASH: &str = "
    SELECT k.id, k.team, k.hash, k.about, k.created_at, k.revoked_at, k.last_used_at,
           t.id, t.name, t.created_at, t.require_keys
      FROM (SELECT * FROM api_keys WHERE hash = $1 ORDER BY id LIMIT 1) k JOIN teams t ON t.id = k.team";
const ACTIVE_LOCKED: &str = "SELECT FROM api_keys WHERE team = $1 AND id = $2 AND revoked_at IS NULL FOR NO KEY UPDATE";
const REVOKE: &str = "
    UPDATE api_keys SET revoked_at = coalesce(revoked_at, $3) WHERE team = $1 AND id = $2
    RETURNING id, team, hash, about, created_at, revoked_at, last_used_at";
/// Locks the rows in order first, because two nodes may update the same API keys.
const TOUCH: &str = "
    WITH held AS (SELECT id FROM api_keys WHERE id = ANY ($1) ORDER BY id FOR UPDATE)
    UPDATE api_keys k SET last_used_at = greatest(k.last_used_at, w.at)
      FROM unnest($1::uuid[], $2::bigint[]) AS w (id, at) JOIN held ON held.id = w.id
     WHERE k.id = w.id";

/// Creates a team with its first API key, unless another team has the name.
pub(crate) async fn create_team(
    shared: &SharedState,
    team: &Team,
    key: &ApiKey,
    operation: Option<&KeyedOperation>,
) -> TxResult<IdempotentResult<CreateTeamResult>> {
    create_team_or_api_key(shared, Some(team), key, operation).await
}

/// Creates an API key.
pub(crate) async fn create_api_key(
    shared: &SharedState,
    key: &ApiKey,
    operation: Option<&KeyedOperation>,
) -> TxResult<IdempotentResult<()>> {
    Ok(create_team_or_api_key(shared, None, key, operation).await?.map(|_made| ()))
}

async fn create_team_or_api_key(
    shared: &SharedState,
    team: Option<&Team>,
    key: &ApiKey,
    operation: Option<&KeyedOperation>,
) -> TxResult<IdempotentResult<CreateTeamResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let mut bound = None;
    if let Some(operation) = operation {
        let scopes: BTreeSet<TeamKey> = BTreeSet::from([(operation.team, operation.key)]);
        lock_scopes(&tx, &scopes).await?;
        let mut work = load_unit_of_work(&tx, &shared.time, &scopes, &[]).await?;
        if let Some(answer) = work.find_replay(operation, key.created_at) {
            tx.rollback().await?;
            return Ok(answer);
        }
        work.bind_operation(operation);
        bound = Some(work);
    }
    if let Some(team) = team
        && is_name_taken(&tx, team).await?
    {
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(CreateTeamResult::NameTaken));
    }
    if let Some(work) = &bound {
        write_unit_of_work(&tx, work).await?;
    }
    if let Some(team) = team {
        let params = (&team.id.0, &team.name, &team.created_at.0, &team.require_keys);
        if execute(&tx, INSERT_TEAM, &[params.0, params.1, params.2, params.3]).await? == 1 {
            audit_chain::record_act(&tx, Some(&Act::of_new_team(team)), team.created_at).await?;
        }
    }
    insert_api_key(&tx, key).await?;
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(CreateTeamResult::Created))
}

/// All teams.
pub(crate) async fn teams(shared: &SharedState) -> TxResult<Vec<Team>> {
    let client = shared.connections.client().await?;
    query_rows(&client, TEAMS, &[]).await?.iter().map(|row| read_team(row, 0)).collect()
}

/// Sets whether a team requires idempotency keys.
pub(crate) async fn set_require_keys(shared: &SharedState, team: TeamId, require: bool) -> TxResult<Option<Team>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let before: Option<bool> =
        query_rows(&tx, REQUIRES_KEYS_LOCKED, &[&team.0]).await?.first().map(|row| row.try_get(0)).transpose()?;
    let rows = query_rows(&tx, SET_REQUIRE_KEYS, &[&team.0, &require]).await?;
    let changed = rows.first().map(|row| read_team(row, 0)).transpose()?;
    if let (Some(before), Some(team)) = (before.filter(|before| *before != require), &changed) {
        let now = shared.time.commit_time(Time(0));
        audit_chain::record_act(&tx, Some(&Act::of_require_keys(before, team)), now).await?;
    }
    shared.commit(tx, 1).await?;
    Ok(changed)
}

/// The API keys of a team, newest first.
pub(crate) async fn api_keys(shared: &SharedState, team: TeamId) -> TxResult<Vec<ApiKey>> {
    let client = shared.connections.client().await?;
    query_rows(&client, API_KEYS, &[&team.0]).await?.iter().map(read_api_key).collect()
}

/// The API key with this hash, and its team.
pub(crate) async fn api_key_by_hash(shared: &SharedState, hash: [u8; 32]) -> TxResult<Option<(ApiKey, Team)>> {
    let rows = query_rows(&shared.connections.client().await?, BY_HASH, &[&hash.as_slice()]).await?;
    rows.first().map(|row| Ok((read_api_key(row)?, read_team(row, 7)?))).transpose()
}

/// Revokes an API key.
pub(crate) async fn revoke_api_key(
    shared: &SharedState,
    team: TeamId,
    id: ApiKeyId,
    now: Time,
) -> TxResult<Option<ApiKey>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let was_active = !query_rows(&tx, ACTIVE_LOCKED, &[&team.0, &id.0]).await?.is_empty();
    let rows = query_rows(&tx, REVOKE, &[&team.0, &id.0, &now.0]).await?;
    let revoked = rows.first().map(read_api_key).transpose()?;
    let act = revoked.as_ref().filter(|_| was_active).map(Act::of_api_key);
    audit_chain::record_act(&tx, act.as_ref(), now).await?;
    shared.commit(tx, 1).await?;
    Ok(revoked)
}

/// Records when API keys were last used.
pub(crate) async fn touch_api_keys(shared: &SharedState, used: &[(ApiKeyId, Time)]) -> TxResult<()> {
    let mut latest: BTreeMap<ApiKeyId, Time> = BTreeMap::new();
    for (id, at) in used {
        let known = latest.entry(*id).or_insert(*at);
        *known = (*known).max(*at);
    }
    if !latest.is_empty() {
        let (ids, ats): (Vec<Uuid>, Vec<i64>) = latest.into_iter().map(|(id, at)| (id.0, at.0)).unzip();
        query_in_transaction(shared, TOUCH, &[&ids, &ats]).await?;
    }
    Ok(())
}

/// Runs one statement in its own transaction.
async fn query_in_transaction(shared: &SharedState, sql: &str, params: &[&(dyn ToSql + Sync)]) -> TxResult<Vec<Row>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let rows = query_rows(&tx, sql, params).await?;
    shared.commit(tx, 1).await?;
    Ok(rows)
}

/// Whether another team has the name. The advisory lock keeps the answer valid until this transaction ends.
async fn is_name_taken(tx: &Transaction<'_>, team: &Team) -> TxResult<bool> {
    query_rows(tx, LOCK_TEAM_CREATION, &[]).await?;
    Ok(!query_rows(tx, TEAM_WITH_SAME_NAME, &[&team.name, &team.id.0]).await?.is_empty())
}

async fn insert_api_key(tx: &Transaction<'_>, key: &ApiKey) -> TxResult<()> {
    let about = write_json(&key.details)?;
    let (revoked_at, last_used_at) = (key.revoked_at.map(|at| at.0), key.last_used_at.map(|at| at.0));
    let hash = key.hash.as_slice();
    let row: [&(dyn ToSql + Sync); 7] =
        [&key.id.0, &key.team.0, &hash, &about, &key.created_at.0, &revoked_at, &last_used_at];
    let is_new = execute(tx, INSERT_API_KEY, &row).await? == 1;
    audit_chain::record_act(tx, is_new.then(|| Act::of_api_key(key)).as_ref(), key.created_at).await
}

fn read_team(row: &Row, at: usize) -> TxResult<Team> {
    Ok(Team {
        id: TeamId(row.try_get(at)?),
        name: row.try_get(at + 1)?,
        created_at: Time(row.try_get(at + 2)?),
        require_keys: row.try_get(at + 3)?,
    })
}

fn read_api_key(row: &Row) -> TxResult<ApiKey> {
    let hash: &[u8] = row.try_get(2)?;
    Ok(ApiKey {
        id: ApiKeyId(row.try_get(0)?),
        team: TeamId(row.try_get(1)?),
        hash: hash.try_into().map_err(|_short| TxError::corrupt("the hash of a credential"))?,
        details: read_json(row.try_get(3)?, "what a credential may do")?,
        created_at: Time(row.try_get(4)?),
        revoked_at: row.try_get::<_, Option<i64>>(5)?.map(Time),
        last_used_at: row.try_get::<_, Option<i64>>(6)?.map(Time),
    })
}
