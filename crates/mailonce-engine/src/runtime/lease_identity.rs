//! The node ids under which this process leases work.
//!
//! A lease is valid while its node id has recent heartbeats. When the store didn't confirm a lease, the process can't
//! know what was leased. It then continues under a new node id. The old id stops its heartbeats once its running work
//! has ended, and peers recover the leases that it still holds.

use mailonce_core::{id::NodeId, limits, ports::Entropy};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering},
};

/// One node id of this process. Tasks keep a reference to it while they work on what was leased under it.
pub(crate) struct LeaseIdentity {
    pub(crate) id: NodeId,
    /// When the store last got a heartbeat of this id, by the boot clock. Peers reclaim the leases of an id without a
    /// recent one.
    heartbeat_at: AtomicI64,
}

/// How long a heartbeat counts as recent, in milliseconds. Well below the silence after which peers reclaim leases.
const HEARTBEAT_FRESH_MS: i64 = limits::HEARTBEAT_TIMEOUT_MS / 2;

impl LeaseIdentity {
    fn generate(entropy: &dyn Entropy) -> Arc<Self> {
        let mut bytes = [0; 16];
        entropy.fill(&mut bytes);
        let id = NodeId(uuid::Builder::from_random_bytes(bytes).into_uuid());
        Arc::new(Self { id, heartbeat_at: AtomicI64::new(i64::MIN) })
    }

    /// Records that the store got a heartbeat.
    pub(crate) fn note_heartbeat(&self, boot_ms: i64) {
        self.heartbeat_at.store(boot_ms, Ordering::Release);
    }

    /// Whether the store got a heartbeat recently. False for a new id and after a suspend.
    pub(crate) fn has_recent_heartbeat(&self, boot_ms: i64) -> bool {
        boot_ms.saturating_sub(self.heartbeat_at.load(Ordering::Acquire)) < HEARTBEAT_FRESH_MS
    }
}

/// The node ids of this process.
pub(crate) struct OwnNodeIds(Mutex<IdentityState>);

struct IdentityState {
    current: Arc<LeaseIdentity>,
    /// Earlier ids that may still have running work.
    former: Vec<Arc<LeaseIdentity>>,
}

impl OwnNodeIds {
    pub(crate) fn new(entropy: &dyn Entropy) -> Self {
        Self(Mutex::new(IdentityState { current: LeaseIdentity::generate(entropy), former: Vec::new() }))
    }

    fn state(&self) -> MutexGuard<'_, IdentityState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node id to lease under, once it has a heartbeat.
    pub(crate) fn current(&self) -> Arc<LeaseIdentity> {
        Arc::clone(&self.state().current)
    }

    /// Switches to a new node id, unless `lost` is no longer the current one.
    pub(crate) fn replace(&self, lost: &Arc<LeaseIdentity>, entropy: &dyn Entropy) {
        let mut state = self.state();
        if Arc::ptr_eq(&state.current, lost) {
            let former = std::mem::replace(&mut state.current, LeaseIdentity::generate(entropy));
            state.former.push(former);
        }
    }

    /// The ids that have or may have running work, the current one first.
    pub(crate) fn in_use(&self) -> Vec<Arc<LeaseIdentity>> {
        let mut state = self.state();
        state.former.retain(|identity| Arc::strong_count(identity) > 1);
        std::iter::once(&state.current).chain(&state.former).map(Arc::clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU8, Ordering};

    #[derive(Default)]
    struct CounterEntropy(AtomicU8);

    impl Entropy for CounterEntropy {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
        }
    }

    #[test]
    fn a_lost_name_is_heard_of_while_something_is_under_way() {
        let entropy = CounterEntropy::default();
        let identities = OwnNodeIds::new(&entropy);
        let (first, at_work) = (identities.current(), identities.current());
        identities.replace(&first, &entropy);
        identities.replace(&first, &entropy);
        let second = identities.current();
        assert!(first.id != second.id && !second.has_recent_heartbeat(0));
        let alive = || identities.in_use().iter().map(|identity| identity.id).collect::<Vec<_>>();
        drop(first);
        assert_eq!(alive(), [second.id, at_work.id], "renewed once for one loss");
        drop(at_work);
        assert_eq!(alive(), [second.id]);
    }

    #[test]
    fn a_sign_of_life_counts_for_a_while() {
        let identity = LeaseIdentity::generate(&CounterEntropy::default());
        assert!(!identity.has_recent_heartbeat(0));
        identity.note_heartbeat(0);
        assert!(
            identity.has_recent_heartbeat(HEARTBEAT_FRESH_MS - 1) && !identity.has_recent_heartbeat(HEARTBEAT_FRESH_MS)
        );
    }
}
