//! Accepting: who is the first of a key.
//!
//! Nearly every accept is the first of a free key without slots: one insert into `keys` tells, and four more write
//! the email. Everything else goes the long way through [`decide`].

use mailonce_core::{
    email::{Email, Guard},
    id::{self, TeamId},
    key::KeyHash,
    port::store::{Accept, AcceptBatch, Bound, Once, Operation, Resend, Result, StoreError, Wish},
    time::Time,
};
use rusqlite::{OptionalExtension as _, params};
use std::sync::Arc;

use super::{ledger::Ledger, rows, schema::told};

const BIND_FREE: &str = "INSERT INTO keys (team, hash, bind, email) VALUES (?1, ?2, 1, ?3) ON CONFLICT DO NOTHING";
const BIND: &str = "INSERT INTO keys (team, hash, bind, email) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT DO UPDATE SET bind = ?3, email = ?4, forgotten_at = NULL, digest = NULL, answer = NULL, expires_at = NULL";
const BIND_SLOT: &str = "INSERT INTO keys (team, hash, bind, slot) VALUES (?1, ?2, 0, ?3) ON CONFLICT DO UPDATE SET slot = ?3";
const BIND_OPERATION: &str = "INSERT INTO keys (team, hash, bind, digest, answer, expires_at) VALUES (?1, ?2, 1, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET bind = bind + 1, email = NULL, forgotten_at = NULL, digest = ?3, answer = ?4, expires_at = ?5";
const KEY: &str = "SELECT bind, email, slot, forgotten_at, digest, expires_at FROM keys WHERE team = ?1 AND hash = ?2";
const ANSWER: &str = "SELECT answer FROM keys WHERE team = ?1 AND hash = ?2";
const EMAIL: &str = "INSERT INTO emails (team, email, tail, rev, bind, ttl, guard, digest, head) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const BODY: &str = "INSERT INTO bodies (email, body) VALUES (?1, ?2)";
const HANDOFF: &str = "INSERT INTO handoffs (email, number, team, transport, recipients, state, due_at, attempts, fence) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0)";

/// What one key's row says.
pub(super) struct KeyRow {
    pub(super) bind: u32,
    pub(super) email: Option<i64>,
    pub(super) slot: Option<i64>,
    pub(super) forgotten_at: Option<Time>,
    pub(super) operation: Option<([u8; 32], Time)>,
}

/// A wish with its head already written as JSON, so that the writer does not have to.
pub(super) struct Prepared {
    wish: Wish,
    head: String,
    digest: Vec<u8>,
}

impl Prepared {
    pub(super) fn new(wish: Wish) -> Result<Self> {
        let head = serde_json::to_string(&wish.head).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        let digest = wish.digest.to_bytes();
        Ok(Self { wish, head, digest })
    }
}

/// Binds a key to an email, or says what it is bound to.
pub(super) fn accept(ledger: &mut Ledger, prepared: Prepared, now: Time) -> Result<Accept> {
    let wish = &prepared.wish;
    let team = ledger.team_number(wish.team).ok_or_else(|| no_team(wish.team))?;
    let bits = id::ordered_bits(wish.id.0);
    match wish.key {
        None => first(ledger, team, prepared, 0, None, now),
        Some(key) if wish.slots.is_empty() && ledger.execute(BIND_FREE, params![team, key.0, bits])? == 1 => {
            first(ledger, team, prepared, 1, None, now)
        }
        Some(key) => decide(ledger, team, prepared, key, now),
    }
}

fn no_team(team: TeamId) -> StoreError {
    StoreError::Unreachable(format!("there is no team {team}"))
}

/// The long way: the key has a row already, or the wish takes slots.
fn decide(ledger: &mut Ledger, team: i64, prepared: Prepared, key: KeyHash, now: Time) -> Result<Accept> {
    let wish = &prepared.wish;
    let row = key_row(ledger, team, key)?;
    if let Some(row) = &row
        && let Some(bound) = bound_by(ledger, wish.team, team, row, now)?
    {
        return Ok(Accept::Bound(bound));
    }
    let mut overlaps = stands_for(ledger, wish.team, team, row.as_ref(), now)?;
    let mut free_slots = Vec::with_capacity(wish.slots.len());
    for slot in &wish.slots {
        let row = key_row(ledger, team, *slot)?;
        let taken = stands_for(ledger, wish.team, team, row.as_ref(), now)?;
        overlaps |= taken || bound_alone(ledger, wish.team, team, row.as_ref(), now)?;
        if !taken {
            free_slots.push(*slot);
        }
    }
    let bits = id::ordered_bits(wish.id.0);
    for slot in free_slots {
        ledger.execute(BIND_SLOT, params![team, slot.0, bits])?;
    }
    let bind = row.map_or(0, |row| row.bind) + 1;
    ledger.execute(BIND, params![team, key.0, bind, bits])?;
    first(ledger, team, prepared, bind, overlaps.then_some(Guard::Overlaps), now)
}

