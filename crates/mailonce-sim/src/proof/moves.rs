//! P10: every change is legal, and fences never go back.
//!
//! The table is written here a second time on purpose: a judge that asks the accused which moves are legal learns
//! nothing.

use super::history::{Email, Move};
use super::promise::Rule;
use super::story::{Subject, Violation};
use super::view::View;
use std::collections::BTreeMap;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    let mut last: BTreeMap<(&str, u16), &Move> = BTreeMap::new();
    for step in &view.history.moves {
        let before = last.insert((&step.email, step.handoff), step);
        let stood = before.map_or("", |before| before.to.as_str());
        let subject = Subject::id(&step.email);
        if step.from != stood || !is_legal(&step.from, &step.to) {
            let why = format!("handoff {}: {} -> {}, it stood at {stood}", step.handoff, step.from, step.to);
            found.push(view.of(Rule::IllegalMove, &step.email, why, &subject));
        }
        let fence = before.map_or(0, |before| before.fence);
        let taken = step.to == "leased" && step.from != "leased";
        if step.fence < fence || (taken && step.fence == fence) {
            let why = format!("handoff {}: fence {fence}, then {} as it became {}", step.handoff, step.fence, step.to);
            found.push(view.of(Rule::FenceBack, &step.email, why, &subject));
        }
    }
    for email in &view.history.emails {
        check_attempts(view, email, found);
    }
}

/// What one commit may make of a handoff. Some take several steps at once.
fn is_legal(from: &str, to: &str) -> bool {
    match (from, to) {
        ("", "scheduled" | "queued" | "held") => true,
        ("scheduled", "queued" | "leased" | "cancelled") => true,
        ("queued", "leased" | "cancelled") => true,
        ("leased", "queued" | "sending" | "failed" | "cancelled" | "unknown") => true,
        ("sending", "queued" | "failed" | "unknown") => true,
        ("unknown", "queued" | "leased" | "abandoned") => true,
        ("held", "queued" | "cancelled") => true,
        ("sent" | "delivered", "bounced") => true,
        ("sent" | "delivered" | "bounced", "complained") => true,
        ("sent", "delivered") => true,
        // Proof moves anything that is not out yet.
        ("sent" | "delivered" | "bounced" | "complained" | "", _) => false,
        (_, "sent" | "delivered" | "bounced" | "complained") => true,
        _ => false,
    }
}

/// Attempts are counted from 1, and each is made under a lease of its own.
fn check_attempts(view: &View<'_>, email: &Email, found: &mut Vec<Violation>) {
    for handoff in &email.handoffs {
        let numbers: Vec<u32> = handoff.attempts.iter().map(|attempt| attempt.number).collect();
        let fences: Vec<u64> = handoff.attempts.iter().filter_map(|attempt| attempt.fence).collect();
        let counted = (1..).zip(&numbers).all(|(expected, number)| expected == *number);
        if !counted || !fences.is_sorted_by(|a, b| a < b) {
            let why = format!("handoff {}: attempts {numbers:?} under fences {fences:?}", handoff.number);
            found.push(view.of_email(Rule::AttemptOrder, email, why));
        }
    }
}
