//! Inboxes and what agents read from them.

mod artifacts;
mod inboxes;
mod messages;
mod watches;
