//! Inboxes and what agents read from them.

mod artifact;
mod inbox;
mod message;
mod watch;
