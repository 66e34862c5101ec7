//! Budgets: how many emails or recipients a team, an inbox or an API key may send in a period.
//!
//! The engine determines the budgets that an email counts against, as [`Charge`]s. The store adds them up in the
//! transaction that accepts the email, so that two nodes cannot both use the remainder of a budget. It also records the
//! charges of each email, so that they follow an email that is rescheduled.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use crate::{
    control::budget_period::{BudgetPeriod, PeriodBounds},
    handoff::HandoffState,
    id::{ApiKeyId, InboxId},
    key::KeyHash,
    outbound::{
        email::Email,
        policy_trace::{PolicyKind, PolicyStep, PolicyVerdict},
    },
    string_enum::string_enum,
    time::Time,
};

/// The maximum number of budgets of a team.
pub const MAX_BUDGETS: usize = 100;
/// The highest limit of a budget.
pub const MAX_LIMIT: u64 = 1_000_000_000;
/// How long usage is kept after its period ended, because the clocks of nodes differ.
pub const USAGE_RETENTION_MS: i64 = 2 * 86_400_000;

string_enum! {
    /// What a budget counts.
    BudgetMeasure {
        /// Emails.
        Mails = "mails",
        /// Addresses in `to`, `cc` and `bcc`.
        Recipients = "recipients",
        /// Those of them that the team never mailed before.
        NewRecipients = "new_recipients",
    }
}

string_enum! {
    /// What happens to an email that would exceed a budget.
    AtLimit {
        /// It is accepted and held until there is room, and a person is asked.
        Hold = "hold",
        /// It is refused, and its idempotency key stays free.
        Refuse = "refuse",
        /// It is sent and flagged.
        Flag = "flag",
    }
}

/// Which emails count against a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetScope {
    /// Every email of the team.
    Team,
    /// Emails from the address of this inbox.
    Inbox(InboxId),
    /// Emails that were sent with this API key.
    ApiKey(ApiKeyId),
    /// Emails to this address. `None`: to any address, each counted on its own.
    Recipient(Option<String>),
    /// Emails to addresses at this domain. `None`: at any domain, each counted on its own.
    RecipientDomain(Option<String>),
}

impl BudgetScope {
    /// Whether it counts each recipient or domain on its own.
    pub fn counts_each(&self) -> bool {
        matches!(self, Self::Recipient(None) | Self::RecipientDomain(None))
    }
}

/// The definition of a budget, as its record stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Which emails count.
    pub scope: BudgetScope,
    /// What is counted.
    pub measure: BudgetMeasure,
    /// The period.
    pub per: BudgetPeriod,
    /// The limit per period.
    pub limit: u64,
    /// What happens to an email beyond the limit.
    pub at_limit: AtLimit,
    /// Whether it is in effect.
    pub enabled: bool,
}

/// A recipient of an email, as budgets see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRecipient {
    /// The address, in lower case.
    pub address: String,
    /// Whether the team never mailed it before.
    pub is_new: bool,
}

impl BudgetRecipient {
    fn domain(&self) -> &str {
        self.address.rsplit_once('@').map_or("", |(_, domain)| domain)
    }
}

impl Budget {
    /// The charges of an email that leaves in the period with these bounds. `budget` is the id of this budget's record.
    /// A budget that counts each recipient or domain on its own has a charge for each; `counter_of` names its counter.
    pub fn charges(
        &self,
        budget: Uuid,
        recipients: &[BudgetRecipient],
        bounds: PeriodBounds,
        counter_of: impl Fn(&str) -> Uuid,
    ) -> Vec<Charge> {
        let charge = |counter: Uuid, counted: &[&BudgetRecipient]| Charge {
            budget,
            counter,
            period_start: bounds.starts_at,
            ends_at: bounds.ends_at,
            amount: self.measure.amount(counted),
            limit: self.limit,
            at_limit: self.at_limit,
        };
        let group_of = |recipient: &BudgetRecipient| match &self.scope {
            BudgetScope::Recipient(only) => group(only.as_deref(), &recipient.address),
            BudgetScope::RecipientDomain(only) => group(only.as_deref(), recipient.domain()),
            BudgetScope::Team | BudgetScope::Inbox(_) | BudgetScope::ApiKey(_) => Some(String::new()),
        };
        let mut groups: BTreeMap<String, Vec<&BudgetRecipient>> = BTreeMap::new();
        for recipient in recipients {
            if let Some(group) = group_of(recipient) {
                groups.entry(group).or_default().push(recipient);
            }
        }
        let name = |group: &str| if group.is_empty() { budget } else { counter_of(group) };
        groups.iter().map(|(group, counted)| charge(name(group), counted)).filter(|charge| charge.amount > 0).collect()
    }
}

