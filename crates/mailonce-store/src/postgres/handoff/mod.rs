//! Handing accepted emails to transports, once each.

pub(crate) mod handoff_rows;
pub(crate) mod handoffs;
