//! Sending: accepting emails under idempotency keys.

pub(crate) mod accept;
pub(crate) mod accept_batcher;
pub(crate) mod content_guard;
pub(crate) mod email_commands;
pub(crate) mod email_insert;
pub(crate) mod email_lists;
pub(crate) mod queries;
pub(crate) mod recent_content;
mod templates;
