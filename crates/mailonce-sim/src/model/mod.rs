//! A model checker for the hand-off: explores every order of events of a small system.
//!
//! A test runs some orders of events, a campaign many, a model all of them. The model covers a handoff from lease to
//! outcome: workers that stop, crash and return at any moment, a next hop that replies late or never, a durable ledger,
//! and time that passes at the worst moments.
//!
//! The model has no second copy of the rules. An action calls the same core functions as the stores:
//! `Email::apply_action`, `Email::lease_handoff`, `Email::cancel` and `handoff::unknown::next_recovery_action`. Only
//! the order of a worker's steps is the model's own.
//!
//! | file | what it holds |
//! |---|---|
//! | [`config`] | the size of the system, and deliberate bugs in it |
//! | [`packed_handoff`] | a handoff of the ledger in a few bytes |
//! | [`state`] | a state of the system: ledger, workers, next hop, time |
//! | [`actions`] | what may happen next |
//! | [`action_runner`] | the effect of an action |
//! | [`route_coverage`] | routes that must occur at least once |
//! | [`properties`] | what must hold in every state |
//! | [`run`] | runs the checker and summarizes the result |
//!
//! The models of protocols that fail are in [`crate::protocol`].

pub mod action_runner;
pub mod actions;
pub mod config;
pub mod packed_handoff;
pub mod properties;
pub mod route_coverage;
pub mod run;
pub mod state;
