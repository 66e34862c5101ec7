//! The budget for matching selectors and for the cascade, so that a hostile page costs bounded time.
//!
//! The `selectors` crate cannot abort in the middle of a match. An exhausted budget therefore unwinds to
//! [`within_budget`], and the page counts as undecidable.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
};

/// The budget for matching and the cascade, and whether an undecided pseudo-class was found.
#[derive(Debug)]
pub(in crate::html) struct WorkBudget {
    remaining_steps: Cell<usize>,
    /// Whether undecided pseudo-classes and conditions count as matching.
    pub(in crate::html) assume_match: bool,
    /// Whether an undecided pseudo-class was evaluated.
    pub(in crate::html) met_undecided: Cell<bool>,
    /// Whether a pseudo-class was evaluated that needs a user.
    pub(in crate::html) met_interaction: Cell<bool>,
    /// Whether an attribute was evaluated that Outlook adds.
    pub(in crate::html) met_outlook: Cell<bool>,
    /// Whether an element or a class was evaluated that Gmail adds.
    pub(in crate::html) met_gmail: Cell<bool>,
}

impl WorkBudget {
    pub(in crate::html) fn new(steps: usize, assume: bool) -> Self {
        Self {
            remaining_steps: Cell::new(steps),
            assume_match: assume,
            met_undecided: Cell::new(false),
            met_interaction: Cell::new(false),
            met_outlook: Cell::new(false),
            met_gmail: Cell::new(false),
        }
    }

    /// Spends steps. Unwinds to [`within_budget`] once the budget is exhausted.
    pub(in crate::html) fn spend(&self, steps: usize) {
        match self.remaining_steps.get().checked_sub(steps) {
            Some(left) => self.remaining_steps.set(left),
            None => self.give_up(),
        }
    }

    /// Spends the steps for processing a text.
    pub(in crate::html) fn spend_on_text(&self, text: &str) {
        self.spend(1 + text.len());
    }

    /// Unwinds to [`within_budget`], because a limit was reached and the page cannot be decided.
    pub(in crate::html) fn give_up(&self) -> ! {
        panic::resume_unwind(Box::new(BudgetExhausted))
    }

    pub(in crate::html) fn remaining_steps(&self) -> usize {
        self.remaining_steps.get()
    }
}

/// The panic payload for an exhausted budget.
struct BudgetExhausted;

/// Runs a computation that spends a budget. `None` if the budget is exhausted.
pub(in crate::html) fn within_budget<T>(compute: impl FnOnce() -> T) -> Option<T> {
    match panic::catch_unwind(AssertUnwindSafe(compute)) {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<BudgetExhausted>() => None,
        Err(payload) => panic::resume_unwind(payload),
    }
}
