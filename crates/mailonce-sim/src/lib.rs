//! Development only: what drives the real binary from outside and judges it.
//!
//! - [`crash`] kills and stops the real binary at named points and judges what it kept (binary `mailonce-crash`,
//!   `tests/crash`).
//! - [`failover`] fails over to a synchronous standby under load (`mailonce-failover`, `tests/faults`).
//! - [`load`] is the load generator of the benches (`scripts/bench`, binary `mailonce-bench`) and of the rigs.
//! - [`proof`] judges what rigs saw by the promises P1 to P16.
//! - [`fuzz`] bends bytes for every reader of outside bytes (`mailonce-fuzz`, `tests/fuzz`, `fuzz/`).
//! - [`model`] plays every order of events that a small world can have (`mailonce-model`, `tests/model`).
//! - [`protocol`] plays protocols that others recommend, until they break (`docs/protocols.md`).
//! - [`report`] is what rigs found, and the page that tells it (`docs/proof.md`).
//! - [`harness`] starts the real binary, injects faults, and checks what it kept (`tests/it`).
//! - [`world`] simulates worlds: the real engine, and everything around it made from a seed (`tests/worlds`).
//! - [`sink`] is the next hop that mail is handed to, and that misbehaves as it is told (`tests/smtp`,
//!   `tests/providers`).

pub mod crash;
pub mod failover;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod harness;
pub mod load;
#[cfg(feature = "models")]
pub mod model;
pub mod proof;
#[cfg(feature = "models")]
pub mod protocol;
pub mod report;
pub mod sink;
#[cfg(feature = "worlds")]
pub mod world;
