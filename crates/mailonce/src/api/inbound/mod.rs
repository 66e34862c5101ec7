//! Receiving mail: deliveries, parsing, filing.

pub(crate) mod deliveries;
pub(crate) mod hooks;
