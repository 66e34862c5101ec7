//! Sending: accepting emails under idempotency keys.

pub mod content;
pub mod digest;
pub mod email;
pub mod likeness;
pub mod schedule;
