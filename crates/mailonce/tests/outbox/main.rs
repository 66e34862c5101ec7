//! The SQL outbox, with the real binary and a real PostgreSQL as the user's database. Needs `MAILONCE_TEST_POSTGRES`; the
//! tests that kill or suspend a drainer need the feature `failpoints`.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed, and the message says why")]
#![expect(clippy::panic, reason = "a helper fails its test when it finds something unexpected")]

mod campaign;
mod claims;
mod cluster;
#[path = "../it/fixtures/database.rs"]
mod database;
mod dead_letters;
mod drain;
#[cfg(feature = "failpoints")]
mod interrupted;
mod rig;
mod router_table;
mod schema;
#[path = "../mcp/sink.rs"]
mod sink;
mod stalled_reader;
mod upgrade;
