//! Decides what a send is under its idempotency key: the first, a replay, a mismatch, one that overlaps, or the next
//! version of an email.
//!
//! [`AcceptCheck`] is a state machine without I/O. It names the next fact that the decision needs ([`AcceptStep`]), and
//! the store answers it from its tables. So every store checks in the same order, and loads only what decides. The
//! store writes nothing before the decision, so a refusal changes nothing.

pub mod batch;
#[cfg(test)]
mod tests;

use crate::{
    control::budget::Overrun,
    events::event::NewEvent,
    id::{EmailId, TeamId},
    key::KeyHash,
    mutant,
    operation::IdempotentResult,
    outbound::{
        accept::NewEmail,
        email::{Email, EmailChangeRefusal, EmailHead, Guard},
        email_commands::EmailResendResult,
        key_binding::KeyBinding,
    },
    time::Time,
};
use std::ops::ControlFlow;

/// What the decision needs to know about the new email itself.
#[derive(Clone, Copy, Debug)]
pub struct SendFacts<'a> {
    /// The team that sends it.
    pub team: TeamId,
    /// Its immutable part.
    pub head: &'a EmailHead,
    /// The hash of its key, if it has one.
    pub key: Option<KeyHash>,
    /// The keys that its recipients would have alone, if it takes them.
    pub shadow_keys: &'a [KeyHash],
    /// The guard that holds it, regardless of what the transaction finds.
    pub held_by: Option<Guard>,
    /// Whether it has a fingerprint of its content.
    pub has_fingerprint: bool,
    /// Whether it counts in a budget.
    pub has_charges: bool,
}

impl NewEmail {
    /// What the decision needs to know about this email.
    pub fn send_facts(&self) -> SendFacts<'_> {
        SendFacts {
            team: self.team,
            head: &self.head,
            key: self.key,
            shadow_keys: &self.shadow_keys,
            held_by: self.guard_input.held_by,
            has_fingerprint: self.guard_input.fingerprint.is_some(),
            has_charges: !self.guard_input.charges.is_empty(),
        }
    }
}

/// The fact that the store loads next, or the decision.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum AcceptStep {
    /// Load the row of the email's own key. Continue with [`AcceptCheck::own_key`].
    LoadOwnKey(KeyHash),
    /// Check whether the email would exceed a budget. Continue with [`AcceptCheck::budget`].
    CheckBudget,
    /// Load the email that occupies this key as a shadow key. Continue with [`AcceptCheck::occupant`].
    LoadOccupant(KeyHash),
    /// Load what this recipient's key is bound to. Continue with [`AcceptCheck::recipient_key`].
    LoadRecipientKey(KeyHash),
    /// Compare the content with recent emails. Continue with [`AcceptCheck::content`].
    CompareContent,
    /// Nothing more to load.
    Decided(AcceptDecision),
}

/// The decision about a send.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum AcceptDecision {
    /// The key was free: store the email like this.
    First(FirstSend),
    /// The key is bound: a replay or a mismatch.
    KeyBound(KeyBinding),
    /// The email would exceed a budget.
    OverBudget(Overrun),
}

/// How to store the first email of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstSend {
    /// How often its key was bound, this binding included. 0 without a key.
    pub bind_number: u32,
    /// The shadow keys that it occupies from now on.
    pub occupies: Vec<KeyHash>,
    /// The guard that holds it. [`Guard::Overlaps`] when the same intent was sent to some of its recipients.
    pub held_by: Option<Guard>,
}

/// A decision in progress. See the module documentation.
#[derive(Debug)]
pub struct AcceptCheck<'a> {
    facts: SendFacts<'a>,
    /// Keys that expired by this time are free.
    expiry_cutoff: Time,
    /// The previous version as the resend leaves it. `None` unless this is a resend.
    previous: Option<&'a Email>,
    /// The keys of its recipients under its earlier versions.
    earlier_keys: Vec<KeyHash>,
    /// How many keys were checked for an occupant.
    checked_keys: usize,
    overlaps: bool,
    first: FirstSend,
}

impl<'a> AcceptCheck<'a> {
    /// Starts the decision about a send, or about the next version of an email. Keys that expired by `expiry_cutoff`
    /// are free.
    pub fn start(facts: SendFacts<'a>, resend: Option<&'a Resend>, expiry_cutoff: Time) -> (Self, AcceptStep) {
        let previous = resend.map(|resend| &resend.previous);
        let earlier_keys = facts.head.earlier_shadow_keys(facts.team);
        let first = FirstSend { held_by: facts.held_by, ..FirstSend::default() };
        let (checked_keys, overlaps) = (0, false);
        let mut check = Self { facts, expiry_cutoff, previous, earlier_keys, checked_keys, overlaps, first };
        let step = match facts.key {
            Some(key) => AcceptStep::LoadOwnKey(key),
            None => check.check_budget(),
        };
        (check, step)
    }

