//! Control: budgets, records and stops.

pub(crate) mod budgets;
pub(crate) mod records;
mod stops;

use mailonce_core::{control::stop::Stop, id::StopId, record::Record};
use std::collections::BTreeMap;
use uuid::Uuid;

use budgets::{RecordedCharges, UsedCounters};

/// The tables of records, budgets and stops.
#[derive(Default)]
pub(crate) struct ControlTables {
    pub(crate) records: BTreeMap<Uuid, Record>,
    budgets: UsedCounters,
    charges: RecordedCharges,
    stops: BTreeMap<StopId, Stop>,
}
