//! Sending: accepting emails under idempotency keys.

pub(crate) mod content_guard;
pub mod draft_send_cycles;
pub mod drafts;
pub mod email_commands;
pub mod idempotency_keys;
pub mod queries;
pub(crate) mod replay_cache;
pub mod send;
pub mod send_receipt;
pub(crate) mod suppressed_calls;
