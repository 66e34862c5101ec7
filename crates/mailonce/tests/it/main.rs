//! Black-box tests of the HTTP API and the command line: requests, responses, and what the ledger holds afterwards.
//!
//! API tests drive the router without a socket, over the memory and the SQLite store. The basic tests and the storm
//! also run over PostgreSQL and need `MAILONCE_TEST_POSTGRES`. Tests of the command line start the real binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]
#![expect(clippy::expect_used, reason = "a test that cannot continue has failed, and the message says why")]
#![expect(clippy::panic, reason = "a helper fails its test when it finds something unexpected")]

/// Runs each test over the memory and the SQLite store.
macro_rules! over_memory_and_sqlite {
    ($($(#[$about:meta])* async fn $name:ident($world:ident) $body:block)+) => {
        $($(#[$about])* async fn $name($world: $crate::world::World) $body)+

        mod memory {
            $(#[tokio::test]
            async fn $name() {
                Box::pin(super::$name($crate::world::World::memory().await)).await;
            })+
        }

        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                Box::pin(super::$name($crate::world::World::sqlite().await)).await;
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
                Box::pin(super::$name($crate::world::World::postgres().await)).await;
            })+
        }
    };
}

mod access;
mod approval_emails;
mod approvals;
mod audit;
mod bad_input;
mod bad_lines;
mod batch;
mod batch_faults;
mod binary;
mod budgets;
mod call;
mod change;
mod claims;
mod cli_admin;
mod cli_run;
mod cli_send;
mod cli_talk;
mod cli_tls;
mod collect;
mod content_guard;
mod database;
mod declared;
mod document;
mod document_properties;
mod domains;
mod dropped;
mod endpoints;
mod erasure;
mod escalations;
mod events;
mod figures;
mod forged;
mod forgetting;
mod gone_inboxes;
mod identical;
mod inbound;
mod inboxes;
mod kek;
mod keys;
mod large_bodies;
mod leases;
mod link_secrecy;
mod listener_checks;
mod listener_tls;
mod looking;
mod loops;
mod marks;
mod meaning;
mod mismatch;
mod notices;
mod notification_targets;
mod oauth;
mod oidc;
mod once;
mod operations;
mod orphans;
mod overlap;
mod packages;
mod panics;
mod people;
mod policy;
mod policy_trace;
mod poll;
mod prove;
mod prove_fake;
mod provider_fake;
mod receiver;
mod replies;
mod resend;
mod revoked_keys;
mod rules;
mod search;
mod send;
mod sources;
mod sources_mail;
mod sources_odd;
mod sources_ses;
mod stats;
mod stops;
mod storm;
mod stream;
mod suppressions;
mod talk;
mod templates;
mod tenants;
mod tied_keys;
mod tls_client;
mod unsubscribe;
mod upkeep;
mod vectors;
mod verifiers;
mod views;
mod wired;
mod world;
