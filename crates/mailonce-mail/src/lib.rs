//! Hostile bytes to values and back: composing mail, signing it, reading it, and the addresses that bounces come
//! back to.
//!
//! Pure, like the core: no IO, no clock, no chance. The same input gives the same bytes at every call and on every
//! machine, because a mail that is handed over again must be the same mail.
//!
//! Mail that goes out:
//!
//! | module | what is in it |
//! |---|---|
//! | [`compose`] | a mail's content as RFC 5322 bytes |
//! | [`dkim`] | keys, their DNS records, and signatures |
//! | [`hook`] | what mail providers tell us, proven and read |
//! | [`return_path`] | the address and the envelope id that name a handoff and an attempt |
//!
//! Mail that comes in. Nothing in it is followed, fetched or obeyed, and everything has a limit:
//!
//! | module | what is in it |
//! |---|---|
//! | [`parse`] | bytes as values, and the digest of what a mail says |
//! | [`html`] | what a reader of HTML sees, and what was hidden |
//! | [`link`] | every link with a verdict |
//! | [`artifact`] | codes and links that an agent waits for |
//! | [`minimise`] | the view that a model is shown |
//! | [`thread`] | which thread a mail belongs to |
//! | [`automatic`] | why a machine must not answer |
//! | [`bounce`] | what became of our own mail |
//! | [`glyph`] | single characters |

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
pub mod return_path;
mod string_enum;
pub mod thread;
pub mod unicode;
