//! A unit of work: the keys and emails that a transaction locked and loaded, and the changes it decided.
//!
//! A transaction loads everything first, decides here without database access, and writes all changes at the end. The
//! rules come from the core. They are checked in the same order as in the in-memory reference store.

use mailonce_core::{
    commit_clock::CommitClock,
    control::{audit::act::Act, budget::BudgetCounter},
    events::event::NewEvent,
    handoff::{Attempt, Evidence, Handoff},
    id::{EmailId, TeamId},
    installation::SweepCounts,
    key::KeyHash,
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
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    ops::ControlFlow,
    sync::Arc,
};

use super::row::{KeyRow, KeyTarget, TeamKey};
use crate::postgres::{
    control::{budget_counters::BudgetCounters, contacts::NewContacts},
    conversation::changes::ConversationChanges,
};

/// The loaded rows and the pending changes of one transaction. See the module documentation.
#[derive(Default)]
pub(crate) struct UnitOfWork {
    /// Decides which keys have expired.
    pub time: Arc<CommitClock>,
    /// All locked keys, with the changes decided so far.
    pub keys: BTreeMap<TeamKey, KeyRow>,
    /// All locked keys, as they were loaded.
    pub loaded_keys: BTreeMap<TeamKey, KeyRow>,
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
    pub budgets: BudgetCounters,
    /// Recipients that count as mailed.
    pub contacts: NewContacts,
    /// Acts to record in the audit log.
    pub acts: Vec<(Act, Time)>,
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
            && self.contacts.is_empty()
    }

    /// Accepts an email and binds its key, or returns what the key is bound to.
    pub(crate) fn accept(&mut self, new_email: NewEmail, now: Time) -> AcceptResult {
        let Ok(decision) = decide(self, &new_email.send_facts(), None, now);
        match decision {
            AcceptDecision::First(first) => AcceptResult::First(self.insert_first(new_email, first, now)),
            AcceptDecision::KeyBound(bound) => AcceptResult::KeyBound(bound),
            AcceptDecision::Identical(email) => AcceptResult::Identical(email),
            AcceptDecision::OverBudget(exceeded) => AcceptResult::OverBudget(exceeded),
        }
    }

    /// Accepts the items of a batch. A strict batch accepts every item or none.
    pub(crate) fn accept_batch(&mut self, batch: &NewBatch, now: Time) -> BatchAcceptResult {
        let items: Vec<_> = batch.items.iter().map(NewEmail::send_facts).collect();
        let Ok(checked) = check_batch(self, &items, batch.operation.as_ref(), batch.strict, now);
        let binds_key = match checked {
            ControlFlow::Continue(binds_key) => binds_key,
            ControlFlow::Break(refusal) => return refusal,
        };
        if let Some(operation) = batch.operation.as_ref().filter(|_| binds_key) {
            self.bind_operation(operation);
        }
        BatchAcceptResult::Items(batch.items.iter().map(|email| self.accept(email.clone(), now)).collect())
    }

    /// Records the first email of a key as the core decided.
    fn insert_first(&mut self, new_email: NewEmail, first: FirstSend, now: Time) -> Email {
        self.budgets.charge(new_email.team, new_email.id, &first.charges);
        let fingerprints: Vec<_> = new_email.guard_input.fingerprints().cloned().collect();
        let key = new_email.key;
        let (email, body) = new_email.into_email(&first, now);
        self.bind(&email, key, &first.shadow_keys);
        for fingerprint in fingerprints {
            self.remember_fingerprint(email.team, fingerprint, email.id, now);
        }
        self.new_emails.push((email.id, body, email.accepted_event()));
        self.emails.insert(email.id, email.clone());
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
            (row.forgotten_at, row.tombstone_until) = (None, None);
        }
    }

    /// What a key is bound to, unless that has expired.
    pub(crate) fn key_binding(&self, team: TeamId, key: KeyHash, now: Time) -> Option<KeyBinding> {
        let row = self.keys.get(&(team, key))?;
        binding_of_target(row.target.as_ref(), |id| self.emails.get(&id), self.time.expiry_cutoff(now))
    }

    /// The result for an operation whose key is already bound: a replay or a mismatch. `None` when the key is free.
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
        new_email: NewEmail,
        operation: Option<&KeyedOperation>,
        replaced: bool,
        now: Time,
    ) -> IdempotentResult<EmailResendResult> {
        let Some(previous) = new_email.head.resend_of.and_then(|id| self.email_of_team(new_email.team, id)) else {
            return IdempotentResult::Done(EmailResendResult::Missing);
        };
        if let Some(answer) = operation.and_then(|operation| self.find_replay(operation, now)) {
            return answer;
        }
        let next = previous.resent_as.and_then(|id| self.email_of_team(new_email.team, id));
        let answer = match ResendDecision::prepare(previous, next, new_email.guard_input.cancels_previous, now) {
            ControlFlow::Continue(resend) => self.accept_next_version(resend, new_email, replaced, now),
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
        mut resend: ResendDecision,
        new_email: NewEmail,
        replaced: bool,
        now: Time,
    ) -> IdempotentResult<EmailResendResult> {
        let Ok(decision) = decide(self, &new_email.send_facts(), Some(&resend), now);
        let version = match resend.decide(decision, !replaced) {
            ControlFlow::Continue(version) => version,
            ControlFlow::Break(answer) => return answer,
        };
        if let Some((previous, event)) = resend.cancelled() {
            self.save(previous, event.clone());
        }
        let answer = match version {
            NextVersion::First(first) => EmailResendResult::First(self.insert_first(new_email, first, now)),
            NextVersion::Existing(email) => EmailResendResult::Replayed(email),
        };
        if let EmailResendResult::First(email) | EmailResendResult::Replayed(email) = &answer {
            let (previous, event) = resend.link(email.id, now);
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
        if email.expiry().body.is_some_and(|at| at <= now) {
            self.bodies_to_drop.push(scoped);
        }
        if email.expiry().tombstone.is_some_and(|at| at <= now) {
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

impl AcceptReader for UnitOfWork {
    type Error = Infallible;

    fn expiry_cutoff(&self, now: Time) -> Time {
        self.time.expiry_cutoff(now)
    }

    fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<(u32, Option<KeyBinding>), Infallible> {
        let bind_number = self.keys.get(&(team, key)).map_or(0, |row| row.bind_number);
        Ok((bind_number, self.key_binding(team, key, now)))
    }

    fn email_with_shadow_key(&self, team: TeamId, key: KeyHash) -> Result<Option<Cow<'_, Email>>, Infallible> {
        let email_with_shadow_key = self.keys.get(&(team, key)).and_then(|row| row.slot);
        Ok(email_with_shadow_key.and_then(|id| self.emails.get(&id)).map(Cow::Borrowed))
    }

    fn budget_used(&self, team: TeamId, counter: BudgetCounter) -> Result<u64, Infallible> {
        Ok(self.budgets.used(team, counter))
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

/// What a key's target is bound to at `now`. `None` when it has expired.
pub(crate) fn binding_of_target<'a>(
    target: Option<&KeyTarget>,
    email: impl FnOnce(EmailId) -> Option<&'a Email>,
    now: Time,
) -> Option<KeyBinding> {
    match target? {
        KeyTarget::Email(id) => KeyBinding::to_email(Cow::Borrowed(email(*id)?), now),
        KeyTarget::Operation { digest, expires_at, .. } => KeyBinding::to_operation(*digest, *expires_at, now),
    }
}

/// The keys that an email's row refers to: its own key and its shadow keys.
pub(crate) fn keys_of_email(email: &Email) -> BTreeSet<TeamKey> {
    let key = email.head.key.as_ref().map(|name| name.hash(email.team));
    key.into_iter().chain(email.head.all_shadow_keys(email.team)).map(|hash| (email.team, hash)).collect()
}

/// The keys that a new email must lock: its own key and its shadow keys.
pub(crate) fn keys_to_lock(new_email: &NewEmail) -> impl Iterator<Item = TeamKey> + '_ {
    let earlier = new_email.head.earlier_shadow_keys(new_email.team);
    new_email
        .key
        .into_iter()
        .chain(new_email.shadow_keys.iter().copied())
        .chain(earlier)
        .map(|hash| (new_email.team, hash))
}
