//! The counters of budgets that one transaction has locked, and what it changes.

use deadpool_postgres::Transaction;
use mailonce_core::{
    control::budget::{BudgetCounter, BudgetUsage, Charge, ChargeMove, RecordedCharge},
    id::{EmailId, TeamId},
    outbound::email::Email,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use crate::postgres::{error::TxResult, statements::execute};

const WRITE: &str = "
    UPDATE budget_usage u SET used = w.used
      FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[]) AS w (team, budget, period_start, used)
     WHERE u.team = w.team AND u.budget = w.budget AND u.period_start = w.period_start";
const RECORD: &str = "
    INSERT INTO budget_charges (team, email, budget, period_start, ends_at, amount)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[])
    ON CONFLICT (team, email, budget) DO UPDATE
       SET period_start = excluded.period_start, ends_at = excluded.ends_at, amount = excluded.amount";

/// The locked counters of one transaction. A transaction may accept emails of several teams.
#[derive(Default)]
pub(crate) struct BudgetCounters {
    pub(super) teams: BTreeMap<TeamId, BudgetUsage>,
    /// Counters with a new value.
    pub(super) changed: BTreeSet<(TeamId, BudgetCounter)>,
    /// Charges to record per email and budget.
    pub(super) recorded: BTreeMap<(TeamId, EmailId, Uuid), RecordedCharge>,
}

impl BudgetCounters {
    /// Whether no counter changed.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.changed.is_empty()
    }

    /// The current usage of a loaded counter.
    pub(crate) fn used(&self, team: TeamId, counter: BudgetCounter) -> u64 {
        self.teams.get(&team).map_or(0, |usage| usage.used(counter))
    }

    /// Charges an email to its budgets.
    pub(crate) fn charge(&mut self, team: TeamId, id: EmailId, charges: &[Charge]) {
        if charges.is_empty() {
            return;
        }
        self.teams.entry(team).or_default().add(charges);
        self.changed.extend(charges.iter().map(|charge| (team, charge.counter())));
        self.record(team, id, charges);
    }

    pub(super) fn apply(&mut self, email: &Email, moved: &ChargeMove) {
        self.teams.entry(email.team).or_default().apply(moved);
        let taken = moved.new_charges.iter().map(Charge::counter);
        let given_back = moved.refunds.iter().map(RecordedCharge::counter);
        self.changed.extend(taken.chain(given_back).map(|counter| (email.team, counter)));
        self.record(email.team, email.id, &moved.new_charges);
    }

    fn record(&mut self, team: TeamId, id: EmailId, charges: &[Charge]) {
        self.recorded.extend(charges.iter().map(|charge| ((team, id, charge.counter), charge.into())));
    }

    /// Writes the changed counters and the recorded charges.
    pub(crate) async fn write(&self, tx: &Transaction<'_>) -> TxResult<()> {
        if self.is_unchanged() {
            return Ok(());
        }
        let (mut teams, mut budgets, mut starts, mut used) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (team, counter) in &self.changed {
            teams.push(team.0);
            budgets.push(counter.0);
            starts.push(counter.1.0);
            used.push(self.used(*team, *counter) as i64);
        }
        execute(tx, WRITE, &[&teams, &budgets, &starts, &used]).await?;
        let teams: Vec<Uuid> = self.recorded.keys().map(|(team, ..)| team.0).collect();
        let emails: Vec<Uuid> = self.recorded.keys().map(|(_, email, _)| email.0).collect();
        let budgets: Vec<Uuid> = self.recorded.keys().map(|(.., budget)| *budget).collect();
        let starts: Vec<i64> = self.recorded.values().map(|record| record.period_start.0).collect();
        let ends: Vec<i64> = self.recorded.values().map(|record| record.ends_at.0).collect();
        let amounts: Vec<i64> = self.recorded.values().map(|record| record.amount as i64).collect();
        execute(tx, RECORD, &[&teams, &emails, &budgets, &starts, &ends, &amounts]).await.map(drop)
    }
}
