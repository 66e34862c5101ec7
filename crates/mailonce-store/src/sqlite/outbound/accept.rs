//! Accepting emails: binds each idempotency key to one email, and answers repeated calls from that binding.
//!
//! Nearly every accept has a free key and no shadow keys. One lookup confirms that, and two inserts write the email and
//! its handoff. All other cases load what the core asks for ([`decide_send`]).
//!
//! A *shadow key* is the key that one recipient of an email to several recipients would have alone. The email occupies
//! the shadow keys of its recipients (column `slot`), so that a separate email to one of them is noticed.

use mailonce_core::{
    control::budget::{BudgetCounter, Charge},
    events::event::NewEvent,
    id::{self, TeamId},
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        accept_decision::{
            AcceptDecision, AcceptReader, FirstSend, NextVersion, ResendDecision, SendFacts, batch::check_batch, decide,
        },
        content_guard::{Comparison, ContentFingerprint, IdenticalCheck},
        email::{Email, EmailHead, Guard},
        email_commands::EmailResendResult,
        holds::Holds,
        key_binding::KeyBinding,
    },
    ports::store::{Result, StoreError},
    time::Time,
};
use rusqlite::params;
use std::{borrow::Cow, cell::Cell, ops::ControlFlow, sync::Arc};

use crate::sqlite::{
    Sqlite,
    control::budgets,
    conversation::message_progress,
    events::event_blocks::PackedEvent,
    outbound::{
        content_guard,
        email_rows::save_email_and_handoffs,
        key_bindings::{KeyRow, bind_operation, binding_of_row, find_replay, flush_key, key_row, known_team_number},
    },
    rows,
    schema::store_error,
    write_session::WriteSession,
    writer::Priority,
};

const BIND_KEY: &str = "INSERT INTO keys (team, hash, bind, email) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT DO UPDATE SET bind = ?3, email = ?4, forgotten_at = NULL, digest = NULL, answer = NULL, expires_at = NULL";
const BIND_SLOT: &str =
    "INSERT INTO keys (team, hash, bind, slot) VALUES (?1, ?2, 0, ?3) ON CONFLICT DO UPDATE SET slot = ?3";

/// Initial capacity of the buffer for an email's head in JSON. Most heads fit, so the buffer rarely grows.
const HEAD_CAPACITY: usize = 512;

/// Packed bodies up to this many bytes are stored in the email's own row.
const MAX_INLINE_BODY: usize = 1_500;

/// A new email with everything computed in advance that does not need the database. The writer thread then only binds
/// parameters and runs statements. It is prepared for the usual case, a free key; the slow path changes what differs.
pub(crate) struct PreparedEmail {
    email: Email,
    key: Option<KeyHash>,
    shadow_keys: Vec<KeyHash>,
    first_wins: bool,
    holds: Holds,
    fingerprint: Option<ContentFingerprint>,
    intent: Option<ContentFingerprint>,
    flag_similar: Option<ContentFingerprint>,
    identical: Option<IdenticalCheck>,
    charges: Vec<Charge>,
    body: Arc<[u8]>,
    head: String,
    digest: Vec<u8>,
    recipients: Vec<String>,
    event: PackedEvent,
}

impl PreparedEmail {
    pub(crate) fn new(mut new_email: NewEmail, now: Time) -> Result<Self> {
        let (key, slots, digest) = (new_email.key, new_email.shadow_keys.clone(), new_email.digest.to_bytes());
        let (first_wins, holds, fingerprint) =
            (new_email.first_wins, new_email.guard_input.holds, new_email.guard_input.fingerprint.take());
        let (intent, identical) = (new_email.guard_input.intent.take(), new_email.guard_input.identical.take());
        let flag_similar = new_email.guard_input.flag_similar.take();
        let charges = std::mem::take(&mut new_email.guard_input.charges);
        let first = FirstSend::of_free_key(&new_email);
        let (email, body) = new_email.into_email(&first, now);
        let recipients = email.handoffs.iter().map(|handoff| addresses_to_json(&handoff.recipients)).collect();
        let event = PackedEvent::pack_accepted(&email);
        let head = head_to_json(&email.head)?;
        Ok(Self {
            email,
            key,
            shadow_keys: slots,
            first_wins,
            holds,
            fingerprint,
            intent,
            flag_similar,
            identical,
            charges,
            body,
            head,
            digest,
            recipients,
            event,
        })
    }
}

