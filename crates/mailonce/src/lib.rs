//! The one binary, as a library so that its tests can drive it without a socket.
//!
//! The only room that listens: [`api`] translates HTTP to the engine's verbs and back, `dialects` does so in the words
//! of other services, [`mcp`] gives models their tools, [`intake`] lets mail in, [`cli`] is the command line, [`serve`]
//! wires the rooms together [`config`] reads what an operator wants, and
//! [`secrets`] reads the key that encrypts the ledger's secrets.

pub mod api;
mod arrival_rate;
mod byte_budget;
pub mod cli;
pub mod client_address;
pub mod config;
mod connection_threads;
mod dialects;
pub mod engine_deps;
mod entropy;
pub mod http;
pub mod intake;
pub mod mcp;
pub mod secrets;
pub mod tls;
mod wall_clock;
pub mod wiring;
mod write_timeout;
