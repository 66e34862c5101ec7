//! Development only: what drives the real binary from outside and judges it.
//!
//! - [`fuzz`] bends bytes for every reader of outside bytes (`mailonce-fuzz`, `tests/fuzz`, `fuzz/`).
//! - [`load`] is the load generator of the benches (`scripts/bench`, binary `mailonce-bench`) and of the rigs.
//! - [`model`] plays every order of events that a small world can have (`mailonce-model`, `tests/model`).
//! - [`protocol`] plays protocols that others recommend, until they break (`docs/protocols.md`).
//! - [`report`] is what rigs found, and the page that tells it (`docs/proof.md`).
//! - [`rig`] starts the real binary, hurts it, and judges what it kept (`tests/it`).
//! - [`sink`] is the next hop that mail is handed to, and that misbehaves as it is told (`tests/smtp`,
//!   `tests/providers`).

#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod load;
#[cfg(feature = "models")]
pub mod model;
#[cfg(feature = "models")]
pub mod protocol;
pub mod report;
pub mod rig;
pub mod sink;
