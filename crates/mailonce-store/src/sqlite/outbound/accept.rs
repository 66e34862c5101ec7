//! Accepting emails: binds each idempotency key to one email, and answers repeated calls from that binding.
//!
//! Nearly every accept has a free key and no shadow keys. One lookup confirms that, and two inserts write the email and
//! its handoff. All other cases take the slower path through [`accept_slow_path`].
//!
//! A *shadow key* is the key that one recipient of an email to several recipients would have alone. The email occupies
//! the shadow keys of its recipients (column `slot`), so that a separate email to one of them is noticed.

use mailonce_core::{
    control::budget::{BudgetUsage, Charge, Overrun},
    id::{self, TeamId},
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, NewEmail},
        content_guard::ContentFingerprint,
        email::{Email, EmailChangeRefusal, EmailState, Guard},
        email_commands::EmailResendResult,
        key_binding::KeyBinding,
    },
    ports::store::{Result, StoreError},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::sync::Arc;

use crate::sqlite::{
    control::budgets,
    events::event_log::PackedEvent,
    fresh_keys::FreshKeys,
    outbound::content_guard,
    rows,
    schema::store_error,
    write_session::{AcceptStatements, WriteSession},
};

const BIND_KEY: &str = "INSERT INTO keys (team, hash, bind, email) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT DO UPDATE SET bind = ?3, email = ?4, forgotten_at = NULL, digest = NULL, answer = NULL, expires_at = NULL";
const BIND_SLOT: &str =
    "INSERT INTO keys (team, hash, bind, slot) VALUES (?1, ?2, 0, ?3) ON CONFLICT DO UPDATE SET slot = ?3";
const BIND_OPERATION: &str = "INSERT INTO keys (team, hash, bind, digest, answer, expires_at) VALUES (?1, ?2, 1, ?3, ?4, ?5) \
     ON CONFLICT DO UPDATE SET bind = bind + 1, email = NULL, forgotten_at = NULL, digest = ?3, answer = ?4, expires_at = ?5";
const SELECT_KEY: &str =
    "SELECT bind, email, slot, forgotten_at, digest, expires_at FROM keys WHERE team = ?1 AND hash = ?2";
const SELECT_ANSWER: &str = "SELECT answer FROM keys WHERE team = ?1 AND hash = ?2";
const INSERT_EMAIL: &str = "INSERT INTO emails (team, email, tail, rev, bind, ttl, guard, digest, head, body) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const INSERT_BODY: &str = "INSERT INTO bodies (email, body) VALUES (?1, ?2)";
pub(crate) const INSERT_HANDOFF: &str = "INSERT INTO handoffs (team, email, number, transport, recipients, state, due_at, attempts, fence) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0)";

/// Initial capacity of the buffer for an email's head in JSON. Most heads fit, so the buffer rarely grows.
const HEAD_CAPACITY: usize = 512;

/// Packed bodies up to this many bytes are stored in the email's own row.
const MAX_INLINE_BODY: usize = 1_500;

/// A row of the `keys` table.
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

/// Prepares the insert statements of an accept.
pub(crate) fn prepare_accept_statements(conn: &Connection) -> Result<AcceptStatements<'_>> {
    let prepare = |sql: &str| conn.prepare(sql).map_err(store_error);
    Ok(AcceptStatements {
        email: prepare(INSERT_EMAIL)?,
        body: prepare(INSERT_BODY)?,
        handoff: prepare(INSERT_HANDOFF)?,
    })
}

/// A new email with everything computed in advance that does not need the database. The writer thread then only binds
/// parameters and runs statements. It is prepared for the usual case, a free key; the slow path changes what differs.
pub(crate) struct PreparedEmail {
    email: Email,
    key: Option<KeyHash>,
    shadow_keys: Vec<KeyHash>,
    first_wins: bool,
    fingerprint: Option<ContentFingerprint>,
    charges: Vec<Charge>,
    body: Arc<[u8]>,
    head: String,
    digest: Vec<u8>,
    recipients: Vec<String>,
    event: PackedEvent,
}

