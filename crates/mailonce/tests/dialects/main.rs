//! Official SDKs of other services, unmodified and at pinned versions, against the real binary.
//!
//! Each script calls every method of its SDK and reports what worked and what was refused. The table in
//! `docs/dialects.md` must say the same.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed, and the message says why")]
#![expect(clippy::panic, reason = "a helper fails its test when it finds something unexpected")]

mod administration;
#[expect(dead_code, reason = "the tests of the API use more of it")]
#[path = "../it/fixtures/api_fixture.rs"]
mod api_fixture;
#[expect(dead_code, reason = "the tests of the command line use more of it")]
#[path = "../it/fixtures/binary.rs"]
mod binary;
mod crate_sdk;
#[path = "../it/fixtures/database.rs"]
mod database;
mod legacy;
#[path = "../it/fixtures/packages.rs"]
mod packages;
mod prove;
mod repeats;
#[expect(dead_code, reason = "the tests of the API use more of it")]
#[path = "../it/fixtures/requests.rs"]
mod requests;
mod retries_after_changes;
mod sdks;
mod shared_keys;
#[expect(dead_code, reason = "the tests of MCP use more of it")]
#[path = "../mcp/sink.rs"]
mod sink;
mod table;
mod wire;
