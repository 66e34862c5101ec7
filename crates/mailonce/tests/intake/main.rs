//! Black-box tests of the SMTP listener: over sockets and pipes, with third-party clients, and a receiver that records
//! every byte.
//!
//! `third_party_clients` needs python3, swaks and Postfix; `scripts/test` installs them.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed, and the message says why")]
#![expect(clippy::panic, reason = "a helper fails its test when it finds something unexpected")]

mod attacks;
#[expect(dead_code, reason = "the tests of the command line use more of it")]
#[path = "../it/fixtures/binary.rs"]
mod binary;
mod connection_limits;
mod fixtures;
mod ledger;
mod limits;
mod third_party_clients;
mod timeouts;
mod tls;
