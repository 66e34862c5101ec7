//! P5, P8 and P13: no silent end, no unknown outcome without a reason, no unfinished work.

use super::history::{CallOutcome, Email, Handoff, HopArrival};
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::ledger_decisions::proves_arrival;
use crate::proof::violation::Violation;

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    for email in &view.history.emails {
        for handoff in &email.handoffs {
            check_outcome_event(view, email, handoff, found);
            if view.history.healed && !is_settled(handoff) {
                let why = format!("handoff {} is {}", handoff.number, handoff.state);
                found.push(view.email_violation(Rule::Stuck, email, why));
            }
        }
        check_unknown_has_cause(view, email, found);
        check_recipients(view, email, found);
    }
    if view.history.healed {
        check_calls_answered(view, found);
    }
}

/// Whether nothing more happens to it without an operator, or not before its time.
fn is_settled(handoff: &Handoff) -> bool {
    match handoff.state.as_str() {
        "leased" | "sending" | "queued" => false,
        "scheduled" => handoff.later,
        "unknown" => !handoff.decidable,
        _ => true,
    }
}

/// Every recipient has a handoff.
fn check_recipients(view: &HistoryIndex<'_>, email: &Email, found: &mut Vec<Violation>) {
    let is_for = |to: &String| email.handoffs.iter().any(|handoff| handoff.to.contains(to));
    for to in email.to.iter().filter(|to| !email.handoffs.is_empty() && !is_for(to)) {
        found.push(view.email_violation(Rule::Vanished, email, format!("nothing was ever to go to {to}")));
    }
}

/// Every email that was not sent, or may not have been, has an event.
fn check_outcome_event(view: &HistoryIndex<'_>, email: &Email, handoff: &Handoff, found: &mut Vec<Violation>) {
    let wanted = match handoff.state.as_str() {
        "failed" => "email.failed",
        "unknown" => "email.unknown",
        "abandoned" => "email.resolved",
        // A handoff that failover replaced is cancelled, and its email is not.
        "cancelled" if email.state == "cancelled" => "email.cancelled",
        _ => return,
    };
    let was_read = !view.history.events.is_empty();
    if was_read && !view.events(&email.id).iter().any(|event| event.kind == wanted) {
        let why = format!("handoff {} is {} and there is no {wanted}", handoff.number, handoff.state);
        found.push(view.email_violation(Rule::Silent, email, why));
    }
}

/// Every unknown outcome was caused by a fault.
fn check_unknown_has_cause(view: &HistoryIndex<'_>, email: &Email, found: &mut Vec<Violation>) {
    let tried = |handoff: &Handoff| handoff.attempts.iter().any(|attempt| attempt.outcome == "unknown");
    let doubted = email.handoffs.iter().any(|handoff| handoff.state == "unknown" || tried(handoff))
        || view.events(&email.id).iter().any(|event| event.kind == "email.unknown");
    if doubted && !view.has_ambiguous_fault(&email.id) {
        found.push(view.email_violation(Rule::NeedlessDoubt, email, "no fault made its outcome unknown"));
    }
    for handoff in email.handoffs.iter().filter(|handoff| handoff.state == "unknown") {
        let theirs =
            |arrival: &&HopArrival| arrival.is_known_accepted && arrival.to.iter().any(|to| handoff.to.contains(to));
        if view.history.healed && view.arrivals(&email.id).iter().any(theirs) {
            let why = format!("handoff {} is unknown although a process knows that it was accepted", handoff.number);
            found.push(view.email_violation(Rule::NeedlessDoubt, email, why));
        }
    }
    let proven = |handoff: &&Handoff| handoff.state == "unknown" && handoff.evidence.iter().any(proves_arrival);
    if let Some(handoff) = email.handoffs.iter().find(proven) {
        let why = format!("handoff {} is unknown although its arrival is on record", handoff.number);
        found.push(view.email_violation(Rule::NeedlessDoubt, email, why));
    }
}

/// Every send under a key was answered in the end, or refused for good.
fn check_calls_answered(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    for (key, calls) in &view.calls_by_key {
        let answered = |end: &CallOutcome| match end {
            CallOutcome::Ok { .. } => true,
            CallOutcome::Fail { status, .. } => *status != 503,
            CallOutcome::Info => false,
        };
        if !calls.iter().any(|call| answered(&call.end)) {
            found.push(view.key_violation(Rule::Unanswered, *key, format!("{} calls, no answer", calls.len())));
        }
    }
}
