//! Mail that comes in by SMTP, from outside: over sockets and pipes, with clients that nobody here wrote, and a
//! reception that remembers every byte.
//!
//! `foreign` needs python3, swaks and Postfix; `scripts/test` installs them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed, and says why")]
#![expect(clippy::panic, reason = "a helper that finds what it must not find fails its test")]

mod attacks;
#[expect(dead_code, reason = "the tests of the command line need more of it")]
#[path = "../it/binary.rs"]
mod binary;
mod crowds;
mod foreign;
mod ledger;
mod limits;
mod patience;
mod tls;
mod world;
