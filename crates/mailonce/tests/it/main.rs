//! Black-box tests of the HTTP API and the command line: requests, responses, and what the ledger holds afterwards.
//!
//! The folders have the names of the domain folders of `src/api`. Beside them are `cli`, `server`, `runtime`, and
//! `fixtures`, which other test crates of this package use too.
//!
//! API tests drive the router without a socket, over the memory and the SQLite store. The basic tests and the tests of
//! concurrent sends also run over PostgreSQL and need `MAILONCE_TEST_POSTGRES`. Tests of the command line start the
//! real binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed, and the message says why")]
#![expect(clippy::panic, reason = "a helper fails its test when it finds something unexpected")]

/// Runs each test over the memory and the SQLite store.
macro_rules! over_memory_and_sqlite {
    ($($(#[$about:meta])* async fn $name:ident($world:ident) $body:block)+) => {
        $($(#[$about])* async fn $name($world: $crate::fixtures::api_fixture::World) $body)+

        mod memory {
            $(#[tokio::test]
            async fn $name() {
                Box::pin(super::$name($crate::fixtures::api_fixture::World::memory().await)).await;
            })+
        }

        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                Box::pin(super::$name($crate::fixtures::api_fixture::World::sqlite().await)).await;
            })+
        }
    };
}

/// Runs each test over all three stores.
macro_rules! over_every_engine {
    ($($(#[$about:meta])* async fn $name:ident($world:ident) $body:block)+) => {
        over_memory_and_sqlite! { $($(#[$about])* async fn $name($world) $body)+ }

        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                Box::pin(super::$name($crate::fixtures::api_fixture::World::postgres().await)).await;
            })+
        }
    };
}

mod access;
mod claims;
mod cli;
mod control;
mod conversation;
mod events;
mod fixtures;
mod handoff;
mod inbound;
mod inbox;
mod openapi;
mod outbound;
mod runtime;
mod search;
mod server;
