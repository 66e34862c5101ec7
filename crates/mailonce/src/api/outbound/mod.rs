//! Sending: accepting emails under idempotency keys.

pub(crate) mod email_bodies;
pub(crate) mod email_detail;
pub(crate) mod emails;
pub(crate) mod idempotency_keys;
pub(crate) mod policy_steps;
pub(crate) mod stats;
pub(crate) mod templates;
