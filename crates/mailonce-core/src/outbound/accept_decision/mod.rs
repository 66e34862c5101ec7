//! Decides what a send is under its idempotency key: the first, a replay, a mismatch, one that overlaps, or the next
//! version of an email.
//!
//! [`decide`] asks the store for one fact after the other ([`AcceptReader`]). So every store checks in the same order,
//! and loads only what decides. The store writes nothing before the decision, so a refusal changes nothing.

pub mod batch;
#[cfg(test)]
mod tests;

use crate::{
    control::budget::{AtLimit, BudgetCounter, BudgetUsage, Charge, ExceededBudget},
    events::event::NewEvent,
    id::{EmailId, TeamId},
    key::KeyHash,
    mutant,
    operation::IdempotentResult,
    outbound::{
        accept::{AcceptResult, NewEmail},
        content_guard::{Comparison, ContentFingerprint, IdenticalCheck},
        digest::Digest,
        email::{Email, EmailChangeRefusal, EmailHead, Guard},
        email_commands::EmailResendResult,
        holds::Holds,
        key_binding::KeyBinding,
        policy_trace::PolicyTrace,
    },
    time::Time,
};
use std::{borrow::Cow, ops::ControlFlow};

/// What the decision needs to know about the new email itself.
#[derive(Clone, Copy, Debug)]
pub struct SendFacts<'a> {
    /// The team that sends it.
    pub team: TeamId,
    /// Its immutable part.
    pub head: &'a EmailHead,
    /// The digest of its meaning.
    pub digest: &'a Digest,
    /// The hash of its key, if it has one.
    pub key: Option<KeyHash>,
    /// The keys that its recipients would have alone, if it takes them.
    pub shadow_keys: &'a [KeyHash],
    /// Whether it may differ in its wording from the email that its key is bound to.
    pub first_wins: bool,
    /// The guards that hold it, regardless of what the transaction finds.
    pub holds: Holds,
    /// The fingerprint of its content, if the content guard compares it.
    pub fingerprint: Option<&'a ContentFingerprint>,
    /// The fingerprint of its intent, if another spelling of the intent holds it.
    pub intent: Option<&'a ContentFingerprint>,
    /// The fingerprint of its content, if a similar email only flags it.
    pub flag_similar: Option<&'a ContentFingerprint>,
    /// Whether it may repeat an identical email.
    pub identical: Option<&'a IdenticalCheck>,
    /// What it would use of each budget.
    pub charges: &'a [Charge],
}

impl NewEmail {
    /// What the decision needs to know about this email.
    pub fn send_facts(&self) -> SendFacts<'_> {
        SendFacts {
            team: self.team,
            head: &self.head,
            digest: &self.digest,
            key: self.key,
            shadow_keys: &self.shadow_keys,
            first_wins: self.first_wins,
            holds: self.guard_input.holds,
            fingerprint: self.guard_input.fingerprint.as_ref(),
            intent: self.guard_input.intent.as_ref(),
            flag_similar: self.guard_input.flag_similar.as_ref(),
            identical: self.guard_input.identical.as_ref(),
            charges: &self.guard_input.charges,
        }
    }
}

/// Loads the facts of a decision, as the transaction of the store sees them.
pub trait AcceptReader {
    /// Why a fact could not be loaded.
    type Error;

    /// Keys that expired by this time are free.
    fn expiry_cutoff(&self, now: Time) -> Time;
    /// How often a key was bound, and what it is bound to now.
    fn key(&self, team: TeamId, key: KeyHash, now: Time) -> Result<(u32, Option<KeyBinding>), Self::Error>;
    /// The email to several recipients that has this key as the shadow key of one of them.
    fn email_with_shadow_key(&self, team: TeamId, key: KeyHash) -> Result<Option<Cow<'_, Email>>, Self::Error>;
    /// The current usage of a budget.
    fn budget_used(&self, team: TeamId, counter: BudgetCounter) -> Result<u64, Self::Error>;
    /// The latest email in the comparison's window that has similar content and was or may be sent.
    fn similar_email(
        &self,
        team: TeamId,
        comparison: Comparison<'_>,
        now: Time,
    ) -> Result<Option<Cow<'_, Email>>, Self::Error>;
}

/// The decision about a send.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum AcceptDecision {
    /// The key was free: store the email like this.
    First(FirstSend),
    /// The key is bound: a replay or a mismatch.
    KeyBound(KeyBinding),
    /// It has no key and repeats this recent identical email.
    Identical(Email),
    /// The email would exceed a budget.
    OverBudget(ExceededBudget),
}

/// How to store the first email of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstSend {
    /// How often its key was bound, this binding included. 0 without a key.
    pub bind_number: u32,
    /// The shadow keys that it occupies from now on.
    pub shadow_keys: Vec<KeyHash>,
    /// The guards that hold it. Every guard is asked, because each hold is removed on its own.
    pub holds: Holds,
    /// The guard that flags it, if a similar email or a budget without room only flags.
    pub flagged_by: Option<Guard>,
    /// What it uses of its budgets. Empty for a held email, which counts when it is released.
    pub charges: Vec<Charge>,
    /// The budgets without room for it, which hold or flag it.
    pub exceeded_budgets: Vec<ExceededBudget>,
}

