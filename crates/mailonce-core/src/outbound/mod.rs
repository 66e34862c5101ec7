//! Sending: accepting emails under idempotency keys.

pub mod content;
pub mod content_guard;
pub mod digest;
pub mod email;
pub mod schedule;
