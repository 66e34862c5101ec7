//! Accepting: who is the first of a key.
//!
//! Nearly every accept is the first of a free key without slots: one look tells, and two inserts write
//! the email. Everything else goes the long way through [`decide`].

use mailonce_core::{
    control::budget::{Charge, Overrun, Usage},
    conversation::likeness::Likeness,
    email::{Email, EmailState, Guard, Refusal},
    id::{self, TeamId},
    key::KeyHash,
    port::store::{Accept, Bound, Once, Operation, Resend, Result, StoreError, Wish},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::sync::Arc;

use super::{
    control::budget,
    events::Packed,
    fresh::FreshKeys,
    ledger::{AcceptStatements, Ledger},
    likeness, rows,
    schema::told,
};

const BIND: &str = "INSERT INTO keys (team, hash, bind, email) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT DO UPDATE SET bind = ?3, email = ?4, forgotten_at = NULL, digest = NULL, answer = NULL, expires_at = NULL";
const BIND_SLOT: &str =
    "INSERT INTO keys (team, hash, bind, slot) VALUES (?1, ?2, 0, ?3) ON CONFLICT DO UPDATE SET slot = ?3";
const BIND_OPERATION: &str = "INSERT INTO keys (team, hash, bind, digest, answer, expires_at) VALUES (?1, ?2, 1, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET bind = bind + 1, email = NULL, forgotten_at = NULL, digest = ?3, answer = ?4, expires_at = ?5";
const KEY: &str = "SELECT bind, email, slot, forgotten_at, digest, expires_at FROM keys WHERE team = ?1 AND hash = ?2";
const ANSWER: &str = "SELECT answer FROM keys WHERE team = ?1 AND hash = ?2";
const EMAIL: &str = "INSERT INTO emails (team, email, tail, rev, bind, ttl, guard, digest, head, body) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const BODY: &str = "INSERT INTO bodies (email, body) VALUES (?1, ?2)";
pub(super) const HANDOFF: &str = "INSERT INTO handoffs (team, email, number, transport, recipients, state, due_at, attempts, fence) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0)";

/// Bytes that most heads fit in, so that nothing grows while one is written.
const HEAD_BYTES: usize = 512;

/// Bytes of a packed body that ride in the email's own row.
const INLINE_BODY: usize = 1_500;

/// What one key's row says.
pub(super) struct KeyRow {
    pub(super) bind: u32,
    pub(super) email: Option<i64>,
    pub(super) slot: Option<i64>,
    pub(super) forgotten_at: Option<Time>,
    pub(super) operation: Option<([u8; 32], Time)>,
}

impl KeyRow {
    /// A key that was bound once and has no row yet.
    fn fresh(email: i64) -> Self {
        Self { bind: 1, email: Some(email), slot: None, forgotten_at: None, operation: None }
    }
}

/// The statements of the plain accept.
pub(super) fn statements(conn: &Connection) -> Result<AcceptStatements<'_>> {
    let prepare = |sql: &str| conn.prepare(sql).map_err(told);
    Ok(AcceptStatements { email: prepare(EMAIL)?, body: prepare(BODY)?, handoff: prepare(HANDOFF)? })
}

/// A wish with everything worked out that does not need the ledger, so that the writer only binds and steps. It is
/// made for the usual case, the first of a free key; the others change what differs.
pub(super) struct Prepared {
    email: Email,
    key: Option<KeyHash>,
    slots: Vec<KeyHash>,
    first_wins: bool,
    likeness: Option<Likeness>,
    charges: Vec<Charge>,
    body: Arc<[u8]>,
    head: String,
    digest: Vec<u8>,
    recipients: Vec<String>,
    event: Packed,
}

impl Prepared {
    pub(super) fn new(mut wish: Wish, now: Time) -> Result<Self> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        serde_json::to_writer(&mut head, &wish.head).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        let head = String::from_utf8(head).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        let (key, slots, digest) = (wish.key, wish.slots.clone(), wish.digest.to_bytes());
        let (first_wins, likeness) = (wish.first_wins, wish.care.likeness.take());
        let charges = std::mem::take(&mut wish.care.charges);
        let (email, body) = wish.become_email(u32::from(key.is_some()), None, now);
        let recipients = email.handoffs.iter().map(|handoff| json_list(&handoff.recipients)).collect();
        let event = Packed::of_accepted(&email);
        Ok(Self { email, key, slots, first_wins, likeness, charges, body, head, digest, recipients, event })
    }
}