impl FirstSend {
    /// How to store the email if its key was never bound and the transaction finds nothing against it.
    pub fn of_free_key(new_email: &NewEmail) -> Self {
        let holds = new_email.guard_input.holds;
        Self { bind_number: u32::from(new_email.key.is_some()), holds, ..Self::default() }
    }

    /// Adds this decision to the policy trace of its email. `flagged_by` is the guard that flags the email, if one does.
    pub fn record_in(&self, trace: &mut PolicyTrace, flagged_by: Option<Guard>) {
        trace.record_decision(self.exceeded_budgets.iter().map(ExceededBudget::policy_step), self.holds, flagged_by);
    }
}

impl AcceptDecision {
    /// The answer to a simulated send: what would be stored, or why nothing would.
    pub fn into_simulated(self, new_email: NewEmail, now: Time) -> AcceptResult {
        match self {
            Self::First(first) => AcceptResult::First(new_email.into_email(&first, now).0),
            Self::KeyBound(bound) => AcceptResult::KeyBound(bound),
            Self::Identical(email) => AcceptResult::Identical(email),
            Self::OverBudget(exceeded) => AcceptResult::OverBudget(exceeded),
        }
    }
}

/// Decides about a send, or about the next version of an email.
pub fn decide<R: AcceptReader>(
    reader: &R,
    facts: &SendFacts<'_>,
    resend: Option<&ResendDecision>,
    now: Time,
) -> Result<AcceptDecision, R::Error> {
    let mut first = FirstSend { holds: facts.holds, ..FirstSend::default() };
    if let Some(key) = facts.key {
        let (bind_number, bound) = reader.key(facts.team, key, now)?;
        // A bound key decides before every guard and budget, because a retry is never refused.
        if let Some(bound) = bound.filter(|_| !mutant!("key-ignored")) {
            return Ok(AcceptDecision::KeyBound(bound));
        }
        first.bind_number = bind_number + 1;
    }
    if let Some(email) = repeated_email(reader, facts, now)? {
        return Ok(AcceptDecision::Identical(email.into_owned()));
    }
    let mut usage = BudgetUsage::default();
    load_usage(reader, facts, &mut usage)?;
    if let Some(exceeded) = usage.exceeded(facts.charges, AtLimit::Refuse) {
        return Ok(AcceptDecision::OverBudget(exceeded));
    }
    first.exceeded_budgets = usage.exceeded_budgets(facts.charges);
    let has_exceeded =
        |at_limit| first.exceeded_budgets.iter().any(|exceeded_budget| exceeded_budget.charge.at_limit == at_limit);
    let (is_over_holding, is_over_flagging) = (has_exceeded(AtLimit::Hold), has_exceeded(AtLimit::Flag));
    if is_over_holding {
        first.holds.insert(Guard::Budget);
    }
    if take_shadow_keys(reader, facts, resend, now, &mut first.shadow_keys)? && !mutant!("overlap-ignored") {
        first.holds.insert(Guard::Overlaps);
    }
    let compared = facts.fingerprint.into_iter().chain(facts.intent);
    if !first.holds.contains(Guard::LooksDuplicate) && has_look_alike(reader, facts, compared, now)? {
        first.holds.insert(Guard::LooksDuplicate);
    }
    if first.holds.is_empty() {
        let is_flagged = has_look_alike(reader, facts, facts.flag_similar, now)?;
        let over_budget = is_over_flagging.then_some(Guard::Budget);
        first.flagged_by = is_flagged.then_some(Guard::LooksDuplicate).or(over_budget);
        first.charges = facts.charges.to_vec();
    }
    Ok(AcceptDecision::First(first))
}

/// Whether a recent email has one of these fingerprints: similar content, or another spelling of the same intent.
fn has_look_alike<'a, R: AcceptReader>(
    reader: &R,
    facts: &SendFacts<'_>,
    fingerprints: impl IntoIterator<Item = &'a ContentFingerprint>,
    now: Time,
) -> Result<bool, R::Error> {
    // A resend was requested explicitly, so it is not compared.
    if facts.head.resend_of.is_some() {
        return Ok(false);
    }
    for fingerprint in fingerprints {
        if reader.similar_email(facts.team, Comparison::with_similar(fingerprint), now)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The recent identical email that an email without a key repeats. Like a bound key, it decides before every guard and
/// budget.
fn repeated_email<'r, R: AcceptReader>(
    reader: &'r R,
    facts: &SendFacts<'_>,
    now: Time,
) -> Result<Option<Cow<'r, Email>>, R::Error> {
    // A resend was requested explicitly.
    match facts.identical.filter(|_| facts.head.resend_of.is_none()) {
        Some(identical) => reader.similar_email(facts.team, identical.comparison(), now),
        None => Ok(None),
    }
}

