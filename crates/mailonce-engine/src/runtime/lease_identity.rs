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
    fn generate(chance: &dyn Entropy) -> Arc<Self> {
        let mut bytes = [0; 16];
        chance.fill(&mut bytes);
        let id = NodeId(uuid::Builder::from_random_bytes(bytes).into_uuid());
        Arc::new(Self { id, heartbeat_at: AtomicI64::new(i64::MIN) })
    }

    /// Records that the store got a heartbeat.
    pub(crate) fn note_heartbeat(&self, even: i64) {
        self.heartbeat_at.store(even, Ordering::Release);
    }

    /// Whether the store got a heartbeat recently. False for a new id and after a suspend.
    pub(crate) fn has_recent_heartbeat(&self, even: i64) -> bool {
        even.saturating_sub(self.heartbeat_at.load(Ordering::Acquire)) < HEARTBEAT_FRESH_MS
    }
}

/// The node ids of this process.
pub(crate) struct LeaseIdentities(Mutex<IdentityState>);

struct IdentityState {
    current: Arc<LeaseIdentity>,
    /// Earlier ids that may still have running work.
    former: Vec<Arc<LeaseIdentity>>,
}

impl LeaseIdentities {
    pub(crate) fn new(chance: &dyn Entropy) -> Self {
        Self(Mutex::new(IdentityState { current: LeaseIdentity::generate(chance), former: Vec::new() }))
    }

    fn state(&self) -> MutexGuard<'_, IdentityState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node id to lease under, once it has a heartbeat.
    pub(crate) fn current(&self) -> Arc<LeaseIdentity> {
        Arc::clone(&self.state().current)
    }

    /// Switches to a new node id, unless `lost` is no longer the current one.
    pub(crate) fn replace(&self, lost: &Arc<LeaseIdentity>, chance: &dyn Entropy) {
        let mut names = self.state();
        if Arc::ptr_eq(&names.current, lost) {
            let former = std::mem::replace(&mut names.current, LeaseIdentity::generate(chance));
            names.former.push(former);
        }
    }

    /// The ids that have or may have running work, the current one first.
    pub(crate) fn in_use(&self) -> Vec<Arc<LeaseIdentity>> {
        let mut names = self.state();
        names.former.retain(|name| Arc::strong_count(name) > 1);
        std::iter::once(&names.current).chain(&names.former).map(Arc::clone).collect()
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
        let chance = CounterEntropy::default();
        let holder = LeaseIdentities::new(&chance);
        let (first, at_work) = (holder.current(), holder.current());
        holder.replace(&first, &chance);
        holder.replace(&first, &chance);
        let second = holder.current();
        assert!(first.id != second.id && !second.has_recent_heartbeat(0));
        let alive = || holder.in_use().iter().map(|name| name.id).collect::<Vec<_>>();
        drop(first);
        assert_eq!(alive(), [second.id, at_work.id], "renewed once for one loss");
        drop(at_work);
        assert_eq!(alive(), [second.id]);
    }

    #[test]
    fn a_sign_of_life_counts_for_a_while() {
        let name = LeaseIdentity::generate(&CounterEntropy::default());
        assert!(!name.has_recent_heartbeat(0));
        name.note_heartbeat(0);
        assert!(name.has_recent_heartbeat(HEARTBEAT_FRESH_MS - 1) && !name.has_recent_heartbeat(HEARTBEAT_FRESH_MS));
    }
}
