//! Official SDKs of other services, unmodified and at pinned versions, against the real binary.
//!
//! Each script calls every method that its dialect covers, for real, and says what worked and what was refused; the
//! table in `docs/dialects.md` must say the same.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed, and says why")]
#![expect(clippy::panic, reason = "a helper that finds what it must not find fails its test")]

#[expect(dead_code, reason = "the tests of the command line need more of it")]
#[path = "../it/binary.rs"]
mod binary;
#[expect(dead_code, reason = "the tests of the API need more of it")]
#[path = "../it/call.rs"]
mod call;
mod crate_sdk;
#[path = "../it/database.rs"]
mod database;
mod honest;
#[path = "../it/packages.rs"]
mod packages;
mod prove;
mod sdks;
mod table;
mod together;
mod wire;
#[expect(dead_code, reason = "the tests of the API need more of it")]
#[path = "../it/world.rs"]
mod world;
