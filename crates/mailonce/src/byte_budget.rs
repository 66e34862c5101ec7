//! Byte budgets for data that is being received, in memory and on disk: one for all connections, and a share of it for
//! each network.

use std::sync::Arc;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Duration, Instant, timeout_at},
};

/// Octets per semaphore permit. A semaphore hands out at most `u32::MAX` permits at once.
const OCTETS_PER_PERMIT: usize = 1024;

/// A semaphore for this number of octets.
pub(crate) fn semaphore_for(octets: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(octets.div_ceil(OCTETS_PER_PERMIT).clamp(1, u32::MAX as usize)))
}

/// The budget of one connection: the octets of all connections, and the share of its network.
#[derive(Clone, Debug)]
pub(crate) struct ByteBudget {
    pub(crate) total: Arc<Semaphore>,
    /// None: the network has no limit of its own.
    pub(crate) share: Option<Arc<Semaphore>>,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The network uses its whole share.
    Share,
    /// All networks together use everything.
    Total,
}

/// Octets that one mail or request holds. Dropping the lease releases them.
#[derive(Debug)]
pub(crate) struct ByteLease {
    budget: ByteBudget,
    octets: usize,
    total: Option<OwnedSemaphorePermit>,
    share: Option<OwnedSemaphorePermit>,
}

impl ByteLease {
    pub(crate) fn new(budget: ByteBudget) -> Self {
        Self { budget, octets: 0, total: None, share: None }
    }

    /// The permits needed for this many more octets.
    fn permits_for(&self, octets: usize) -> u32 {
        let more = (self.octets + octets).div_ceil(OCTETS_PER_PERMIT) - self.octets.div_ceil(OCTETS_PER_PERMIT);
        u32::try_from(more).unwrap_or(u32::MAX)
    }

    /// Waits for more octets. The share is acquired first, so that a network that has used up its share does not queue
    /// for the total and block others there.
    pub(crate) async fn grow(&mut self, octets: usize, timeout: Duration) -> Result<(), Shortage> {
        let deadline = Instant::now() + timeout;
        let permits = self.permits_for(octets);
        let share = match self.budget.share.clone() {
            Some(share) => Some(acquire(share, permits, deadline).await.ok_or(Shortage::Share)?),
            None => None,
        };
        let total = acquire(Arc::clone(&self.budget.total), permits, deadline).await.ok_or(Shortage::Total)?;
        self.octets += octets;
        merge_permits(&mut self.total, Some(total));
        merge_permits(&mut self.share, share);
        Ok(())
    }

    /// Acquires more octets without waiting.
    pub(crate) fn try_grow(&mut self, octets: usize) -> Result<(), Shortage> {
        let permits = self.permits_for(octets);
        let try_acquire = |semaphore: &Arc<Semaphore>| Arc::clone(semaphore).try_acquire_many_owned(permits);
        let share = self.budget.share.as_ref().map(try_acquire).transpose().map_err(|_none_left| Shortage::Share)?;
        let total = try_acquire(&self.budget.total).map_err(|_none_left| Shortage::Total)?;
        self.octets += octets;
        merge_permits(&mut self.total, Some(total));
        merge_permits(&mut self.share, share);
        Ok(())
    }

    /// Releases everything above this number of octets.
    pub(crate) fn shrink_to(&mut self, octets: usize) {
        self.octets = self.octets.min(octets);
        release_permits(&mut self.total, octets.div_ceil(OCTETS_PER_PERMIT));
        release_permits(&mut self.share, octets.div_ceil(OCTETS_PER_PERMIT));
    }
}

async fn acquire(semaphore: Arc<Semaphore>, permits: u32, deadline: Instant) -> Option<OwnedSemaphorePermit> {
    timeout_at(deadline, semaphore.acquire_many_owned(permits)).await.ok()?.ok()
}

fn merge_permits(held: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (held, more) {
        (Some(held), Some(more)) => held.merge(more),
        (held, more) => *held = more.or(held.take()),
    }
}

fn release_permits(held: &mut Option<OwnedSemaphorePermit>, keep: usize) {
    let Some(permit) = held else { return };
    if keep == 0 {
        *held = None;
    } else if let Some(excess) = permit.num_permits().checked_sub(keep) {
        drop(permit.split(excess));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_network_holds_its_share_and_all_together_the_total() {
        let total = semaphore_for(100 * OCTETS_PER_PERMIT);
        let of = |share: &Arc<Semaphore>| ByteBudget { total: Arc::clone(&total), share: Some(Arc::clone(share)) };
        let (greedy, other) = (semaphore_for(25 * OCTETS_PER_PERMIT), semaphore_for(80 * OCTETS_PER_PERMIT));
        let (mut first, mut second) = (ByteLease::new(of(&greedy)), ByteLease::new(of(&greedy)));
        assert_eq!(first.grow(20 * OCTETS_PER_PERMIT, PATIENCE).await, Ok(()));
        assert_eq!(second.grow(6 * OCTETS_PER_PERMIT, PATIENCE).await, Err(Shortage::Share), "25 in all");
        assert_eq!((total.available_permits(), greedy.available_permits()), (80, 5), "a failed grow holds nothing");
        let mut third = ByteLease::new(of(&other));
        assert_eq!(third.grow(80 * OCTETS_PER_PERMIT, PATIENCE).await, Ok(()), "the rest is for others");
        assert_eq!(second.grow(OCTETS_PER_PERMIT, PATIENCE).await, Err(Shortage::Total));
        assert_eq!(greedy.available_permits(), 5);
        first.shrink_to(10 * OCTETS_PER_PERMIT - 1);
        assert_eq!((total.available_permits(), greedy.available_permits()), (10, 15));
        first.shrink_to(50 * OCTETS_PER_PERMIT);
        assert_eq!(greedy.available_permits(), 15, "nothing grows by shrinking");
        first.shrink_to(0);
        drop(third);
        assert_eq!((total.available_permits(), greedy.available_permits(), other.available_permits()), (100, 25, 80));
    }

    #[tokio::test(start_paused = true)]
    async fn many_small_steps_cost_no_more_than_a_large_one() {
        let budget = ByteBudget { total: semaphore_for(10 * OCTETS_PER_PERMIT - 1), share: None };
        let mut lease = ByteLease::new(budget);
        for _ in 0..100 {
            assert_eq!(lease.grow(OCTETS_PER_PERMIT / 10, PATIENCE).await, Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_what_comes_back() {
        let total = semaphore_for(10 * OCTETS_PER_PERMIT);
        let budget = ByteBudget { total, share: None };
        let (mut first, mut second) = (ByteLease::new(budget.clone()), ByteLease::new(budget));
        first.grow(10 * OCTETS_PER_PERMIT, PATIENCE).await.unwrap();
        let freed = async {
            tokio::time::sleep(PATIENCE / 2).await;
            drop(first);
        };
        let (grown, ()) = tokio::join!(second.grow(10 * OCTETS_PER_PERMIT, PATIENCE), freed);
        assert_eq!(grown, Ok(()));
    }
}
