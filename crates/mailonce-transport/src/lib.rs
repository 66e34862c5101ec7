//! The only room that dials out: SMTP, providers, and webhooks to applications.
//!
//! | module | what is in it |
//! |---|---|
//! | [`dial`] | opening a connection, with TLS and a guard on the address |
//! | [`guard`] | which addresses may be dialled on a tenant's word |
//! | [`smtp`] | any relay, by a client that keeps the final dot apart |
//! | [`http`] | providers, each in its own words, one request on one fresh connection |
//! | [`collect`] | mail that providers hold, listed and fetched |
//! | [`webhook`] | notices to applications |
//! | [`names`] | the domain name system, as far as TXT records go |
//! | [`authenticate`] | whether a mail's sender is who it says |
//! | [`sandbox`] | addresses that misbehave on purpose; it dials nobody |

pub mod authenticate;
mod boot_instant;
pub mod collect;
pub mod dial;
pub mod egress;
pub mod fetch;
pub mod http;
mod http_exchange;
pub mod names;
pub mod sandbox;
pub mod smtp;
pub mod webhook;
