//! Control: what a team limits.

pub(crate) mod budget;
pub(crate) mod record;
