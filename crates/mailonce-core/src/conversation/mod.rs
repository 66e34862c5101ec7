//! Conversations: one answer per message, one agent per thread, no loops.
//!
//! | file | what it holds |
//! |---|---|
//! | [`thread`] | messages and emails that answer each other, and who may work on them |
//! | [`turn`] | whose turn a message is: answered, offered, put off |
//! | [`answer`] | the guards that a reply or a forward passes inside the accept transaction |
//! | [`caps`] | how many answers are too many |
//! | [`likeness`] | when two mails say the same |
//! | [`escalation`] | questions for a person |
//!
//! Engines load a [`answer::Ground`], let these rules decide, and write what came of it, so that all decide alike.

pub mod caps;
pub mod escalation;
pub mod message_progress;
pub mod reply_guards;
pub mod thread;
