//! What may happen to an email on its way out, and what becomes of it.
//!
//! A worker, a look-up, a provider's event or a person says what happened as an [`Act`]; [`Email::act`] decides what
//! that means. Engines load an email, act, and save what it became together with the [`Effects`], so that every
//! engine decides alike and each act is one transaction.
//!
//! Fences refuse commands, never facts: a stale worker may not start anything, but its late answer is always
//! written down, and proof moves any state to `sent`.

mod apply;
mod orphan;
#[cfg(test)]
mod tests;
mod transitions;

use std::sync::Arc;

use crate::{
    events::event::NewEvent,
    handoff::{Attempt, Evidence, Handoff, Transition},
    id::NodeId,
    outbound::email::EmailChangeRefusal,
    ports::{store::Envelope, transport::TransportReply},
    string_enum::string_enum,
    time::Time,
};

/// Leases in a row that may end with their worker before the handoff is put aside: something in it kills workers.
pub const MAX_LEASE_LAPSES: u32 = 5;
/// The longest pause a next hop may ask for, in milliseconds.
const MAX_REQUESTED_PAUSE_MS: i64 = 3_600_000;
/// How soon after it became unknown a handoff is looked at, in milliseconds.
pub const FIRST_CHECK_DELAY_MS: i64 = 1_000;

/// How long a handoff is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffRetryPolicy {
    /// Attempts at the most.
    pub max_attempts: u32,
    /// Milliseconds after the first attempt.
    pub max_age_ms: i64,
    /// Uniform over all of `u64`: the jitter of the next pause.
    pub jitter_seed: u64,
}

/// Which worker speaks, about which handoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRef {
    /// The handoff's number.
    pub number: u16,
    /// The fence of the worker's lease.
    pub fence: u64,
    /// The way out.
    pub transport: String,
    /// The provider account.
    pub account: String,
}