    /// Continues with the row of the own key: how often it was bound, and to what it is bound now. A bound key decides
    /// before every guard and budget, because a retry is never refused.
    pub fn own_key(&mut self, bind_number: u32, bound: Option<KeyBinding>) -> AcceptStep {
        if let Some(bound) = bound.filter(|_| !mutant!("key-ignored")) {
            return AcceptStep::Decided(AcceptDecision::KeyBound(bound));
        }
        self.first.bind_number = bind_number + 1;
        self.check_budget()
    }

    fn check_budget(&mut self) -> AcceptStep {
        if self.facts.has_charges { AcceptStep::CheckBudget } else { self.load_next_occupant() }
    }

    /// Continues with the budget that the email would exceed.
    pub fn budget(&mut self, exceeded: Option<Overrun>) -> AcceptStep {
        match exceeded {
            Some(exceeded) => AcceptStep::Decided(AcceptDecision::OverBudget(exceeded)),
            None => self.load_next_occupant(),
        }
    }

    /// Continues with the email that occupies the key of the last step. Every shadow key that is not occupied is taken.
    pub fn occupant(&mut self, email: Option<&Email>) -> AcceptStep {
        let is_occupied = email.is_some_and(|email| self.occupies_keys(email));
        let Some((key, kind)) = self.current_key() else { return self.load_next_occupant() };
        if !is_occupied && kind != KeyKind::Own {
            self.first.occupies.push(key);
        }
        self.overlaps |= is_occupied && kind != KeyKind::Earlier;
        if kind == KeyKind::Recipient && !self.overlaps {
            return AcceptStep::LoadRecipientKey(key);
        }
        self.checked_keys += 1;
        self.load_next_occupant()
    }

    /// Continues with what a recipient's key is bound to: an email of the same intent to that recipient alone.
    pub fn recipient_key(&mut self, bound: Option<&KeyBinding>) -> AcceptStep {
        self.overlaps |= matches!(bound, Some(KeyBinding::Email(email)) if self.occupies_keys(email));
        self.checked_keys += 1;
        self.load_next_occupant()
    }

    /// Continues with whether a recent email has similar content.
    pub fn content(&mut self, is_similar: bool) -> AcceptStep {
        if is_similar {
            self.first.held_by = Some(Guard::LooksDuplicate);
        }
        self.decided_first()
    }

    fn load_next_occupant(&mut self) -> AcceptStep {
        if let Some((key, _)) = self.current_key() {
            return AcceptStep::LoadOccupant(key);
        }
        if self.overlaps && !mutant!("overlap-ignored") {
            self.first.held_by = Some(Guard::Overlaps);
        }
        // A resend was requested explicitly, so its content is not compared.
        let compares = self.facts.has_fingerprint && self.facts.head.resend_of.is_none();
        if compares && self.first.held_by.is_none() { AcceptStep::CompareContent } else { self.decided_first() }
    }

    fn decided_first(&mut self) -> AcceptStep {
        AcceptStep::Decided(AcceptDecision::First(std::mem::take(&mut self.first)))
    }

    /// The key whose occupant is loaded next: the own key, then the recipients' keys, then those of earlier versions.
    fn current_key(&self) -> Option<(KeyHash, KeyKind)> {
        let mut place = self.checked_keys;
        let own = self.facts.key.as_slice();
        for (keys, kind) in [
            (own, KeyKind::Own),
            (self.facts.shadow_keys, KeyKind::Recipient),
            (self.earlier_keys.as_slice(), KeyKind::Earlier),
        ] {
            if let Some(key) = keys.get(place) {
                return Some((*key, kind));
            }
            place -= keys.len();
        }
        None
    }

    /// Whether an email occupies the keys of its recipients. The previous version counts as the resend leaves it.
    fn occupies_keys(&self, email: &Email) -> bool {
        let previous = self.previous.filter(|previous| previous.id == email.id);
        previous.unwrap_or(email).holds_shadow_keys(self.expiry_cutoff)
    }
}

/// Why a key is checked for an occupant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Own,
    Recipient,
    Earlier,
}

/// A resend that the previous version allows. Nothing of it is saved yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Resend {
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

impl Resend {
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
            AcceptDecision::KeyBound(KeyBinding::Email(email)) => ControlFlow::Continue(NextVersion::Existing(email)),
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
