//! Rigs over the real binary: start it, load it, hurt it, and judge it by its public API alone.
//!
//! - [`campaign`] kills the server under load again and again, on the same data.
//! - [`fault`] makes its disk full or its fsync fail.
//! - [`power`] takes back what was written and not synced, as a power cut does.
//! - [`cluster`] is a PostgreSQL that can be stopped in the middle of work, [`proxy`] a network to it that can be cut.
//! - [`replicas`] is a primary with a synchronous standby that can be cut off, promoted and rebuilt.
//! - [`post`] is a server that hands its mail to sinks, with the mails it was given.
//! - [`history`] is what the rig was told, [`ledger`] what the server shows; [`crate::proof`] judges both.
//!
//! What is sent is a pure function of a seed, so that one line replays a failure.

pub mod child_processes;
pub mod disk_faults;
pub mod generated_send;
pub mod http;
pub mod kill_campaign;
pub mod ledger_snapshot;
pub mod postgres;
pub mod postgres_cluster;
pub mod power_cut;
pub mod proxy;
pub mod recorded_load;
pub mod replicated_postgres;
pub mod rng;
pub mod send_history;
pub mod server;
pub mod server_fixture;
pub mod summary_writer;
