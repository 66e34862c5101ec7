//! What runs beside requests.

pub(crate) mod holder;
pub mod metrics;
pub(crate) mod pack;
pub mod records;
pub(crate) mod seal;
pub mod time;
pub mod upkeep;
