//! Receiving mail: deliveries, parsing, filing.

pub(crate) mod hooks;
