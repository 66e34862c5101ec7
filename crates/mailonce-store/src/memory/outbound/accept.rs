//! Accepting emails: binds each idempotency key to one email, and answers repeated calls from that binding.

use mailonce_core::{
    id::TeamId,
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation, OperationDecision},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        accept_decision::{
            AcceptCheck, AcceptDecision, AcceptStep, FirstSend, NextVersion, Resend,
            batch::{BatchCheck, BatchItem, BatchStep},
        },
        email::Email,
        email_commands::EmailResendResult,
        key_binding::KeyBinding,
    },
    time::Time,
};
use std::{borrow::Cow, ops::ControlFlow};

use crate::memory::{KeyTarget, Tables, ordered_bits};

impl Tables {
    /// Binds a key to a new email, or returns the existing binding of the key.
    pub(crate) fn accept(&mut self, wish: NewEmail, now: Time) -> AcceptResult {
        match self.decide(&wish, None, now) {
            AcceptDecision::First(first) => AcceptResult::First(self.insert_first(wish, first, now)),
            AcceptDecision::KeyBound(bound) => AcceptResult::KeyBound(bound),
            AcceptDecision::OverBudget(exceeded) => AcceptResult::OverBudget(exceeded),
        }
    }

    /// Loads what the core asks for until it has decided. Changes nothing.
    fn decide(&self, wish: &NewEmail, resend: Option<&Resend>, now: Time) -> AcceptDecision {
        let row = |key: KeyHash| self.keys.get(&(wish.team, key));
        let binding = |key: KeyHash| self.key_binding(wish.team, key, now);
        let (mut check, mut step) = AcceptCheck::start(wish.send_facts(), resend, self.time.expiry_cutoff(now));
        loop {
            step = match step {
                AcceptStep::LoadOwnKey(key) => check.own_key(row(key).map_or(0, |row| row.bind_number), binding(key)),
                AcceptStep::CheckBudget => check.budget(self.exceeded_budget(wish)),
                AcceptStep::LoadOccupant(key) => {
                    let occupant = row(key).and_then(|row| row.slot);
                    check.occupant(occupant.and_then(|id| self.emails.get(&id)))
                }
                AcceptStep::LoadRecipientKey(key) => check.recipient_key(binding(key).as_ref()),
                AcceptStep::CompareContent => check.content(self.looks_duplicate(wish, now)),
                AcceptStep::Decided(decision) => return decision,
            }
        }
    }

    /// Checks the keys and budgets of a batch. Returns whether to bind its own key, or breaks with the refusal.
    pub(crate) fn check_batch(&self, batch: &NewBatch, now: Time) -> ControlFlow<BatchAcceptResult, bool> {
        let items = batch.items.iter().map(BatchItem::from);
        let (mut check, mut step) = BatchCheck::start(items, batch.operation.as_ref(), batch.strict);
        loop {
            step = match step {
                BatchStep::LoadItemKey(team, key) => check.item_key(self.key_binding(team, key, now)),
                BatchStep::LoadBatchKey(team, key) => check.batch_key(self.key_binding(team, key, now)),
                BatchStep::CheckBudgets => check.budget(self.batch_over_budget(batch, now)),
                BatchStep::Accept { binds_key } => return ControlFlow::Continue(binds_key),
                BatchStep::Refuse(refusal) => return ControlFlow::Break(refusal),
            }
        }
    }

    /// Stores the first email of a key as the core decided.
    fn insert_first(&mut self, wish: NewEmail, first: FirstSend, now: Time) -> Email {
        self.charge_budgets(&wish);
        let likeness = wish.guard_input.fingerprint.clone();
        let key = wish.key;
        let (email, body) = wish.into_email(first.bind_number, first.held_by, now);
        self.bind(&email, key, &first.occupies);
        self.bodies.insert(email.id, body.to_vec());
        self.highest_id = self.highest_id.max(ordered_bits(email.id.0));
        self.save_email(&email, email.accepted_event());
        self.remember_fingerprint(likeness, &email, now);
        email
    }