/// Loads the counters that an email charges, except those already loaded.
fn load_usage<R: AcceptReader>(reader: &R, facts: &SendFacts<'_>, usage: &mut BudgetUsage) -> Result<(), R::Error> {
    for counter in facts.charges.iter().map(Charge::counter) {
        if !usage.is_loaded(counter) {
            usage.load(counter, reader.budget_used(facts.team, counter)?);
        }
    }
    Ok(())
}

/// Adds the free shadow keys of the email and of its earlier versions to `occupies`. Returns whether the same intent
/// was sent to one of its recipients.
fn take_shadow_keys<R: AcceptReader>(
    reader: &R,
    facts: &SendFacts<'_>,
    resend: Option<&ResendDecision>,
    now: Time,
    occupies: &mut Vec<KeyHash>,
) -> Result<bool, R::Error> {
    let expiry_cutoff = reader.expiry_cutoff(now);
    let occupies_keys = |email: &Email| {
        // The previous version counts as the resend leaves it.
        let previous = resend.map(|resend| &resend.previous).filter(|previous| previous.id == email.id);
        previous.unwrap_or(email).holds_shadow_keys(expiry_cutoff)
    };
    let is_occupied = |key| -> Result<bool, R::Error> {
        Ok(reader.email_with_shadow_key(facts.team, key)?.is_some_and(|email| occupies_keys(&email)))
    };
    let mut take_if_free = |key| -> Result<bool, R::Error> {
        let is_occupied = is_occupied(key)?;
        if !is_occupied {
            occupies.push(key);
        }
        Ok(is_occupied)
    };
    let mut overlaps = facts.key.map_or(Ok(false), is_occupied)?;
    for key in facts.shadow_keys {
        overlaps |= take_if_free(*key)?;
        // The key may also be bound to an email of the same intent to that recipient alone.
        if !overlaps && let (_, Some(KeyBinding::Email(email))) = reader.key(facts.team, *key, now)? {
            overlaps = occupies_keys(&email);
        }
    }
    for key in facts.head.earlier_shadow_keys(facts.team) {
        take_if_free(key)?;
    }
    Ok(overlaps)
}

/// A resend that the previous version allows. Nothing of it is saved yet.
#[derive(Clone, Debug, PartialEq)]
pub struct ResendDecision {
    before: Email,
    /// The previous version as the resend leaves it: cancelled if the resend takes it back.
    previous: Email,
    cancellation: Option<NewEvent>,
}

/// The next version that a resend leads to.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum NextVersion {
    /// Accept the new version like this.
    First(FirstSend),
    /// The key of the new version is bound to this email.
    Existing(Email),
}

impl ResendDecision {
    /// Prepares the next version of an email. `next` is the version that an earlier resend created. A version with
    /// other content (`takes_back`) cancels the held email. Breaks with the answer if no new version is needed or
    /// allowed.
    pub fn prepare(
        before: Email,
        next: Option<Email>,
        takes_back: bool,
        now: Time,
    ) -> ControlFlow<EmailResendResult, Self> {
        if let Some(next) = next {
            return ControlFlow::Break(EmailResendResult::Replayed(next));
        }
        let mut previous = before.clone();
        match previous.prepare_for_resend(takes_back, now) {
            Ok(cancellation) => ControlFlow::Continue(Self { before, previous, cancellation }),
            Err(refusal) => ControlFlow::Break(EmailResendResult::Refused(refusal, before)),
        }
    }

    /// The previous version, as the store loaded it.
    pub fn before(&self) -> &Email {
        &self.before
    }

    /// Decides about the resend from the decision about the new version, and from whether the previous version is still
    /// the current reply to its message. Breaks with the answer of a refusal, which changes nothing.
    pub fn decide(
        &self,
        decision: AcceptDecision,
        is_current_reply: bool,
    ) -> ControlFlow<IdempotentResult<EmailResendResult>, NextVersion> {
        let refused = |result| ControlFlow::Break(IdempotentResult::Done(result));
        match decision {
            AcceptDecision::OverBudget(exceeded) => refused(EmailResendResult::OverBudget(exceeded)),
            _ if !is_current_reply => {
                refused(EmailResendResult::Refused(EmailChangeRefusal::AnsweredByAnother, self.before.clone()))
            }
            AcceptDecision::First(first) => ControlFlow::Continue(NextVersion::First(first)),
            AcceptDecision::KeyBound(KeyBinding::Email(email)) | AcceptDecision::Identical(email) => {
                ControlFlow::Continue(NextVersion::Existing(email))
            }
            AcceptDecision::KeyBound(bound) => ControlFlow::Break(IdempotentResult::KeyMismatch(bound)),
        }
    }

    /// The cancelled previous version with its event, to be saved before the new version. `None` when it was terminal.
    pub fn cancelled(&self) -> Option<(&Email, &NewEvent)> {
        self.cancellation.as_ref().map(|event| (&self.previous, event))
    }

    /// Links the previous version to the new one. Returns it with its event, to be saved after the new version.
    pub fn link(&mut self, new_version: EmailId, now: Time) -> (&Email, NewEvent) {
        let event = self.previous.mark_resent(new_version, now);
        (&self.previous, event)
    }
}
