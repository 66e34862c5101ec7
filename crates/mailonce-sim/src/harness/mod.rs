//! Runs the real binary under load and faults, and reads its state through the public API.
//!
//! - [`server`] and [`server_fixture`] start servers; [`child_processes`] owns their processes.
//! - [`disk_faults`] fills or breaks the disk; [`power_cut`] drops and tears unsynced writes.
//! - [`postgres_cluster`] is a PostgreSQL that can be crashed, and [`proxy`] a network to it that can be cut.
//! - [`replicated_postgres`] is a primary with a synchronous standby that can be cut off, promoted and rebuilt.
//! - [`generated_send`], [`recorded_load`] and [`send_history`] send and record load.
//! - [`ledger_snapshot`] reads the resulting ledger through an [`api_reader`]; [`crate::proof`] checks both.
//!
//! All load is a pure function of a seed, so that one command replays a failure.

pub mod api_reader;
pub mod child_processes;
pub mod disk_faults;
pub mod generated_send;
pub mod http;
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
