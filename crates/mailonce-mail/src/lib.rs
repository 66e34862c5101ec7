//! Hostile bytes to values and back: composing mail, signing it, and the addresses that bounces come back to.
//!
//! Pure, like the core: no IO, no clock, no chance. The same input gives the same bytes at every call and on every
//! machine, because a mail that is handed over again must be the same mail.
//!
//! | module | what is in it |
//! |---|---|
//! | [`compose`] | a mail's content as RFC 5322 bytes |
//! | [`dkim`] | keys, their DNS records, and signatures |
//! | [`hook`] | what mail providers tell us, proven and read |
//! | [`return_path`] | the address and the envelope id that name a handoff and an attempt |

pub mod artifact;
pub mod automatic;
pub mod bounce;
pub mod compose;
pub mod dkim;
pub mod glyph;
pub mod hook;
pub mod html;
pub mod link;
pub mod minimise;
pub mod parse;
pub mod return_path;
pub mod thread;
mod words;
