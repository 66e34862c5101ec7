//! Threads, replies and questions for people.

pub(crate) mod escalations;
pub(crate) mod next;
pub(crate) mod replies;
pub(crate) mod threads;
