//! The crash rig: drives the shipped binary by its public API alone, kills or stops it at named points, starts it again,
//! and holds what it says against the log of a sink that is never killed.
//!
//! - [`campaign`] runs rounds side by side; [`round`] is one ledger and the deaths it has to survive.
//! - [`table`] knows every point and where it can be reached; [`board`] counts what was reached.
//! - [`steps`] is the order of deaths; [`deed`] is what is asked, from a seed; [`callers`] do it, and [`client`] keeps
//!   the history.
//! - [`mail`] is what senders bring, from a seed; [`senders`] bring it through both [`door`]s, and agents take codes.
//! - [`world`] is what a round runs in: a sink, a store, and servers one after the other or side by side.
//! - [`report`] leaves figures, so that a campaign which was cut goes on.
//! - [`read`] reads the ledger in the end, and [`judge`] makes one history of everything and has it judged.
//!
//! The binary is `mailonce-crash`; `tests/crash` plays the short form.

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
pub mod operations;
pub mod recording_client;
pub mod report;
pub mod round;
pub mod schedule;
pub mod verdict;
pub mod workload;
