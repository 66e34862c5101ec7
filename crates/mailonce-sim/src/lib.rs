//! Development only: drives the real binary from outside and checks it.
//!
//! - [`crash`] kills and stops the real binary at failpoints and under load, and checks what it kept (`mailonce-crash`,
//!   `tests/crash`).
//! - [`failover`] fails over to a synchronous standby under load (`mailonce-failover`, `tests/faults`).
//! - [`load`] is the load generator of the benchmarks (`scripts/bench`, `mailonce-bench`) and tests.
//! - [`proof`] checks recorded histories against the invariants P1 to P17.
//! - [`fuzz`] mutates the input of every parser of outside bytes (`mailonce-fuzz`, `tests/fuzz`, `fuzz/`).
//! - [`model`] explores every order of events of a small system (`mailonce-model`, `tests/model`).
//! - [`protocol`] is an example: recommended protocols that a model checker breaks (`docs/protocols.md`).
//! - [`report`] saves test results and renders `docs/proof.md` from them.
//! - [`harness`] starts the real binary, injects faults, and reads its state (`tests/it`).
//! - [`world`] simulates the real engine in a seeded environment (`mailonce-worlds`, `tests/worlds`).
//! - [`sink`] is a next hop that accepts mail and injects faults on command (`mailonce-sink`, `tests/smtp`,
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
