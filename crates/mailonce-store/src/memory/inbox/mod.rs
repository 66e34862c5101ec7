//! Inboxes and what agents read from them.

pub(crate) mod artifact;
pub(crate) mod inbox;