/// The group in which an address or domain is counted: one for all of a named scope, or its own. `None`: not at all.
fn group(only: Option<&str>, counted: &str) -> Option<String> {
    match only {
        Some(only) => (only == counted).then(String::new),
        None => Some(counted.to_owned()),
    }
}

impl BudgetMeasure {
    fn amount(self, recipients: &[&BudgetRecipient]) -> u64 {
        match self {
            Self::Mails => 1,
            Self::Recipients => recipients.len() as u64,
            Self::NewRecipients => recipients.iter().filter(|recipient| recipient.is_new).count() as u64,
        }
    }
}

/// What one email adds to one period of one budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The budget's record.
    pub budget: Uuid,
    /// The counter: the id of the budget, or one of its own for each recipient or domain.
    pub counter: Uuid,
    /// When the period began. With the counter it names a row.
    pub period_start: Time,
    /// When the period ends.
    pub ends_at: Time,
    /// The amount that the email adds.
    pub amount: u64,
    /// The limit of the budget.
    pub limit: u64,
    /// What happens to the email if it does not fit.
    pub at_limit: AtLimit,
}

/// A counter of a team in one period: the counter of a charge, and the start of the period.
pub type BudgetCounter = (Uuid, Time);

impl Charge {
    /// The counter that it is added to.
    pub fn counter(&self) -> BudgetCounter {
        (self.counter, self.period_start)
    }
}

/// A charge as the store records it: at most one period per email and counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCharge {
    /// The counter.
    pub counter: Uuid,
    /// When the period began.
    pub period_start: Time,
    /// When the period ends.
    pub ends_at: Time,
    /// How much the email was counted for.
    pub amount: u64,
}

impl RecordedCharge {
    /// The counter that it was added to.
    pub fn counter(&self) -> BudgetCounter {
        (self.counter, self.period_start)
    }
}

impl From<&Charge> for RecordedCharge {
    fn from(charge: &Charge) -> Self {
        let Charge { counter, period_start, ends_at, amount, .. } = *charge;
        Self { counter, period_start, ends_at, amount }
    }
}

/// How charges change when an email moves to another time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChargeMove {
    /// Charges in new periods, which must have room. Each replaces what was recorded for its budget.
    pub new_charges: Vec<Charge>,
    /// Charges in periods that the email leaves.
    pub refunds: Vec<RecordedCharge>,
}

impl ChargeMove {
    /// Compares the periods of the new time with those in which the email was counted. `email` is its state before the
    /// move.
    ///
    /// An email without a record was accepted before the budget existed, or while it was disabled. It is counted once
    /// it moves to another period, and there is nothing to give back.
    pub fn plan(email: &Email, recorded: &[RecordedCharge], wanted: &[Charge], now: Time) -> Self {
        let of_counter = |counter: Uuid| recorded.iter().find(|record| record.counter == counter);
        let scheduled = || email.handoffs.iter().filter(|handoff| handoff.state == HandoffState::Scheduled);
        let was_due = scheduled().filter_map(|handoff| handoff.due_at).min();
        let stays = |charge: &Charge| match of_counter(charge.counter) {
            Some(record) => record.period_start == charge.period_start,
            None => was_due.is_some_and(|due| charge.period_start <= due && due < charge.ends_at),
        };
        // A copy that was sent keeps its charge. Otherwise moving the last copy would free the budget of all.
        let is_whole = scheduled().count() == email.handoffs.len();
        let is_open = |record: &&RecordedCharge| is_whole && record.ends_at > now;
        let take: Vec<Charge> = wanted.iter().filter(|charge| !stays(charge)).cloned().collect();
        let refunds = take.iter().filter_map(|charge| of_counter(charge.counter)).filter(is_open).copied().collect();
        Self { new_charges: take, refunds }
    }
}

