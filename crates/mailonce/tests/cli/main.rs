//! The command line from outside: what every verb prints for people and for machines, with its exit code, and what it
//! promises beyond that. The real binary against a real server.
//!
//! `MAILONCE_BLESS=1` writes the snapshots anew; look at what changed before you commit it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed, and says why")]
#![expect(clippy::panic, reason = "a helper that finds what it must not find fails its test")]

#[expect(dead_code, reason = "shared with the other tests of the command line, which need more of it")]
#[path = "../it/binary.rs"]
mod binary;
mod copies;
mod doctor;
mod errors;
mod minute;
mod plain;
mod snapshot_recorder;
mod storm;
mod terminal;
mod verbs;
