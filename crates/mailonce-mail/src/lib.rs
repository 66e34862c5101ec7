//! Converts between untrusted bytes and typed values: composing, signing and parsing mail, and the return paths that
//! identify bounces.
//!
//! Pure, like the core: no IO, no clock, no randomness. The same input yields the same bytes on every call and every
//! machine, because a mail that is handed off again must be identical.
//!
//! Outbound mail:
//!
//! | module | contents |
//! |---|---|
//! | [`compose`] | a mail's content as RFC 5322 bytes |
//! | [`dkim`] | keys, their DNS records, and signatures |
//! | [`hooks`] | webhooks of mail providers, verified and parsed |
//! | [`template`] | stored wording, filled in with variables |
//! | [`return_path`] | the return path and envelope id that identify a handoff and an attempt |
//!
//! Inbound mail. Nothing in it is followed, fetched or obeyed, and everything has a limit:
//!
//! | module | contents |
//! |---|---|
//! | [`parse`] | parses mail, and computes the digest of its content |
//! | [`html`] | what a reader of HTML sees, and what is hidden |
//! | [`link`] | every link with a verdict |
//! | [`quote`] | splits off quoted mails and signatures |
//! | [`artifact`] | the codes and links that an agent waits for |
//! | [`minimise`] | the view of a mail that is shown to a model |
//! | [`thread`] | which thread a mail belongs to |
//! | [`automatic`] | reasons against an automatic reply |
//! | [`bounce`] | bounces of our own mail |
//! | [`unicode`] | properties of single characters |

pub mod artifact;
pub mod automatic;
pub mod bounce;
pub mod compose;
pub mod dkim;
pub mod hooks;
pub mod html;
pub mod link;
pub mod minimise;
pub mod parse;
pub mod quote;
pub mod return_path;
mod string_enum;
pub mod template;
pub mod thread;
pub mod unicode;
