//! Integration tests of composing: any input gives a well-formed mail, and Python parses what we wrote.

#[cfg(test)]
mod letters;
#[cfg(test)]
mod others;
#[cfg(test)]
mod properties;
#[cfg(test)]
#[path = "../python/mod.rs"]
mod python;
