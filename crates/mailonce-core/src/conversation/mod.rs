//! Conversations: one reply per message, one agent per thread, no loops.
//!
//! | module | what it holds |
//! |---|---|
//! | [`thread`] | the messages and emails of a thread, and the lease by which one agent works on it |
//! | [`message_progress`] | the progress of a message between agents: answered, offered, postponed |
//! | [`reply_guards`] | the guards that a reply or a forward passes inside the accept transaction |
//! | [`caps`] | limits on the number of replies |
//! | [`escalation`], [`approval_link`] | questions for a person, and links to decide them |
//! | [`quiet_hours`] | when nobody is told of questions |
//!
//! Stores load a [`reply_guards::ReplyContext`], apply these rules, and save the result. So every store makes the same
//! decisions.

pub mod approval_link;
pub mod caps;
pub mod escalation;
pub mod message_progress;
#[cfg(feature = "failpoints")]
mod mutants;
pub mod quiet_hours;
pub mod reply_guards;
pub mod thread;
