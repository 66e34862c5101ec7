//! Accepting emails: binds each idempotency key to one email, and answers repeated calls from that binding.

use mailonce_core::{
    control::budget::BudgetCounter,
    id::TeamId,
    key::KeyHash,
    mutant,
    operation::{IdempotentResult, KeyedOperation, OperationDecision},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        accept_decision::{
            AcceptDecision, AcceptReader, FirstSend, NextVersion, ResendDecision, batch::check_batch, decide,
        },
        content_guard::Comparison,
        email::Email,
        email_commands::EmailResendResult,
        key_binding::KeyBinding,
    },
    time::Time,
};
use std::{borrow::Cow, convert::Infallible, ops::ControlFlow};

use crate::memory::{
    Tables,
    outbound::tables::{KeyTarget, OutboundTables},
};

impl Tables {
    /// Binds a key to a new email, or returns the existing binding of the key.
    pub(crate) fn accept(&mut self, new_email: NewEmail, now: Time) -> AcceptResult {
        let Ok(decision) = decide(self, &new_email.send_facts(), None, now);
        match decision {
            AcceptDecision::First(first) => AcceptResult::First(self.insert_first(new_email, first, now)),
            AcceptDecision::KeyBound(bound) => AcceptResult::KeyBound(bound),
            AcceptDecision::Identical(email) => AcceptResult::Identical(email),
            AcceptDecision::OverBudget(exceeded) => AcceptResult::OverBudget(exceeded),
        }
    }

    /// Decides like `accept`, and stores nothing.
    pub(crate) fn simulate_accept(&self, new_email: NewEmail, now: Time) -> AcceptResult {
        let Ok(decision) = decide(self, &new_email.send_facts(), None, now);
        decision.into_simulated(new_email, now)
    }

    /// Accepts the items of a batch. A strict batch accepts every item or none.
    pub(crate) fn accept_batch(&mut self, batch: NewBatch, now: Time) -> BatchAcceptResult {
        let items: Vec<_> = batch.items.iter().map(NewEmail::send_facts).collect();
        let Ok(checked) = check_batch(self, &items, batch.operation.as_ref(), batch.strict, now);
        let binds_key = match checked {
            ControlFlow::Continue(binds_key) => binds_key,
            ControlFlow::Break(refusal) => return refusal,
        };
        if let Some(operation) = batch.operation.as_ref().filter(|_| binds_key) {
            self.outbound.bind_operation(operation);
        }
        let whole = batch.items.len() - usize::from(mutant!("batch-cut-short"));
        BatchAcceptResult::Items(batch.items.into_iter().take(whole).map(|email| self.accept(email, now)).collect())
    }

    /// Stores the first email of a key as the core decided.
    fn insert_first(&mut self, new_email: NewEmail, first: FirstSend, now: Time) -> Email {
        self.control.charge(new_email.team, new_email.id, &first.charges);
        let fingerprints: Vec<_> = new_email.guard_input.fingerprints().cloned().collect();
        let key = new_email.key;
        let (email, body) = new_email.into_email(&first, now);
        self.outbound.bind(&email, key, &first.shadow_keys);
        self.outbound.bodies.insert(email.id, body.to_vec());
        self.reserve_id(email.id.0);
        self.save_email(&email, email.accepted_event());
        fingerprints
            .into_iter()
            .for_each(|fingerprint| self.conversations.remember_fingerprint(fingerprint, &email, now));
        email
    }

    /// Resends an email: accepts its next version, once.
    pub(crate) fn resend(
        &mut self,
        new_email: NewEmail,
        operation: Option<&KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<EmailResendResult> {
        let Some(previous) = new_email.head.resend_of.and_then(|id| self.outbound.email_of_team(new_email.team, id))
        else {
            return IdempotentResult::Done(EmailResendResult::Missing);
        };
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, now)) {
            return answer;
        }
        let next = previous.resent_as.and_then(|id| self.outbound.email_of_team(new_email.team, id));
        let answer = match ResendDecision::prepare(previous, next, new_email.guard_input.cancels_previous, now) {
            ControlFlow::Continue(resend) => self.accept_next_version(resend, new_email, now),
            ControlFlow::Break(answer) => IdempotentResult::Done(answer),
        };
        if let (Some(operation), IdempotentResult::Done(done)) = (operation, &answer)
            && done.has_new_version()
        {
            self.outbound.bind_operation(operation);
        }
        answer
    }

    fn accept_next_version(
        &mut self,
        mut resend: ResendDecision,
        new_email: NewEmail,
        now: Time,
    ) -> IdempotentResult<EmailResendResult> {
        let Ok(decision) = decide(self, &new_email.send_facts(), Some(&resend), now);
        let version = match resend.decide(decision, self.is_current_reply(resend.before())) {
            ControlFlow::Continue(version) => version,
            ControlFlow::Break(answer) => return answer,
        };
        if let Some((previous, event)) = resend.cancelled() {
            self.save_email(previous, event.clone());
        }
        let (email, is_first) = match version {
            NextVersion::First(first) => (self.insert_first(new_email, first, now), true),
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

impl OutboundTables {
    pub(crate) fn bind(&mut self, email: &Email, key: Option<KeyHash>, slots: &[KeyHash]) {
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

    /// Binds the key of an operation that changes nothing else, or returns the replay.
    pub(crate) fn bind_operation_once(&mut self, operation: &KeyedOperation, now: Time) -> IdempotentResult<()> {
        if let Some(answer) = self.find_replay(operation, now) {
            return answer;
        }
        self.bind_operation(operation);
        IdempotentResult::Done(())
    }
}

impl AcceptReader for Tables {
    type Error = Infallible;

    fn expiry_cutoff(&self, now: Time) -> Time {
        self.outbound.time.expiry_cutoff(now)
    }

    fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<(u32, Option<KeyBinding>), Infallible> {
        let bind_number = self.outbound.keys.get(&(team, key)).map_or(0, |row| row.bind_number);
        Ok((bind_number, self.outbound.key_binding(team, key, now)))
    }

    fn email_with_shadow_key(&self, team: TeamId, key: KeyHash) -> Result<Option<Cow<'_, Email>>, Infallible> {
        let email_with_shadow_key = self.outbound.keys.get(&(team, key)).and_then(|row| row.slot);
        Ok(email_with_shadow_key.and_then(|id| self.outbound.emails.get(&id)).map(Cow::Borrowed))
    }

    fn budget_used(&self, team: TeamId, counter: BudgetCounter) -> Result<u64, Infallible> {
        Ok(self.control.budget_used(team, counter))
    }

    fn similar_email(
        &self,
        team: TeamId,
        comparison: Comparison<'_>,
        now: Time,
    ) -> Result<Option<Cow<'_, Email>>, Infallible> {
        Ok(self.find_similar_email(team, comparison, now).map(Cow::Borrowed))
    }
}
