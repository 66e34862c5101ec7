//! Threads, replies and questions for people.

pub(crate) mod decisions;
pub(crate) mod diff;
pub mod escalations;
pub mod next;
pub mod preview;
pub(crate) mod questions;
pub(crate) mod quote;
pub mod reply;
pub mod threads;
