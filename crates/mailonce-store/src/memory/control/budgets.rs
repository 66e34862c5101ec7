//! Budgets: the usage of each budget per period.

use mailonce_core::{
    control::budget::{BudgetCounter, BudgetUsage, Charge, ChargeMove, Overrun, RecordedCharge, USAGE_RETENTION_MS},
    id::{EmailId, TeamId},
    outbound::{accept::NewEmail, email::Email},
    time::Time,
};
use std::collections::BTreeMap;
use uuid::Uuid;

use crate::memory::control::ControlTables;

/// The value of each counter, and when its period ends.
pub(crate) type UsedCounters = BTreeMap<(TeamId, BudgetCounter), (u64, Time)>;
/// The recorded charges, by email and budget.
pub(crate) type RecordedCharges = BTreeMap<(EmailId, Uuid), RecordedCharge>;

impl ControlTables {
    pub(crate) fn budget_used(&self, team: TeamId, counter: BudgetCounter) -> u64 {
        self.budgets.get(&(team, counter)).map_or(0, |(used, _)| *used)
    }

    /// Charges an accepted email to its budgets.
    pub(crate) fn charge_budgets(&mut self, new_email: &NewEmail) {
        self.charge(new_email.team, new_email.id, &new_email.guard_input.charges);
    }

    pub(crate) fn charge(&mut self, team: TeamId, id: EmailId, charges: &[Charge]) {
        for charge in charges {
            let (used, _) = self.budgets.entry((team, charge.counter())).or_insert((0, charge.ends_at));
            *used += charge.amount;
            self.charges.insert((id, charge.budget), charge.into());
        }
    }

    /// Moves the charges of a rescheduled email to the periods of its new time. Changes nothing if a budget would be
    /// exceeded.
    pub(crate) fn move_charges(&mut self, email: &Email, wanted: &[Charge], now: Time) -> Option<Overrun> {
        let of_email = (email.id, Uuid::nil())..=(email.id, Uuid::max());
        let recorded: Vec<_> = self.charges.range(of_email).map(|(_, record)| *record).collect();
        let moved = ChargeMove::plan(email, &recorded, wanted, now);
        let mut usage = BudgetUsage::default();
        for charge in &moved.take {
            usage.load(charge.counter(), self.budget_used(email.team, charge.counter()));
        }
        if let Some(exceeded) = usage.exceeded(&moved.take) {
            return Some(exceeded);
        }
        self.charge(email.team, email.id, &moved.take);
        for record in &moved.give_back {
            if let Some((used, _)) = self.budgets.get_mut(&(email.team, record.counter())) {
                *used = used.saturating_sub(record.amount);
            }
        }
        None
    }

    /// Deletes counters and charges of periods that ended long ago.
    pub(crate) fn sweep_budgets(&mut self, now: Time) {
        self.budgets.retain(|_, (_, ends_at)| ends_at.plus(USAGE_RETENTION_MS) > now);
        self.charges.retain(|_, record| record.ends_at.plus(USAGE_RETENTION_MS) > now);
    }
}
