//! The audit part of the store, as one process of a node sees it.

use crate::world::store::FaultyStore;
use async_trait::async_trait;
use mailonce_core::{
    access::call_origin::Alias,
    control::audit::{AuditPage, act::Act},
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    ports::{audit_store::AuditStore, store::Result},
    time::Time,
};

/// Each method goes through the faulty network.
#[async_trait]
impl AuditStore for FaultyStore {
    async fn record_act(&self, act: Act, now: Time) -> Result<()> {
        self.call_with_faults("record_act", true, self.inner.record_act(act, now)).await
    }

    async fn record_keyed_act(&self, act: Act, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>> {
        self.call_with_faults("record_keyed_act", true, self.inner.record_keyed_act(act, operation, now)).await
    }

    async fn audit_page(&self, team: TeamId, after: u64, limit: usize) -> Result<AuditPage> {
        self.call_with_faults("audit_page", false, self.inner.audit_page(team, after, limit)).await
    }

    async fn audit_names(&self, team: TeamId, ids: &[String]) -> Result<Vec<Alias>> {
        self.call_with_faults("audit_names", false, self.inner.audit_names(team, ids)).await
    }

    async fn forget_audit_name(&self, team: TeamId, name: &str) -> Result<usize> {
        self.call_with_faults("forget_audit_name", true, self.inner.forget_audit_name(team, name)).await
    }

    async fn prune_audit(&self, team: TeamId, cutoff: Time, max: usize) -> Result<usize> {
        self.call_with_faults("prune_audit", true, self.inner.prune_audit(team, cutoff, max)).await
    }
}
