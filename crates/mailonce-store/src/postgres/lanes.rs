//! Lanes: accepts of this node that arrive together travel together.
//!
//! Wishes wait in one line. Each lane takes as many as share no scope with one another or with a wish that another
//! lane has under way, and answers them in one round. Wishes of the same single key go along as followers: they are
//! answered with what the first of them became, so a storm on one key costs one round.

use mailonce_core::{
    email::EmailHead,
    handoff::Handoff,
    key::KeyHash,
    port::store::{Accept, Care, Envelope, Result, StoreError, Wish},
    time::Time,
};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, oneshot};

use super::{Ledger, draft::Draft, ground::scopes_of_wish, row::Scope, trouble::Tried};

/// Wishes one round takes at most, followers apart.
const ROUND: usize = 256;
/// Bytes one round takes at most, unless a single wish is larger.
const ROUND_BYTES: usize = 8 * 1024 * 1024;

/// A wish in line.
pub(super) struct Waiting {
    pub key_hash: Option<KeyHash>,
    slots: Vec<KeyHash>,
    first_wins: bool,
    due: Option<Time>,
    care: Care,
    /// Every row it may touch: its key, its slots and those of the versions before it.
    scopes: Vec<Scope>,
    pub now: Time,
    /// What it becomes if its key was never seen.
    pub draft: Draft,
    answer: oneshot::Sender<Result<Accept>>,
    contended: bool,
}

impl Waiting {
    /// A wish, and where its answer will be.
    pub(super) fn new(wish: Wish, now: Time) -> Tried<(Self, oneshot::Receiver<Result<Accept>>)> {
        let (key_hash, slots, first_wins) = (wish.key, wish.slots.clone(), wish.first_wins);
        let (due, care) = (wish.due, wish.care.clone());
        let scopes = scopes_of_wish(&wish).collect();
        let (email, body) = wish.become_email(u32::from(key_hash.is_some()), None, now);
        let draft = Draft::of_accepted(email, body)?;
        let (answer, answered) = oneshot::channel();
        Ok((Self { key_hash, slots, first_wins, due, care, scopes, now, draft, answer, contended: false }, answered))
    }

    /// The wish again, for the few that are not decided by one free row.
    pub(super) fn wish(&self) -> Wish {
        let (email, body) = self.draft.parts();
        let envelope = |handoff: &Handoff| Envelope {
            transport: handoff.transport.clone(),
            recipients: handoff.recipients.clone(),
        };
        Wish {
            id: email.id,
            team: email.team,
            head: EmailHead::clone(&email.head),
            digest: email.digest.clone(),
            key: self.key_hash,
            slots: self.slots.clone(),
            first_wins: self.first_wins,
            ttl: email.ttl,
            envelopes: email.handoffs.iter().map(envelope).collect(),
            due: self.due,
            body: Arc::clone(body),
            care: self.care.clone(),
        }
    }

    /// Whether inserting the row of its key decides it: it takes no slot, neither of its own version nor of an earlier one,
    /// is compared with no other email and counts in no budget.
    fn is_plain(&self) -> bool {
        self.slots.is_empty()
            && !self.draft.email.head.takes_earlier_slots()
            && self.care.likeness.is_none()
            && self.care.charges.is_empty()
    }

    /// The key it is bound under, as a scope.
    pub(super) fn key(&self) -> Option<Scope> {
        self.key_hash.map(|key| (self.draft.email.team, key))
    }

    /// Answers. A caller that went away does not mind.
    pub(super) fn answer(self, answer: Result<Accept>) {
        self.answer.send(answer).ok();
    }

    /// Answers that it is the first of its key.
    pub(super) fn answer_first(self) {
        self.answer.send(Ok(Accept::First(self.draft.email))).ok();
    }
}

/// What one lane answers in one go.
#[derive(Default)]
pub(super) struct Round {
    /// Each may be decided by one free row.
    pub plain: Vec<Waiting>,
    /// Same key as one of the plain ones, and later.
    pub followers: Vec<Waiting>,
    /// These need every one of their scopes locked.
    pub careful: Vec<Waiting>,
    /// What the other lanes must not touch meanwhile.
    scopes: Vec<Scope>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    busy: HashSet<Scope>,
    closed: bool,
}