    fn bind(&mut self, email: &Email, key: Option<KeyHash>, slots: &[KeyHash]) {
        for slot in slots {
            self.keys.entry((email.team, *slot)).or_default().slot = Some(email.id);
        }
        if let Some(key) = key {
            let row = self.keys.entry((email.team, key)).or_default();
            row.bind_number = email.bind_number;
            row.target = Some(KeyTarget::Email(email.id));
            row.forgotten_at = None;
            row.tombstone_until = None;
        }
    }

    /// What a key is bound to. `None` when it is free or has expired.
    pub(crate) fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Option<KeyBinding> {
        let forget_by = self.time.expiry_cutoff(now);
        match self.keys.get(&(team, key))?.target.as_ref()? {
            KeyTarget::Email(id) => KeyBinding::to_email(Cow::Borrowed(self.emails.get(id)?), forget_by),
            KeyTarget::Operation { digest, expires_at, .. } => {
                KeyBinding::to_operation(*digest, *expires_at, forget_by)
            }
        }
    }

    /// The replayed response, or the mismatch, for an operation whose key is bound already. `None` when the key is
    /// free.
    pub(crate) fn find_replay<T>(&self, operation: &KeyedOperation, now: Time) -> Option<IdempotentResult<T>> {
        match operation.decide(self.key_binding(operation.team, operation.key, now)) {
            OperationDecision::First => None,
            OperationDecision::Replayed => {
                let row = self.keys.get(&(operation.team, operation.key));
                let answer = row.and_then(|row| match &row.target {
                    Some(KeyTarget::Operation { answer, .. }) => Some(answer.clone()),
                    _ => None,
                });
                Some(IdempotentResult::Replayed(answer.unwrap_or_default()))
            }
            OperationDecision::KeyMismatch(bound) => Some(IdempotentResult::KeyMismatch(bound)),
        }
    }

    /// Binds the key of a completed operation. The key must be free.
    pub(crate) fn bind_operation(&mut self, operation: &KeyedOperation) {
        let row = self.keys.entry((operation.team, operation.key)).or_default();
        row.bind_number += 1;
        row.forgotten_at = None;
        row.tombstone_until = None;
        row.target = Some(KeyTarget::Operation {
            digest: operation.digest,
            answer: operation.response.clone(),
            expires_at: operation.expires_at,
        });
    }

    /// Resends an email: accepts its next version, once.
    pub(crate) fn resend(
        &mut self,
        wish: NewEmail,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<EmailResendResult> {
        let Some(previous) = wish.head.resend_of.and_then(|id| self.email_of_team(wish.team, id)) else {
            return IdempotentResult::Done(EmailResendResult::Missing);
        };
        if let Some(answer) = operation.and_then(|operation| self.find_replay(operation, now)) {
            return answer;
        }
        let next = previous.resent_as.and_then(|id| self.email_of_team(wish.team, id));
        let answer = match Resend::prepare(previous, next, wish.guard_input.cancels_previous, now) {
            ControlFlow::Continue(resend) => self.accept_next_version(resend, wish, now),
            ControlFlow::Break(answer) => IdempotentResult::Done(answer),
        };
        if let (Some(operation), IdempotentResult::Done(done)) = (operation, &answer)
            && done.has_new_version()
        {
            self.bind_operation(operation);
        }
        answer
    }

    fn accept_next_version(
        &mut self,
        mut resend: Resend,
        wish: NewEmail,
        now: Time,
    ) -> IdempotentResult<EmailResendResult> {
        let decision = self.decide(&wish, Some(&resend), now);
        let version = match resend.decide(decision, self.is_current_reply(resend.before())) {
            ControlFlow::Continue(version) => version,
            ControlFlow::Break(answer) => return answer,
        };
        if let Some((previous, event)) = resend.cancelled() {
            self.save_email(previous, event.clone());
        }
        let (email, is_first) = match version {
            NextVersion::First(first) => (self.insert_first(wish, first, now), true),
            NextVersion::Existing(email) => (email, false),
        };
        let (previous, event) = resend.link(email.id, now);
        self.save_email(previous, event);
        if is_first {
            self.update_message_progress(resend.before(), &email, now);
            return IdempotentResult::Done(EmailResendResult::First(email));
        }
        IdempotentResult::Done(EmailResendResult::Replayed(email))
    }
}
