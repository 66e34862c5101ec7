//! The crash campaign: drives the shipped binary through its public API, kills or stops it, restarts it, and checks
//! what it kept against the log of a mail sink that is never killed.
//!
//! - [`campaign`] runs rounds in parallel. A [`round`] is one ledger and the crashes at failpoints that it has to survive;
//!   [`kills_under_load`] are kills at random moments under heavy load, with disk faults and power cuts.
//! - [`failpoints`] lists every failpoint and where it can be reached, and [`coverage`] counts what was reached.
//! - [`schedule`] orders the crashes. [`operations`] generates requests from a seed, [`workload`] sends them, and
//!   [`recording_client`] records the history.
//! - [`injected_mail`] generates received mail from a seed. The inbound workload delivers it by SMTP and webhook
//!   ([`inbound_delivery`]), and agents consume its codes.
//! - [`environment`] is what a round runs in: a sink, a store, and one or more servers.
//! - [`report`] saves figures, so that an interrupted campaign can continue.
//! - [`api_snapshot`] reads the final state through the API, and [`verdict`] builds one history and checks it.
//!
//! The binary is `mailonce-crash`; `tests/crash` runs the short form.

pub mod api_snapshot;
pub mod campaign;
pub mod coverage;
pub mod environment;
pub mod failpoints;
mod finish;
pub mod inbound_delivery;
mod inbound_workload;
pub mod inbox_snapshot;
pub mod injected_mail;
pub mod kills_under_load;
pub mod operations;
pub mod recording_client;
pub mod report;
pub mod round;
pub mod schedule;
pub mod verdict;
pub mod workload;
