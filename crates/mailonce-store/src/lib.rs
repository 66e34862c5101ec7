//! The only room that speaks SQL: three engines behind one port.
//!
//! | engine | for |
//! |---|---|
//! | [`memory`] | the executable model: plain maps, the shortest way to say what a verb does |
//! | [`sqlite`] | the embedded default: one file, one writer thread, group commit |
//! | [`postgres`] | many nodes: the same verbs, accepts as set-based statements |
//!
//! An engine loads rows, lets the core decide, and commits what came of it. The `conformance` tests hold every
//! engine to the same promises.

pub mod memory;
pub mod postgres;
pub mod sqlite;
mod transport_registry;

#[cfg(test)]
mod conformance;
