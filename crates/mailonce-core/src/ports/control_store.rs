//! The part of the store for stops, budgets and contacts. It follows the rules of the store: every method is one transaction and idempotent,
//! and time and ids are arguments. Stops of the installation and of transports belong to no team.

use async_trait::async_trait;
use std::collections::BTreeMap;

use super::store::Result;
use crate::{
    control::{
        contact::ContactHash,
        stop::{CreateStopResult, Stop, StopKind},
    },
    id::{EmailId, StopId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    outbound::email::Email,
    time::Time,
};

/// Stops, budgets and contacts. The module documentation states the rules that every method follows.
#[async_trait]
pub trait ControlStore: Send + Sync + 'static {
    /// Creates a stop, unless its scope is stopped already. A stop whose email is being released is in force again.
    ///
    /// This is a barrier: after it returns, no marker of an email in the scope commits, on any node. The key of the
    /// operation is bound when the scope is stopped.
    async fn create_stop(
        &self,
        stop: Stop,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<CreateStopResult>>;
    /// The stops of a team, or with `None` those of the installation and of transports, oldest first. Includes stops
    /// whose email is being released.
    async fn stops(&self, team: Option<TeamId>) -> Result<Vec<Stop>>;
    /// How many stops are in force, by the kind of their scope, over all teams.
    async fn stop_counts(&self) -> Result<BTreeMap<StopKind, u64>>;
    /// How many handoffs of a team, or with `None` of all teams, wait for each of these stops: those that it parked, and
    /// those that are due in the queues that it closes. Counts at most `max` for a stop.
    async fn waiting_counts(&self, stops: Vec<Stop>, team: Option<TeamId>, max: usize, now: Time) -> Result<Vec<u64>>;
    /// Ends a stop: its email is released, at most `rate_per_s` handoffs per second. `None` when there is no such stop.
    /// Ending it twice changes only the rate.
    async fn end_stop(
        &self,
        team: Option<TeamId>,
        id: StopId,
        rate_per_s: Option<u32>,
        now: Time,
    ) -> Result<Option<Stop>>;
    /// Returns up to `max` parked handoffs of ended stops to the queues of their transports, and removes ended stops
    /// that have none left. Returns how many were returned.
    async fn release_stopped(&self, max: usize, now: Time) -> Result<usize>;
    /// Emails of all teams that wait for room in a budget, those of a team oldest first. Continues after an email.
    async fn emails_held_by_budget(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>>;
    /// Whether the team mailed each of these contacts, or may have.
    async fn known_contacts(&self, team: TeamId, contacts: Vec<ContactHash>) -> Result<Vec<bool>>;
}
