//! Development only: what drives the real binary from outside and judges it.
//!
//! - [`load`] is the load generator of the benches (`scripts/bench`, binary `mailonce-bench`) and of the rigs.
//! - [`rig`] starts the real binary, hurts it, and judges what it kept (`tests/it`).

pub mod load;
pub mod rig;
