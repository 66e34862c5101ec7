//! Black-box tests of MCP: the real binary, the official clients over both transports, misbehaving models, and prompt
//! injection by mail. An SMTP sink counts the mails that were really sent.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed, and the message says why")]
#![expect(clippy::panic, reason = "a helper fails its test when it finds something unexpected")]

#[expect(dead_code, reason = "shared with the tests of the command line, which use more of it")]
#[path = "../it/fixtures/binary.rs"]
mod binary;
mod clients;
mod cors;
#[path = "../it/fixtures/database.rs"]
mod database;
mod fixtures;
mod injection;
mod install;
mod model;
mod nodes;
mod oauth;
#[path = "../it/fixtures/packages.rs"]
mod packages;
mod progress;
mod protocol;
mod sink;
mod tied_keys;
mod tools;
