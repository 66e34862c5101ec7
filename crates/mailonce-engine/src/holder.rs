//! Under which name this process leases.
//!
//! A lease ends with its process, and a process counts as alive under a name while that name is heard of. When the
//! ledger did not confirm a lease, nobody can tell what was leased: then the process goes on under another name, the
//! old one falls silent once nothing of it is under way, and whoever looks takes over what it still holds.

use mailonce_core::{id::NodeId, limits, port::Chance};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The names of this process.
pub(crate) struct Holder(Mutex<Names>);

struct Names {
    current: Arc<NodeId>,
    /// Those that may still have something under way.
    former: Vec<Arc<NodeId>>,
    /// Under which name the ledger last heard of us, and when by the even clock.
    heard: Option<(NodeId, i64)>,
}

/// How long a sign of life counts as fresh, in milliseconds: well below the silence after which others take over.
const FRESH_MS: i64 = limits::ALIVE_MS / 2;

fn draw(chance: &dyn Chance) -> Arc<NodeId> {
    let mut bytes = [0; 16];
    chance.fill(&mut bytes);
    Arc::new(NodeId(uuid::Builder::from_random_bytes(bytes).into_uuid()))
}

impl Holder {
    pub(crate) fn new(chance: &dyn Chance) -> Self {
        Self(Mutex::new(Names { current: draw(chance), former: Vec::new(), heard: None }))
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name to lease under. Whoever works on what it leased keeps it until that has ended.
    pub(crate) fn current(&self) -> Arc<NodeId> {
        Arc::clone(&self.names().current)
    }

    /// Goes on under another name, unless somebody did so since `lost` was asked for.
    pub(crate) fn renew(&self, lost: &Arc<NodeId>, chance: &dyn Chance) {
        let mut names = self.names();
        if names.current == *lost {
            let former = std::mem::replace(&mut names.current, draw(chance));
            names.former.push(former);
        }
    }

    /// The ledger heard of us under this name.
    pub(crate) fn heard(&self, name: NodeId, even: i64) {
        self.names().heard = Some((name, even));
    }

    /// Whether what is leased now is safe from those who take over: they were told lately that this name lives.
    pub(crate) fn is_heard(&self, even: i64) -> bool {
        let names = self.names();
        names.heard.is_some_and(|(name, at)| name == *names.current && even - at < FRESH_MS)
    }

    /// The names under which something is or may be under way, the current one first.
    pub(crate) fn alive(&self) -> Vec<NodeId> {
        let mut names = self.names();
        names.former.retain(|name| Arc::strong_count(name) > 1);
        std::iter::once(&names.current).chain(&names.former).map(|name| **name).collect()
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
        assert_ne!(first, second);
        drop(first);
        assert_eq!(holder.alive(), [*second, *at_work], "renewed once for one loss");
        drop(at_work);
        assert_eq!(holder.alive(), [*second]);
    }

    #[test]
    fn a_sign_of_life_counts_for_its_name_and_for_a_while() {
        let chance = Count::default();
        let holder = Holder::new(&chance);
        let first = holder.current();
        assert!(!holder.is_heard(0));
        holder.heard(*first, 0);
        assert!(holder.is_heard(FRESH_MS - 1) && !holder.is_heard(FRESH_MS));
        holder.renew(&first, &chance);
        assert!(!holder.is_heard(1), "nobody heard of the new name yet");
    }
}
