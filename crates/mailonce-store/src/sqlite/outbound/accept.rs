//! Accepting emails: binds each idempotency key to one email, and answers repeated calls from that binding.
//!
//! Nearly every accept has a free key and no shadow keys. One lookup confirms that, and two inserts write the email and
//! its handoff. All other cases load what the core asks for ([`decide`]).
//!
//! A *shadow key* is the key that one recipient of an email to several recipients would have alone. The email occupies
//! the shadow keys of its recipients (column `slot`), so that a separate email to one of them is noticed.

use mailonce_core::{
    control::budget::{BudgetUsage, Charge, Overrun},
    events::event::NewEvent,
    id::{self, TeamId},
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation, OperationDecision},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewEmail},
        accept_decision::{
            AcceptCheck, AcceptDecision, AcceptStep, FirstSend, NextVersion, Resend, SendFacts,
            batch::{BatchCheck, BatchItem, BatchStep},
        },
        content_guard::ContentFingerprint,
        email::{Email, Guard},
        email_commands::EmailResendResult,
        key_binding::KeyBinding,
    },
    ports::store::{Result, StoreError},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::{borrow::Cow, ops::ControlFlow, sync::Arc};

use crate::sqlite::{
    control::budgets,
    conversation::reply,
    events::event_log::PackedEvent,
    fresh_keys::FreshKeys,
    outbound::{content_guard, email_commands},
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
    held_by: Option<Guard>,
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
        let (first_wins, held_by, likeness) =
            (wish.first_wins, wish.guard_input.held_by, wish.guard_input.fingerprint.take());
        let charges = std::mem::take(&mut wish.guard_input.charges);
        let (email, body) = wish.into_email(u32::from(key.is_some()), None, now);
        let recipients = email.handoffs.iter().map(|handoff| addresses_to_json(&handoff.recipients)).collect();
        let event = PackedEvent::pack_accepted(&email);
        Ok(Self {
            email,
            key,
            shadow_keys: slots,
            first_wins,
            held_by,
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

impl PreparedEmail {
    /// Converts the decision into the result for the caller. Runs on the caller's task, to spare the writer thread.
    pub(crate) fn into_accept(self, said: AcceptDecision) -> AcceptResult {
        match said {
            AcceptDecision::First(_) => AcceptResult::First(self.email),
            AcceptDecision::KeyBound(bound) => AcceptResult::KeyBound(bound),
            AcceptDecision::OverBudget(exceeded) => AcceptResult::OverBudget(exceeded),
        }
    }

    /// The email to notify subscribers of. `None` when it was not accepted.
    pub(crate) fn accepted_email(&self, said: &AcceptDecision) -> Option<&Email> {
        matches!(said, AcceptDecision::First(_)).then_some(&self.email)
    }

    fn send_facts(&self) -> SendFacts<'_> {
        SendFacts {
            team: self.email.team,
            head: &self.email.head,
            key: self.key,
            shadow_keys: &self.shadow_keys,
            held_by: self.held_by,
            has_fingerprint: self.fingerprint.is_some(),
            has_charges: !self.charges.is_empty(),
        }
    }

    fn batch_item(&self) -> BatchItem<'_> {
        BatchItem { team: self.email.team, key: self.key, digest: &self.email.digest, first_wins: self.first_wins }
    }

    /// Changes what differs from the usual case: how often the key was bound, and the guard that holds the email.
    fn apply(&mut self, first: &FirstSend, now: Time) {
        self.email.bind_number = first.bind_number;
        if let Some(guard) = first.held_by.filter(|guard| self.held_by != Some(*guard)) {
            self.email.hold(guard, now);
            self.event = PackedEvent::pack_accepted(&self.email);
        }
    }

    /// Whether it takes no key but its own.
    fn takes_only_its_key(&self) -> bool {
        self.shadow_keys.is_empty() && !self.email.head.may_take_earlier_shadow_keys()
    }
}

/// Binds a key to a new email, or returns the existing binding of the key.
pub(crate) fn accept(ledger: &mut WriteSession<'_>, prepared: &mut PreparedEmail, now: Time) -> Result<AcceptDecision> {
    let team = ledger.team_number(prepared.email.team).ok_or_else(|| unknown_team_error(prepared.email.team))?;
    let (decision, key_is_new) = decide(ledger, team, prepared, None, now)?;
    if let AcceptDecision::First(first) = &decision {
        bind_keys(ledger, team, prepared, (first, key_is_new))?;
        insert_first(ledger, team, prepared, first, now)?;
    }
    Ok(decision)
}

pub(crate) fn unknown_team_error(team: TeamId) -> StoreError {
    StoreError::Unreachable(format!("there is no team {team}"))
}

/// Loads what the core asks for until it has decided. Writes nothing. Also returns whether the email's key has no row
/// yet and can be bound as a fresh key.
fn decide(
    ledger: &WriteSession<'_>,
    team: i64,
    prepared: &PreparedEmail,
    resend: Option<&Resend>,
    now: Time,
) -> Result<(AcceptDecision, bool)> {
    let (id, forget_by) = (prepared.email.team, ledger.time.expiry_cutoff(now));
    let binding = |row: Option<&KeyRow>| match row {
        Some(row) => binding_of_row(ledger.conn, id, team, row, forget_by),
        None => Ok(None),
    };
    let (mut check, mut step) = AcceptCheck::start(prepared.send_facts(), resend, forget_by);
    // The row of the latest key. The steps of one key follow one another, so its row is loaded once.
    let (mut latest, mut row, mut key_is_new) = (None, None, false);
    loop {
        step = match step {
            AcceptStep::LoadOwnKey(key) => {
                key_is_new = prepared.takes_only_its_key() && ledger.fresh_keys.borrow_mut().is_free(team, key)?;
                (latest, row) = (Some(key), if key_is_new { None } else { key_row(ledger, team, key)? });
                check.own_key(row.as_ref().map_or(0, |row| row.bind_number), binding(row.as_ref())?)
            }
            AcceptStep::CheckBudget => check.budget(budgets::exceeded(ledger, team, &prepared.charges)?),
            AcceptStep::LoadOccupant(key) => {
                if latest != Some(key) {
                    (latest, row) = (Some(key), key_row(ledger, team, key)?);
                }
                let slot = row.as_ref().and_then(|row| row.slot);
                let occupant = slot.map(|bits| rows::email_by_bits(ledger.conn, id, team, bits)).transpose()?;
                check.occupant(occupant.flatten().as_ref())
            }
            AcceptStep::LoadRecipientKey(_) => check.recipient_key(binding(row.as_ref())?.as_ref()),
            AcceptStep::CompareContent => check.content(looks_duplicate(ledger, team, prepared, now)?),
            AcceptStep::Decided(decision) => return Ok((decision, key_is_new)),
        }
    }
}

fn looks_duplicate(ledger: &WriteSession<'_>, team: i64, prepared: &PreparedEmail, now: Time) -> Result<bool> {
    let Some(likeness) = &prepared.fingerprint else { return Ok(false) };
    content_guard::has_recent_duplicate(ledger, (prepared.email.team, team), likeness, now)
}

/// Binds the key of a first email, and the shadow keys that it occupies.
fn bind_keys(
    ledger: &WriteSession<'_>,
    team: i64,
    prepared: &PreparedEmail,
    (first, key_is_new): (&FirstSend, bool),
) -> Result<()> {
    let bits = id::ordered_bits(prepared.email.id.0);
    for slot in &first.occupies {
        flush_key(ledger, team, *slot)?;
        ledger.execute(BIND_SLOT, params![team, slot.0, bits])?;
    }
    let Some(key) = prepared.key else { return Ok(()) };
    if key_is_new {
        ledger.fresh_keys.borrow_mut().bind_free(team, key, bits);
        return Ok(());
    }
    flush_key(ledger, team, key)?;
    ledger.execute(BIND_KEY, params![team, key.0, first.bind_number, bits]).map(drop)
}

/// Inserts the email and its handoffs as the core decided. Its key is bound already.
fn insert_first(
    ledger: &mut WriteSession<'_>,
    team: i64,
    prepared: &mut PreparedEmail,
    first: &FirstSend,
    now: Time,
) -> Result<()> {
    prepared.apply(first, now);
    if let Some(likeness) = prepared.fingerprint.take() {
        content_guard::remember(ledger, team, &likeness, id::ordered_bits(prepared.email.id.0), now)?;
    }
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
    Ok(())
}

/// A JSON array of addresses.
fn addresses_to_json(addresses: &[String]) -> String {
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
        return Ok(KeyBinding::to_operation(digest, expires_at, forget_by));
    }
    let Some(bits) = row.email else { return Ok(None) };
    let email = rows::email_by_bits(conn, team, number, bits)?;
    Ok(email.and_then(|email| KeyBinding::to_email(Cow::Owned(email), forget_by)))
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
    let binding = |team: TeamId, key: KeyHash| {
        let number = ledger.team_number(team).ok_or_else(|| unknown_team_error(team))?;
        key_binding(ledger, (team, number), key, now)
    };
    let facts = items.iter().map(PreparedEmail::batch_item);
    let (mut check, mut step) = BatchCheck::start(facts, operation, strict);
    let binds_key = loop {
        step = match step {
            BatchStep::LoadItemKey(team, key) => check.item_key(binding(team, key)?),
            BatchStep::LoadBatchKey(team, key) => check.batch_key(binding(team, key)?),
            BatchStep::CheckBudgets => check.budget(batch_over_budget(ledger, items, now)?),
            BatchStep::Accept { binds_key } => break binds_key,
            BatchStep::Refuse(refusal) => return Ok(BatchDecision::Refused(refusal)),
        }
    };
    if let Some(operation) = operation.filter(|_| binds_key) {
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

/// The decision about a batch.
pub(crate) enum BatchDecision {
    /// The decision about each item, in order.
    Items(Vec<AcceptDecision>),
    /// Nothing was written.
    Refused(BatchAcceptResult),
}

/// The replayed response, or the mismatch, for an operation whose key is bound already. `None` when the key is free.
pub(crate) fn find_replay<T>(
    ledger: &WriteSession<'_>,
    operation: &KeyedOperation,
    now: Time,
) -> Result<Option<IdempotentResult<T>>> {
    let team = ledger.team_number(operation.team).ok_or_else(|| unknown_team_error(operation.team))?;
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
    let Some(previous) = previous.transpose()?.flatten() else {
        return Ok(IdempotentResult::Done(EmailResendResult::Missing));
    };
    if let Some(operation) = operation
        && let Some(answer) = find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let next = previous.resent_as.map(|id| rows::email_by_id(ledger.conn, wish.team, team, id));
    let next = next.transpose()?.flatten();
    let answer = match Resend::prepare(previous, next, wish.guard_input.cancels_previous, now) {
        ControlFlow::Continue(resend) => accept_next_version(ledger, team, resend, wish, now)?,
        ControlFlow::Break(answer) => IdempotentResult::Done(answer),
    };
    if let (Some(operation), IdempotentResult::Done(done)) = (operation, &answer)
        && done.has_new_version()
    {
        bind_operation(ledger, operation)?;
    }
    Ok(answer)
}

fn accept_next_version(
    ledger: &mut WriteSession<'_>,
    team: i64,
    mut resend: Resend,
    wish: NewEmail,
    now: Time,
) -> Result<IdempotentResult<EmailResendResult>> {
    let mut prepared = PreparedEmail::new(wish, now)?;
    let (decision, key_is_new) = decide(ledger, team, &prepared, Some(&resend), now)?;
    let is_current_reply = reply::is_current_reply(ledger, team, resend.before())?;
    let version = match resend.decide(decision, is_current_reply) {
        ControlFlow::Continue(version) => version,
        ControlFlow::Break(answer) => return Ok(answer),
    };
    if let Some((previous, event)) = resend.cancelled() {
        save_previous_version(ledger, team, previous, event)?;
    }
    let (email, is_first) = match version {
        NextVersion::First(first) => {
            bind_keys(ledger, team, &prepared, (&first, key_is_new))?;
            insert_first(ledger, team, &mut prepared, &first, now)?;
            (prepared.email, true)
        }
        NextVersion::Existing(email) => (email, false),
    };
    ledger.queue_changed_email(email.clone());
    let (previous, event) = resend.link(email.id, now);
    save_previous_version(ledger, team, previous, &event)?;
    if !is_first {
        return Ok(IdempotentResult::Done(EmailResendResult::Replayed(email)));
    }
    reply::update_message_progress(ledger, team, resend.before(), &email, now)?;
    Ok(IdempotentResult::Done(EmailResendResult::First(email)))
}

fn save_previous_version(ledger: &mut WriteSession<'_>, team: i64, email: &Email, event: &NewEvent) -> Result<()> {
    email_commands::save_email_and_handoffs(ledger, team, email)?;
    ledger.emit(team, event);
    ledger.queue_changed_email(email.clone());
    Ok(())
}
