//! Budgets: the usage of each budget per period.

use mailonce_core::{
    control::budget::{
        BudgetCounter, BudgetUsage, Charge, ChargeMove, ExceededBudget, RecordedCharge, USAGE_RETENTION_MS,
        must_refund_charges,
    },
    id::{EmailId, TeamId},
    outbound::email::Email,
    time::Time,
};
use std::collections::BTreeMap;
use uuid::Uuid;

use crate::memory::control::ControlTables;

/// The value of each counter, and when its period ends.
pub(crate) type UsedCounters = BTreeMap<(TeamId, BudgetCounter), (u64, Time)>;
/// The recorded charges, by email and counter.
pub(crate) type RecordedCharges = BTreeMap<(EmailId, Uuid), RecordedCharge>;

impl ControlTables {
    pub(crate) fn budget_used(&self, team: TeamId, counter: BudgetCounter) -> u64 {
        self.budgets.get(&(team, counter)).map_or(0, |(used, _)| *used)
    }

    /// The usage of the counters of these charges.
    pub(crate) fn usage_of(&self, team: TeamId, charges: &[Charge]) -> BudgetUsage {
        let mut usage = BudgetUsage::default();
        for counter in charges.iter().map(Charge::counter) {
            usage.load(counter, self.budget_used(team, counter));
        }
        usage
    }

    /// Charges an email to its budgets.
    pub(crate) fn charge(&mut self, team: TeamId, id: EmailId, charges: &[Charge]) {
        for charge in charges {
            let (used, _) = self.budgets.entry((team, charge.counter())).or_insert((0, charge.ends_at));
            *used += charge.amount;
            self.charges.insert((id, charge.counter), charge.into());
        }
    }

    /// Moves the charges of a rescheduled email to the periods of its new time. Changes nothing if a budget would be
    /// exceeded.
    pub(crate) fn move_charges(&mut self, email: &Email, wanted: &[Charge], now: Time) -> Option<ExceededBudget> {
        let moved = ChargeMove::plan(email, &self.recorded_charges(email.id), wanted, now);
        let exceeded = self.usage_of(email.team, &moved.new_charges).exceeded_after_acceptance(&moved.new_charges);
        if exceeded.is_none() {
            self.charge(email.team, email.id, &moved.new_charges);
            self.refund(email.team, &moved.refunds);
        }
        exceeded
    }

    /// Gives the charges of an email back, once, if it surely was not sent.
    pub(crate) fn refund_if_unsent(&mut self, before: &Email, after: &Email) {
        if must_refund_charges(before, after) {
            self.refund(after.team, &self.recorded_charges(after.id));
            self.charges.retain(|(email, _), _| *email != after.id);
        }
    }

    fn recorded_charges(&self, id: EmailId) -> Vec<RecordedCharge> {
        self.charges.range((id, Uuid::nil())..=(id, Uuid::max())).map(|(_, record)| *record).collect()
    }

    fn refund(&mut self, team: TeamId, charges: &[RecordedCharge]) {
        for record in charges {
            if let Some((used, _)) = self.budgets.get_mut(&(team, record.counter())) {
                *used = used.saturating_sub(record.amount);
            }
        }
    }

    /// Deletes counters and charges of periods that ended long ago.
    pub(crate) fn sweep_budgets(&mut self, now: Time) {
        self.budgets.retain(|_, (_, ends_at)| ends_at.plus(USAGE_RETENTION_MS) > now);
        self.charges.retain(|_, record| record.ends_at.plus(USAGE_RETENTION_MS) > now);
    }
}
