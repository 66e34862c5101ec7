//! Inboxes and what agents read from them.

pub mod artifacts;
pub mod inboxes;
pub mod labels;
pub mod links;
pub mod mailbox;
pub mod messages;
pub mod received;
pub mod wait;
