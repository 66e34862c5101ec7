//! MCP from outside: the real binary, the official clients over both transports, models that misbehave, and mail that
//! gives orders. A sink of our own counts what really left.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed, and says why")]
#![expect(clippy::panic, reason = "a helper that finds what it must not find fails its test")]

#[expect(dead_code, reason = "shared with the tests of the command line, which need more of it")]
#[path = "../it/binary.rs"]
mod binary;
mod clients;
#[path = "../it/database.rs"]
mod database;
mod injection;
mod install;
mod model;
mod nodes;
#[path = "../it/packages.rs"]
mod packages;
mod protocol;
mod sink;
mod tied_keys;
mod tools;
mod town;
