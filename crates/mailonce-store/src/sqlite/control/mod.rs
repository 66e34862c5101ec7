//! Control: what a team limits.

pub(super) mod budget;
