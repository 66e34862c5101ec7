//! What runs beside requests.

pub(crate) mod lease_identity;
pub mod metrics;
pub(crate) mod pack;
pub mod records;
pub(crate) mod sealed_answers;
pub mod time;
pub mod upkeep;
