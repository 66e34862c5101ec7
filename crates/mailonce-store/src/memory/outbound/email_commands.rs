//! What accepts or changes emails and notifies the subscribers. They are notified under the lock, so that they see
//! changes in commit order.

use mailonce_core::{
    control::audit::act::Act,
    events::event::{EventKind, NewEvent},
    id::{EmailId, TeamId},
    key::KeyHash,
    limits, mutant,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        email::{Email, EmailChangeRefusal},
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        key_binding::{KeyBinding, KeyChangeResult},
        suppressed_call::SuppressedCalls,
    },
    time::Time,
    ttl::Ttl,
};

use crate::memory::{Memory, Tables};

impl Memory {
    /// Binds a key to a new email.
    pub(crate) fn accept_email(&self, new_email: NewEmail, now: Time) -> AcceptResult {
        let mut tables = self.lock_tables();
        let answer = tables.accept(new_email, now);
        if let AcceptResult::First(email) = &answer {
            self.notify_email_changed(email);
        }
        answer
    }

    /// Accepts the items of a batch.
    pub(crate) fn accept_emails(&self, batch: NewBatch, now: Time) -> BatchAcceptResult {
        let mut tables = self.lock_tables();
        let answer = tables.accept_batch(batch, now);
        if let BatchAcceptResult::Items(items) = &answer {
            for item in items {
                if let AcceptResult::First(email) = item {
                    self.notify_email_changed(email);
                }
            }
        }
        answer
    }