/// Writes the email itself. Its key is bound already.
fn first(ledger: &mut Ledger, team: i64, prepared: Prepared, bind: u32, guard: Option<Guard>, now: Time) -> Result<Accept> {
    let Prepared { wish, head, digest } = prepared;
    let (email, body) = wish.become_email(bind, guard, now);
    let (bits, tail) = (id::ordered_bits(email.id.0), id::tail_bits(email.id.0));
    let guard = email.guard.map(Guard::word);
    ledger.execute(EMAIL, params![team, bits, tail, email.rev, bind, email.ttl.0, guard, digest, head])?;
    write_body(ledger, bits, &body)?;
    for handoff in &email.handoffs {
        let recipients = json_list(&handoff.recipients);
        let due = handoff.due_at.map(|at| at.0);
        let state = handoff.state.word();
        ledger.execute(HANDOFF, params![bits, handoff.number, team, handoff.transport, recipients, state, due])?;
    }
    ledger.emit(team, email.accepted_event());
    Ok(Accept::First(email))
}

fn write_body(ledger: &Ledger, bits: i64, body: &Arc<[u8]>) -> Result<()> {
    ledger.execute(BODY, params![bits, body.as_ref()]).map(drop)
}

/// A JSON array of addresses. One plain address needs no serializer.
fn json_list(addresses: &[String]) -> String {
    serde_json::Value::from(addresses).to_string()
}

/// The row of a key.
pub(super) fn key_row(ledger: &Ledger, team: i64, key: KeyHash) -> Result<Option<KeyRow>> {
    key_row_on(&ledger.conn, team, key)
}

/// The row of a key, on any connection.
pub(super) fn key_row_on(conn: &rusqlite::Connection, team: i64, key: KeyHash) -> Result<Option<KeyRow>> {
    let mut statement = conn.prepare_cached(KEY).map_err(told)?;
    let row = statement.query_row(params![team, key.0], |row| {
        let digest: Option<[u8; 32]> = row.get(4)?;
        let expires_at: Option<i64> = row.get(5)?;
        Ok(KeyRow {
            bind: row.get(0)?,
            email: row.get(1)?,
            slot: row.get(2)?,
            forgotten_at: row.get::<_, Option<i64>>(3)?.map(Time),
            operation: digest.zip(expires_at.map(Time)),
        })
    });
    row.optional().map_err(told)
}

/// What a row's key is bound to and remembered for.
fn bound_by(ledger: &Ledger, team: TeamId, number: i64, row: &KeyRow, now: Time) -> Result<Option<Bound>> {
    bound_by_on(&ledger.conn, team, number, row, now)
}

/// What a row's key is bound to and remembered for, on any connection.
pub(super) fn bound_by_on(
    conn: &rusqlite::Connection,
    team: TeamId,
    number: i64,
    row: &KeyRow,
    now: Time,
) -> Result<Option<Bound>> {
    if let Some((digest, expires_at)) = row.operation {
        return Ok((expires_at > now).then_some(Bound::Operation { digest }));
    }
    let Some(bits) = row.email else { return Ok(None) };
    let email = rows::email(conn, team, number, bits)?;
    Ok(email.filter(|email| !email.is_forgotten(now)).map(Bound::Email))
}

/// Whether an email to several recipients stands for this key's one recipient.
fn stands_for(ledger: &Ledger, team: TeamId, number: i64, row: Option<&KeyRow>, now: Time) -> Result<bool> {
    let Some(bits) = row.and_then(|row| row.slot) else { return Ok(false) };
    let email = rows::email(&ledger.conn, team, number, bits)?;
    Ok(email.is_some_and(|email| email.occupies_slots(now)))
}

/// Whether an email to this key's one recipient alone is remembered.
fn bound_alone(ledger: &Ledger, team: TeamId, number: i64, row: Option<&KeyRow>, now: Time) -> Result<bool> {
    let Some(row) = row else { return Ok(false) };
    let bound = bound_by(ledger, team, number, row, now)?;
    Ok(matches!(bound, Some(Bound::Email(email)) if email.occupies_slots(now)))
}

