//! The part of the store for the audit log. It follows the rules of the store: every method is one transaction and
//! idempotent, and time and ids are arguments.
//!
//! The methods that change the ledger record their own acts ([`crate::control::audit::act`]), in the same transaction.
//! Who acts is the [`CallOrigin`](crate::access::call_origin::CallOrigin) of the running call.

use async_trait::async_trait;

use super::store::Result;
use crate::{
    access::call_origin::Alias,
    control::audit::{AuditPage, act::Act},
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};

/// The audit log. The module documentation states the rules that every method follows.
#[async_trait]
pub trait AuditStore: Send + Sync + 'static {
    /// Records an act that changes nothing else in the ledger, such as a restore. Not idempotent: each call is an act.
    async fn record_act(&self, act: Act, now: Time) -> Result<()>;
    /// Records an act that changes nothing else in the ledger, and binds the key of its operation. A replay records
    /// nothing.
    async fn record_keyed_act(&self, act: Act, operation: KeyedOperation, now: Time) -> Result<IdempotentResult<()>>;
    /// Up to `limit` entries after a number, in order, and the ends of the chain, in one snapshot.
    async fn audit_page(&self, team: TeamId, after: u64, limit: usize) -> Result<AuditPage>;
    /// The names of these ids, as far as they are known.
    async fn audit_names(&self, team: TeamId, ids: &[String]) -> Result<Vec<Alias>>;
    /// Erases a name, such as an address, wherever it is resolved. The chain stays valid. Returns how many ids had it.
    async fn forget_audit_name(&self, team: TeamId, name: &str) -> Result<usize>;
    /// Removes up to `max` of the oldest entries, those from before `cutoff`. The hash of the last one that was removed
    /// stays as the start of the chain. Returns how many were removed.
    async fn prune_audit(&self, team: TeamId, cutoff: Time, max: usize) -> Result<usize>;
}
