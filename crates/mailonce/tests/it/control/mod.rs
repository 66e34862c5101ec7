//! What operators control: budgets, rules, stops, suppressions, the audit log and erasure.

mod audit;
mod budgets;
mod erased_claims;
mod erased_texts;
mod erasure_journal;
#[cfg(feature = "failpoints")]
mod erasure_kills;
mod erasures;
mod inbox_retention;
mod policy_trace;
mod retries_after_policy_changes;
mod rules;
mod stops;
mod suppressions;
mod unsubscribe;
