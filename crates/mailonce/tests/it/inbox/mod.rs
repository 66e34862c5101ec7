//! Inboxes and the views of their messages.

mod inboxes;
mod message_views;
