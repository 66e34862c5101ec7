//! Control: budgets and records of a team.

pub(crate) mod budgets;
pub(crate) mod records;

use mailonce_core::record::Record;
use std::collections::BTreeMap;
use uuid::Uuid;

use budgets::{RecordedCharges, UsedCounters};

/// The tables of records and budgets.
#[derive(Default)]
pub(crate) struct ControlTables {
    pub(crate) records: BTreeMap<Uuid, Record>,
    budgets: UsedCounters,
    charges: RecordedCharges,
}
