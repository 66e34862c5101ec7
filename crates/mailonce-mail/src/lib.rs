//! Hostile bytes to values and back: composing mail, parsing it, threading it, finding codes and links in it.
//!
//! Pure, like the core: no IO, no clock, a limit on everything. It is empty until mail leaves and arrives.

pub mod hook;
