//! The storage crate, and the only crate that contains SQL: three stores behind one port.
//!
//! | store | for |
//! |---|---|
//! | [`memory`] | the reference model for tests: plain maps, the shortest definition of each operation |
//! | [`sqlite`] | the embedded default: one file, one writer thread, group commit |
//! | [`postgres`] | several nodes: the same operations, emails accepted by set-based statements |
//!
//! A store loads rows, lets the core decide, and commits the result. The `conformance` tests run the same promises
//! against every store.

pub mod memory;
pub mod postgres;
pub mod sqlite;
mod transport_registry;

#[cfg(test)]
mod conformance;
