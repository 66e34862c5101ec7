//! Control: what a team limits.
//!
//! | file | what it holds |
//! |---|---|
//! | [`budgets`] | budgets, and what an email counts for in them |
//! | `record_cache` | the rules, lists and budgets of teams, cached |

pub mod budgets;
pub mod lists;
pub(crate) mod outbound_rule_facts;
pub(crate) mod record_cache;
pub mod rules;
pub mod suppressions;
