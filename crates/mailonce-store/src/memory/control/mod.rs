//! Control: the audit log, budgets, records and stops.

pub(crate) mod audit;
pub(crate) mod budgets;
pub(crate) mod records;
mod stops;

use mailonce_core::{control::stop::Stop, id::StopId, record::Record};
use std::collections::BTreeMap;
use uuid::Uuid;

use audit::AuditTables;
use budgets::{RecordedCharges, UsedCounters};

/// The tables of the audit log, records, budgets and stops.
#[derive(Default)]
pub(crate) struct ControlTables {
    pub(crate) records: BTreeMap<Uuid, Record>,
    budgets: UsedCounters,
    charges: RecordedCharges,
    stops: BTreeMap<StopId, Stop>,
    audit: AuditTables,
}
