//! A short run of every parser of outside bytes, and tests that failures are noticed.
//!
//! `MAILONCE_FUZZ_SECONDS` sets the time for each parser, `MAILONCE_SEED` the seed.

#[cfg(test)]
mod failure_detection;
#[cfg(test)]
mod smoke;
