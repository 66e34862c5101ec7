//! Actions on the handoffs of an email, and their effects.
//!
//! A worker, a look-up, a provider's event or a person reports what happened as a [`HandoffAction`].
//! [`Email::apply_action`](crate::outbound::email::Email::apply_action) decides its effect. Stores load an email, apply
//! the action, and save the result together with the [`Effects`] in one transaction. So every store makes the same
//! decisions.
//!
//! Fencing tokens reject commands, never facts. A stale worker cannot start anything, but its late reply is always
//! recorded, and proof moves any state to `sent`.

mod apply;
#[cfg(feature = "failpoints")]
mod mutants;
mod orphan;
mod stopped;
#[cfg(test)]
mod tests;
mod transitions;

pub use stopped::ActionLimits;

use std::sync::Arc;

use crate::{
    control::{
        budget::{BudgetUsage, Charge},
        contact::ContactHash,
    },
    events::event::NewEvent,
    handoff::{Attempt, Evidence, Handoff, Transition, envelope::Envelope, reply::TransportReply},
    id::{NodeId, StopId},
    outbound::email::{EmailChangeRefusal, Guard},
    string_enum::string_enum,
    time::Time,
};

/// How many consecutive leases may end with the death of their worker. Then the handoff is given up, because it
/// probably kills workers.
pub const MAX_LEASE_LAPSES: u32 = 5;
/// The longest delay that a next hop may ask for, in milliseconds.
const MAX_REQUESTED_PAUSE_MS: i64 = 3_600_000;
/// How soon after it became unknown a handoff is checked, in milliseconds.
pub const FIRST_CHECK_DELAY_MS: i64 = 1_000;

/// How long a handoff is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffRetryPolicy {
    /// The maximum number of attempts.
    pub max_attempts: u32,
    /// The maximum time since the first attempt, in milliseconds.
    pub max_age_ms: i64,
    /// Uniformly random over all of `u64`: the jitter of the next delay.
    pub jitter_seed: u64,
}

/// The lease under which a worker acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRef {
    /// The handoff's number.
    pub number: u16,
    /// The fencing token of the lease.
    pub fence: u64,
    /// The name of the transport.
    pub transport: String,
    /// The provider account.
    pub account: String,
}

string_enum! {
    /// A person's decision about an unknown outcome.
    Resolution {
        /// It was sent.
        Sent = "sent",
        /// Send the same bytes again.
        Resend = "resend",
        /// Abandon it.
        Abandon = "abandon",
    }
}