    /// Cancels an email.
    pub(crate) fn cancel_email(
        &self,
        team: TeamId,
        id: EmailId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<EmailChangeResult> {
        let mut tables = self.lock_tables();
        if let Some(answer) = operation.as_ref().and_then(|operation| tables.outbound.find_replay(operation, now)) {
            return answer;
        }
        let now = self.time.commit_time(now);
        let change = self.change_email(&mut tables, team, id, |email| email.cancel(now));
        // Bind the operation's key only on success, because a refused cancel may succeed later.
        if let (Some(operation), EmailChangeResult::Changed(_)) = (&operation, &change) {
            tables.outbound.bind_operation(operation);
        }
        IdempotentResult::Done(change)
    }

    /// Moves a scheduled email and its charges to another time.
    pub(crate) fn reschedule_email(
        &self,
        team: TeamId,
        id: EmailId,
        new: RescheduleRequest,
        now: Time,
    ) -> EmailChangeResult {
        let mut tables = self.lock_tables();
        // An email that cannot be rescheduled returns that refusal, even if a budget would be exceeded too.
        if let Some(email) = tables.outbound.email_of_team(team, id)
            && email.clone().reschedule(new.due_at, now).is_ok()
            && let Some(exceeded) = tables.control.move_charges(&email, &new.charges, now)
        {
            return EmailChangeResult::OverBudget(exceeded);
        }
        self.change_email(&mut tables, team, id, |email| email.reschedule(new.due_at, now).map(Some))
    }

    /// Creates the next version of an email.
    pub(crate) fn resend_email(
        &self,
        new_email: NewEmail,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> IdempotentResult<EmailResendResult> {
        let mut tables = self.lock_tables();
        let previous = new_email.head.resend_of;
        let answer = tables.resend(new_email, operation.as_ref(), now);
        if let IdempotentResult::Done(EmailResendResult::First(email)) = &answer {
            self.notify_email_changed(email);
        }
        if let Some(previous) = previous.and_then(|id| tables.outbound.emails.get(&id)) {
            self.notify_email_changed(previous);
        }
        answer
    }

    /// Hands due envelopes to the sandbox.
    pub(crate) fn capture_due(&self, transport: &str, max: usize, scheduled_by: Option<Time>, now: Time) -> usize {
        let mut tables = self.lock_tables();
        let due = tables.outbound.due_handoffs(transport, usize::MAX, scheduled_by, now);
        let (now, stops) = (self.time.commit_time(now), tables.stops());
        let mut captured = 0;
        for (_, id, number) in due {
            let Some(mut email) = tables.outbound.emails.get(&id).cloned() else { continue };
            if captured == max {
                break;
            }
            if email.park_if_stopped(number, &stops) {
                tables.outbound.emails.insert(id, email.clone());
                self.notify_email_changed(&email);
                continue;
            }
            captured += 1;
            if let Some((attempt, event)) = email.capture(number, now) {
                tables.handoffs.save_attempt(id, attempt);
                tables.save_email(&email, event);
                self.notify_email_changed(&email);
            }
        }
        captured
    }

    /// Counts calls that were answered with an earlier email, and keeps the latest of them.
    pub(crate) fn count_suppressed_calls(&self, calls: Vec<SuppressedCalls>, now: Time) {
        let mut tables = self.lock_tables();
        for note in calls {
            let Some(email) = tables.outbound.emails.get_mut(&note.email).filter(|email| email.team == note.team)
            else {
                continue;
            };
            email.suppressed += note.count;
            let mut event = email.event(EventKind::EmailDuplicate, now);
            event.data["call_count"] = note.count.into();
            self.notify_email_changed(email);
            tables.events.log.entry(note.team).or_default().push(event);
            let kept = tables.outbound.suppressed.entry(note.email).or_default();
            kept.extend(note.latest);
            let surplus = kept.len().saturating_sub(limits::SUPPRESSED_CALLS_KEPT);
            kept.drain(..surplus);
        }
    }

    /// Changes how long the key of an email is remembered.
    pub(crate) fn extend_email_key(&self, team: TeamId, key: KeyHash, ttl: Ttl, now: Time) -> KeyChangeResult {
        let mut tables = self.lock_tables();
        let Some(KeyBinding::Email(mut email)) = tables.outbound.key_binding(team, key, now) else {
            return KeyChangeResult::Missing;
        };
        let event = email.extend_key(ttl, now);
        tables.save_email(&email, event);
        tables.record_act(Some(Act::of_extended_key(team, email.id, ttl)), now);
        self.notify_email_changed(&email);
        KeyChangeResult::Done(email)
    }

    /// Forgets the key of a terminal email.
    pub(crate) fn forget_email_key(&self, team: TeamId, key: KeyHash, now: Time) -> KeyChangeResult {
        let mut tables = self.lock_tables();
        let Some(KeyBinding::Email(mut email)) = tables.outbound.key_binding(team, key, now) else {
            return KeyChangeResult::Missing;
        };
        if !email.state().is_terminal() && !mutant!("live-key-forgotten") {
            return KeyChangeResult::NotTerminal(email);
        }
        let event = email.forget_key(now);
        tables.save_email(&email, event);
        tables.record_act(Some(Act::of_forgotten_key(team, email.id)), now);
        self.notify_email_changed(&email);
        KeyChangeResult::Done(email)
    }

    /// Applies a rule of the core to one email.
    fn change_email(
        &self,
        tables: &mut Tables,
        team: TeamId,
        id: EmailId,
        rule: impl FnOnce(&mut Email) -> Result<Option<NewEvent>, EmailChangeRefusal>,
    ) -> EmailChangeResult {
        let Some(before) = tables.outbound.email_of_team(team, id) else { return EmailChangeResult::Missing };
        let mut email = before.clone();
        match rule(&mut email) {
            Ok(event) => {
                if let Some(event) = event.filter(|_| !mutant!("cancel-unsaved")) {
                    let at = event.at;
                    tables.save_email(&email, event);
                    tables.control.refund_if_unsent(&before, &email);
                    tables.update_message_progress(&before, &email, at);
                    self.notify_email_changed(&email);
                }
                EmailChangeResult::Changed(email)
            }
            Err(refusal) => EmailChangeResult::Refused(refusal, email),
        }
    }
}
