//! Control: what a team limits.

pub(crate) mod budgets;
pub(crate) mod records;