/// What the ledger said to a prepared wish.
pub(super) enum Said {
    /// It is the first of its key; what was prepared stands, as changed.
    First,
    /// Its key was bound before.
    Bound(Bound),
    /// It would exceed a budget.
    OverBudget(Overrun),
}

impl Prepared {
    /// The answer, made where the wish came from: what was prepared is taken apart there, not by the writer.
    pub(super) fn answer(self, said: Said) -> Accept {
        match said {
            Said::First => Accept::First(self.email),
            Said::Bound(bound) => Accept::Bound(bound),
            Said::OverBudget(exceeded) => Accept::OverBudget(exceeded),
        }
    }

    /// The email to tell of, when it is the first.
    pub(super) fn told(&self, said: &Said) -> Option<&Email> {
        matches!(said, Said::First).then_some(&self.email)
    }

    /// Keeps it back.
    fn hold(&mut self, guard: Guard, now: Time) {
        self.email.hold(guard, now);
        self.event = Packed::of_accepted(&self.email);
    }
}

/// Binds a key to an email, or says what it is bound to.
pub(super) fn accept(ledger: &mut Ledger<'_>, prepared: &mut Prepared, now: Time) -> Result<Said> {
    let team = ledger.team_number(prepared.email.team).ok_or_else(|| no_team(prepared.email.team))?;
    if let Some(exceeded) = over_budget(ledger, team, prepared, now)? {
        return Ok(Said::OverBudget(exceeded));
    }
    let Some(key) = prepared.key else { return first(ledger, team, prepared, now) };
    let bits = id::ordered_bits(prepared.email.id.0);
    if prepared.slots.is_empty()
        && !prepared.email.head.takes_earlier_slots()
        && ledger.fresh.get_mut().bind_free(team, key, bits)?
    {
        return first(ledger, team, prepared, now);
    }
    decide(ledger, team, prepared, key, now)
}

/// The budget that an email would exceed, unless its key is bound: a retry is never refused. Most count in none.
fn over_budget(ledger: &Ledger<'_>, team: i64, prepared: &Prepared, now: Time) -> Result<Option<Overrun>> {
    if prepared.charges.is_empty() {
        return Ok(None);
    }
    let is_bound = prepared.key.map(|key| bound(ledger, (prepared.email.team, team), key, now)).transpose()?;
    if is_bound.flatten().is_some() {
        return Ok(None);
    }
    budget::exceeded(ledger, team, &prepared.charges)
}

pub(super) fn no_team(team: TeamId) -> StoreError {
    StoreError::Unreachable(format!("there is no team {team}"))
}

/// The long way: the key has a row already, or the wish takes slots.
fn decide(ledger: &mut Ledger<'_>, team: i64, prepared: &mut Prepared, key: KeyHash, now: Time) -> Result<Said> {
    let id = prepared.email.team;
    let row = key_row(ledger, team, key)?;
    if let Some(row) = &row
        && let Some(bound) = bound_by_on(ledger.conn, id, team, row, ledger.time.forget_by(now))?
    {
        return Ok(Said::Bound(bound));
    }
    let mut overlaps = stands_for(ledger, id, team, row.as_ref(), now)?;
    let mut free_slots = Vec::with_capacity(prepared.slots.len());
    for slot in &prepared.slots {
        let row = key_row(ledger, team, *slot)?;
        let taken = stands_for(ledger, id, team, row.as_ref(), now)?;
        overlaps |= taken || bound_alone(ledger, id, team, row.as_ref(), now)?;
        if !taken {
            free_slots.push(*slot);
        }
    }
    for slot in prepared.email.head.earlier_slots(id) {
        let row = key_row(ledger, team, slot)?;
        if !stands_for(ledger, id, team, row.as_ref(), now)? {
            free_slots.push(slot);
        }
    }
    let bits = id::ordered_bits(prepared.email.id.0);
    for slot in free_slots {
        settle(ledger, team, slot)?;
        ledger.execute(BIND_SLOT, params![team, slot.0, bits])?;
    }
    prepared.email.bind = row.map_or(0, |row| row.bind) + 1;
    settle(ledger, team, key)?;
    ledger.execute(BIND, params![team, key.0, prepared.email.bind, bits])?;
    if overlaps {
        prepared.hold(Guard::Overlaps, now);
    }
    first(ledger, team, prepared, now)
}

