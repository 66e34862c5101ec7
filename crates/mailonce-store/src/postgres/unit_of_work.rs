//! A unit of work: the keys and emails that a transaction locked and loaded, and the changes it decided.
//!
//! A transaction loads everything first, decides here without database access, and writes all changes at the end. The
//! rules come from the core. They are checked in the same order as in the in-memory reference store.

use mailonce_core::{
    commit_clock::CommitClock,
    events::event::NewEvent,
    handoff::{Attempt, Evidence, Handoff},
    id::{EmailId, TeamId},
    installation::SweepCounts,
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::{AcceptResult, NewEmail},
        email::{Email, EmailChangeRefusal, Guard},
        email_commands::EmailResendResult,
        key_binding::KeyBinding,
    },
    time::Time,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::row::{KeyRow, KeyScope, KeyTarget};
use crate::postgres::{control::budgets::Counters, conversation::changes::ConversationChanges};

/// The loaded rows and the pending changes of one transaction. See the module documentation.
#[derive(Default)]
pub(crate) struct UnitOfWork {
    /// Decides which keys have expired.
    pub time: Arc<CommitClock>,
    /// All locked keys, with the changes decided so far.
    pub keys: BTreeMap<KeyScope, KeyRow>,
    /// All locked keys, as they were loaded.
    pub loaded_keys: BTreeMap<KeyScope, KeyRow>,
    /// The emails that those keys refer to.
    pub emails: BTreeMap<EmailId, Email>,
    /// Emails to insert, in order, with their bodies and events.
    pub new_emails: Vec<(EmailId, Arc<[u8]>, NewEvent)>,
    /// Emails to update, each with the time up to which it has been swept.
    pub changed_emails: BTreeMap<EmailId, Time>,
    /// Events to publish, in order, after those of `new_emails`.
    pub events: Vec<(TeamId, NewEvent)>,
    /// Attempts to insert or update, in order.
    pub attempts: Vec<(TeamId, EmailId, Attempt)>,
    /// Evidence to insert, in order.
    pub evidence: Vec<(TeamId, EmailId, Evidence)>,
    /// Frozen wire bytes to insert, each for one transport.
    pub wires: Vec<(EmailRef, String, Arc<[u8]>)>,
    /// Handoffs to add to existing emails.
    pub new_handoffs: Vec<(EmailRef, Handoff)>,
    /// Emails whose body is deleted.
    pub bodies_to_drop: Vec<EmailRef>,
    /// Emails that are deleted with all their rows.
    pub emails_to_delete: Vec<EmailRef>,
    /// Changes to threads and messages, and to the state of the reply and content guards.
    pub conversations: ConversationChanges,
    /// Usage of budgets.
    pub budgets: Counters,
}

/// Identifies an email within its team.
pub(crate) type EmailRef = (TeamId, EmailId);

impl UnitOfWork {
    /// The loaded email, if it belongs to this team.
    pub(crate) fn email_of_team(&self, team: TeamId, id: EmailId) -> Option<Email> {
        self.emails.get(&id).filter(|email| email.team == team).cloned()
    }

    /// Records the new state of an email together with its event.
    pub(crate) fn save(&mut self, email: &Email, event: NewEvent) {
        self.events.push((email.team, event));
        // The minimum time keeps a sweep scheduled that is already due but has not run yet.
        self.changed_emails.insert(email.id, Time(i64::MIN));
        self.emails.insert(email.id, email.clone());
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.keys == self.loaded_keys
            && self.new_emails.is_empty()
            && self.changed_emails.is_empty()
            && self.events.is_empty()
            && self.evidence.is_empty()
            && self.attempts.is_empty()
            && self.conversations.is_unchanged()
            && self.budgets.is_unchanged()
    }

