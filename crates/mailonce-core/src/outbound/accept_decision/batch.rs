//! Decides whether the items of a batch are accepted, from the keys of the batch and of its items.

use std::iter::Enumerate;

use crate::{
    control::budget::Overrun,
    id::TeamId,
    key::KeyHash,
    operation::{KeyedOperation, OperationDecision},
    outbound::{
        accept::{BatchAcceptResult, NewEmail},
        digest::Digest,
        key_binding::KeyBinding,
    },
};

/// What the decision needs to know about one item.
#[derive(Clone, Copy, Debug)]
pub struct BatchItem<'a> {
    /// The team that sends it.
    pub team: TeamId,
    /// The hash of its key, if it has one.
    pub key: Option<KeyHash>,
    /// The digest of its meaning.
    pub digest: &'a Digest,
    /// Whether it may differ in its wording from the email that its key is bound to.
    pub first_wins: bool,
}

impl<'a> From<&'a NewEmail> for BatchItem<'a> {
    fn from(item: &'a NewEmail) -> Self {
        Self { team: item.team, key: item.key, digest: &item.digest, first_wins: item.first_wins }
    }
}

/// The fact about a batch that the store loads next, or the decision.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum BatchStep {
    /// Load what the key of an item is bound to. Continue with [`BatchCheck::item_key`].
    LoadItemKey(TeamId, KeyHash),
    /// Load what the key of the batch is bound to. Continue with [`BatchCheck::batch_key`].
    LoadBatchKey(TeamId, KeyHash),
    /// Find the first item that would exceed a budget. Continue with [`BatchCheck::budget`].
    CheckBudgets,
    /// Accept one item after the other. First bind the key of the batch, if `binds_key`.
    Accept {
        /// Whether the key of the batch is free.
        binds_key: bool,
    },
    /// Write nothing, and answer this.
    Refuse(BatchAcceptResult),
}

/// The decision about a batch in progress. A strict batch is refused as a whole if one item must be refused.
#[derive(Debug)]
pub struct BatchCheck<'a, I> {
    items: Enumerate<I>,
    item: Option<(usize, BatchItem<'a>)>,
    operation: Option<&'a KeyedOperation>,
    is_strict: bool,
    binds_key: bool,
}

impl<'a, I: Iterator<Item = BatchItem<'a>>> BatchCheck<'a, I> {
    /// Starts the decision about a batch. `operation` is its own key.
    pub fn start(items: I, operation: Option<&'a KeyedOperation>, is_strict: bool) -> (Self, BatchStep) {
        let mut check = Self { items: items.enumerate(), item: None, operation, is_strict, binds_key: false };
        let step = check.load_next_key();
        (check, step)
    }

    fn load_next_key(&mut self) -> BatchStep {
        self.item = if self.is_strict { self.items.find(|(_, item)| item.key.is_some()) } else { None };
        match (self.item.and_then(|(_, item)| item.key.map(|key| (item.team, key))), self.operation) {
            (Some((team, key)), _) => BatchStep::LoadItemKey(team, key),
            (None, Some(operation)) => BatchStep::LoadBatchKey(operation.team, operation.key),
            (None, None) => self.check_budgets(),
        }
    }

    /// Continues with what the key of the item is bound to.
    pub fn item_key(&mut self, bound: Option<KeyBinding>) -> BatchStep {
        match (self.item, bound) {
            (Some((index, item)), Some(bound)) if bound.mismatches(item.digest, item.first_wins) => {
                BatchStep::Refuse(BatchAcceptResult::ItemKeyMismatch(index, bound))
            }
            _ => self.load_next_key(),
        }
    }

    /// Continues with what the key of the batch is bound to.
    pub fn batch_key(&mut self, bound: Option<KeyBinding>) -> BatchStep {
        match self.operation.map(|operation| operation.decide(bound)) {
            Some(OperationDecision::KeyMismatch(bound)) => {
                BatchStep::Refuse(BatchAcceptResult::BatchKeyMismatch(bound))
            }
            decision => {
                self.binds_key = decision == Some(OperationDecision::First);
                self.check_budgets()
            }
        }
    }

    fn check_budgets(&self) -> BatchStep {
        if self.is_strict { BatchStep::CheckBudgets } else { self.budget(None) }
    }

    /// Continues with the first item that would exceed a budget.
    pub fn budget(&self, exceeded: Option<(usize, Overrun)>) -> BatchStep {
        match exceeded {
            Some((index, exceeded)) => BatchStep::Refuse(BatchAcceptResult::OverBudget(index, exceeded)),
            None => BatchStep::Accept { binds_key: self.binds_key },
        }
    }
}