/// An action on the handoffs of an email.
#[derive(Clone, Debug)]
pub enum HandoffAction {
    /// Commits the `sending` marker. From here on, the next hop may have received the email.
    Mark {
        /// The worker's lease.
        lease: LeaseRef,
        /// The frozen bytes, when this is the first marker for the transport.
        frozen_bytes: Option<Arc<[u8]>>,
        /// The recipients, who count as mailed from now on.
        contacts: Vec<ContactHash>,
    },
    /// A worker returns a lease without an attempt.
    ReturnLease {
        /// The worker's lease.
        lease: LeaseRef,
        /// When it may be leased again.
        due_at: Time,
        /// Why.
        reason: String,
    },
    /// An attempt got a reply, or ended before the marker.
    RecordOutcome {
        /// The worker's lease.
        lease: LeaseRef,
        /// The attempt's number. `None` when it never reached its marker.
        attempt: Option<u32>,
        /// When it was marked, or when it began.
        started_at: Time,
        /// The reply.
        reply: TransportReply,
        /// The limits for further retries.
        retry_policy: HandoffRetryPolicy,
    },
    /// The process that held the lease died.
    Crash {
        /// The handoff's number.
        number: u16,
        /// The process that held the lease.
        holder: NodeId,
    },
    /// Repeat an attempt in doubt: same bytes, same key, same account. The worker gets the lease at once.
    RetryInWindow {
        /// The handoff's number.
        number: u16,
        /// The worker's node.
        holder: NodeId,
        /// The account that must be used.
        account: String,
    },
    /// Nothing new about an unknown handoff; check again later.
    CheckLater {
        /// The handoff's number.
        number: u16,
        /// New evidence, if there is any.
        evidence: Option<Evidence>,
        /// When to check again.
        next_check_at: Option<Time>,
    },
    /// The email's policy resends it.
    ResendByPolicy {
        /// The handoff's number.
        number: u16,
    },
    /// Evidence from outside.
    AddEvidence(Evidence),
    /// A person resolves an unknown outcome.
    Resolve {
        /// The decision.
        resolution: Resolution,
        /// The revision that the person saw.
        rev: u32,
        /// The handoff. `None` means every unknown one.
        handoff: Option<u16>,
        /// The reason.
        reason: String,
    },
    /// Removes one hold of an email. The email is released when none is left.
    Release(HoldRelease),
    /// Fails one handoff over to another transport. Only while no attempt of it is running or in doubt.
    FailOverHandoff {
        /// The handoff's number.
        number: u16,
        /// The current transport.
        from: String,
        /// The new transport.
        to: String,
    },
    /// Fails the whole email over to a transport that divides it into other envelopes. Only while nothing of it was
    /// sent, is running or is in doubt.
    FailOverEmail {
        /// The current transport.
        from: String,
        /// The new envelopes.
        envelopes: Vec<Envelope>,
    },
    /// No node has the transport of a waiting or unknown handoff. Reported once each time the transport disappears.
    ReportOrphan {
        /// The handoff's number.
        number: u16,
        /// The transport.
        transport: String,
        /// When the transport was found missing.
        since: Time,
    },
    /// An orphaned handoff has waited for the maximum retry time.
    GiveUpOrphan {
        /// The handoff's number.
        number: u16,
        /// The transport.
        transport: String,
        /// The maximum retry time, in milliseconds.
        max_age_ms: i64,
    },
    /// An operator moves waiting handoffs to another transport. Handoffs in doubt are never moved.
    RerouteByOperator {
        /// The current transport.
        from: String,
        /// The envelopes of the whole email at the other transport.
        envelopes: Vec<Envelope>,
    },
}

impl HandoffAction {
    /// The deduplication key of its evidence.
    pub fn dedup_key(&self) -> Option<&str> {
        match self {
            Self::AddEvidence(evidence) => evidence.dedup_key.as_deref(),
            _ => None,
        }
    }

    /// The transitions it may apply to a handoff, in any order, each at most once. History checkers compare observed
    /// transitions with these.
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
            Self::Release(_) => &[Transition::Release],
            Self::CheckLater { .. } | Self::FailOverHandoff { .. } | Self::ReportOrphan { .. } => &[],
        }
    }
}

/// The removal of one hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRelease {
    /// The hold that is removed.
    pub hold: Guard,
    /// What the email uses of its budgets when it leaves.
    pub charges: Vec<Charge>,
    /// Whether it leaves even if a budget has no room, because a person decided so.
    pub ignores_budgets: bool,
}

impl HoldRelease {
    /// Whether a budget has no room for the email.
    pub fn is_over_budget(&self, usage: &BudgetUsage) -> bool {
        !self.ignores_budgets && usage.exceeded_after_acceptance(&self.charges).is_some()
    }
}

/// The status of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoffActionStatus {
    /// Applied.
    Done,
    /// The worker no longer holds the lease. Facts were recorded nevertheless.
    Stale,
    /// It changed nothing.
    Unchanged,
    /// It is not allowed.
    Refused(EmailChangeRefusal),
    /// A stop covers the handoff, so nothing is sent.
    Stopped(StopId),
}

/// What to store besides the email itself.
#[derive(Clone, Debug)]
pub struct Effects {
    /// The status of the action.
    pub status: HandoffActionStatus,
    /// Whether the email changed.
    pub changed: bool,
    /// Events, in order.
    pub events: Vec<NewEvent>,
    /// New and changed attempts.
    pub attempts: Vec<Attempt>,
    /// New evidence.
    pub evidence: Vec<Evidence>,
    /// New handoffs. The email already contains them.
    pub new_handoffs: Vec<Handoff>,
    /// What the email uses of its budgets from now on.
    pub charges: Vec<Charge>,
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
            charges: Vec::new(),
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
