//! The control part of the store, as one process of a node sees it.

use crate::world::store::FaultyStore;
use async_trait::async_trait;
use mailonce_core::{
    control::{
        contact::ContactHash,
        stop::{CreateStopResult, Stop, StopKind},
    },
    id::{EmailId, StopId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    outbound::email::Email,
    ports::{control_store::ControlStore, store::Result},
    time::Time,
};
use std::collections::BTreeMap;

/// Each method goes through the faulty network.
#[async_trait]
impl ControlStore for FaultyStore {
    async fn create_stop(
        &self,
        stop: Stop,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<CreateStopResult>> {
        self.call_with_faults("create_stop", true, self.inner.create_stop(stop, operation, now)).await
    }

    async fn stops(&self, team: Option<TeamId>) -> Result<Vec<Stop>> {
        self.call_with_faults("stops", false, self.inner.stops(team)).await
    }

    async fn stop_counts(&self) -> Result<BTreeMap<StopKind, u64>> {
        self.call_with_faults("stop_counts", false, self.inner.stop_counts()).await
    }

    async fn waiting_counts(&self, stops: Vec<Stop>, team: Option<TeamId>, max: usize, now: Time) -> Result<Vec<u64>> {
        self.call_with_faults("waiting_counts", false, self.inner.waiting_counts(stops, team, max, now)).await
    }

    async fn end_stop(
        &self,
        team: Option<TeamId>,
        id: StopId,
        rate_per_s: Option<u32>,
        now: Time,
    ) -> Result<Option<Stop>> {
        self.call_with_faults("end_stop", true, self.inner.end_stop(team, id, rate_per_s, now)).await
    }

    async fn release_stopped(&self, max: usize, now: Time) -> Result<usize> {
        self.call_with_faults("release_stopped", true, self.inner.release_stopped(max, now)).await
    }

    async fn emails_held_by_budget(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        self.call_with_faults("emails_held_by_budget", false, self.inner.emails_held_by_budget(after, limit)).await
    }

    async fn known_contacts(&self, team: TeamId, contacts: Vec<ContactHash>) -> Result<Vec<bool>> {
        self.call_with_faults("known_contacts", false, self.inner.known_contacts(team, contacts)).await
    }
}
