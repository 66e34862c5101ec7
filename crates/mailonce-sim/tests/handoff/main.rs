//! Hand-off: the real engine and the real binary against faulty next hops, and workers that crash, pause or lose their
//! clock.
//!
//! | file | what it shows |
//! |---|---|
//! | `fault_matrix` | each next hop, each fault, each policy: the number of mails, and the reported state |
//! | `unknown_outcomes` | repeats that are refused; unknown outcomes stay at their transport |
//! | `replies` | many agents, one reply per message and one agent per thread, on one node and on two |
//! | `misbehaving_transports` | misbehaving transports: bytes stay frozen, silence is unknown |
//! | `breaker` | events when a circuit breaker opens and closes |
//! | `cancels` | cancels against dispatch |
//! | `clock_jumps` | clocks that jump by hours and years |
//! | `kills` | the real binary is killed where there is no failpoint |
//! | `paused_node` | one of two nodes pauses until the provider forgot the key, and the other takes over |
//! | `clock_skew` | two nodes on one PostgreSQL whose clocks are up to two days apart, with kills |
//! | `long_queue` | a long queue after a kill, and one slow domain in it |
//! | `paused_worker` | a worker that pauses between marker and send until the provider forgot the key |
//!
//! Tests of the real binary need it built with `--features failpoints`, and `paused_node` a PostgreSQL
//! (`scripts/services`). Crashes at failpoints are in `tests/crash`.
//!
//! `engine_fixture` is an engine with a manual clock, `next_hop` a next hop with its transport.

#[cfg(test)]
mod binary_fixtures;
#[cfg(test)]
mod breaker;
#[cfg(test)]
mod cancels;
#[cfg(test)]
mod clock_jumps;
#[cfg(test)]
mod clock_skew;
#[cfg(test)]
mod engine_fixture;
#[cfg(test)]
mod fault_matrix;
#[cfg(test)]
mod hop_faults;
#[cfg(test)]
mod kills;
#[cfg(test)]
mod long_queue;
#[cfg(test)]
mod misbehaving_transports;
#[cfg(test)]
mod next_hop;
#[cfg(test)]
mod paused_node;
#[cfg(test)]
mod paused_worker;
#[cfg(test)]
mod replies;
#[cfg(test)]
mod unknown_outcomes;
