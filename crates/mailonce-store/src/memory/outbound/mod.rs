//! Sending: accepting emails under idempotency keys.

pub(crate) mod accept;
pub(crate) mod queries;
