//! Handing accepted emails to transports, once each.

pub(crate) mod handoffs;
