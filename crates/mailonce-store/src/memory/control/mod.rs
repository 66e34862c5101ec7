//! Control: the audit log, budgets, contacts, erasures, records and stops.

pub(crate) mod audit;
pub(crate) mod budgets;
mod contacts;
mod erasures;
pub(crate) mod records;
mod stops;

use mailonce_core::{
    control::{contact::ContactHash, stop::Stop},
    id::{StopId, TeamId},
    record::Record,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use audit::AuditTables;
use budgets::{RecordedCharges, UsedCounters};

/// The tables of the audit log, records, budgets, contacts and stops.
#[derive(Default)]
pub(crate) struct ControlTables {
    pub(crate) records: BTreeMap<Uuid, Record>,
    budgets: UsedCounters,
    charges: RecordedCharges,
    contacts: BTreeSet<(TeamId, ContactHash)>,
    stops: BTreeMap<StopId, Stop>,
    audit: AuditTables,
}