impl PreparedEmail {
    pub(crate) fn new(mut wish: NewEmail, now: Time) -> Result<Self> {
        let mut head = Vec::with_capacity(HEAD_CAPACITY);
        serde_json::to_writer(&mut head, &wish.head).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        let head = String::from_utf8(head).map_err(|e| StoreError::Corrupt(e.to_string()))?;
        let (key, slots, digest) = (wish.key, wish.shadow_keys.clone(), wish.digest.to_bytes());
        let (first_wins, likeness) = (wish.first_wins, wish.guard_input.fingerprint.take());
        let charges = std::mem::take(&mut wish.guard_input.charges);
        let (email, body) = wish.into_email(u32::from(key.is_some()), None, now);
        let recipients = email.handoffs.iter().map(|handoff| json_list(&handoff.recipients)).collect();
        let event = PackedEvent::pack_accepted(&email);
        Ok(Self {
            email,
            key,
            shadow_keys: slots,
            first_wins,
            fingerprint: likeness,
            charges,
            body,
            head,
            digest,
            recipients,
            event,
        })
    }
}

/// The decision about a prepared email.
pub(crate) enum AcceptDecision {
    /// It is the first email of its key, and was accepted.
    First,
    /// Its key is bound already.
    Bound(KeyBinding),
    /// It would exceed this budget.
    OverBudget(Overrun),
}

impl PreparedEmail {
    /// Converts the decision into the result for the caller. Runs on the caller's task, to spare the writer thread.
    pub(crate) fn into_accept(self, said: AcceptDecision) -> AcceptResult {
        match said {
            AcceptDecision::First => AcceptResult::First(self.email),
            AcceptDecision::Bound(bound) => AcceptResult::KeyBound(bound),
            AcceptDecision::OverBudget(exceeded) => AcceptResult::OverBudget(exceeded),
        }
    }

    /// The email to notify subscribers of. `None` when it was not accepted.
    pub(crate) fn accepted_email(&self, said: &AcceptDecision) -> Option<&Email> {
        matches!(said, AcceptDecision::First).then_some(&self.email)
    }

    /// Puts the email on hold because of a guard.
    fn hold(&mut self, guard: Guard, now: Time) {
        self.email.hold(guard, now);
        self.event = PackedEvent::pack_accepted(&self.email);
    }
}

/// Binds a key to a new email, or returns the existing binding of the key.
pub(crate) fn accept(ledger: &mut WriteSession<'_>, prepared: &mut PreparedEmail, now: Time) -> Result<AcceptDecision> {
    let team = ledger.team_number(prepared.email.team).ok_or_else(|| unknown_team_error(prepared.email.team))?;
    if let Some(exceeded) = over_budget(ledger, team, prepared, now)? {
        return Ok(AcceptDecision::OverBudget(exceeded));
    }
    let Some(key) = prepared.key else { return insert_first(ledger, team, prepared, now) };
    let bits = id::ordered_bits(prepared.email.id.0);
    if prepared.shadow_keys.is_empty()
        && !prepared.email.head.may_take_earlier_shadow_keys()
        && ledger.fresh_keys.get_mut().bind_if_free(team, key, bits)?
    {
        return insert_first(ledger, team, prepared, now);
    }
    accept_slow_path(ledger, team, prepared, key, now)
}

/// The budget that an email would exceed. `None` when its key is bound, because a retry is never refused. Most emails
/// have no charges.
fn over_budget(ledger: &WriteSession<'_>, team: i64, prepared: &PreparedEmail, now: Time) -> Result<Option<Overrun>> {
    if prepared.charges.is_empty() {
        return Ok(None);
    }
    let is_bound = prepared.key.map(|key| key_binding(ledger, (prepared.email.team, team), key, now)).transpose()?;
    if is_bound.flatten().is_some() {
        return Ok(None);
    }
    budgets::exceeded(ledger, team, &prepared.charges)
}

pub(crate) fn unknown_team_error(team: TeamId) -> StoreError {
    StoreError::Unreachable(format!("there is no team {team}"))
}

