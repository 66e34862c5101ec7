//! Accepting emails: binds each idempotency key to one email, and answers repeated calls from that binding.

use mailonce_core::{
    id::{EmailId, TeamId},
    key::KeyHash,
    mutant,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, NewEmail},
        email::{Email, EmailChangeRefusal, Guard},
        email_commands::EmailResendResult,
        key_binding::KeyBinding,
    },
    time::Time,
};

use crate::memory::{KeyTarget, Tables, ordered_bits};

impl Tables {
    /// Binds a key to a new email, or returns the existing binding of the key.
    pub(crate) fn accept(&mut self, wish: NewEmail, now: Time) -> AcceptResult {
        let bound = wish.key.and_then(|key| self.key_binding(wish.team, key, now));
        if let Some(bound) = bound.filter(|_| !mutant!("key-ignored")) {
            return AcceptResult::KeyBound(bound);
        }
        if let Some(exceeded) = self.over_budget(&wish, now) {
            return AcceptResult::OverBudget(exceeded);
        }
        self.charge_budgets(&wish);
        let overlaps = self.overlaps_recipients(&wish, now) && !mutant!("overlap-ignored");
        let alike = self.looks_duplicate(&wish, now) && !mutant!("likeness-ignored");
        let guard = overlaps.then_some(Guard::Overlaps).or(wish.guard_input.held_by);
        let guard = guard.or(alike.then_some(Guard::LooksDuplicate));
        let likeness = wish.guard_input.fingerprint.clone();
        let (key, slots) = (wish.key, wish.shadow_keys.clone());
        let bind = key.map_or(0, |key| self.keys.get(&(wish.team, key)).map_or(0, |row| row.bind_number) + 1);
        let (email, body) = wish.into_email(bind, guard, now);
        self.bind(&email, key, &slots, now);
        self.bodies.insert(email.id, body.to_vec());
        self.highest_id = self.highest_id.max(ordered_bits(email.id.0));
        self.save_email(&email, email.accepted_event());
        self.remember_fingerprint(likeness, &email, now);
        AcceptResult::First(email)
    }

    fn bind(&mut self, email: &Email, key: Option<KeyHash>, slots: &[KeyHash], now: Time) {
        let earlier = email.head.earlier_shadow_keys(email.team);
        for slot in slots.iter().copied().chain(earlier).filter(|_| !mutant!("slots-unbound")) {
            let taken = self.keys.get(&(email.team, slot)).and_then(|row| row.slot);
            if !taken.is_some_and(|id| self.occupies_slots(id, now)) {
                self.keys.entry((email.team, slot)).or_default().slot = Some(email.id);
            }
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
            KeyTarget::Email(id) => {
                let email = self.emails.get(id)?;
                (!email.is_forgotten(forget_by)).then(|| KeyBinding::Email(email.clone()))
            }
            KeyTarget::Operation { digest, expires_at, .. } => {
                (*expires_at > forget_by).then_some(KeyBinding::Operation { digest: *digest })
            }
        }
    }

    /// Whether an email with the same intent was sent, or may be sent, to some of these recipients.
    fn overlaps_recipients(&self, wish: &NewEmail, now: Time) -> bool {
        let stands_for = |key: KeyHash| {
            let row = self.keys.get(&(wish.team, key));
            row.and_then(|row| row.slot).is_some_and(|id| self.occupies_slots(id, now))
        };
        let bound_alone = |key: KeyHash| matches!(self.key_binding(wish.team, key, now), Some(KeyBinding::Email(email)) if self.occupies_slots(email.id, now));
        wish.key.is_some_and(stands_for) || wish.shadow_keys.iter().any(|slot| stands_for(*slot) || bound_alone(*slot))
    }

    fn occupies_slots(&self, id: EmailId, now: Time) -> bool {
        self.emails.get(&id).is_some_and(|email| email.holds_shadow_keys(self.time.expiry_cutoff(now)))
    }

    /// The replayed response, or the mismatch, for an operation whose key is bound already. `None` when the key is
    /// free.
    pub(crate) fn find_replay<T>(&self, operation: &KeyedOperation, now: Time) -> Option<IdempotentResult<T>> {
        match self.key_binding(operation.team, operation.key, now)? {
            KeyBinding::Operation { digest } if digest == operation.digest => {
                let row = self.keys.get(&(operation.team, operation.key));
                let answer = row.and_then(|row| match &row.target {
                    Some(KeyTarget::Operation { answer, .. }) => Some(answer.clone()),
                    _ => None,
                });
                Some(IdempotentResult::Replayed(answer.unwrap_or_default()))
            }
            other => Some(IdempotentResult::KeyMismatch(other)),
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
        let Some(mut previous) = wish.head.resend_of.and_then(|id| self.email_of_team(wish.team, id)) else {
            return IdempotentResult::Done(EmailResendResult::Missing);
        };
        if let Some(answer) = operation.and_then(|operation| self.find_replay(operation, now)) {
            return answer;
        }
        let answer = self.accept_next_version(&mut previous, wish, now);
        if let (Some(operation), IdempotentResult::Done(EmailResendResult::First(_) | EmailResendResult::Replayed(_))) =
            (operation, &answer)
        {
            self.bind_operation(operation);
        }
        answer
    }

    fn accept_next_version(
        &mut self,
        previous: &mut Email,
        wish: NewEmail,
        now: Time,
    ) -> IdempotentResult<EmailResendResult> {
        if let Some(email) = previous.resent_as.and_then(|id| self.email_of_team(wish.team, id)) {
            return IdempotentResult::Done(EmailResendResult::Replayed(email));
        }
        let before = previous.clone();
        let event = match previous.prepare_for_resend(wish.guard_input.cancels_previous, now) {
            Ok(event) => event,
            Err(refusal) => return IdempotentResult::Done(EmailResendResult::Refused(refusal, previous.clone())),
        };
        if let Some(exceeded) = self.over_budget(&wish, now) {
            return IdempotentResult::Done(EmailResendResult::OverBudget(exceeded));
        }
        event.into_iter().for_each(|event| self.save_email(previous, event));
        if !self.is_current_reply(previous) {
            return IdempotentResult::Done(EmailResendResult::Refused(
                EmailChangeRefusal::AnsweredByAnother,
                previous.clone(),
            ));
        }
        let answer = match self.accept(wish, now) {
            AcceptResult::First(email) => EmailResendResult::First(email),
            AcceptResult::KeyBound(KeyBinding::Email(email)) => EmailResendResult::Replayed(email),
            AcceptResult::KeyBound(other) => return IdempotentResult::KeyMismatch(other),
            AcceptResult::OverBudget(exceeded) => {
                return IdempotentResult::Done(EmailResendResult::OverBudget(exceeded));
            }
        };
        if let EmailResendResult::First(email) | EmailResendResult::Replayed(email) = &answer {
            let event = previous.mark_resent(email.id, now);
            self.save_email(previous, event);
        }
        if let EmailResendResult::First(email) = &answer {
            self.update_message_progress(&before, email, now);
        }
        IdempotentResult::Done(answer)
    }
}
