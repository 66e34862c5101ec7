//! The hand-off keeps its promise: the real engine, and the real binary, against next hops that misbehave and
//! workers that die, sleep or lose their clock.
//!
//! | file | what it shows |
//! |---|---|
//! | `matrix` | each next hop, each fault, each policy: how many mails, and what the email says of itself |
//! | `doubts` | a repeat that is refused, and what is in doubt stays where it is |
//! | `clocks` | clocks that jump by hours and years |
//! | `paused` | a worker that sleeps between the marker and the wire until the provider forgot |
//!
//! `world` is an engine with a clock moved by hand, `hop` a next hop with the transport to it.

#[cfg(test)]
mod clocks;
#[cfg(test)]
mod doubts;
#[cfg(test)]
mod fault;
#[cfg(test)]
mod hop;
#[cfg(test)]
mod matrix;
#[cfg(test)]
mod paused;
#[cfg(test)]
mod world;
