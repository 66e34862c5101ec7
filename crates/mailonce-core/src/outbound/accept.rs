//! What a store needs to accept an email or a batch, and what it answers.

use crate::{
    control::budget::{Charge, ExceededBudget},
    handoff::{Handoff, HandoffState, envelope::Envelope},
    id::{EmailId, TeamId},
    key::KeyHash,
    operation::KeyedOperation,
    outbound::{
        accept_decision::FirstSend,
        content_guard::{ContentFingerprint, IdenticalCheck},
        digest::Digest,
        email::{Email, EmailHead, Guard},
        holds::Holds,
        key_binding::KeyBinding,
    },
    time::Time,
    ttl::Ttl,
};
use std::sync::Arc;

/// A new email, to be accepted.
#[derive(Clone, Debug)]
pub struct NewEmail {
    /// The id that the email gets if its key is not bound yet.
    pub id: EmailId,
    /// The team that sends it.
    pub team: TeamId,
    /// The immutable part of the email, including its key.
    pub head: EmailHead,
    /// The digest of its meaning, compared when the key is used again.
    pub digest: Digest,
    /// The hash of the idempotency key, if there is one.
    pub key: Option<KeyHash>,
    /// The key of each recipient, when an intent names several recipients. They are bound together with the main key,
    /// so that a later email of the same intent to a subset of the recipients is detected.
    pub shadow_keys: Vec<KeyHash>,
    /// Whether a repeated send whose wording differs returns the first email instead of a mismatch.
    pub first_wins: bool,
    /// How long the key is remembered.
    pub ttl: Ttl,
    /// Its envelopes.
    pub envelopes: Vec<Envelope>,
    /// When it is due. `None` means now. Compared with the clock used for schedules.
    pub due_at: Option<Time>,
    /// The packed content.
    pub body: Arc<[u8]>,
    /// The input for the guards, and the decisions of guards that ran earlier.
    pub guard_input: GuardInput,
}

/// What guards need to know about a new email, and the decisions of the guards that ran before the transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardInput {
    /// The guards that hold the email, regardless of what the transaction finds.
    pub holds: Holds,
    /// The guard that flags the email. A flagged email is sent.
    pub flagged_by: Option<Guard>,
    /// The fingerprint of the content. The transaction compares it with recent emails between the same people and holds
    /// the email when one matches. It is then stored for later comparisons.
    pub fingerprint: Option<ContentFingerprint>,
    /// The fingerprint of the intent, for an email of a model. The transaction compares and stores it in the same way.
    pub intent: Option<ContentFingerprint>,
    /// The fingerprint of the content of an email without a key through a dialect, unless it is in `fingerprint`. It is
    /// compared and stored in the same way, but a match only flags the email.
    pub flag_similar: Option<ContentFingerprint>,
    /// For an email without a key through a dialect: the transaction answers it with a recent identical email.
    pub identical: Option<IdenticalCheck>,
    /// For a resend with changed content: the previous version may still be held, and is cancelled in the same commit.
    pub cancels_previous: bool,
    /// What the email adds to budget counters. Each says what happens to an email that does not fit.
    pub charges: Vec<Charge>,
}

impl GuardInput {
    /// The fingerprints that the transaction compares, and stores if the email is accepted.
    pub fn fingerprints(&self) -> impl Iterator<Item = &ContentFingerprint> {
        let identical = self.identical.as_ref().map(|identical| &identical.fingerprint);
        self.fingerprint.iter().chain(&self.intent).chain(&self.flag_similar).chain(identical)
    }
}

impl NewEmail {
    /// The email that is stored when this is the first use of its key.
    pub fn into_email(mut self, first: &FirstSend, now: Time) -> (Email, Arc<[u8]>) {
        let state = if self.due_at.is_some() { HandoffState::Scheduled } else { HandoffState::Queued };
        let due = self.due_at.or(Some(now));
        let handoff = |(number, envelope)| Handoff::new(number as u16, envelope, state, due);
        let flagged_by = self.guard_input.flagged_by.or(first.flagged_by);
        if let Some(trace) = &mut self.head.policy {
            first.record_in(trace, flagged_by);
        }
        let mut email = Email {
            id: self.id,
            team: self.team,
            rev: 1,
            head: Arc::new(self.head),
            digest: self.digest,
            bind_number: first.bind_number,
            ttl: self.ttl,
            settled_at: None,
            guard: None,
            holds: Holds::NONE,
            resent_as: None,
            handoffs: self.envelopes.into_iter().enumerate().map(handoff).collect(),
            suppressed: 0,
        };
        if first.holds.is_empty() {
            email.guard = flagged_by;
        } else {
            email.hold(first.holds, now);
        }
        #[cfg(feature = "failpoints")]
        super::mutants::alter_new_email(&mut email, now);
        (email, self.body)
    }
}

/// The result of accepting a new email.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum AcceptResult {
    /// The key was free; this is the new email.
    First(Email),
    /// The key was bound before. The engine compares the digests.
    KeyBound(KeyBinding),
    /// It has no key and repeats this recent identical email. Nothing was written.
    Identical(Email),
    /// The email would exceed a budget. Nothing was written, and its key stays free.
    OverBudget(ExceededBudget),
}

impl AcceptResult {
    /// The email of the answer. `None` for a refusal, or when the key belongs to another operation.
    pub fn email(&self) -> Option<&Email> {
        match self {
            Self::First(email) | Self::Identical(email) | Self::KeyBound(KeyBinding::Email(email)) => Some(email),
            Self::KeyBound(KeyBinding::Operation { .. }) | Self::OverBudget(_) => None,
        }
    }
}

/// A batch of new emails. Either every item is accepted or none.
#[derive(Clone, Debug)]
pub struct NewBatch {
    /// The team that sends it.
    pub team: TeamId,
    /// The batch's own idempotency key, if it has one.
    pub operation: Option<KeyedOperation>,
    /// Its items, in order.
    pub items: Vec<NewEmail>,
    /// Whether an item that contradicts the binding of its key rejects the whole batch.
    pub strict: bool,
}

/// The result of accepting a batch.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum BatchAcceptResult {
    /// The result of each item, in order.
    Items(Vec<AcceptResult>),
    /// The batch's key is bound to something else. Nothing was written.
    BatchKeyMismatch(KeyBinding),
    /// The key of this item is bound to something with another meaning. Nothing was written.
    ItemKeyMismatch(usize, KeyBinding),
    /// The batch is strict, and this item would exceed a budget. Nothing was written.
    OverBudget(usize, ExceededBudget),
}
