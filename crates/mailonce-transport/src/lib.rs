//! The only room that dials out: SMTP, providers, and webhooks to applications.
//!
//! It is empty until mail leaves the machine. The sandbox lives in the ledger's own commit and dials nobody.

pub mod dial;
pub mod fetch;
pub mod names;
pub mod sandbox;
pub mod smtp;
