//! Receiving mail: deliveries, parsing, filing.

pub mod delivery;
pub mod filing;
