//! Sending: the content of an email, its digest and schedule, the content guard, and the accepted email.

pub mod content;
pub mod content_guard;
pub mod digest;
pub mod email;
pub mod schedule;