/// Accepts every item of a batch, or none.
pub(super) fn accept_batch(
    ledger: &mut Ledger,
    operation: Option<&Operation>,
    items: Vec<Prepared>,
    now: Time,
) -> Result<AcceptBatch> {
    if let Some(operation) = operation {
        match repeat_of::<()>(ledger, operation, now)? {
            Some(Once::Mismatch(bound)) => return Ok(AcceptBatch::Mismatch(bound)),
            Some(_) => {}
            None => bind_operation(ledger, operation)?,
        }
    }
    items.into_iter().map(|item| accept(ledger, item, now)).collect::<Result<_>>().map(AcceptBatch::Items)
}

/// The answer to an operation whose key is bound already. `None` when it is free.
pub(super) fn repeat_of<T>(ledger: &Ledger, operation: &Operation, now: Time) -> Result<Option<Once<T>>> {
    let team = ledger.team_number(operation.team).ok_or_else(|| no_team(operation.team))?;
    let Some(row) = key_row(ledger, team, operation.key)? else { return Ok(None) };
    match bound_by(ledger, operation.team, team, &row, now)? {
        Some(Bound::Operation { digest }) if digest == operation.digest => {
            let key = params![team, operation.key.0];
            let answer = ledger.conn.prepare_cached(ANSWER).and_then(|mut s| s.query_row(key, |row| row.get(0)));
            Ok(Some(Once::Repeated(answer.map_err(told)?)))
        }
        Some(other) => Ok(Some(Once::Mismatch(other))),
        None => Ok(None),
    }
}

/// Binds the free key of an operation that was done.
pub(super) fn bind_operation(ledger: &Ledger, operation: &Operation) -> Result<()> {
    let team = ledger.team_number(operation.team).ok_or_else(|| no_team(operation.team))?;
    let Operation { digest, answer, expires_at, .. } = operation;
    ledger.execute(BIND_OPERATION, params![team, operation.key.0, digest, answer, expires_at.0]).map(drop)
}

/// Makes the next version of an email, once.
pub(super) fn resend(ledger: &mut Ledger, wish: Wish, operation: Option<&Operation>, now: Time) -> Result<Once<Resend>> {
    let team = ledger.team_number(wish.team).ok_or_else(|| no_team(wish.team))?;
    let previous = wish.head.resend_of.map(|id| rows::email_by_id(&ledger.conn, wish.team, team, id));
    let Some(mut previous) = previous.transpose()?.flatten() else { return Ok(Once::Done(Resend::Missing)) };
    if let Some(operation) = operation
        && let Some(answer) = repeat_of(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let answer = next_version(ledger, team, &mut previous, wish, now)?;
    if let (Some(operation), Once::Done(Resend::First(_) | Resend::Repeated(_))) = (operation, &answer) {
        bind_operation(ledger, operation)?;
    }
    Ok(answer)
}

fn next_version(ledger: &mut Ledger, team: i64, previous: &mut Email, wish: Wish, now: Time) -> Result<Once<Resend>> {
    if let Some(id) = previous.resent_as
        && let Some(email) = rows::email_by_id(&ledger.conn, wish.team, team, id)?
    {
        return Ok(Once::Done(Resend::Repeated(email)));
    }
    if let Err(refusal) = previous.may_resend(now) {
        return Ok(Once::Done(Resend::Refused(refusal, previous.clone())));
    }
    let answer = match accept(ledger, Prepared::new(wish)?, now)? {
        Accept::First(email) => Resend::First(email),
        Accept::Bound(Bound::Email(email)) => Resend::Repeated(email),
        Accept::Bound(other) => return Ok(Once::Mismatch(other)),
    };
    if let Resend::First(email) | Resend::Repeated(email) = &answer {
        ledger.note_changed(email.clone());
        let event = previous.mark_resent(email.id, now);
        super::change::save(ledger, team, previous)?;
        ledger.emit(team, event);
        ledger.note_changed(previous.clone());
    }
    Ok(Once::Done(answer))
}

/// Tells of a first email; a repeat changed nothing.
pub(super) fn told_of(answer: &Accept) -> Option<&Email> {
    match answer {
        Accept::First(email) => Some(email),
        Accept::Bound(_) => None,
    }
}