/// The slow path: the key exists already, or the email occupies shadow keys.
fn accept_slow_path(
    ledger: &mut WriteSession<'_>,
    team: i64,
    prepared: &mut PreparedEmail,
    key: KeyHash,
    now: Time,
) -> Result<AcceptDecision> {
    let id = prepared.email.team;
    let row = key_row(ledger, team, key)?;
    if let Some(row) = &row
        && let Some(bound) = binding_of_row(ledger.conn, id, team, row, ledger.time.expiry_cutoff(now))?
    {
        return Ok(AcceptDecision::Bound(bound));
    }
    let mut overlaps = is_slot_occupied(ledger, id, team, row.as_ref(), now)?;
    let mut free_slots = Vec::with_capacity(prepared.shadow_keys.len());
    for slot in &prepared.shadow_keys {
        let row = key_row(ledger, team, *slot)?;
        let taken = is_slot_occupied(ledger, id, team, row.as_ref(), now)?;
        overlaps |= taken || is_bound_to_single_recipient(ledger, id, team, row.as_ref(), now)?;
        if !taken {
            free_slots.push(*slot);
        }
    }
    for slot in prepared.email.head.earlier_shadow_keys(id) {
        let row = key_row(ledger, team, slot)?;
        if !is_slot_occupied(ledger, id, team, row.as_ref(), now)? {
            free_slots.push(slot);
        }
    }
    let bits = id::ordered_bits(prepared.email.id.0);
    for slot in free_slots {
        flush_key(ledger, team, slot)?;
        ledger.execute(BIND_SLOT, params![team, slot.0, bits])?;
    }
    prepared.email.bind_number = row.map_or(0, |row| row.bind_number) + 1;
    flush_key(ledger, team, key)?;
    ledger.execute(BIND_KEY, params![team, key.0, prepared.email.bind_number, bits])?;
    if overlaps {
        prepared.hold(Guard::Overlaps, now);
    }
    insert_first(ledger, team, prepared, now)
}

/// The content guard: holds an email whose content resembles a recent one, and saves its fingerprint. Most emails have
/// no fingerprint and are not compared.
fn apply_content_guard(ledger: &WriteSession<'_>, team: i64, prepared: &mut PreparedEmail, now: Time) -> Result<()> {
    let Some(likeness) = prepared.fingerprint.take() else { return Ok(()) };
    let Email { id, team: team_id, .. } = prepared.email;
    let goes = prepared.email.state() != EmailState::Held;
    // A resend was requested explicitly, so it is not compared. Its fingerprint is still saved.
    if goes
        && prepared.email.head.resend_of.is_none()
        && content_guard::has_recent_duplicate(ledger, (team_id, team), &likeness, now)?
    {
        prepared.hold(Guard::LooksDuplicate, now);
    }
    content_guard::remember(ledger, team, &likeness, id::ordered_bits(id.0), now)
}

/// Inserts the email and its handoffs. Its key is bound already.
fn insert_first(
    ledger: &mut WriteSession<'_>,
    team: i64,
    prepared: &mut PreparedEmail,
    now: Time,
) -> Result<AcceptDecision> {
    apply_content_guard(ledger, team, prepared, now)?;
    budgets::charge(ledger, team, &prepared.email, &prepared.charges)?;
    let PreparedEmail { email, body, head, digest, recipients, event, .. } = &*prepared;
    let (bits, tail) = (id::ordered_bits(email.id.0), id::random_bits(email.id.0));
    let guard = email.guard.map(Guard::as_str);
    let accepts = &mut ledger.accepts;
    let inline = Some(body.as_ref()).filter(|body| body.len() <= MAX_INLINE_BODY);
    let row = params![team, bits, tail, email.rev, email.bind_number, email.ttl.0, guard, digest, head, inline];
    accepts.email.execute(row).map_err(store_error)?;
    if inline.is_none() {
        accepts.body.execute(params![bits, body.as_ref()]).map_err(store_error)?;
    }
    for (handoff, recipients) in email.handoffs.iter().zip(recipients) {
        let due = handoff.due_at.map(|at| at.0);
        let row = params![team, bits, handoff.number, handoff.transport, recipients, handoff.state.as_str(), due];
        accepts.handoff.execute(row).map_err(store_error)?;
    }
    ledger.emit_packed(team, event);
    Ok(AcceptDecision::First)
}

