//! Receiving mail: deliveries, parsing, filing.

pub(crate) mod bounces;
pub mod collect;
pub(crate) mod hook_mail;
pub mod hooks;
pub mod local;
pub(crate) mod loop_guard;
pub(crate) mod poll;
pub(crate) mod poll_cursor;
pub mod receive;
pub(crate) mod waiters;
pub(crate) mod worker;
