//! P10: every transition is legal, and neither fences nor time decrease.
//!
//! The table is written a second time on purpose: a checker that uses the product's own table would check nothing.

use super::history::{Email, HandoffTransition};
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::violation::{Violation, ViolationSubject};
use std::collections::BTreeMap;

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let mut last: BTreeMap<(&str, u16), &HandoffTransition> = BTreeMap::new();
    for step in &view.history.moves {
        let before = last.insert((&step.email, step.handoff), step);
        let stood = before.map_or("", |before| before.to.as_str());
        let subject = ViolationSubject::id(&step.email);
        if step.from != stood || !is_legal_transition(&step.from, &step.to) {
            let why = format!("handoff {}: {} -> {}, it stood at {stood}", step.handoff, step.from, step.to);
            found.push(view.violation(Rule::IllegalMove, &step.email, why, &subject));
        }
        let fence = before.map_or(0, |before| before.fence);
        let taken = step.to == "leased" && step.from != "leased";
        if step.fence < fence || (taken && step.fence == fence) {
            let why = format!("handoff {}: fence {fence}, then {} as it became {}", step.handoff, step.fence, step.to);
            found.push(view.violation(Rule::FenceBack, &step.email, why, &subject));
        }
    }
    for email in &view.history.emails {
        check_attempts(view, email, found);
    }
    check_clocks(view, found);
    for call in view.history.calls.iter().filter(|call| call.must_fail && call.acknowledged_ids().is_some()) {
        let about = call.about.as_deref().or(call.key.as_deref()).unwrap_or("no key");
        let key = call.key.as_deref().map(|key| (call.team.as_str(), key));
        let subject = ViolationSubject { emails: call.about.iter().map(String::as_str).collect(), key };
        found.push(view.violation(Rule::Unearned, about, format!("{:?} had to be refused", call.verb), &subject));
    }
}

/// Ledger time never decreases, and nothing is sent before its time.
fn check_clocks(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for reading in &view.history.readings {
        let before = last.insert(&reading.process, reading.time).unwrap_or(i64::MIN);
        if reading.time < before {
            let why = format!("{} after {before}", reading.time);
            found.push(view.violation(Rule::TimeBack, &reading.process, why, &ViolationSubject::default()));
        }
    }
    for arrival in view.history.arrivals.iter().filter(|arrival| arrival.early) {
        let subject = ViolationSubject::id(&arrival.email);
        found.push(view.violation(Rule::Early, &arrival.email, "it left before its time", &subject));
    }
}

/// Transitions that one commit may make. Some combine several steps.
fn is_legal_transition(from: &str, to: &str) -> bool {
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
        // Proof of acceptance changes any state that is not final.
        ("sent" | "delivered" | "bounced" | "complained" | "", _) => false,
        (_, "sent" | "delivered" | "bounced" | "complained") => true,
        _ => false,
    }
}

/// Attempts are numbered from 1, and each has a lease of its own.
fn check_attempts(view: &HistoryIndex<'_>, email: &Email, found: &mut Vec<Violation>) {
    for handoff in &email.handoffs {
        let numbers: Vec<u32> = handoff.attempts.iter().map(|attempt| attempt.number).collect();
        let fences: Vec<u64> = handoff.attempts.iter().filter_map(|attempt| attempt.fence).collect();
        let counted = (1..).zip(&numbers).all(|(expected, number)| expected == *number);
        if !counted || !fences.is_sorted_by(|a, b| a < b) {
            let why = format!("handoff {}: attempts {numbers:?} under fences {fences:?}", handoff.number);
            found.push(view.email_violation(Rule::AttemptOrder, email, why));
        }
    }
}
