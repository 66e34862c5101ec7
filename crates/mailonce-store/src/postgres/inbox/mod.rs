//! Inboxes and what agents read from them.

pub(crate) mod artifacts;
pub(crate) mod inboxes;
pub(crate) mod messages;
pub(crate) mod watches;