/// Whether the charges of an email must be refunded: the change made it certain that it was not sent. Only stored
/// charges are refunded, and they are deleted then, so it happens once.
pub fn must_refund_charges(before: &Email, after: &Email) -> bool {
    !before.is_surely_unsent() && after.is_surely_unsent()
}

/// A budget that an email would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceededBudget {
    /// The charge that does not fit.
    pub charge: Charge,
    /// The amount used before it.
    pub used: u64,
}

impl ExceededBudget {
    /// The step of a policy trace.
    pub fn policy_step(&self) -> PolicyStep {
        let Self { charge, used } = self;
        let verdict = match charge.at_limit {
            AtLimit::Hold => PolicyVerdict::Hold,
            AtLimit::Refuse => PolicyVerdict::Refuse,
            AtLimit::Flag => PolicyVerdict::Flag,
        };
        let why = format!("{used} of {} are used, and this email counts {}", charge.limit, charge.amount);
        let step = PolicyStep::new(PolicyKind::Budget, &charge.budget.to_string(), verdict, why);
        PolicyStep { id: Some(charge.budget), ..step }
    }
}

/// Adds up charges in one transaction, on top of the stored usage.
///
/// A store loads each counter once, adds the charges of one email after the other, and saves the result.
#[derive(Clone, Debug, Default)]
pub struct BudgetUsage {
    used: BTreeMap<BudgetCounter, u64>,
}

impl BudgetUsage {
    /// Whether this counter was loaded.
    pub fn is_loaded(&self, counter: BudgetCounter) -> bool {
        self.used.contains_key(&counter)
    }

    /// Sets the stored usage of a counter.
    pub fn load(&mut self, counter: BudgetCounter, used: u64) {
        self.used.insert(counter, used);
    }

    /// The current usage of a counter.
    pub fn used(&self, counter: BudgetCounter) -> u64 {
        self.used.get(&counter).copied().unwrap_or_default()
    }

    /// The first budget with this consequence that an email would exceed.
    pub fn exceeded(&self, charges: &[Charge], at_limit: AtLimit) -> Option<ExceededBudget> {
        self.find_exceeded_budget(charges, |charge| charge.at_limit == at_limit)
    }

    /// The first budget that an accepted email would exceed, except those that only flag.
    pub fn exceeded_after_acceptance(&self, charges: &[Charge]) -> Option<ExceededBudget> {
        self.find_exceeded_budget(charges, |charge| charge.at_limit != AtLimit::Flag)
    }

    /// All budgets that an email would exceed.
    pub fn exceeded_budgets(&self, charges: &[Charge]) -> Vec<ExceededBudget> {
        charges.iter().filter_map(|charge| self.exceeded_budget(charge)).collect()
    }

    fn find_exceeded_budget(&self, charges: &[Charge], counts: impl Fn(&Charge) -> bool) -> Option<ExceededBudget> {
        charges.iter().filter(|charge| counts(charge)).find_map(|charge| self.exceeded_budget(charge))
    }

    fn exceeded_budget(&self, charge: &Charge) -> Option<ExceededBudget> {
        let used = self.used(charge.counter());
        let has_room = used.saturating_add(charge.amount) <= charge.limit;
        (!has_room).then(|| ExceededBudget { charge: charge.clone(), used })
    }

    /// The first item of a strict batch that would exceed a budget, together with the items before it. `items` has the
    /// key and the charges of each item, and whether something else holds it, but no items whose key is already bound.
    /// An item that repeats the key of an earlier one is not counted either.
    pub fn exceeded_by_batch<'a>(
        mut self,
        items: impl Iterator<Item = (usize, Option<KeyHash>, &'a [Charge], bool)>,
    ) -> Option<(usize, ExceededBudget)> {
        let mut keys = BTreeSet::new();
        for (index, key, charges, is_held) in items {
            if key.is_some_and(|key| !keys.insert(key)) {
                continue;
            }
            if let Some(exceeded) = self.exceeded(charges, AtLimit::Refuse) {
                return Some((index, exceeded));
            }
            // Held email counts when it is released.
            if !is_held && self.exceeded(charges, AtLimit::Hold).is_none() {
                self.add(charges);
            }
        }
        None
    }