fn head_to_json(head: &EmailHead) -> Result<String> {
    let mut json = Vec::with_capacity(HEAD_CAPACITY);
    serde_json::to_writer(&mut json, head).map_err(|e| StoreError::Corrupt(e.to_string()))?;
    String::from_utf8(json).map_err(|e| StoreError::Corrupt(e.to_string()))
}

impl PreparedEmail {
    /// Converts the decision into the result for the caller. Runs on the caller's task, to spare the writer thread.
    pub(crate) fn into_accept(self, decision: AcceptDecision) -> AcceptResult {
        match decision {
            AcceptDecision::First(_) => AcceptResult::First(self.email),
            AcceptDecision::KeyBound(bound) => AcceptResult::KeyBound(bound),
            AcceptDecision::Identical(email) => AcceptResult::Identical(email),
            AcceptDecision::OverBudget(exceeded) => AcceptResult::OverBudget(exceeded),
        }
    }

    /// The email to notify subscribers of. `None` when it was not accepted.
    pub(crate) fn accepted_email(&self, decision: &AcceptDecision) -> Option<&Email> {
        matches!(decision, AcceptDecision::First(_)).then_some(&self.email)
    }

    fn send_facts(&self) -> SendFacts<'_> {
        SendFacts {
            team: self.email.team,
            head: &self.email.head,
            digest: &self.email.digest,
            key: self.key,
            shadow_keys: &self.shadow_keys,
            first_wins: self.first_wins,
            holds: self.holds,
            fingerprint: self.fingerprint.as_ref(),
            intent: self.intent.as_ref(),
            flag_similar: self.flag_similar.as_ref(),
            identical: self.identical.as_ref(),
            charges: &self.charges,
        }
    }

    /// Changes what differs from the usual case: how often the key was bound, and the guards of the email.
    fn apply(&mut self, first: &FirstSend, now: Time) -> Result<()> {
        self.email.bind_number = first.bind_number;
        let is_held = first.holds != self.holds;
        if !is_held && first.exceeded_budgets.is_empty() && first.flagged_by.is_none() {
            return Ok(());
        }
        if is_held {
            self.email.hold(first.holds, now);
        } else if self.email.guard.is_none() {
            self.email.guard = first.flagged_by;
        }
        if let Some(trace) = &mut Arc::make_mut(&mut self.email.head).policy {
            first.record_in(trace, first.flagged_by);
        }
        self.head = head_to_json(&self.email.head)?;
        self.event = PackedEvent::pack_accepted(&self.email);
        Ok(())
    }

    /// Whether it takes no key but its own.
    fn takes_only_its_key(&self) -> bool {
        self.shadow_keys.is_empty() && !self.email.head.may_take_earlier_shadow_keys()
    }
}

impl Sqlite {
    /// Binds a key to a new email on the writer thread.
    pub(crate) async fn run_accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        // Boxed, because it moves to the writer thread and back.
        let mut prepared = Box::new(PreparedEmail::new(new_email, now)?);
        let verb = move |ledger: &mut WriteSession<'_>| {
            let decision = accept(ledger, &mut prepared, now)?;
            Ok((prepared, decision))
        };
        let tell = |(prepared, decision): &(Box<PreparedEmail>, AcceptDecision), ledger: &WriteSession<'_>| {
            prepared.accepted_email(decision).into_iter().for_each(|email| ledger.notify_email_changed(email));
        };
        let (prepared, decision) = self.writer.run(Priority::Accept, verb, tell).await?;
        Ok(prepared.into_accept(decision))
    }

    /// Decides about a send on the writer thread, as an accept would, and writes nothing.
    pub(crate) async fn run_simulated_accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        let prepared = Box::new(PreparedEmail::new(new_email.clone(), now)?);
        let verb = move |ledger: &mut WriteSession<'_>| Ok(decide_send(ledger, &prepared, None, now)?.0);
        let decision = self.writer.run(Priority::Accept, verb, |_, _| {}).await?;
        Ok(decision.into_simulated(new_email, now))
    }

    /// Accepts the items of a batch on the writer thread.
    pub(crate) async fn run_accept_batch(&self, batch: NewBatch, now: Time) -> Result<BatchAcceptResult> {
        let strict = batch.strict;
        let mut items =
            batch.items.into_iter().map(|new_email| PreparedEmail::new(new_email, now)).collect::<Result<Vec<_>>>()?;
        let operation = batch.operation;
        let verb = move |ledger: &mut WriteSession<'_>| {
            let decision = accept_batch(ledger, operation.as_ref(), &mut items, strict, now)?;
            Ok((items, decision))
        };
        let tell = |(items, decision): &(Vec<PreparedEmail>, BatchDecision), ledger: &WriteSession<'_>| {
            if let BatchDecision::Items(decisions) = decision {
                items
                    .iter()
                    .zip(decisions)
                    .filter_map(|(item, decision)| item.accepted_email(decision))
                    .for_each(|email| ledger.notify_email_changed(email));
            }
        };
        Ok(match self.writer.run(Priority::Accept, verb, tell).await? {
            (items, BatchDecision::Items(decisions)) => BatchAcceptResult::Items(
                items.into_iter().zip(decisions).map(|(item, decision)| item.into_accept(decision)).collect(),
            ),
            (_, BatchDecision::Refused(refusal)) => refusal,
        })
    }
}

