//! Group commit for accepts: emails that arrive together on this node share one transaction.
//!
//! All emails wait in one queue. Each worker takes a round: emails that share no key with one another or with a round
//! that is still running. Simple emails with the same key join the round as followers. They get the outcome of the
//! first one, so many retries of one key cost one round.

use mailonce_core::{
    handoff::{Handoff, envelope::Envelope},
    key::KeyHash,
    outbound::{
        accept::{AcceptResult, GuardInput, NewEmail},
        accept_decision::FirstSend,
        email::EmailHead,
    },
    ports::store::{Result, StoreError},
    time::Time,
};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, oneshot};

use crate::postgres::{
    SharedState, error::TxResult, outbound::email_insert::EmailInsert, row::TeamKey, unit_of_work::keys_to_lock,
};

/// The maximum number of emails in one round, not counting followers.
const MAX_ROUND_EMAILS: usize = 256;
/// The maximum number of bytes in one round, unless a single email is larger.
const MAX_ROUND_BYTES: usize = 8 * 1024 * 1024;

/// An email that waits to be accepted.
pub(crate) struct QueuedAccept {
    pub key_hash: Option<KeyHash>,
    shadow_keys: Vec<KeyHash>,
    first_wins: bool,
    due: Option<Time>,
    guard_input: GuardInput,
    /// Every key row it may touch: its own key, its shadow keys and those of its earlier versions.
    scopes: Vec<TeamKey>,
    pub now: Time,
    /// The rows to insert if its key was never seen.
    pub draft: EmailInsert,
    answer: oneshot::Sender<Result<AcceptResult>>,
    was_contended: bool,
}

impl QueuedAccept {
    /// Prepares an email for the queue. Returns it with the receiver of its answer.
    pub(crate) fn new(new_email: NewEmail, now: Time) -> TxResult<(Self, oneshot::Receiver<Result<AcceptResult>>)> {
        let (key_hash, slots, first_wins) = (new_email.key, new_email.shadow_keys.clone(), new_email.first_wins);
        let (due, guard_input) = (new_email.due_at, new_email.guard_input.clone());
        let scopes = keys_to_lock(&new_email).collect();
        let first = FirstSend::of_free_key(&new_email);
        let (email, body) = new_email.into_email(&first, now);
        let draft = EmailInsert::of_accepted(email, body)?;
        let (answer, answered) = oneshot::channel();
        Ok((
            Self {
                key_hash,
                shadow_keys: slots,
                first_wins,
                due,
                guard_input,
                scopes,
                now,
                draft,
                answer,
                was_contended: false,
            },
            answered,
        ))
    }

    /// The original request, for emails that cannot be decided by inserting one key row.
    pub(crate) fn to_new_email(&self) -> NewEmail {
        let (email, body) = self.draft.email_and_body();
        let envelope = |handoff: &Handoff| Envelope {
            transport: handoff.transport.clone(),
            recipients: handoff.recipients.clone(),
        };
        NewEmail {
            id: email.id,
            team: email.team,
            head: EmailHead::clone(&email.head),
            digest: email.digest.clone(),
            key: self.key_hash,
            shadow_keys: self.shadow_keys.clone(),
            first_wins: self.first_wins,
            ttl: email.ttl,
            envelopes: email.handoffs.iter().map(envelope).collect(),
            due_at: self.due,
            body: Arc::clone(body),
            guard_input: self.guard_input.clone(),
        }
    }

    /// Whether inserting its key row decides it: it takes no shadow keys, is not compared with other emails, and counts
    /// in no budget. The shadow keys include those of earlier versions.
    fn is_simple(&self) -> bool {
        self.shadow_keys.is_empty()
            && !self.draft.email.head.may_take_earlier_shadow_keys()
            && self.guard_input.fingerprints().next().is_none()
            && self.guard_input.charges.is_empty()
    }

    /// Its team and key.
    pub(crate) fn key(&self) -> Option<TeamKey> {
        self.key_hash.map(|key| (self.draft.email.team, key))
    }

    /// Sends the answer. The caller may have gone away meanwhile.
    pub(crate) fn answer(self, answer: Result<AcceptResult>) {
        self.answer.send(answer).ok();
    }

    /// Answers that this email is the first with its key.
    pub(crate) fn answer_first(self) {
        self.answer.send(Ok(AcceptResult::First(self.draft.email))).ok();
    }
}

/// The emails that one worker answers together.
#[derive(Default)]
pub(crate) struct AcceptRound {
    /// Each can be decided by inserting its key row.
    pub simple: Vec<QueuedAccept>,
    /// Later emails with the same key as one of the simple ones.
    pub followers: Vec<QueuedAccept>,
    /// Emails that need all their keys locked.
    pub needs_locks: Vec<QueuedAccept>,
    /// The keys that other workers must not touch while the round runs.
    scopes: Vec<TeamKey>,
}

