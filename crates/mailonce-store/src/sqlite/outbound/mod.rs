//! Sending: accepting emails under idempotency keys.

pub(crate) mod accept;
pub(crate) mod accept_statements;
pub(crate) mod content_guard;
pub(crate) mod email_commands;
pub(crate) mod email_rows;
pub(crate) mod key_bindings;
pub(crate) mod queries;
mod templates;