string_enum! {
    /// What a person decides about an unknown outcome.
    Resolution {
        /// It arrived.
        Sent = "sent",
        /// Send the same bytes again.
        Resend = "resend",
        /// Give it up.
        Abandon = "abandon",
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum HandoffAction {
    /// A worker stands at the point of no return.
    Mark {
        /// Who.
        lease: LeaseRef,
        /// The frozen bytes, when this is the first marker for the transport.
        frozen_bytes: Option<Arc<[u8]>>,
    },
    /// A worker gives a lease back without having tried.
    ReturnLease {
        /// Who.
        lease: LeaseRef,
        /// When it may be taken again.
        due_at: Time,
        /// Why.
        reason: String,
    },
    /// An attempt was answered, or got stuck before the marker.
    RecordOutcome {
        /// Who.
        lease: LeaseRef,
        /// The attempt's number; `None` when it never came to its marker.
        attempt: Option<u32>,
        /// When it was marked, or began.
        started_at: Time,
        /// The answer.
        reply: TransportReply,
        /// How long to go on.
        retry_policy: HandoffRetryPolicy,
    },
    /// The process that held it ended.
    Crash {
        /// The handoff's number.
        number: u16,
        /// Its holder.
        holder: NodeId,
    },
    /// Repeat an attempt in doubt: same bytes, same key, same account. The worker holds it at once.
    RetryInWindow {
        /// The handoff's number.
        number: u16,
        /// Who.
        holder: NodeId,
        /// The account it must go to.
        account: String,
    },
    /// Nothing new about an unknown handoff; look again later.
    CheckLater {
        /// The handoff's number.
        number: u16,
        /// What was learnt, if anything was.
        evidence: Option<Evidence>,
        /// When to look again.
        next_check_at: Option<Time>,
    },
    /// The email's own policy sends it again.
    ResendByPolicy {
        /// The handoff's number.
        number: u16,
    },
    /// A fact from outside.
    AddEvidence(Evidence),
    /// A person decides.
    Resolve {
        /// What.
        resolution: Resolution,
        /// The rev that was seen.
        rev: u32,
        /// Which handoff; every unknown one when none is named.
        handoff: Option<u16>,
        /// Why.
        reason: String,
    },
    /// A person, or its own sender, lets a held email go.
    Release,
    /// Another way out for one handoff of which nothing is under way or in doubt.
    FailOverHandoff {
        /// The handoff's number.
        number: u16,
        /// The way out it was to take.
        from: String,
        /// The way out it takes now.
        to: String,
    },
    /// Another way out for the whole email, which divides it into other envelopes. Only while nothing of it left, is
    /// under way or in doubt.
    FailOverEmail {
        /// The way out it was to take.
        from: String,
        /// Its envelopes from now on.
        envelopes: Vec<Envelope>,
    },
    /// No node has the transport of a handoff that waits or is unknown. Reported once for each time it goes missing.
    ReportOrphan {
        /// The handoff's number.
        number: u16,
        /// The transport.
        transport: String,
        /// When it was found missing.
        since: Time,
    },
    /// An orphan waited for as long as any handoff is tried.
    GiveUpOrphan {
        /// The handoff's number.
        number: u16,
        /// The transport.
        transport: String,
        /// How long a handoff is tried, in milliseconds.
        max_age_ms: i64,
    },
    /// An operator moves what waits for a transport to another one. Never what is in doubt.
    RerouteByOperator {
        /// The transport it waits for.
        from: String,
        /// The envelopes of the whole email at the other transport.
        envelopes: Vec<Envelope>,
    },
}

impl HandoffAction {
    /// The name under which it counts only once.
    pub fn dedup_key(&self) -> Option<&str> {
        match self {
            Self::AddEvidence(evidence) => evidence.once.as_deref(),
            _ => None,
        }
    }

    /// The steps it may take a handoff through, in any order, each at most once. Whoever checks a history holds the
    /// moves it finds to these.
    pub fn allowed_transitions(&self) -> &'static [Transition] {
        match self {
            Self::Mark { .. } => &[Transition::Mark, Transition::Lose],
            Self::ReturnLease { .. } => &[Transition::Lapse, Transition::Mark, Transition::Lose],
            Self::RecordOutcome { .. } => &[
                Transition::Mark,
                Transition::Accept,
                Transition::Defer,
                Transition::Refuse,
                Transition::Lose,
                Transition::Evidence,
                Transition::Retry,
            ],
            Self::Crash { .. } => &[Transition::Lapse, Transition::Mark, Transition::Lose, Transition::Refuse],
            Self::RetryInWindow { .. } => &[Transition::Retry, Transition::Lease],
            Self::ResendByPolicy { .. } => &[Transition::Retry],
            Self::AddEvidence(_) => &[
                Transition::Evidence,
                Transition::Deliver,
                Transition::Bounce,
                Transition::Complain,
                Transition::Retry,
            ],
            Self::Resolve { .. } => &[Transition::Evidence, Transition::Retry, Transition::Abandon],
            Self::FailOverEmail { .. } | Self::RerouteByOperator { .. } => &[Transition::Cancel],
            Self::GiveUpOrphan { .. } => {
                &[Transition::Due, Transition::Lease, Transition::Mark, Transition::Lose, Transition::Refuse]
            }
            Self::Release => &[Transition::Release],
            Self::CheckLater { .. } | Self::FailOverHandoff { .. } | Self::ReportOrphan { .. } => &[],
        }
    }
}

/// What came of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffActionStatus {
    /// Done.
    Done,
    /// The worker no longer holds the handoff. Facts were written down all the same.
    Stale,
    /// It changes nothing.
    Unchanged,
    /// It may not be.
    Refused(EmailChangeRefusal),
}

/// What is to be written besides the email itself.
#[derive(Clone, Debug)]
pub struct Effects {
    /// What came of it.
    pub status: HandoffActionStatus,
    /// Whether the email changed.
    pub changed: bool,
    /// Events, in order.
    pub events: Vec<NewEvent>,
    /// Attempts as they are now.
    pub attempts: Vec<Attempt>,
    /// New facts.
    pub evidence: Vec<Evidence>,
    /// New handoffs. They are among the email's own already.
    pub new_handoffs: Vec<Handoff>,
}

impl Effects {
    fn from_status(verdict: HandoffActionStatus) -> Self {
        Self {
            status: verdict,
            changed: false,
            events: Vec::new(),
            attempts: Vec::new(),
            evidence: Vec::new(),
            new_handoffs: Vec::new(),
        }
    }

    fn done() -> Self {
        Self { changed: true, ..Self::from_status(HandoffActionStatus::Done) }
    }

    fn with_attempt(mut self, attempt: Attempt) -> Self {
        self.attempts.push(attempt);
        self
    }

    fn with_evidence(mut self, evidence: Evidence) -> Self {
        self.evidence.push(evidence);
        self
    }
}