/// The line in front of the lanes.
#[derive(Default)]
pub(super) struct Lanes {
    line: Mutex<Line>,
    arrived: Notify,
}

impl Lanes {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a wish in line.
    pub(super) fn join(&self, waiting: Waiting) {
        let mut line = self.line();
        if line.closed {
            drop(line);
            return waiting.answer(Err(StoreError::Unreachable("the store is closed".into())));
        }
        line.waiting.push_back(waiting);
        drop(line);
        self.arrived.notify_one();
    }

    /// Takes no more wishes. Those in line are still answered.
    pub(super) fn close(&self) {
        self.line().closed = true;
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    /// The next round, and how many of it had to wait for another. `None` when the line is closed and empty.
    fn take(&self) -> Option<(Round, usize)> {
        let mut line = self.line();
        if line.closed && line.waiting.is_empty() {
            return None;
        }
        let taken = line.take();
        let more = !line.waiting.is_empty() && !taken.0.is_empty();
        drop(line);
        if more {
            self.arrived.notify_one();
        }
        Some(taken)
    }

    fn release(&self, scopes: &[Scope]) {
        let mut line = self.line();
        for scope in scopes {
            line.busy.remove(scope);
        }
    }
}

impl Round {
    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.careful.is_empty()
    }

    fn len(&self) -> usize {
        self.plain.len() + self.careful.len()
    }
}

impl Line {
    fn take(&mut self) -> (Round, usize) {
        let (mut round, mut bytes, mut contended) = (Round::default(), 0, 0);
        let mut leading: HashSet<Scope> = HashSet::new();
        let mut passed: HashSet<Scope> = HashSet::new();
        let mut left = Vec::new();
        while let Some(mut next) = self.waiting.pop_front() {
            if next.is_plain() && next.key().is_some_and(|key| leading.contains(&key)) {
                contended += usize::from(!mem::replace(&mut next.contended, true));
                round.followers.push(next);
                continue;
            }
            if round.len() == ROUND || (bytes + next.draft.size() > ROUND_BYTES && !round.is_empty()) {
                self.waiting.push_front(next);
                break;
            }
            // Who shares a scope with a wish that is left behind stays behind it, or that one might starve.
            if next.scopes.iter().any(|scope| self.busy.contains(scope) || passed.contains(scope)) {
                contended += usize::from(!mem::replace(&mut next.contended, true));
                passed.extend(next.scopes.iter().copied());
                left.push(next);
                continue;
            }
            bytes += next.draft.size();
            self.busy.extend(next.scopes.iter().copied());
            round.scopes.extend(next.scopes.iter().copied());
            if next.is_plain() {
                leading.extend(next.scopes.iter().copied());
                round.plain.push(next);
            } else {
                round.careful.push(next);
            }
        }
        for next in left.into_iter().rev() {
            self.waiting.push_front(next);
        }
        (round, contended)
    }
}

/// Lets the scopes of a round go, whatever became of it.
struct Hold<'a> {
    lanes: &'a Lanes,
    scopes: Vec<Scope>,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.lanes.release(&self.scopes);
    }
}

/// One lane, until the line is closed.
pub(super) async fn lane(ledger: Arc<Ledger>) {
    loop {
        let arrived = ledger.lanes.arrived.notified();
        let Some((mut round, contended)) = ledger.lanes.take() else {
            return ledger.lanes.arrived.notify_one();
        };
        ledger.meter.contended(contended);
        if round.is_empty() {
            arrived.await;
            // Callers that were answered together come back together: let them all get in line.
            tokio::task::yield_now().await;
            continue;
        }
        let hold = Hold { lanes: &ledger.lanes, scopes: mem::take(&mut round.scopes) };
        ledger.answer(round).await;
        drop(hold);
    }
}

/// What the plain wishes of a round became, by key: for the followers.
pub(super) type Became = HashMap<Scope, Result<Accept>>;