/// A JSON array of addresses.
fn json_list(addresses: &[String]) -> String {
    serde_json::to_string(addresses).unwrap_or_default()
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

/// What the key of this row is bound to, on any connection. `None` if the binding expired by `forget_by`.
pub(crate) fn binding_of_row(
    conn: &Connection,
    team: TeamId,
    number: i64,
    row: &KeyRow,
    forget_by: Time,
) -> Result<Option<KeyBinding>> {
    if let Some((digest, expires_at)) = row.operation {
        return Ok((expires_at > forget_by).then_some(KeyBinding::Operation { digest }));
    }
    let Some(bits) = row.email else { return Ok(None) };
    let email = rows::email_by_bits(conn, team, number, bits)?;
    Ok(email.filter(|email| !email.is_forgotten(forget_by)).map(KeyBinding::Email))
}

/// Whether an email to several recipients occupies this key as a shadow key.
fn is_slot_occupied(
    ledger: &WriteSession<'_>,
    team: TeamId,
    number: i64,
    row: Option<&KeyRow>,
    now: Time,
) -> Result<bool> {
    let Some(bits) = row.and_then(|row| row.slot) else { return Ok(false) };
    let email = rows::email_by_bits(ledger.conn, team, number, bits)?;
    Ok(email.is_some_and(|email| email.holds_shadow_keys(ledger.time.expiry_cutoff(now))))
}

/// Whether the key is bound to an email to that one recipient alone.
fn is_bound_to_single_recipient(
    ledger: &WriteSession<'_>,
    team: TeamId,
    number: i64,
    row: Option<&KeyRow>,
    now: Time,
) -> Result<bool> {
    let Some(row) = row else { return Ok(false) };
    let forget_by = ledger.time.expiry_cutoff(now);
    let bound = binding_of_row(ledger.conn, team, number, row, forget_by)?;
    Ok(matches!(bound, Some(KeyBinding::Email(email)) if email.holds_shadow_keys(forget_by)))
}

/// Accepts the items of a batch. A strict batch accepts every item or none.
pub(crate) fn accept_batch(
    ledger: &mut WriteSession<'_>,
    operation: Option<&KeyedOperation>,
    items: &mut [PreparedEmail],
    strict: bool,
    now: Time,
) -> Result<BatchDecision> {
    // `accept` checks and writes item by item. A strict batch must check all items before the first write.
    for (index, item) in items.iter().enumerate().filter(|_| strict) {
        if let Some(bound) = find_contradiction(ledger, item, now)? {
            return Ok(BatchDecision::Contradiction(index, bound));
        }
    }
    let repeat = operation.map(|operation| find_replay::<()>(ledger, operation, now)).transpose()?.flatten();
    if let Some(IdempotentResult::KeyMismatch(bound)) = repeat {
        return Ok(BatchDecision::Mismatch(bound));
    }
    if strict && let Some((index, exceeded)) = batch_over_budget(ledger, items, now)? {
        return Ok(BatchDecision::OverBudget(index, exceeded));
    }
    if let Some(operation) = operation.filter(|_| repeat.is_none()) {
        bind_operation(ledger, operation)?;
    }
    items.iter_mut().map(|item| accept(ledger, item, now)).collect::<Result<_>>().map(BatchDecision::Items)
}

/// The first item that would exceed a budget, when the items before it are charged too.
fn batch_over_budget(
    ledger: &WriteSession<'_>,
    items: &[PreparedEmail],
    now: Time,
) -> Result<Option<(usize, Overrun)>> {
    let (mut usage, mut new) = (BudgetUsage::default(), Vec::new());
    for (index, item) in items.iter().enumerate().filter(|(_, item)| !item.charges.is_empty()) {
        let team = ledger.team_number(item.email.team).ok_or_else(|| unknown_team_error(item.email.team))?;
        let is_bound = item.key.map(|key| key_binding(ledger, (item.email.team, team), key, now)).transpose()?;
        if is_bound.flatten().is_none() {
            budgets::load(ledger, team, &item.charges, &mut usage)?;
            new.push((index, item.key, item.charges.as_slice()));
        }
    }
    Ok(usage.exceeded_by_batch(new.into_iter()))
}

/// The binding of an item's key, if it is bound to a different email or operation.
fn find_contradiction(ledger: &WriteSession<'_>, item: &PreparedEmail, now: Time) -> Result<Option<KeyBinding>> {
    let Email { team: id, digest, .. } = &item.email;
    let team = ledger.team_number(*id).ok_or_else(|| unknown_team_error(*id))?;
    let bound = item.key.map(|key| key_binding(ledger, (*id, team), key, now)).transpose()?.flatten();
    Ok(bound.filter(|bound| bound.mismatches(digest, item.first_wins)))
}

/// The decision about a batch.
pub(crate) enum BatchDecision {
    /// The decision about each item, in order.
    Items(Vec<AcceptDecision>),
    /// The batch's key is bound to a different operation or email.
    Mismatch(KeyBinding),
    /// The key of this item is bound to a different email or operation.
    Contradiction(usize, KeyBinding),
    /// This item would exceed this budget.
    OverBudget(usize, Overrun),
}

/// The replayed response, or the mismatch, for an operation whose key is bound already. `None` when the key is free.
pub(crate) fn find_replay<T>(
    ledger: &WriteSession<'_>,
    operation: &KeyedOperation,
    now: Time,
) -> Result<Option<IdempotentResult<T>>> {
    let team = ledger.team_number(operation.team).ok_or_else(|| unknown_team_error(operation.team))?;
    match key_binding(ledger, (operation.team, team), operation.key, now)? {
        Some(KeyBinding::Operation { digest }) if digest == operation.digest => {
            let key = params![team, operation.key.0];
            let answer = ledger.conn.prepare_cached(SELECT_ANSWER).and_then(|mut s| s.query_row(key, |row| row.get(0)));
            Ok(Some(IdempotentResult::Replayed(answer.map_err(store_error)?)))
        }
        Some(other) => Ok(Some(IdempotentResult::KeyMismatch(other))),
        None => Ok(None),
    }
}

/// Binds the key of a completed operation. The key must be free.
pub(crate) fn bind_operation(ledger: &WriteSession<'_>, operation: &KeyedOperation) -> Result<()> {
    let team = ledger.team_number(operation.team).ok_or_else(|| unknown_team_error(operation.team))?;
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

/// Resends an email: accepts its next version, once.
pub(crate) fn resend(
    ledger: &mut WriteSession<'_>,
    wish: NewEmail,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<EmailResendResult>> {
    let team = ledger.team_number(wish.team).ok_or_else(|| unknown_team_error(wish.team))?;
    let previous = wish.head.resend_of.map(|id| rows::email_by_id(ledger.conn, wish.team, team, id));
    let Some(mut previous) = previous.transpose()?.flatten() else {
        return Ok(IdempotentResult::Done(EmailResendResult::Missing));
    };
    if let Some(operation) = operation
        && let Some(answer) = find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let answer = accept_next_version(ledger, team, &mut previous, wish, now)?;
    if let (Some(operation), IdempotentResult::Done(EmailResendResult::First(_) | EmailResendResult::Replayed(_))) =
        (operation, &answer)
    {
        bind_operation(ledger, operation)?;
    }
    Ok(answer)
}

fn accept_next_version(
    ledger: &mut WriteSession<'_>,
    team: i64,
    previous: &mut Email,
    wish: NewEmail,
    now: Time,
) -> Result<IdempotentResult<EmailResendResult>> {
    if let Some(id) = previous.resent_as
        && let Some(email) = rows::email_by_id(ledger.conn, wish.team, team, id)?
    {
        return Ok(IdempotentResult::Done(EmailResendResult::Replayed(email)));
    }
    let before = previous.clone();
    let event = match previous.prepare_for_resend(wish.guard_input.cancels_previous, now) {
        Ok(event) => event,
        Err(refusal) => return Ok(IdempotentResult::Done(EmailResendResult::Refused(refusal, previous.clone()))),
    };
    let mut prepared = PreparedEmail::new(wish, now)?;
    if let Some(exceeded) = over_budget(ledger, team, &prepared, now)? {
        return Ok(IdempotentResult::Done(EmailResendResult::OverBudget(exceeded)));
    }
    if let Some(event) = event {
        crate::sqlite::outbound::email_commands::save_email_and_handoffs(ledger, team, previous)?;
        ledger.emit(team, &event);
        ledger.queue_changed_email(previous.clone());
    }
    if !crate::sqlite::conversation::reply::is_current_reply(ledger, team, previous)? {
        return Ok(IdempotentResult::Done(EmailResendResult::Refused(
            EmailChangeRefusal::AnsweredByAnother,
            previous.clone(),
        )));
    }
    let said = accept(ledger, &mut prepared, now)?;
    let answer = match prepared.into_accept(said) {
        AcceptResult::First(email) => EmailResendResult::First(email),
        AcceptResult::KeyBound(KeyBinding::Email(email)) => EmailResendResult::Replayed(email),
        AcceptResult::KeyBound(other) => return Ok(IdempotentResult::KeyMismatch(other)),
        AcceptResult::OverBudget(exceeded) => {
            return Ok(IdempotentResult::Done(EmailResendResult::OverBudget(exceeded)));
        }
    };
    if let EmailResendResult::First(email) | EmailResendResult::Replayed(email) = &answer {
        ledger.queue_changed_email(email.clone());
        let event = previous.mark_resent(email.id, now);
        crate::sqlite::outbound::email_commands::save_email_and_handoffs(ledger, team, previous)?;
        ledger.emit(team, &event);
        ledger.queue_changed_email(previous.clone());
    }
    if let EmailResendResult::First(email) = &answer {
        crate::sqlite::conversation::reply::update_message_progress(ledger, team, &before, email, now)?;
    }
    Ok(IdempotentResult::Done(answer))
}
