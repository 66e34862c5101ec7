//! Hand-off: the real engine and the real binary against faulty next hops, and workers that crash, pause or lose their
//! clock.
//!
//! | file | what it shows |
//! |---|---|
//! | `matrix` | each next hop, each fault, each policy: the number of mails, and the reported state |
//! | `doubts` | repeats that are refused; unknown outcomes stay at their transport |
//! | `answers` | many agents, one reply per message and one agent per thread, on one node and on two |
//! | `bent` | misbehaving transports: bytes stay frozen, silence is unknown |
//! | `breaker` | events when a circuit breaker opens and closes |
//! | `cancels` | cancels against dispatch |
//! | `clocks` | clocks that jump by hours and years |
//! | `kills` | the real binary is killed where there is no failpoint |
//! | `nodes` | one of two nodes pauses until the provider forgot the key, and the other takes over |
//! | `skew` | two nodes on one PostgreSQL whose clocks are up to two days apart, with kills |
//! | `queue` | a long queue after a kill, and one slow domain in it |
//! | `paused` | a worker that pauses between marker and send until the provider forgot the key |
//!
//! Tests of the real binary need it built with `--features failpoints`, and `nodes` a PostgreSQL
//! (`scripts/services`). Crashes at failpoints are in `tests/crash`.
//!
//! `world` is an engine with a manual clock, `hop` a next hop with its transport.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod bent;
#[cfg(test)]
mod breaker;
#[cfg(test)]
mod cancels;
#[cfg(test)]
mod clocks;
#[cfg(test)]
mod doubts;
#[cfg(test)]
mod fault;
#[cfg(test)]
mod hop;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod paused;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod skew;
#[cfg(test)]
mod world;
