//! Received mail, before it is a message: deliveries and their filing.
//!
//! | module | what it holds |
//! |---|---|
//! | [`delivery`] | a received mail, its states, and why one made no message |
//! | [`filing`] | filing a delivery: its message, thread and artifacts |
//! | [`provider_mail`] | mail that a provider keeps until it is fetched |
//! | [`sender_auth`] | whether the sender of a mail is authenticated |
//! | [`wake_up`] | what a store tells waiting callers after a commit |

pub mod delivery;
pub mod filing;
#[cfg(feature = "failpoints")]
mod mutants;
pub mod provider_mail;
pub mod sender_auth;
pub mod wake_up;
