//! Budgets: how much of each was used in each period.
//!
//! The row of a counter is locked before it is read, whether there is one or not: of two emails that want the last place
//! of a budget, on one node or on two, the second sees the first.

use deadpool_postgres::Transaction;
use mailonce_core::{
    control::budget::{Charge, Counter, KEPT_MS, Overrun, Usage},
    id::TeamId,
    port::store::{BatchWish, Wish},
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::postgres::{
    Ledger,
    ground::Ground,
    trouble::Tried,
    write::{ask, ask_all, run},
};

/// Makes the rows that are missing and locks the others, in order, as keys are locked.
const LOCK: &str = "
    INSERT INTO budget_usage (team, budget, period_start, ends_at)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[]) AS w (team, budget, period_start, ends_at)
     ORDER BY team, budget, period_start
    ON CONFLICT (team, budget, period_start) DO UPDATE SET used = budget_usage.used WHERE false";
const READ: &str = "
    SELECT u.team, u.budget, u.period_start, u.used
      FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS w (team, budget, period_start)
      JOIN budget_usage u ON u.team = w.team AND u.budget = w.budget AND u.period_start = w.period_start";
const WRITE: &str = "
    UPDATE budget_usage u SET used = w.used
      FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[]) AS w (team, budget, period_start, used)
     WHERE u.team = w.team AND u.budget = w.budget AND u.period_start = w.period_start";
const SWEEP: &str = "
    DELETE FROM budget_usage x
     USING (SELECT team, budget, period_start FROM budget_usage WHERE ends_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) due
     WHERE x.team = due.team AND x.budget = due.budget AND x.period_start = due.period_start";
/// Counters that are dropped at a time.
const SWEPT: i64 = 10_000;

/// The locked counters of one transaction. A transaction may accept emails of several teams.
#[derive(Default)]
pub(in crate::postgres) struct Counters {
    teams: BTreeMap<TeamId, Usage>,
    /// Counters that grew.
    spent: BTreeSet<(TeamId, Counter)>,
}

impl Counters {
    /// Whether no counter grew.
    pub(in crate::postgres) fn is_untouched(&self) -> bool {
        self.spent.is_empty()
    }

    fn exceeded(&self, wish: &Wish) -> Option<Overrun> {
        self.teams.get(&wish.team)?.exceeded(&wish.care.charges)
    }

    fn charge(&mut self, wish: &Wish) {
        if wish.care.charges.is_empty() {
            return;
        }
        self.teams.entry(wish.team).or_default().add(&wish.care.charges);
        self.spent.extend(wish.care.charges.iter().map(|charge| (wish.team, charge.counter())));
    }

    /// Writes the counters that grew.
    pub(in crate::postgres) async fn write(&self, tx: &Transaction<'_>) -> Tried<()> {
        if self.is_untouched() {
            return Ok(());
        }
        let (mut teams, mut budgets, mut starts, mut used) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (team, counter) in &self.spent {
            teams.push(team.0);
            budgets.push(counter.0);
            starts.push(counter.1.0);
            used.push(self.teams.get(team).map_or(0, |usage| usage.used(*counter)) as i64);
        }
        run(tx, WRITE, &[&teams, &budgets, &starts, &used]).await.map(drop)
    }
}

/// Locks and reads the counters of these wishes.
pub(in crate::postgres) async fn lock<'a>(
    tx: &Transaction<'_>,
    ground: &mut Ground,
    wishes: impl Iterator<Item = &'a Wish> + Send,
) -> Tried<()> {
    let charges = wishes.flat_map(|wish| wish.care.charges.iter().map(|charge| (wish.team, charge)));
    let counters: BTreeMap<(TeamId, Counter), &Charge> =
        charges.map(|(team, charge)| ((team, charge.counter()), charge)).collect();
    if counters.is_empty() {
        return Ok(());
    }
    let teams: Vec<Uuid> = counters.keys().map(|(team, _)| team.0).collect();
    let budgets: Vec<Uuid> = counters.values().map(|charge| charge.budget).collect();
    let starts: Vec<i64> = counters.values().map(|charge| charge.period_start.0).collect();
    let ends: Vec<i64> = counters.values().map(|charge| charge.ends_at.0).collect();
    let read: [&(dyn ToSql + Sync); 3] = [&teams, &budgets, &starts];
    let answers = ask_all(tx, &[(LOCK, &[&teams, &budgets, &starts, &ends]), (READ, &read)]).await?;
    for row in answers.last().into_iter().flatten() {
        let counter = (row.try_get(1)?, Time(row.try_get(2)?));
        let usage = ground.budgets.teams.entry(TeamId(row.try_get(0)?)).or_default();
        usage.load(counter, row.try_get::<_, i64>(3)?.unsigned_abs());
    }
    Ok(())
}

/// Drops the counters of periods that ended long ago, and rows that were made only to be locked.
pub(in crate::postgres) async fn sweep(tx: &Transaction<'_>, now: Time) -> Tried<()> {
    run(tx, SWEEP, &[&now.plus(-KEPT_MS).0, &SWEPT]).await.map(drop)
}

impl Ground {
    /// The budget that an email would exceed, unless its key is bound: a retry is never refused.
    pub(in crate::postgres) fn over_budget(&self, wish: &Wish, now: Time) -> Option<Overrun> {
        self.budgets.exceeded(wish).filter(|_| self.is_new(wish, now))
    }

    fn is_new(&self, wish: &Wish, now: Time) -> bool {
        wish.key.is_none_or(|key| self.bound(wish.team, key, now).is_none())
    }

    /// The item of a strict batch that would exceed a budget.
    pub(in crate::postgres) fn batch_over_budget(&self, batch: &BatchWish, now: Time) -> Option<(usize, Overrun)> {
        let new = batch.items.iter().enumerate().filter(|(_, wish)| self.is_new(wish, now));
        let items = new.map(|(index, wish)| (index, wish.key, wish.care.charges.as_slice()));
        self.budgets.teams.get(&batch.team).cloned().unwrap_or_default().exceeded_by_batch(items)
    }

    /// Counts an accepted email.
    pub(in crate::postgres) fn charge_budgets(&mut self, wish: &Wish) {
        self.budgets.charge(wish);
    }
}

impl Ledger {
    /// How much of each of these counters is used.
    pub(in crate::postgres) async fn budget_usage(&self, team: TeamId, counters: &[Counter]) -> Tried<Vec<u64>> {
        let teams = vec![team.0; counters.len()];
        let budgets: Vec<Uuid> = counters.iter().map(|(budget, _)| *budget).collect();
        let starts: Vec<i64> = counters.iter().map(|(_, start)| start.0).collect();
        let mut usage = Usage::default();
        for row in ask(&self.link.client().await?, READ, &[&teams, &budgets, &starts]).await? {
            usage.load((row.try_get(1)?, Time(row.try_get(2)?)), row.try_get::<_, i64>(3)?.unsigned_abs());
        }
        Ok(counters.iter().map(|counter| usage.used(*counter)).collect())
    }
}
