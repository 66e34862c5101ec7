//! Replies, threads, escalations, and the links that ask people for a decision.

mod approval_emails;
mod approval_link_secrecy;
mod approval_links;
mod escalations;
mod notification_targets;
mod replies;
mod thread_leases;
