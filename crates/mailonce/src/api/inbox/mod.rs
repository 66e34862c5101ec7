//! Inboxes and what agents read from them.

pub(crate) mod artifacts;
pub(crate) mod inboxes;
pub(crate) mod message_body;
pub(crate) mod messages;
pub(crate) mod reply_caps;
pub(crate) mod wait;
pub(crate) mod watches;