    /// Adds the charges of an email.
    pub fn add(&mut self, charges: &[Charge]) {
        for charge in charges {
            let used = self.used.entry(charge.counter()).or_default();
            *used = used.saturating_add(charge.amount);
        }
    }

    /// Moves the charges of a rescheduled email from its old periods to its new ones.
    pub fn apply(&mut self, moved: &ChargeMove) {
        self.add(&moved.new_charges);
        for record in &moved.refunds {
            let used = self.used.entry(record.counter()).or_default();
            *used = used.saturating_sub(record.amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(n: u128, amount: u64, limit: u64) -> Charge {
        let (period_start, ends_at) = (Time(0), Time(60_000));
        let (budget, counter, at_limit) = (Uuid::from_u128(n), Uuid::from_u128(n), AtLimit::Refuse);
        Charge { budget, counter, period_start, ends_at, amount, limit, at_limit }
    }

    #[test]
    fn the_first_budget_without_room_is_named() {
        let mut usage = BudgetUsage::default();
        usage.load(charge(1, 0, 0).counter(), 3);
        usage.load(charge(2, 0, 0).counter(), 9);
        assert_eq!(usage.exceeded(&[charge(1, 2, 5), charge(2, 1, 10)], AtLimit::Refuse), None);
        let exceeded = usage.exceeded(&[charge(1, 2, 5), charge(2, 2, 10), charge(1, 9, 5)], AtLimit::Refuse).unwrap();
        assert_eq!((exceeded.charge.budget, exceeded.used), (Uuid::from_u128(2), 9));
    }

    #[test]
    fn charges_add_up() {
        let mut usage = BudgetUsage::default();
        usage.add(&[charge(1, 2, 5), charge(2, 1, 5)]);
        usage.add(&[charge(1, 3, 5)]);
        assert_eq!(usage.used(charge(1, 0, 0).counter()), 5);
        assert!(
            usage.exceeded(&[charge(1, 1, 5)], AtLimit::Refuse).is_some()
                && usage.exceeded(&[charge(2, 4, 5)], AtLimit::Refuse).is_none()
        );
    }

    fn counted(scope: BudgetScope, measure: BudgetMeasure) -> Vec<(bool, u64)> {
        let (per, at_limit) = (BudgetPeriod::Day, AtLimit::Refuse);
        let budget = Budget { scope, measure, per, limit: 7, at_limit, enabled: true };
        let recipient = |(address, is_new): (&str, bool)| BudgetRecipient { address: address.to_owned(), is_new };
        let recipients = [("ann@x.test", true), ("bob@x.test", false), ("eve@y.test", true)].map(recipient);
        let bounds = PeriodBounds { starts_at: Time(0), ends_at: Time(1) };
        let charges = budget.charges(Uuid::nil(), &recipients, bounds, |_| Uuid::max());
        charges.iter().map(|charge| (charge.counter.is_nil(), charge.amount)).collect()
    }

    #[test]
    fn mails_recipients_or_new_recipients_are_counted() {
        use BudgetMeasure::{Mails, NewRecipients, Recipients};
        let own = |name: &str| Some(name.to_owned());
        for (scope, mails, recipients, new) in [
            (BudgetScope::Team, vec![(true, 1)], vec![(true, 3)], vec![(true, 2)]),
            (BudgetScope::Recipient(own("bob@x.test")), vec![(true, 1)], vec![(true, 1)], vec![]),
            (BudgetScope::Recipient(own("zoe@x.test")), vec![], vec![], vec![]),
            (BudgetScope::Recipient(None), vec![(false, 1); 3], vec![(false, 1); 3], vec![(false, 1); 2]),
            (BudgetScope::RecipientDomain(own("x.test")), vec![(true, 1)], vec![(true, 2)], vec![(true, 1)]),
            (
                BudgetScope::RecipientDomain(None),
                vec![(false, 1); 2],
                vec![(false, 2), (false, 1)],
                vec![(false, 1); 2],
            ),
        ] {
            assert_eq!(counted(scope.clone(), Mails), mails, "{scope:?}");
            assert_eq!(counted(scope.clone(), Recipients), recipients, "{scope:?}");
            assert_eq!(counted(scope.clone(), NewRecipients), new, "{scope:?}");
        }
    }
}
