//! What a store reports about the installation: identity, clocks, health and upkeep.

use crate::{handoff::HandoffState, key::InstallSecret, outbound::email::Email, time::Time};

/// The identity and saved state of an installation.
#[derive(Clone, Debug)]
pub struct InstallationInfo {
    /// The secret from which Message-IDs and credential hashes are derived.
    pub secret: InstallSecret,
    /// The number of the current history. A restore or a failover increases it, and every cursor carries it.
    pub epoch: u32,
    /// The ordered bits of the highest id ever written, for [`crate::id::IdGenerator`].
    pub last_id: i64,
    /// The latest heartbeat of any process. `None` when there was none.
    pub last_heartbeat_at: Option<Time>,
    /// The clock of the database server. `None` when there is no server.
    pub database_clock: Option<DatabaseClock>,
}

/// A reading of the database server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseClock {
    /// The server's wall clock, read during the call.
    pub now: Time,
    /// Whether the server runs on another host, so that its clock is independent of the local one.
    pub is_on_other_host: bool,
}

/// The result of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The latest time that any process ever reported to the ledger.
    pub latest_time: Time,
    /// The clock of the database server. `None` when there is no server.
    pub database_clock: Option<DatabaseClock>,
}

/// What was reclaimed from dead processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounts {
    /// Leased handoffs that were queued again. Their sending had not begun.
    pub queued: usize,
    /// Handoffs that may have been sent.
    pub unknown: usize,
    /// Deliveries that were being processed; they are due at once.
    pub deliveries: usize,
    /// Notices that were being sent; they are due at once.
    pub notices: usize,
}

impl RecoveryCounts {
    /// Counts a handoff that was reclaimed from a dead process.
    pub fn count_handoff(&mut self, email: &Email, number: u16) {
        match email.handoffs.get(usize::from(number)).map(|handoff| handoff.state) {
            Some(HandoffState::Unknown) => self.unknown += 1,
            _ => self.queued += 1,
        }
    }
}

/// What a sweep deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Keys that were forgotten.
    pub keys: usize,
    /// Bodies that were deleted.
    pub bodies: usize,
    /// Tombstones that were removed.
    pub tombstones: usize,
    /// Deliveries that were deleted: old suppressed ones, and those of removed inboxes with everything made from them.
    pub deliveries: usize,
    /// Notices that were deleted: old settled ones, and those of removed endpoints.
    pub notices: usize,
}

/// The health of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The name of the database engine.
    pub engine: &'static str,
    /// Whether acknowledged commits could be lost, because of weak settings or asynchronous replicas.
    pub degraded: bool,
    /// Notes for the operator about durability and replicas, good or bad.
    pub notes: Vec<String>,
}

/// Statistics of the store, for the metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Histogram of operations per commit: buckets 1, 2, 4, 8 … 1024 and more.
    pub batch_sizes: [u64; 12],
    /// The number of commits.
    pub commits: u64,
    /// The number of committed operations.
    pub operations: u64,
    /// Histogram of commit durations: up to 1, 2, 4, 8 … 1024 ms and more.
    pub commit_ms: [u64; 12],
    /// Sum of commit times, in microseconds.
    pub commit_us: u64,
    /// Accepts that waited for another accept of the same scope.
    pub contended_accepts: u64,
    /// The approximate number of remembered keys.
    pub keys: u64,
}
