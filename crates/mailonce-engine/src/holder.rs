//! Under which name this process leases.
//!
//! A lease ends with its process, and a process counts as alive under a name while that name is heard of. When the
//! ledger did not confirm a lease, nobody can tell what was leased: then the process goes on under another name, the
//! old one falls silent once nothing of it is under way, and whoever looks takes over what it still holds.

use mailonce_core::{id::NodeId, port::Chance};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// One name of this process. Whoever works on what was leased under it keeps it until that has ended.
pub(crate) struct Name {
    pub(crate) id: NodeId,
    /// Whether the ledger has heard of it. What is leased under a name that nobody heard of seems left behind.
    heard: AtomicBool,
}

impl Name {
    fn draw(chance: &dyn Chance) -> Arc<Self> {
        let mut bytes = [0; 16];
        chance.fill(&mut bytes);
        let id = NodeId(uuid::Builder::from_random_bytes(bytes).into_uuid());
        Arc::new(Self { id, heard: AtomicBool::new(false) })
    }

    /// Notes that the ledger has heard of it.
    pub(crate) fn heard(&self) {
        self.heard.store(true, Ordering::Release);
    }

    pub(crate) fn is_heard(&self) -> bool {
        self.heard.load(Ordering::Acquire)
    }
}

/// The names of this process.
pub(crate) struct Holder(Mutex<Names>);

struct Names {
    current: Arc<Name>,
    /// Those that may still have something under way.
    former: Vec<Arc<Name>>,
}

impl Holder {
    pub(crate) fn new(chance: &dyn Chance) -> Self {
        Self(Mutex::new(Names { current: Name::draw(chance), former: Vec::new() }))
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name to lease under, once it is heard of.
    pub(crate) fn current(&self) -> Arc<Name> {
        Arc::clone(&self.names().current)
    }

    /// Goes on under another name, unless somebody did so since `lost` was asked for.
    pub(crate) fn renew(&self, lost: &Arc<Name>, chance: &dyn Chance) {
        let mut names = self.names();
        if Arc::ptr_eq(&names.current, lost) {
            let former = std::mem::replace(&mut names.current, Name::draw(chance));
            names.former.push(former);
        }
    }

    /// The names under which something is or may be under way, the current one first.
    pub(crate) fn alive(&self) -> Vec<Arc<Name>> {
        let mut names = self.names();
        names.former.retain(|name| Arc::strong_count(name) > 1);
        std::iter::once(&names.current).chain(&names.former).map(Arc::clone).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU8, Ordering};

    #[derive(Default)]
    struct Count(AtomicU8);

    impl Chance for Count {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
        }
    }

    #[test]
    fn a_lost_name_is_heard_of_while_something_is_under_way() {
        let chance = Count::default();
        let holder = Holder::new(&chance);
        let (first, at_work) = (holder.current(), holder.current());
        holder.renew(&first, &chance);
        holder.renew(&first, &chance);
        let second = holder.current();
        assert!(first.id != second.id && !second.is_heard());
        let alive = || holder.alive().iter().map(|name| name.id).collect::<Vec<_>>();
        drop(first);
        assert_eq!(alive(), [second.id, at_work.id], "renewed once for one loss");
        drop(at_work);
        assert_eq!(alive(), [second.id]);
    }
}
