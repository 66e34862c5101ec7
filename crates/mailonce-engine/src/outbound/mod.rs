//! Sending: accepting emails under idempotency keys.

pub mod change;
pub(crate) mod content_guard;
pub mod draft_turns;
pub mod drafts;
pub mod keys;
pub mod look;
pub(crate) mod seen;
pub mod send;
pub(crate) mod suppressed;
pub mod view;
