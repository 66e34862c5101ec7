//! The only crate that opens outbound connections: SMTP relays, HTTP providers, and webhooks to applications.
//!
//! | module | what is in it |
//! |---|---|
//! | [`dial`] | opening TCP and TLS connections, with a filter on the address |
//! | [`egress`] | which URLs and addresses a tenant may have dialled |
//! | [`smtp`] | any SMTP relay; the client sends the final dot as a separate step |
//! | [`http`] | HTTP providers, each with its own API; one request on one fresh connection |
//! | [`collect`] | lists and fetches received mail that a provider stores |
//! | [`fetch`] | GET requests to an allowlist of hosts |
//! | [`identity_provider`] | calls to the identity provider by which people sign in |
//! | [`webhook`] | signed webhooks to applications |
//! | [`dns`] | a DNS resolver for TXT and MX records |
//! | [`authenticate`] | SPF, DKIM and DMARC checks of received mail |
//! | [`sandbox`] | test addresses that fail on purpose, without any network |

pub mod authenticate;
mod boot_instant;
pub mod collect;
pub mod dial;
pub mod dns;
pub mod egress;
pub mod fetch;
pub mod http;
mod http_exchange;
pub mod identity_provider;
pub mod sandbox;
pub mod smtp;
pub mod webhook;