    /// Accepts an email and binds its key, or returns what the key is bound to.
    pub(crate) fn accept(&mut self, wish: NewEmail, now: Time) -> AcceptResult {
        if let Some(bound) = wish.key.and_then(|key| self.key_binding(wish.team, key, now)) {
            return AcceptResult::KeyBound(bound);
        }
        if let Some(exceeded) = self.over_budget(&wish, now) {
            return AcceptResult::OverBudget(exceeded);
        }
        self.charge_budgets(&wish);
        let overlaps = self.overlaps_recipients(&wish, now).then_some(Guard::Overlaps);
        let alike = self.looks_duplicate(&wish, now).then_some(Guard::LooksDuplicate);
        let guard = overlaps.or(wish.guard_input.held_by).or(alike);
        let likeness = wish.guard_input.fingerprint.clone();
        let (key, slots) = (wish.key, wish.shadow_keys.clone());
        let bind = key.map_or(0, |key| self.keys.get(&(wish.team, key)).map_or(0, |row| row.bind_number) + 1);
        let (email, body) = wish.into_email(bind, guard, now);
        self.bind(&email, key, &slots, now);
        if let Some(likeness) = likeness {
            self.remember_fingerprint(email.team, likeness, email.id, now);
        }
        self.new_emails.push((email.id, body, email.accepted_event()));
        self.emails.insert(email.id, email.clone());
        AcceptResult::First(email)
    }

    fn bind(&mut self, email: &Email, key: Option<KeyHash>, slots: &[KeyHash], now: Time) {
        for slot in slots.iter().copied().chain(email.head.earlier_shadow_keys(email.team)) {
            let taken = self.keys.get(&(email.team, slot)).and_then(|row| row.slot);
            if !taken.is_some_and(|id| self.occupies_slots(id, now)) {
                self.keys.entry((email.team, slot)).or_default().slot = Some(email.id);
            }
        }
        if let Some(key) = key {
            let row = self.keys.entry((email.team, key)).or_default();
            row.bind_number = email.bind_number;
            row.target = Some(KeyTarget::Email(email.id));
            (row.forgotten_at, row.tombstone_until) = (None, None);
        }
    }

    /// What a key is bound to, unless that has expired.
    pub(crate) fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Option<KeyBinding> {
        let row = self.keys.get(&(team, key))?;
        binding_of_target(row.target.as_ref(), |id| self.emails.get(&id), self.time.expiry_cutoff(now))
    }

    /// Whether an email with the same intent was already accepted for some of these recipients.
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

    /// The result for an operation whose key is already bound: a replay or a mismatch. `None` when the key is free.
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

    /// Binds the free key of an operation that has been performed.
    pub(crate) fn bind_operation(&mut self, operation: &KeyedOperation) {
        let row = self.keys.entry((operation.team, operation.key)).or_default();
        row.bind_number += 1;
        (row.forgotten_at, row.tombstone_until) = (None, None);
        row.target = Some(KeyTarget::Operation {
            digest: operation.digest,
            answer: operation.response.clone(),
            expires_at: operation.expires_at,
        });
    }

    /// Accepts the next version of an email, once. `replaced` is true when another email has answered the same
    /// message since.
    pub(crate) fn resend(
        &mut self,
        wish: NewEmail,
        operation: Option<&KeyedOperation>,
        replaced: bool,
        now: Time,
    ) -> IdempotentResult<EmailResendResult> {
        let Some(mut previous) = wish.head.resend_of.and_then(|id| self.email_of_team(wish.team, id)) else {
            return IdempotentResult::Done(EmailResendResult::Missing);
        };
        if let Some(answer) = operation.and_then(|operation| self.find_replay(operation, now)) {
            return answer;
        }
        let answer = self.accept_next_version(&mut previous, wish, replaced, now);
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
        replaced: bool,
        now: Time,
    ) -> IdempotentResult<EmailResendResult> {
        if let Some(email) = previous.resent_as.and_then(|id| self.email_of_team(wish.team, id)) {
            return IdempotentResult::Done(EmailResendResult::Replayed(email));
        }
        let event = match previous.prepare_for_resend(wish.guard_input.cancels_previous, now) {
            Ok(event) => event,
            Err(refusal) => return IdempotentResult::Done(EmailResendResult::Refused(refusal, previous.clone())),
        };
        if let Some(exceeded) = self.over_budget(&wish, now) {
            return IdempotentResult::Done(EmailResendResult::OverBudget(exceeded));
        }
        event.into_iter().for_each(|event| self.save(previous, event));
        if replaced {
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
            self.save(previous, event);
        }
        IdempotentResult::Done(answer)
    }

