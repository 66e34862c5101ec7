//! Decides whether the items of a batch are accepted, from the keys of the batch and of its items.

use std::ops::ControlFlow;

use super::{AcceptReader, SendFacts, load_usage, repeated_email};
use crate::{
    control::budget::{BudgetUsage, ExceededBudget},
    operation::{KeyedOperation, OperationDecision},
    outbound::accept::BatchAcceptResult,
    time::Time,
};

/// Checks the keys and budgets of a batch. Returns whether to bind its own key, `operation`, before the items are
/// accepted one after the other. Breaks with the answer of a refusal, which changes nothing. A strict batch is refused
/// as a whole if one item must be refused.
pub fn check_batch<R: AcceptReader>(
    reader: &R,
    items: &[SendFacts<'_>],
    operation: Option<&KeyedOperation>,
    is_strict: bool,
    now: Time,
) -> Result<ControlFlow<BatchAcceptResult, bool>, R::Error> {
    let (mut binds_key, strict_items) = (false, if is_strict { items } else { &[] });
    for (index, item) in strict_items.iter().enumerate() {
        if let Some(key) = item.key
            && let (_, Some(bound)) = reader.key(item.team, key, now)?
            && bound.mismatches(item.digest, item.first_wins)
        {
            return Ok(ControlFlow::Break(BatchAcceptResult::ItemKeyMismatch(index, bound)));
        }
    }
    if let Some(operation) = operation {
        match operation.decide(reader.key(operation.team, operation.key, now)?.1) {
            OperationDecision::KeyMismatch(bound) => {
                return Ok(ControlFlow::Break(BatchAcceptResult::BatchKeyMismatch(bound)));
            }
            decision => binds_key = decision == OperationDecision::First,
        }
    }
    Ok(match exceeded_budget(reader, strict_items, now)? {
        Some((index, exceeded)) => ControlFlow::Break(BatchAcceptResult::OverBudget(index, exceeded)),
        None => ControlFlow::Continue(binds_key),
    })
}

/// The first item that would exceed a budget, when the items before it are charged too.
fn exceeded_budget<R: AcceptReader>(
    reader: &R,
    items: &[SendFacts<'_>],
    now: Time,
) -> Result<Option<(usize, ExceededBudget)>, R::Error> {
    let (mut usage, mut new) = (BudgetUsage::default(), Vec::new());
    for (index, item) in items.iter().enumerate().filter(|(_, item)| !item.charges.is_empty()) {
        let bound = item.key.map(|key| reader.key(item.team, key, now)).transpose()?;
        if !matches!(bound, Some((_, Some(_)))) && repeated_email(reader, item, now)?.is_none() {
            load_usage(reader, item, &mut usage)?;
            new.push((index, item.key, item.charges, !item.holds.is_empty()));
        }
    }
    Ok(usage.exceeded_by_batch(new.into_iter()))
}
