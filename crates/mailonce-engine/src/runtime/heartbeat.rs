//! Heartbeats of the node ids under which this process leases.

use crate::runtime::{context::Context, lease_identity::LeaseIdentity, time::BootInterval};
use mailonce_core::{id::NodeId, mutant, ports::store::StoreError};
use std::sync::Arc;

impl Context {
    /// Sends the heartbeat of a node id, and compares the clocks.
    pub(crate) async fn send_heartbeat(&self, node: NodeId) -> Result<(), StoreError> {
        let before = self.time.boot_clock_ms();
        let heartbeat = self.store.heartbeat(node, self.now()).await?;
        let reading = BootInterval { before, after: self.time.boot_clock_ms() };
        self.time.on_heartbeat(heartbeat.latest_time, heartbeat.database_clock, reading);
        Ok(())
    }

    /// The node id to lease under, with a recent heartbeat. Without one, as after a suspend or for a new id, peers
    /// would reclaim its leases. `None` when the heartbeat fails.
    pub(crate) async fn ensure_heartbeat(&self) -> Option<Arc<LeaseIdentity>> {
        let (identity, boot_ms) = (self.lease_identities.current(), self.time.boot_clock_ms());
        if !identity.has_recent_heartbeat(boot_ms) && !mutant!("unheard-name") {
            let sent = self.send_heartbeat(identity.id).await;
            sent.map_err(|error| tracing::warn!(%error, "cannot send the heartbeat")).ok()?;
            identity.note_heartbeat(boot_ms);
        }
        Some(identity)
    }

    /// Switches to a new node id when the store may hold leases that were never confirmed.
    pub(crate) fn replace_identity_if_lease_lost(&self, error: &StoreError, identity: &Arc<LeaseIdentity>) {
        if matches!(error, StoreError::CommitUnknown(_)) {
            self.lease_identities.replace(identity, &*self.entropy);
        }
    }
}