/// Holds an email that says what another said of late, and remembers what it says. Most are not compared.
fn compare(ledger: &Ledger<'_>, team: i64, prepared: &mut Prepared, now: Time) -> Result<()> {
    let Some(likeness) = prepared.likeness.take() else { return Ok(()) };
    let Email { id, team: team_id, .. } = prepared.email;
    let goes = prepared.email.state() != EmailState::Held;
    // A later version was asked for on purpose: it is only remembered.
    if goes && prepared.email.head.resend_of.is_none() && likeness::is_known(ledger, (team_id, team), &likeness, now)? {
        prepared.hold(Guard::LooksDuplicate, now);
    }
    likeness::note(ledger, team, &likeness, id::ordered_bits(id.0), now)
}

/// Writes the email itself. Its key is bound already.
fn first(ledger: &mut Ledger<'_>, team: i64, prepared: &mut Prepared, now: Time) -> Result<Said> {
    compare(ledger, team, prepared, now)?;
    budget::charge(ledger, team, &prepared.email, &prepared.charges)?;
    let Prepared { email, body, head, digest, recipients, event, .. } = &*prepared;
    let (bits, tail) = (id::ordered_bits(email.id.0), id::tail_bits(email.id.0));
    let guard = email.guard.map(Guard::word);
    let accepts = &mut ledger.accepts;
    let inline = Some(body.as_ref()).filter(|body| body.len() <= INLINE_BODY);
    let row = params![team, bits, tail, email.rev, email.bind, email.ttl.0, guard, digest, head, inline];
    accepts.email.execute(row).map_err(told)?;
    if inline.is_none() {
        accepts.body.execute(params![bits, body.as_ref()]).map_err(told)?;
    }
    for (handoff, recipients) in email.handoffs.iter().zip(recipients) {
        let due = handoff.due_at.map(|at| at.0);
        let row = params![team, bits, handoff.number, handoff.transport, recipients, handoff.state.word(), due];
        accepts.handoff.execute(row).map_err(told)?;
    }
    ledger.emit_packed(team, event);
    Ok(Said::First)
}

/// A JSON array of addresses.
fn json_list(addresses: &[String]) -> String {
    serde_json::to_string(addresses).unwrap_or_default()
}

/// Moves a key into the tree if it is fresh, so that its row can be changed.
pub(super) fn settle(ledger: &Ledger<'_>, team: i64, key: KeyHash) -> Result<()> {
    ledger.fresh.borrow_mut().settle(team, key)
}

/// What the ledger knows of a key.
pub(super) fn key_row(ledger: &Ledger<'_>, team: i64, key: KeyHash) -> Result<Option<KeyRow>> {
    let fresh = ledger.fresh.borrow().get(team, key);
    fresh.map_or_else(|| key_in_tree(ledger.conn, team, key), |email| Ok(Some(KeyRow::fresh(email))))
}

/// What is committed of a key, on a reader's connection.
pub(super) fn key_row_on(conn: &Connection, fresh: &FreshKeys, team: i64, key: KeyHash) -> Result<Option<KeyRow>> {
    let fresh = fresh.get(team, key);
    fresh.map_or_else(|| key_in_tree(conn, team, key), |email| Ok(Some(KeyRow::fresh(email))))
}

