//! Threads, replies and questions for people.

pub(crate) mod decisions;
pub(crate) mod diff;
pub(crate) mod escalation_worker;
pub mod escalations;
pub mod preview;
pub(crate) mod quote;
pub mod reply;
pub mod threads;
pub(crate) mod word_diff;
pub mod work_queue;
