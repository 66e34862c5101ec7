//! Teams and API keys.

use mailonce_core::{
    access::team::{ApiKey, CreateTeamResult, Team},
    control::audit::act::Act,
    id::{ApiKeyId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    ports::store::{Result, StoreError},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use std::sync::PoisonError;
use uuid::Uuid;

use crate::sqlite::{
    Sqlite, control::audit, outbound::key_bindings, schema::store_error, write_session::WriteSession, writer::Priority,
};

const INSERT_TEAM: &str =
    "INSERT INTO teams (id, name, created_at, require_keys) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
const COUNT_SAME_NAME: &str = "SELECT count(*) FROM teams WHERE name = ?1 AND id <> ?2";
const TEAMS: &str = "SELECT id, name, created_at, require_keys FROM teams ORDER BY id";
const REQUIRES_KEYS: &str = "SELECT require_keys FROM teams WHERE id = ?1";
const SET_REQUIRE_KEYS: &str =
    "UPDATE teams SET require_keys = ?2 WHERE id = ?1 RETURNING id, name, created_at, require_keys";
const INSERT_API_KEY: &str = "INSERT INTO api_keys (id, team, hash, about, created_at, revoked_at, last_used_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
const API_KEYS: &str =
    "SELECT id, hash, about, created_at, revoked_at, last_used_at FROM api_keys WHERE team = ?1 ORDER BY id DESC";
const BY_HASH: &str = "SELECT k.id, k.hash, k.about, k.created_at, k.revoked_at, k.last_used_at, \
     t.id, t.name, t.created_at, t.require_keys FROM api_keys k JOIN teams t ON t.number = k.team WHERE k.hash = ?1";
const IS_ACTIVE: &str = "SELECT 1 FROM api_keys WHERE team = ?1 AND id = ?2 AND revoked_at IS NULL";
const REVOKE: &str = "UPDATE api_keys SET revoked_at = COALESCE(revoked_at, ?3) WHERE team = ?1 AND id = ?2 \
     RETURNING id, hash, about, created_at, revoked_at, last_used_at";
const TOUCH: &str = "UPDATE api_keys SET last_used_at = MAX(COALESCE(last_used_at, 0), ?2) WHERE id = ?1";

fn team_row(row: &Row<'_>, at: usize) -> rusqlite::Result<Team> {
    Ok(Team {
        id: TeamId(Uuid::from_bytes(row.get(at)?)),
        name: row.get(at + 1)?,
        created_at: Time(row.get(at + 2)?),
        require_keys: row.get(at + 3)?,
    })
}

fn api_key_row(row: &Row<'_>, team: TeamId) -> rusqlite::Result<ApiKey> {
    let about: String = row.get(2)?;
    let broken =
        |e: serde_json::Error| rusqlite::Error::FromSqlConversionFailure(2, rusqlite::types::Type::Text, Box::new(e));
    Ok(ApiKey {
        id: ApiKeyId(Uuid::from_bytes(row.get(0)?)),
        team,
        hash: row.get(1)?,
        details: serde_json::from_str(&about).map_err(broken)?,
        created_at: Time(row.get(3)?),
        revoked_at: row.get::<_, Option<i64>>(4)?.map(Time),
        last_used_at: row.get::<_, Option<i64>>(5)?.map(Time),
    })
}

/// All teams with their numbers.
pub(crate) fn team_numbers(conn: &Connection) -> Result<Vec<(TeamId, i64)>> {
    let mut statement = conn.prepare("SELECT id, number FROM teams").map_err(store_error)?;
    let rows = statement.query_map([], |row| Ok((TeamId(Uuid::from_bytes(row.get(0)?)), row.get(1)?)));
    rows.and_then(Iterator::collect).map_err(store_error)
}

/// Creates a team with its first API key, and returns the team's number. Returns `None` when the name is taken.
pub(crate) fn create_team(
    ledger: &mut WriteSession<'_>,
    team: &Team,
    key: &ApiKey,
    operation: Option<&KeyedOperation>,
) -> Result<IdempotentResult<Option<i64>>> {
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, key.created_at)?
    {
        return Ok(answer);
    }
    let namesakes = params![team.name, team.id.0.as_bytes()];
    let namesakes: i64 = ledger.conn.query_row(COUNT_SAME_NAME, namesakes, |row| row.get(0)).map_err(store_error)?;
    if namesakes > 0 {
        return Ok(IdempotentResult::Done(None));
    }
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    let row = params![team.id.0.as_bytes(), team.name, team.created_at.0, team.require_keys];
    if ledger.execute(INSERT_TEAM, row)? == 1 {
        audit::record_act(ledger, Some(Act::of_new_team(team)), team.created_at)?;
    }
    let find = "SELECT number FROM teams WHERE id = ?1";
    let number: i64 = ledger.conn.query_row(find, [team.id.0.as_bytes()], |row| row.get(0)).map_err(store_error)?;
    insert_api_key(ledger, number, key)?;
    Ok(IdempotentResult::Done(Some(number)))
}

/// Creates an API key.
pub(crate) fn create_api_key(
    ledger: &mut WriteSession<'_>,
    key: &ApiKey,
    operation: Option<&KeyedOperation>,
) -> Result<IdempotentResult<()>> {
    let Some(number) = ledger.team_number(key.team) else {
        return Err(StoreError::Unreachable(format!("there is no team {}", key.team)));
    };
    if let Some(operation) = operation {
        if let Some(answer) = key_bindings::find_replay(ledger, operation, key.created_at)? {
            return Ok(answer);
        }
        key_bindings::bind_operation(ledger, operation)?;
    }
    insert_api_key(ledger, number, key)?;
    Ok(IdempotentResult::Done(()))
}

fn insert_api_key(ledger: &mut WriteSession<'_>, team: i64, key: &ApiKey) -> Result<()> {
    let about = serde_json::to_string(&key.details).map_err(|e| StoreError::Corrupt(e.to_string()))?;
    let (revoked, used) = (key.revoked_at.map(|at| at.0), key.last_used_at.map(|at| at.0));
    let row = params![key.id.0.as_bytes(), team, key.hash, about, key.created_at.0, revoked, used];
    let is_new = ledger.execute(INSERT_API_KEY, row)? == 1;
    audit::record_act(ledger, is_new.then(|| Act::of_api_key(key)), key.created_at)
}

/// Sets whether a team requires idempotency keys.
pub(crate) fn set_require_keys(ledger: &mut WriteSession<'_>, team: TeamId, require: bool) -> Result<Option<Team>> {
    let mut statement = ledger.conn.prepare_cached(REQUIRES_KEYS).map_err(store_error)?;
    let before = statement.query_row([team.0.as_bytes()], |row| row.get::<_, bool>(0)).optional();
    let before = before.map_err(store_error)?;
    let mut statement = ledger.conn.prepare_cached(SET_REQUIRE_KEYS).map_err(store_error)?;
    let changed = statement.query_row(params![team.0.as_bytes(), require], |row| team_row(row, 0)).optional();
    let changed = changed.map_err(store_error)?;
    if let (Some(before), Some(team)) = (before.filter(|before| *before != require), &changed) {
        let now = ledger.time.commit_time(Time(0));
        audit::record_act(ledger, Some(Act::of_require_keys(before, team)), now)?;
    }
    Ok(changed)
}

/// Revokes an API key.
pub(crate) fn revoke_api_key(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    id: ApiKeyId,
    now: Time,
) -> Result<Option<ApiKey>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let mut statement = ledger.conn.prepare_cached(IS_ACTIVE).map_err(store_error)?;
    let was_active = statement.exists(params![number, id.0.as_bytes()]).map_err(store_error)?;
    let mut statement = ledger.conn.prepare_cached(REVOKE).map_err(store_error)?;
    let row = statement.query_row(params![number, id.0.as_bytes(), now.0], |row| api_key_row(row, team));
    let revoked = row.optional().map_err(store_error)?;
    audit::record_act(ledger, revoked.as_ref().filter(|_| was_active).map(Act::of_api_key), now)?;
    Ok(revoked)
}

