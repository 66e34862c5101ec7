//! Sending: the content of an email, its digest and schedule, the content guard, and the accepted email.

pub mod accept;
pub mod accept_decision;
pub mod content;
pub mod content_guard;
pub mod digest;
pub mod email;
pub mod email_commands;
pub mod email_query;
pub mod key_binding;
#[cfg(feature = "failpoints")]
mod mutants;
pub mod schedule;
pub mod suppressed_call;
