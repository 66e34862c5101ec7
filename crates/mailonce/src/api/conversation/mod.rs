//! Threads, replies and questions for people.

pub(crate) mod approval_page;
pub(crate) mod escalations;
pub(crate) mod notification_targets;
pub(crate) mod replies;
pub(crate) mod threads;
pub(crate) mod work_queue;