/// Records when API keys were last used.
pub(crate) fn touch_api_keys(ledger: &WriteSession<'_>, used: &[(ApiKeyId, Time)]) -> Result<()> {
    used.iter().try_for_each(|(id, at)| ledger.execute(TOUCH, params![id.0.as_bytes(), at.0]).map(drop))
}

/// All teams.
pub(crate) fn teams(conn: &Connection) -> Result<Vec<Team>> {
    let mut statement = conn.prepare_cached(TEAMS).map_err(store_error)?;
    statement.query_map([], |row| team_row(row, 0)).and_then(Iterator::collect).map_err(store_error)
}

/// The API keys of a team, newest first.
pub(crate) fn api_keys(conn: &Connection, team: TeamId, number: i64) -> Result<Vec<ApiKey>> {
    let mut statement = conn.prepare_cached(API_KEYS).map_err(store_error)?;
    statement.query_map([number], |row| api_key_row(row, team)).and_then(Iterator::collect).map_err(store_error)
}

/// The API key with this hash, and its team.
pub(crate) fn api_key_by_hash(conn: &Connection, hash: [u8; 32]) -> Result<Option<(ApiKey, Team)>> {
    let mut statement = conn.prepare_cached(BY_HASH).map_err(store_error)?;
    let found = statement.query_row([hash.as_slice()], |row| {
        let team = team_row(row, 6)?;
        Ok((api_key_row(row, team.id)?, team))
    });
    found.optional().map_err(store_error)
}

impl Sqlite {
    /// Creates a team on the writer thread, with its first API key.
    pub(crate) async fn run_create_team(
        &self,
        team: Team,
        key: ApiKey,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateTeamResult>> {
        let id = team.id;
        let verb = move |ledger: &mut WriteSession<'_>| create_team(ledger, &team, &key, operation.as_ref());
        // Publish the team's number to readers only after the commit.
        let learn = move |answer: &IdempotentResult<Option<i64>>, ledger: &WriteSession<'_>| {
            if let IdempotentResult::Done(Some(number)) = answer {
                ledger.teams.write().unwrap_or_else(PoisonError::into_inner).add(id, *number);
            }
        };
        let made = self.writer.run(Priority::Other, verb, learn).await?;
        Ok(made.map(|number| number.map_or(CreateTeamResult::NameTaken, |_number| CreateTeamResult::Created)))
    }
}