/// Binds a key to a new email, or returns the existing binding of the key.
pub(crate) fn accept(ledger: &mut WriteSession<'_>, prepared: &mut PreparedEmail, now: Time) -> Result<AcceptDecision> {
    let team = known_team_number(ledger, prepared.email.team)?;
    let (decision, key_is_new) = decide_send(ledger, prepared, None, now)?;
    if let AcceptDecision::First(first) = &decision {
        bind_keys(ledger, team, prepared, (first, key_is_new))?;
        insert_first(ledger, team, prepared, first, now)?;
    }
    Ok(decision)
}

/// Decides about a send without writing anything. Also returns whether the email's key has no row yet and can be bound
/// as a fresh key.
fn decide_send(
    ledger: &WriteSession<'_>,
    prepared: &PreparedEmail,
    resend: Option<&ResendDecision>,
    now: Time,
) -> Result<(AcceptDecision, bool)> {
    let own_key = prepared.key.filter(|_| prepared.takes_only_its_key());
    let reader = SessionReader { ledger, own_key, key_is_new: Cell::default(), latest: Cell::default() };
    let decision = decide(&reader, &prepared.send_facts(), resend, now)?;
    Ok((decision, reader.key_is_new.get()))
}

/// Reads the keys, budgets and recent content that a decision needs.
struct SessionReader<'a, 'conn> {
    ledger: &'a WriteSession<'conn>,
    /// A key that may be fresh: the own key of an email that takes no other.
    own_key: Option<KeyHash>,
    /// Whether `own_key` has no row yet.
    key_is_new: Cell<bool>,
    /// The row of the latest key. A decision reads a key several times in a row, so its row is loaded once.
    latest: Cell<Option<(i64, KeyHash, Option<KeyRow>)>>,
}

impl SessionReader<'_, '_> {
    fn row(&self, team: i64, key: KeyHash) -> Result<Option<KeyRow>> {
        if let Some((_, _, row)) = self.latest.get().filter(|latest| (latest.0, latest.1) == (team, key)) {
            return Ok(row);
        }
        let is_new = self.own_key == Some(key) && self.ledger.fresh_keys.borrow_mut().is_free(team, key)?;
        self.key_is_new.set(self.key_is_new.get() || is_new);
        let row = if is_new { None } else { key_row(self.ledger, team, key)? };
        self.latest.set(Some((team, key, row)));
        Ok(row)
    }
}

impl AcceptReader for SessionReader<'_, '_> {
    type Error = StoreError;

    fn expiry_cutoff(&self, now: Time) -> Time {
        self.ledger.time.expiry_cutoff(now)
    }

    fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<(u32, Option<KeyBinding>)> {
        let number = known_team_number(self.ledger, team)?;
        let Some(row) = self.row(number, key)? else { return Ok((0, None)) };
        Ok((row.bind_number, binding_of_row(self.ledger.conn, team, number, &row, self.expiry_cutoff(now))?))
    }

    fn email_with_shadow_key(&self, team: TeamId, key: KeyHash) -> Result<Option<Cow<'_, Email>>> {
        let number = known_team_number(self.ledger, team)?;
        let Some(slot) = self.row(number, key)?.and_then(|row| row.slot) else { return Ok(None) };
        Ok(rows::email_by_bits(self.ledger.conn, team, number, slot)?.map(Cow::Owned))
    }

    fn budget_used(&self, team: TeamId, counter: BudgetCounter) -> Result<u64> {
        budgets::used(self.ledger.conn, known_team_number(self.ledger, team)?, counter)
    }

    fn similar_email(&self, team: TeamId, comparison: Comparison<'_>, now: Time) -> Result<Option<Cow<'_, Email>>> {
        let number = known_team_number(self.ledger, team)?;
        Ok(content_guard::find_similar_email(self.ledger, (team, number), comparison, now)?.map(Cow::Owned))
    }
}