#[derive(Default)]
struct AcceptQueue {
    waiting: VecDeque<QueuedAccept>,
    busy_scopes: HashSet<TeamKey>,
    is_closed: bool,
}

/// The queue in front of the accept workers.
#[derive(Default)]
pub(crate) struct AcceptBatcher {
    queue: Mutex<AcceptQueue>,
    arrived: Notify,
}

impl AcceptBatcher {
    fn lock_queue(&self) -> MutexGuard<'_, AcceptQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an email to the queue.
    pub(crate) fn enqueue(&self, waiting: QueuedAccept) {
        let mut line = self.lock_queue();
        if line.is_closed {
            drop(line);
            return waiting.answer(Err(StoreError::Unreachable("the store is closed".into())));
        }
        line.waiting.push_back(waiting);
        drop(line);
        self.arrived.notify_one();
    }

    /// Rejects new emails. Queued ones are still answered.
    pub(crate) fn close(&self) {
        self.lock_queue().is_closed = true;
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    /// Takes the next round, and counts the emails that had to wait for another one. `None` when the queue is closed
    /// and empty.
    fn next_round(&self) -> Option<(AcceptRound, usize)> {
        let mut line = self.lock_queue();
        if line.is_closed && line.waiting.is_empty() {
            return None;
        }
        let taken = line.take_round();
        let more = !line.waiting.is_empty() && !taken.0.is_empty();
        drop(line);
        if more {
            self.arrived.notify_one();
        }
        Some(taken)
    }

    fn release_scopes(&self, scopes: &[TeamKey]) {
        let mut line = self.lock_queue();
        for scope in scopes {
            line.busy_scopes.remove(scope);
        }
    }
}

impl AcceptRound {
    fn is_empty(&self) -> bool {
        self.simple.is_empty() && self.needs_locks.is_empty()
    }

    fn len(&self) -> usize {
        self.simple.len() + self.needs_locks.len()
    }
}

impl AcceptQueue {
    fn take_round(&mut self) -> (AcceptRound, usize) {
        let (mut round, mut bytes, mut contended) = (AcceptRound::default(), 0, 0);
        let mut leading: HashSet<TeamKey> = HashSet::new();
        let mut passed: HashSet<TeamKey> = HashSet::new();
        let mut left = Vec::new();
        while let Some(mut next) = self.waiting.pop_front() {
            if next.is_simple() && next.key().is_some_and(|key| leading.contains(&key)) {
                contended += usize::from(!mem::replace(&mut next.was_contended, true));
                round.followers.push(next);
                continue;
            }
            if round.len() == MAX_ROUND_EMAILS || (bytes + next.draft.size() > MAX_ROUND_BYTES && !round.is_empty()) {
                self.waiting.push_front(next);
                break;
            }
            // An email that shares a key with one left in the queue must stay behind it; otherwise that one could
            // starve.
            if next.scopes.iter().any(|scope| self.busy_scopes.contains(scope) || passed.contains(scope)) {
                contended += usize::from(!mem::replace(&mut next.was_contended, true));
                passed.extend(next.scopes.iter().copied());
                left.push(next);
                continue;
            }
            bytes += next.draft.size();
            self.busy_scopes.extend(next.scopes.iter().copied());
            round.scopes.extend(next.scopes.iter().copied());
            if next.is_simple() {
                leading.extend(next.scopes.iter().copied());
                round.simple.push(next);
            } else {
                round.needs_locks.push(next);
            }
        }
        for next in left.into_iter().rev() {
            self.waiting.push_front(next);
        }
        (round, contended)
    }
}

/// Releases the keys of a round when dropped, even after an error.
struct BusyScopesGuard<'a> {
    batcher: &'a AcceptBatcher,
    scopes: Vec<TeamKey>,
}

impl Drop for BusyScopesGuard<'_> {
    fn drop(&mut self) {
        self.batcher.release_scopes(&self.scopes);
    }
}

/// An accept worker. It runs until the queue is closed and empty.
pub(crate) async fn run_accept_worker(ledger: Arc<SharedState>) {
    loop {
        let arrived = ledger.accept_batcher.arrived.notified();
        let Some((mut round, contended)) = ledger.accept_batcher.next_round() else {
            return ledger.accept_batcher.arrived.notify_one();
        };
        ledger.meter.record_contended(contended);
        if round.is_empty() {
            arrived.await;
            // Callers that were answered together often call again together: let them all queue first.
            tokio::task::yield_now().await;
            continue;
        }
        let hold = BusyScopesGuard { batcher: &ledger.accept_batcher, scopes: mem::take(&mut round.scopes) };
        ledger.process_round(round).await;
        drop(hold);
    }
}

/// The outcomes of a round's simple emails by key, for the followers.
pub(crate) type KeyOutcomes = HashMap<TeamKey, Result<AcceptResult>>;
