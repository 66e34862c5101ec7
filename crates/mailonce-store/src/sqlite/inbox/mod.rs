//! Inboxes and what agents read from them.

pub(crate) mod artifact;
pub(crate) mod inbox;
pub(crate) mod message;
pub(crate) mod watch;
