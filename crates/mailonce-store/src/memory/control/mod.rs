//! Control: budgets and records of a team.

pub(crate) mod budgets;
pub(crate) mod records;
