//! Under which name this process leases.
//!
//! A lease ends with its process, and a process counts as alive under a name while that name is heard of. When the
//! ledger did not confirm a lease, nobody can tell what was leased: then the process goes on under another name, the
//! old one falls silent once nothing of it is under way, and whoever looks takes over what it still holds.

use mailonce_core::{id::NodeId, limits, port::Chance};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering},
};

/// One name of this process. Whoever works on what was leased under it keeps it until that has ended.
pub(crate) struct Name {
    pub(crate) id: NodeId,
    /// When the ledger last heard of it, by the even clock. What is leased under a name that nobody heard of lately
    /// seems left behind.
    heard_at: AtomicI64,
}

/// How long a sign of life counts, in milliseconds: well below the silence after which others take over.
const FRESH_MS: i64 = limits::ALIVE_MS / 2;

impl Name {
    fn draw(chance: &dyn Chance) -> Arc<Self> {
        let mut bytes = [0; 16];
        chance.fill(&mut bytes);
        let id = NodeId(uuid::Builder::from_random_bytes(bytes).into_uuid());
        Arc::new(Self { id, heard_at: AtomicI64::new(i64::MIN) })
    }

    /// Notes that the ledger has heard of it.
    pub(crate) fn heard(&self, even: i64) {
        self.heard_at.store(even, Ordering::Release);
    }

    /// Whether the ledger has heard of it lately: not of one that is new, nor after a sleep.
    pub(crate) fn is_heard(&self, even: i64) -> bool {
        even.saturating_sub(self.heard_at.load(Ordering::Acquire)) < FRESH_MS
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
        assert!(first.id != second.id && !second.is_heard(0));
        let alive = || holder.alive().iter().map(|name| name.id).collect::<Vec<_>>();
        drop(first);
        assert_eq!(alive(), [second.id, at_work.id], "renewed once for one loss");
        drop(at_work);
        assert_eq!(alive(), [second.id]);
    }

    #[test]
    fn a_sign_of_life_counts_for_a_while() {
        let name = Name::draw(&Count::default());
        assert!(!name.is_heard(0));
        name.heard(0);
        assert!(name.is_heard(FRESH_MS - 1) && !name.is_heard(FRESH_MS));
    }
}
