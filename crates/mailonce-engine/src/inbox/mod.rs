//! Inboxes and what agents read from them.

pub mod artifacts;
pub mod inboxes;
pub mod labels;
pub mod links;
pub mod mailbox_reader;
pub mod messages;
pub(crate) mod parties;
pub mod team_messages;
pub mod wait;
