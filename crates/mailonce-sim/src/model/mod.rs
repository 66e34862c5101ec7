//! Models: every order of events that a small world can have, played to the end.
//!
//! A test plays some orders, a campaign many, a model all of them. What is modelled is the part that must never be
//! wrong, the way of a handoff from lease to settled, among workers that stop, die and come back at any moment, a
//! next hop that answers late, falsely silent or not at all, a ledger that keeps what it committed, and time that
//! passes whenever it hurts.
//!
//! The model has no second copy of the rules. An action calls the same core functions as the stores:
//! `Email::apply_action`, `Email::lease_handoff`, `Email::cancel` and `handoff::unknown::next_recovery_action`. Only the
//! order in which a worker proceeds is the model's own.
//!
//! | file | what it holds |
//! |---|---|
//! | [`size`] | how large a world is, and what is wrong with it on purpose |
//! | [`row`] | one handoff of the ledger in a few bytes |
//! | [`world`] | a whole world at one moment: ledger, workers, next hop, time |
//! | [`moves`] | what may happen next |
//! | [`play`] | what comes of a move |
//! | [`routes`] | ways through the world that must be walked at least once |
//! | [`laws`] | what must hold in every world |
//! | [`run`] | a world played to the end, and the summary of it |
//!
//! The models of protocols that do not hold are in [`crate::protocol`].

pub mod action_runner;
pub mod actions;
pub mod config;
pub mod packed_handoff;
pub mod properties;
pub mod route_coverage;
pub mod run;
pub mod state;