/// Binds the key of a first email, and the shadow keys that it occupies.
fn bind_keys(
    ledger: &WriteSession<'_>,
    team: i64,
    prepared: &PreparedEmail,
    (first, key_is_new): (&FirstSend, bool),
) -> Result<()> {
    let bits = id::ordered_bits(prepared.email.id.0);
    for slot in &first.shadow_keys {
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
    prepared.apply(first, now)?;
    let identical = prepared.identical.take().map(|identical| identical.fingerprint);
    let similar = prepared.fingerprint.take().into_iter().chain(prepared.intent.take());
    for fingerprint in similar.chain(prepared.flag_similar.take()).chain(identical) {
        content_guard::remember(ledger, team, &fingerprint, id::ordered_bits(prepared.email.id.0), now)?;
    }
    budgets::charge(ledger, team, &prepared.email, &first.charges)?;
    let PreparedEmail { email, body, head, digest, recipients, event, .. } = &*prepared;
    let (bits, tail) = (id::ordered_bits(email.id.0), id::random_bits(email.id.0));
    let guard = email.guard.map(Guard::as_str);
    let accepts = &mut ledger.accepts;
    let inline = Some(body.as_ref()).filter(|body| body.len() <= MAX_INLINE_BODY);
    let (bind, holds) = (email.bind_number, email.holds.to_column());
    let row = params![team, bits, tail, email.rev, bind, email.ttl.0, guard, digest, head, inline, holds];
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

/// Accepts the items of a batch. A strict batch accepts every item or none.
pub(crate) fn accept_batch(
    ledger: &mut WriteSession<'_>,
    operation: Option<&KeyedOperation>,
    items: &mut [PreparedEmail],
    strict: bool,
    now: Time,
) -> Result<BatchDecision> {
    // `accept` checks and writes item by item. A strict batch must check all items before the first write.
    let reader = SessionReader { ledger, own_key: None, key_is_new: Cell::default(), latest: Cell::default() };
    let facts: Vec<_> = items.iter().map(PreparedEmail::send_facts).collect();
    let binds_key = match check_batch(&reader, &facts, operation, strict, now)? {
        ControlFlow::Continue(binds_key) => binds_key,
        ControlFlow::Break(refusal) => return Ok(BatchDecision::Refused(refusal)),
    };
    if let Some(operation) = operation.filter(|_| binds_key) {
        bind_operation(ledger, operation)?;
    }
    items.iter_mut().map(|item| accept(ledger, item, now)).collect::<Result<_>>().map(BatchDecision::Items)
}

/// The decision about a batch.
pub(crate) enum BatchDecision {
    /// The decision about each item, in order.
    Items(Vec<AcceptDecision>),
    /// Nothing was written.
    Refused(BatchAcceptResult),
}

/// Resends an email: accepts its next version, once.
pub(crate) fn resend(
    ledger: &mut WriteSession<'_>,
    new_email: NewEmail,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<EmailResendResult>> {
    let team = known_team_number(ledger, new_email.team)?;
    let previous = new_email.head.resend_of.map(|id| rows::email_by_id(ledger.conn, new_email.team, team, id));
    let Some(previous) = previous.transpose()?.flatten() else {
        return Ok(IdempotentResult::Done(EmailResendResult::Missing));
    };
    if let Some(operation) = operation
        && let Some(answer) = find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let next = previous.resent_as.map(|id| rows::email_by_id(ledger.conn, new_email.team, team, id));
    let next = next.transpose()?.flatten();
    let answer = match ResendDecision::prepare(previous, next, new_email.guard_input.cancels_previous, now) {
        ControlFlow::Continue(resend) => accept_next_version(ledger, team, resend, new_email, now)?,
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
    mut resend: ResendDecision,
    new_email: NewEmail,
    now: Time,
) -> Result<IdempotentResult<EmailResendResult>> {
    let mut prepared = PreparedEmail::new(new_email, now)?;
    let (decision, key_is_new) = decide_send(ledger, &prepared, Some(&resend), now)?;
    let is_current_reply = message_progress::is_current_reply(ledger, team, resend.before())?;
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
    message_progress::update_message_progress(ledger, team, resend.before(), &email, now)?;
    Ok(IdempotentResult::Done(EmailResendResult::First(email)))
}

fn save_previous_version(ledger: &mut WriteSession<'_>, team: i64, email: &Email, event: &NewEvent) -> Result<()> {
    save_email_and_handoffs(ledger, team, email)?;
    ledger.emit(team, event);
    ledger.queue_changed_email(email.clone());
    Ok(())
}
