//! What the other folders share: background loops, clocks, metrics, and the encoding of stored data.

pub(crate) mod blocking;
pub(crate) mod lease_identity;
pub mod metrics;
pub(crate) mod pack;
pub(crate) mod problems;
pub mod records;
pub(crate) mod sealed_answers;
pub mod time;
pub mod upkeep;
