//! Development only: what drives the real binary from outside and judges it.
//!
//! - [`load`] is the load generator of the benches (`scripts/bench`, binary `mailonce-bench`).

pub mod load;
