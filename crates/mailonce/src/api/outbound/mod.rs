//! Sending: accepting emails under idempotency keys.

pub(crate) mod detail;
pub(crate) mod emails;
pub(crate) mod keys;
