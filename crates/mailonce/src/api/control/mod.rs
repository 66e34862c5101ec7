//! Rules, lists, budgets and other limits set by people.

pub(crate) mod audit;
pub(crate) mod budgets;
pub(crate) mod erasures;
pub(crate) mod lists;
pub(crate) mod policy;
pub(crate) mod rules;
pub(crate) mod stops;
pub(crate) mod suppressions;
pub(crate) mod unsubscribe;
