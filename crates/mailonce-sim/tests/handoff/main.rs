//! The hand-off keeps its promise: the real engine, and the real binary, against next hops that misbehave and
//! workers that die, sleep or lose their clock.
//!
//! | file | what it shows |
//! |---|---|
//! | `matrix` | each next hop, each fault, each policy: how many mails, and what the email says of itself |
//! | `doubts` | a repeat that is refused, and what is in doubt stays where it is |
//! | `answers` | many agents, one answer per message and one agent per thread, on one node and on two |
//! | `bent` | transports without manners: bytes stay frozen, silence is unknown |
//! | `breaker` | a way that rests is told of, and that it works again |
//! | `cancels` | cancel against dispatch |
//! | `clocks` | clocks that jump by hours and years |
//! | `kills` | the real binary dies where there is no named point |
//! | `nodes` | one of two nodes sleeps until the provider forgot, and the other takes over |
//! | `skew` | two nodes on one PostgreSQL whose clocks are up to two days apart, with kills |
//! | `queue` | a long queue after a kill, and one slow domain in it |
//! | `paused` | a worker that sleeps between the marker and the wire until the provider forgot |
//!
//! The rigs over the real binary need it built with `--features failpoints`, and `nodes` a PostgreSQL
//! (`scripts/services`). Deaths at named points are in `tests/crash`.
//!
//! `world` is an engine with a clock moved by hand, `hop` a next hop with the transport to it.

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
