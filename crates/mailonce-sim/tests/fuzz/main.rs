//! A short run of every reader of outside bytes, and the proof that the run would notice.
//!
//! `MAILONCE_FUZZ_SECONDS` drives each reader for longer, `MAILONCE_SEED` names the numbers.

#[cfg(test)]
mod noticed;
#[cfg(test)]
mod smoke;
