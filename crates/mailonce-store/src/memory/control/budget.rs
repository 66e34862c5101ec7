//! Budgets: how much of each was used in each period.

use mailonce_core::{
    control::budget::{Counter, KEPT_MS, Overrun, Usage},
    id::TeamId,
    port::store::{BatchWish, Wish},
    time::Time,
};
use std::collections::BTreeMap;

use crate::memory::World;

/// What was used of a counter, and when its period ends.
pub(in crate::memory) type Counts = BTreeMap<(TeamId, Counter), (u64, Time)>;

impl World {
    fn usage<'a>(&self, wishes: impl Iterator<Item = &'a Wish>) -> Usage {
        let mut usage = Usage::default();
        for (team, charge) in wishes.flat_map(|wish| wish.care.charges.iter().map(move |charge| (wish.team, charge))) {
            usage.load(charge.counter(), self.budget_used(team, charge.counter()));
        }
        usage
    }

    pub(in crate::memory) fn budget_used(&self, team: TeamId, counter: Counter) -> u64 {
        self.budgets.get(&(team, counter)).map_or(0, |(used, _)| *used)
    }

    /// The budget that an email would exceed, unless its key is bound: a retry is never refused.
    pub(in crate::memory) fn over_budget(&self, wish: &Wish, now: Time) -> Option<Overrun> {
        let exceeded = self.usage(std::iter::once(wish)).exceeded(&wish.care.charges)?;
        Some(exceeded).filter(|_| self.is_new(wish, now))
    }

    fn is_new(&self, wish: &Wish, now: Time) -> bool {
        wish.key.is_none_or(|key| self.bound(wish.team, key, now).is_none())
    }

    /// The item of a strict batch that would exceed a budget.
    pub(in crate::memory) fn batch_over_budget(&self, batch: &BatchWish, now: Time) -> Option<(usize, Overrun)> {
        let new = batch.items.iter().enumerate().filter(|(_, wish)| self.is_new(wish, now));
        let items = new.map(|(index, wish)| (index, wish.key, wish.care.charges.as_slice()));
        self.usage(batch.items.iter()).exceeded_by_batch(items)
    }

    /// Counts an accepted email.
    pub(in crate::memory) fn charge_budgets(&mut self, wish: &Wish) {
        for charge in &wish.care.charges {
            let (used, _) = self.budgets.entry((wish.team, charge.counter())).or_insert((0, charge.ends_at));
            *used += charge.amount;
        }
    }

    /// Drops the counters of periods that ended long ago.
    pub(in crate::memory) fn sweep_budgets(&mut self, now: Time) {
        self.budgets.retain(|_, (_, ends_at)| ends_at.plus(KEPT_MS) > now);
    }
}
