//! Official SDKs of other services, unmodified and at pinned versions, against the real binary.
//!
//! Each script calls every method of its SDK and reports what worked and what was refused. The table in
//! `docs/dialects.md` must say the same.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed, and the message says why")]
#![expect(clippy::panic, reason = "a helper fails its test when it finds something unexpected")]

#[expect(dead_code, reason = "the tests of the command line use more of it")]
#[path = "../it/binary.rs"]
mod binary;
#[expect(dead_code, reason = "the tests of the API use more of it")]
#[path = "../it/call.rs"]
mod call;
mod crate_sdk;
#[path = "../it/database.rs"]
mod database;
mod honest;
mod legacy;
mod managing;
#[path = "../it/packages.rs"]
mod packages;
mod prove;
mod repeats;
mod sdks;
#[expect(dead_code, reason = "the tests of MCP use more of it")]
#[path = "../mcp/sink.rs"]
mod sink;
mod table;
mod together;
mod wire;
#[expect(dead_code, reason = "the tests of the API use more of it")]
#[path = "../it/world.rs"]
mod world;
