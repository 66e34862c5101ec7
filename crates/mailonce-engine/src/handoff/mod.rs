//! Handing accepted emails to transports, once each.

pub(crate) mod breaker;
pub(crate) mod freeze;
pub mod orphans;
pub(crate) mod panics;
pub mod reroute;
pub(crate) mod signers;
pub mod transport_selector;
pub mod unknown;
pub(crate) mod worker;
