//! What idempotency keys are bound to: reads their rows, and binds the keys of operations other than sends.

use mailonce_core::{
    id::TeamId,
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation, OperationDecision},
    outbound::key_binding::KeyBinding,
    ports::store::{Result, StoreError},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::borrow::Cow;

use crate::sqlite::{fresh_keys::FreshKeys, rows, schema::store_error, write_session::WriteSession};

const BIND_OPERATION: &str = "INSERT INTO keys (team, hash, bind, digest, answer, expires_at) VALUES (?1, ?2, 1, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET bind = bind + 1, email = NULL, forgotten_at = NULL, digest = ?3, answer = ?4, expires_at = ?5";
const SELECT_KEY: &str =
    "SELECT bind, email, slot, forgotten_at, digest, expires_at FROM keys WHERE team = ?1 AND hash = ?2";
const SELECT_ANSWER: &str = "SELECT answer FROM keys WHERE team = ?1 AND hash = ?2";

/// A row of the `keys` table.
#[derive(Clone, Copy)]
pub(crate) struct KeyRow {
    pub(crate) bind_number: u32,
    pub(crate) email: Option<i64>,
    pub(crate) slot: Option<i64>,
    pub(crate) forgotten_at: Option<Time>,
    pub(crate) operation: Option<([u8; 32], Time)>,
}

impl KeyRow {
    /// The row of a fresh key: bound once, and not yet in the `keys` table.
    fn fresh(email: i64) -> Self {
        Self { bind_number: 1, email: Some(email), slot: None, forgotten_at: None, operation: None }
    }
}

/// The number of a team that must exist.
pub(crate) fn known_team_number(ledger: &WriteSession<'_>, team: TeamId) -> Result<i64> {
    ledger.team_number(team).ok_or_else(|| unknown_team_error(team))
}

pub(crate) fn unknown_team_error(team: TeamId) -> StoreError {
    StoreError::Unreachable(format!("there is no team {team}"))
}

/// Flushes a fresh key into the `keys` table, so that its row can be changed.
pub(crate) fn flush_key(ledger: &WriteSession<'_>, team: i64, key: KeyHash) -> Result<()> {
    ledger.fresh_keys.borrow_mut().flush_key(team, key)
}

/// The row of a key, as the current transaction sees it.
pub(crate) fn key_row(ledger: &WriteSession<'_>, team: i64, key: KeyHash) -> Result<Option<KeyRow>> {
    let fresh = ledger.fresh_keys.borrow().get(team, key);
    fresh.map_or_else(|| key_in_tree(ledger.conn, team, key), |email| Ok(Some(KeyRow::fresh(email))))
}

/// The committed row of a key, on a reader connection.
pub(crate) fn read_key_row(conn: &Connection, fresh: &FreshKeys, team: i64, key: KeyHash) -> Result<Option<KeyRow>> {
    let fresh = fresh.get(team, key);
    fresh.map_or_else(|| key_in_tree(conn, team, key), |email| Ok(Some(KeyRow::fresh(email))))
}

fn key_in_tree(conn: &Connection, team: i64, key: KeyHash) -> Result<Option<KeyRow>> {
    let mut statement = conn.prepare_cached(SELECT_KEY).map_err(store_error)?;
    let row = statement.query_row(params![team, key.0], |row| {
        let digest: Option<[u8; 32]> = row.get(4)?;
        let expires_at: Option<i64> = row.get(5)?;
        Ok(KeyRow {
            bind_number: row.get(0)?,
            email: row.get(1)?,
            slot: row.get(2)?,
            forgotten_at: row.get::<_, Option<i64>>(3)?.map(Time),
            operation: digest.zip(expires_at.map(Time)),
        })
    });
    row.optional().map_err(store_error)
}

/// What a key is bound to. `None` when it is free or has expired.
pub(crate) fn key_binding(
    ledger: &WriteSession<'_>,
    (id, team): (TeamId, i64),
    key: KeyHash,
    now: Time,
) -> Result<Option<KeyBinding>> {
    let row = key_row(ledger, team, key)?;
    Ok(row
        .map(|row| binding_of_row(ledger.conn, id, team, &row, ledger.time.expiry_cutoff(now)))
        .transpose()?
        .flatten())
}

/// What a key is bound to, on a reader connection. `None` if the binding expired by `expiry_cutoff`.
pub(crate) fn read_key_binding(
    conn: &Connection,
    fresh: &FreshKeys,
    (team, number): (TeamId, i64),
    key: KeyHash,
    expiry_cutoff: Time,
) -> Result<Option<KeyBinding>> {
    let Some(row) = read_key_row(conn, fresh, number, key)? else { return Ok(None) };
    binding_of_row(conn, team, number, &row, expiry_cutoff)
}

/// What the key of this row is bound to, on any connection. `None` if the binding expired by `forget_by`.
pub(crate) fn binding_of_row(
    conn: &Connection,
    team: TeamId,
    number: i64,
    row: &KeyRow,
    forget_by: Time,
) -> Result<Option<KeyBinding>> {
    if let Some((digest, expires_at)) = row.operation {
        return Ok(KeyBinding::to_operation(digest, expires_at, forget_by));
    }
    let Some(bits) = row.email else { return Ok(None) };
    let email = rows::email_by_bits(conn, team, number, bits)?;
    Ok(email.and_then(|email| KeyBinding::to_email(Cow::Owned(email), forget_by)))
}

/// The replayed response, or the mismatch, for an operation whose key is bound already. `None` when the key is free.
pub(crate) fn find_replay<T>(
    ledger: &WriteSession<'_>,
    operation: &KeyedOperation,
    now: Time,
) -> Result<Option<IdempotentResult<T>>> {
    let team = known_team_number(ledger, operation.team)?;
    match operation.decide(key_binding(ledger, (operation.team, team), operation.key, now)?) {
        OperationDecision::First => Ok(None),
        OperationDecision::Replayed => {
            let key = params![team, operation.key.0];
            let answer = ledger.conn.prepare_cached(SELECT_ANSWER).and_then(|mut s| s.query_row(key, |row| row.get(0)));
            Ok(Some(IdempotentResult::Replayed(answer.map_err(store_error)?)))
        }
        OperationDecision::KeyMismatch(bound) => Ok(Some(IdempotentResult::KeyMismatch(bound))),
    }
}

/// Binds the key of a completed operation. The key must be free.
pub(crate) fn bind_operation(ledger: &WriteSession<'_>, operation: &KeyedOperation) -> Result<()> {
    let team = known_team_number(ledger, operation.team)?;
    let KeyedOperation { digest, response: answer, expires_at, .. } = operation;
    flush_key(ledger, team, operation.key)?;
    ledger.execute(BIND_OPERATION, params![team, operation.key.0, digest, answer, expires_at.0]).map(drop)
}

/// Binds the key of an operation that writes nothing else, or returns the replay.
pub(crate) fn bind_operation_once(
    ledger: &WriteSession<'_>,
    operation: &KeyedOperation,
    now: Time,
) -> Result<IdempotentResult<()>> {
    if let Some(answer) = find_replay(ledger, operation, now)? {
        return Ok(answer);
    }
    bind_operation(ledger, operation)?;
    Ok(IdempotentResult::Done(()))
}