fn key_in_tree(conn: &Connection, team: i64, key: KeyHash) -> Result<Option<KeyRow>> {
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

/// What a key is bound to and remembered for.
pub(super) fn bound(ledger: &Ledger<'_>, (id, team): (TeamId, i64), key: KeyHash, now: Time) -> Result<Option<Bound>> {
    let row = key_row(ledger, team, key)?;
    Ok(row.map(|row| bound_by_on(ledger.conn, id, team, &row, ledger.time.forget_by(now))).transpose()?.flatten())
}

/// What a row's key is bound to, on any connection, unless it expired by `forget_by`.
pub(super) fn bound_by_on(
    conn: &Connection,
    team: TeamId,
    number: i64,
    row: &KeyRow,
    forget_by: Time,
) -> Result<Option<Bound>> {
    if let Some((digest, expires_at)) = row.operation {
        return Ok((expires_at > forget_by).then_some(Bound::Operation { digest }));
    }
    let Some(bits) = row.email else { return Ok(None) };
    let email = rows::email(conn, team, number, bits)?;
    Ok(email.filter(|email| !email.is_forgotten(forget_by)).map(Bound::Email))
}

/// Whether an email to several recipients stands for this key's one recipient.
fn stands_for(ledger: &Ledger<'_>, team: TeamId, number: i64, row: Option<&KeyRow>, now: Time) -> Result<bool> {
    let Some(bits) = row.and_then(|row| row.slot) else { return Ok(false) };
    let email = rows::email(ledger.conn, team, number, bits)?;
    Ok(email.is_some_and(|email| email.occupies_slots(ledger.time.forget_by(now))))
}

/// Whether an email to this key's one recipient alone is remembered.
fn bound_alone(ledger: &Ledger<'_>, team: TeamId, number: i64, row: Option<&KeyRow>, now: Time) -> Result<bool> {
    let Some(row) = row else { return Ok(false) };
    let forget_by = ledger.time.forget_by(now);
    let bound = bound_by_on(ledger.conn, team, number, row, forget_by)?;
    Ok(matches!(bound, Some(Bound::Email(email)) if email.occupies_slots(forget_by)))
}

/// Accepts every item of a batch, or none.
pub(super) fn accept_batch(
    ledger: &mut Ledger<'_>,
    operation: Option<&Operation>,
    items: &mut [Prepared],
    strict: bool,
    now: Time,
) -> Result<SaidBatch> {
    // An accept looks as it writes; a strict batch has to look before it writes anything.
    for (index, item) in items.iter().enumerate().filter(|_| strict) {
        if let Some(bound) = contradiction(ledger, item, now)? {
            return Ok(SaidBatch::Contradiction(index, bound));
        }
    }
    let repeat = operation.map(|operation| repeat_of::<()>(ledger, operation, now)).transpose()?.flatten();
    if let Some(Once::Mismatch(bound)) = repeat {
        return Ok(SaidBatch::Mismatch(bound));
    }
    if strict && let Some((index, exceeded)) = batch_over_budget(ledger, items, now)? {
        return Ok(SaidBatch::OverBudget(index, exceeded));
    }
    if let Some(operation) = operation.filter(|_| repeat.is_none()) {
        bind_operation(ledger, operation)?;
    }
    items.iter_mut().map(|item| accept(ledger, item, now)).collect::<Result<_>>().map(SaidBatch::Items)
}

/// The item that would exceed a budget, together with the items before it.
fn batch_over_budget(ledger: &Ledger<'_>, items: &[Prepared], now: Time) -> Result<Option<(usize, Overrun)>> {
    let (mut usage, mut new) = (Usage::default(), Vec::new());
    for (index, item) in items.iter().enumerate().filter(|(_, item)| !item.charges.is_empty()) {
        let team = ledger.team_number(item.email.team).ok_or_else(|| no_team(item.email.team))?;
        let is_bound = item.key.map(|key| bound(ledger, (item.email.team, team), key, now)).transpose()?;
        if is_bound.flatten().is_none() {
            budget::load(ledger, team, &item.charges, &mut usage)?;
            new.push((index, item.key, item.charges.as_slice()));
        }
    }
    Ok(usage.exceeded_by_batch(new.into_iter()))
}

/// What the key of an item is bound to, when that means something else.
fn contradiction(ledger: &Ledger<'_>, item: &Prepared, now: Time) -> Result<Option<Bound>> {
    let Email { team: id, digest, .. } = &item.email;
    let team = ledger.team_number(*id).ok_or_else(|| no_team(*id))?;
    let bound = item.key.map(|key| bound(ledger, (*id, team), key, now)).transpose()?.flatten();
    Ok(bound.filter(|bound| bound.contradicts(digest, item.first_wins)))
}

/// What the ledger said to a batch.
pub(super) enum SaidBatch {
    /// To each item, in order.
    Items(Vec<Said>),
    /// The batch's key is bound to something else.
    Mismatch(Bound),
    /// The key of this item is bound to something that means something else.
    Contradiction(usize, Bound),
    /// This item would exceed a budget.
    OverBudget(usize, Overrun),
}

/// The answer to an operation whose key is bound already. `None` when it is free.
pub(super) fn repeat_of<T>(ledger: &Ledger<'_>, operation: &Operation, now: Time) -> Result<Option<Once<T>>> {
    let team = ledger.team_number(operation.team).ok_or_else(|| no_team(operation.team))?;
    match bound(ledger, (operation.team, team), operation.key, now)? {
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
pub(super) fn bind_operation(ledger: &Ledger<'_>, operation: &Operation) -> Result<()> {
    let team = ledger.team_number(operation.team).ok_or_else(|| no_team(operation.team))?;
    let Operation { digest, answer, expires_at, .. } = operation;
    settle(ledger, team, operation.key)?;
    ledger.execute(BIND_OPERATION, params![team, operation.key.0, digest, answer, expires_at.0]).map(drop)
}

/// Binds the key of an operation that changes nothing else, once.
pub(super) fn bind_once(ledger: &Ledger<'_>, operation: &Operation, now: Time) -> Result<Once<()>> {
    if let Some(answer) = repeat_of(ledger, operation, now)? {
        return Ok(answer);
    }
    bind_operation(ledger, operation)?;
    Ok(Once::Done(()))
}

/// Makes the next version of an email, once.
pub(super) fn resend(
    ledger: &mut Ledger<'_>,
    wish: Wish,
    operation: Option<&Operation>,
    now: Time,
) -> Result<Once<Resend>> {
    let team = ledger.team_number(wish.team).ok_or_else(|| no_team(wish.team))?;
    let previous = wish.head.resend_of.map(|id| rows::email_by_id(ledger.conn, wish.team, team, id));
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

fn next_version(
    ledger: &mut Ledger<'_>,
    team: i64,
    previous: &mut Email,
    wish: Wish,
    now: Time,
) -> Result<Once<Resend>> {
    if let Some(id) = previous.resent_as
        && let Some(email) = rows::email_by_id(ledger.conn, wish.team, team, id)?
    {
        return Ok(Once::Done(Resend::Repeated(email)));
    }
    let before = previous.clone();
    let event = match previous.make_way(wish.care.takes_back, now) {
        Ok(event) => event,
        Err(refusal) => return Ok(Once::Done(Resend::Refused(refusal, previous.clone()))),
    };
    let mut prepared = Prepared::new(wish, now)?;
    if let Some(exceeded) = over_budget(ledger, team, &prepared, now)? {
        return Ok(Once::Done(Resend::OverBudget(exceeded)));
    }
    if let Some(event) = event {
        super::change::save(ledger, team, previous)?;
        ledger.emit(team, &event);
        ledger.note_changed(previous.clone());
    }
    if !super::answer::still_answers(ledger, team, previous)? {
        return Ok(Once::Done(Resend::Refused(Refusal::Replaced, previous.clone())));
    }
    let said = accept(ledger, &mut prepared, now)?;
    let answer = match prepared.answer(said) {
        Accept::First(email) => Resend::First(email),
        Accept::Bound(Bound::Email(email)) => Resend::Repeated(email),
        Accept::Bound(other) => return Ok(Once::Mismatch(other)),
        Accept::OverBudget(exceeded) => return Ok(Once::Done(Resend::OverBudget(exceeded))),
    };
    if let Resend::First(email) | Resend::Repeated(email) = &answer {
        ledger.note_changed(email.clone());
        let event = previous.mark_resent(email.id, now);
        super::change::save(ledger, team, previous)?;
        ledger.emit(team, &event);
        ledger.note_changed(previous.clone());
    }
    if let Resend::First(email) = &answer {
        super::answer::turn_over(ledger, team, &before, email, now)?;
    }
    Ok(Once::Done(answer))
}