    /// Removes the parts of one email whose retention has ended: key, body, tombstone.
    pub(crate) fn sweep_email(&mut self, email: &Email, now: Time, swept: &mut SweepCounts) {
        let scoped = (email.team, email.id);
        if email.is_forgotten(now) && self.release_key_and_slots(email, email.expires_at().unwrap_or(now)) {
            swept.keys += 1;
        }
        if email.body_expires_at().is_some_and(|at| at <= now) {
            self.bodies_to_drop.push(scoped);
        }
        if email.tombstone_expires_at().is_some_and(|at| at <= now) {
            if self.remove_tombstone(email) {
                swept.tombstones += 1;
            }
            self.emails_to_delete.push(scoped);
        } else {
            self.changed_emails.insert(email.id, now);
        }
    }

    /// Releases an email's key and shadow keys. Returns whether the key was still bound to this email.
    fn release_key_and_slots(&mut self, email: &Email, at: Time) -> bool {
        for slot in email.head.all_shadow_keys(email.team) {
            if let Some(row) = self.keys.get_mut(&(email.team, slot))
                && row.slot == Some(email.id)
            {
                row.slot = None;
            }
        }
        let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) else {
            return false;
        };
        let Some(row) = self.keys.get_mut(&(email.team, key)) else {
            return false;
        };
        if row.target != Some(KeyTarget::Email(email.id)) {
            return false;
        }
        row.target = None;
        row.forgotten_at = Some(at);
        true
    }

    /// Removes the tombstone of an email's key. The row stays while another email occupies it as a shadow key.
    fn remove_tombstone(&mut self, email: &Email) -> bool {
        let Some(key) = email.head.key.as_ref().map(|name| name.hash(email.team)) else {
            return false;
        };
        let Some(row) = self.keys.get_mut(&(email.team, key)) else {
            return false;
        };
        let stands = row.target.is_none() && row.bind_number == email.bind_number;
        if stands {
            *row = KeyRow { slot: row.slot, ..KeyRow::default() };
        }
        stands
    }
}

/// What a key's target is bound to at `now`. `None` when it has expired.
pub(crate) fn binding_of_target<'a>(
    target: Option<&KeyTarget>,
    email: impl FnOnce(EmailId) -> Option<&'a Email>,
    now: Time,
) -> Option<KeyBinding> {
    match target? {
        KeyTarget::Email(id) => {
            let email = email(*id)?;
            (!email.is_forgotten(now)).then(|| KeyBinding::Email(email.clone()))
        }
        KeyTarget::Operation { digest, expires_at, .. } => {
            (*expires_at > now).then_some(KeyBinding::Operation { digest: *digest })
        }
    }
}

/// The keys that an email's row refers to: its own key and its shadow keys.
pub(crate) fn email_scopes(email: &Email) -> BTreeSet<KeyScope> {
    let key = email.head.key.as_ref().map(|name| name.hash(email.team));
    key.into_iter().chain(email.head.all_shadow_keys(email.team)).map(|hash| (email.team, hash)).collect()
}

/// The keys that a new email must lock: its own key and its shadow keys.
pub(crate) fn new_email_scopes(wish: &NewEmail) -> impl Iterator<Item = KeyScope> + '_ {
    let earlier = wish.head.earlier_shadow_keys(wish.team);
    wish.key.into_iter().chain(wish.shadow_keys.iter().copied()).chain(earlier).map(|hash| (wish.team, hash))
}
