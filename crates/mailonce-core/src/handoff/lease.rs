//! Leasing due handoffs, and what a store reports about waiting ones.

use crate::{
    handoff::{Handoff, action::HandoffActionStatus},
    id::{NodeId, TeamId},
    outbound::email::Email,
    time::Time,
};

/// A worker's request for due handoffs.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The name of the transport.
    pub transport: String,
    /// The node of the worker.
    pub node: NodeId,
    /// The maximum number of handoffs.
    pub max: usize,
    /// Recipient domains to skip, because enough handoffs to them are running.
    pub excluded_domains: Vec<String>,
    /// Scheduled handoffs due by this time are leased too. `None` while the wall clock is not trusted.
    pub schedule_cutoff: Option<Time>,
}

impl LeaseRequest {
    /// Whether the transport and the due time of a handoff allow this lease at `now`.
    pub fn may_lease(&self, handoff: &Handoff, now: Time) -> bool {
        handoff.transport == self.transport && handoff.is_due(self.schedule_cutoff, now)
    }
}

/// A leased handoff, with everything the worker needs to send it.
#[derive(Clone, Debug, PartialEq)]
pub struct LeasedHandoff {
    /// The current email.
    pub email: Email,
    /// The number of the handoff.
    pub handoff: u16,
    /// The packed content.
    pub body: Option<Vec<u8>>,
    /// The frozen bytes for its transport. Present once an attempt was marked.
    pub frozen_bytes: Option<Vec<u8>>,
}

/// The result of a handoff action.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum HandoffActionResult {
    /// The status of the action, and the email after it.
    Applied(HandoffActionStatus, Email),
    /// No such email in this team.
    Missing,
}

/// A transport of a process: its name and a fingerprint of the provider account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportAccount {
    /// Its name in the configuration.
    pub name: String,
    /// The account. See [`crate::ports::transport::Transport::account`].
    pub account: String,
}

/// A team's backlog for a transport that no live process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanBacklog {
    /// The team.
    pub team: TeamId,
    /// The transport.
    pub transport: String,
    /// Handoffs that are due now or later.
    pub waiting: u64,
    /// Handoffs whose outcome is unknown.
    pub unknown: u64,
}

/// The outbound backlog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Handoffs that are due now or later, by transport.
    pub waiting: Vec<(String, u64)>,
    /// Handoffs whose outcome is unknown.
    pub unknown: u64,
    /// The earliest due time in the backlog.
    pub oldest_due_at: Option<Time>,
}
