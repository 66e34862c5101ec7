//! Sending: accepting emails under idempotency keys.

pub(crate) mod accept;
pub(crate) mod change;
pub(crate) mod draft;
pub(crate) mod lanes;
pub(crate) mod likeness;
pub(crate) mod look;
