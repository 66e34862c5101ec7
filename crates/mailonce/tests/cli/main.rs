//! The command line as the real binary against a real server: the output of every verb for people and for machines with
//! its exit code, and tests of single verbs.
//!
//! `MAILONCE_BLESS=1` rewrites the snapshots; review the difference before you commit it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed, and says why")]
#![expect(clippy::panic, reason = "a helper that finds what it must not find fails its test")]

mod backup;
#[expect(dead_code, reason = "shared with the other tests of the command line, which need more of it")]
#[path = "../it/fixtures/binary.rs"]
mod binary;
mod doctor;
mod errors;
mod readme_commands;
mod redactor;
mod snapshot_recorder;
mod storm;
mod terminal;
mod verbs;
