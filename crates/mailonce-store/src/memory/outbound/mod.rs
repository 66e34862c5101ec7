//! Sending: accepting emails under idempotency keys.

pub(crate) mod accept;
pub(crate) mod email_commands;
pub(crate) mod queries;
pub(crate) mod tables;
pub(crate) mod templates;
