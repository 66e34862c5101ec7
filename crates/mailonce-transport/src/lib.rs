//! The only room that dials out: SMTP, providers, and webhooks to applications.
//!
//! | module | what is in it |
//! |---|---|
//! | [`dial`] | opening a connection, with TLS and a guard on the address |
//! | [`guard`] | which addresses may be dialled on a tenant's word |
//! | [`smtp`] | any relay, by a client that keeps the final dot apart |
//! | [`http`] | providers, each in its own words, one request on one fresh connection |
//! | [`webhook`] | notices to applications |
//! | [`sandbox`] | addresses that misbehave on purpose; it dials nobody |

pub mod dial;
mod exchange;
pub mod fetch;
pub mod guard;
pub mod http;
pub mod names;
pub mod sandbox;
pub mod smtp;
pub mod webhook;
