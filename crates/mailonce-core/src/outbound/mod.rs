//! Sending: the content of an email, its digest and schedule, the content guard, and the accepted email.
//!
//! | module | what it holds |
//! |---|---|
//! | [`content`], [`schedule`] | what a caller sends, validated, and when |
//! | [`digest`] | the digest by which two sends are compared |
//! | [`accept`], [`accept_decision`] | a new email, and what it is under its key: first, replay, mismatch, overlap |
//! | [`content_guard`] | whether two emails say nearly the same |
//! | [`template`] | stored wording, and the template that an email is written with |
//! | [`holds`] | the guards that hold an email |
//! | [`policy_trace`] | what every check decided about an email, in order |
//! | [`email`], [`email_commands`] | an accepted email, and what callers may do with it |
//! | [`email_query`], [`key_binding`], [`suppressed_call`] | what readers see: lists, keys, calls that were answered with an earlier email |

pub mod accept;
pub mod accept_decision;
pub mod content;
pub mod content_guard;
pub mod digest;
pub mod email;
pub mod email_commands;
pub mod email_query;
pub mod holds;
pub mod key_binding;
#[cfg(feature = "failpoints")]
mod mutants;
pub mod policy_trace;
pub mod schedule;
pub mod suppressed_call;
pub mod template;
pub mod test_recipient;
