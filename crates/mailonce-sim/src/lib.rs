//! Development only: what drives the real binary from outside and judges it.
//!
//! - [`load`] is the load generator of the benches (`scripts/bench`, binary `mailonce-bench`) and of the rigs.
//! - [`model`] plays every order of events that a small world can have (`mailonce-model`, `tests/model`).
//! - [`protocol`] plays protocols that others recommend, until they break (`docs/protocols.md`).
//! - [`rig`] starts the real binary, hurts it, and judges what it kept (`tests/it`).
//! - [`sink`] is the next hop that mail is handed to, and that misbehaves as it is told (`tests/smtp`,
//!   `tests/providers`).

pub mod load;
pub mod model;
pub mod protocol;
pub mod rig;
pub mod sink;
