//! The mailonce binary as a library, so that tests can call it without a socket.
//!
//! This is the only crate that listens, in [`server`]. [`http`] holds what all handlers share. [`api`] translates HTTP requests to calls of the engine and back, `dialects`
//! does the same in the formats of other services, and [`mcp`] offers tools to models. [`intake`] receives mail by
//! SMTP, [`oidc`] lets people sign in by an identity provider, and [`cli`] is the command line. [`wiring`] builds the engine and starts everything, [`config`] reads the
//! configuration, and [`secrets`] reads the key that encrypts the ledger's secrets.

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
mod erasure_journal;
pub mod http;
pub mod intake;
pub mod mcp;
pub mod oidc;
mod private_file;
pub mod secrets;
pub mod server;
pub mod tls;
mod typed_errors;
mod wall_clock;
pub mod wiring;
mod write_timeout;
