//! Handing accepted emails to transports, once each.

pub(crate) mod breaker;
pub(crate) mod dispatch;
pub mod doubts;
pub(crate) mod freeze;
pub mod orphans;
pub(crate) mod panics;
pub mod reroute;
pub(crate) mod signers;
pub mod ways;
