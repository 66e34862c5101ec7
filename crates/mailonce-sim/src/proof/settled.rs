//! P5, P8 and P13: nothing ends without a word, nothing is unknown without a reason, nothing is left lying.

use super::decided::proves;
use super::history::{Arrival, Email, End, Handoff};
use super::promise::Rule;
use super::story::Violation;
use super::view::View;

pub(super) fn check(view: &View<'_>, found: &mut Vec<Violation>) {
    for email in &view.history.emails {
        for handoff in &email.handoffs {
            check_word(view, email, handoff, found);
            if view.history.healed && !is_settled(handoff) {
                let why = format!("handoff {} is {}", handoff.number, handoff.state);
                found.push(view.of_email(Rule::Stuck, email, why));
            }
        }
        check_doubt(view, email, found);
        check_recipients(view, email, found);
    }
    if view.history.healed {
        check_answered(view, found);
    }
}

/// Whether nothing more will happen to it by itself, or not before its time.
fn is_settled(handoff: &Handoff) -> bool {
    match handoff.state.as_str() {
        "leased" | "sending" | "queued" => false,
        "scheduled" => handoff.later,
        "unknown" => !handoff.decidable,
        _ => true,
    }
}

/// Every recipient is some handoff's.
fn check_recipients(view: &View<'_>, email: &Email, found: &mut Vec<Violation>) {
    let is_for = |to: &String| email.handoffs.iter().any(|handoff| handoff.to.contains(to));
    for to in email.to.iter().filter(|to| !email.handoffs.is_empty() && !is_for(to)) {
        found.push(view.of_email(Rule::Vanished, email, format!("nothing was ever to go to {to}")));
    }
}

/// What ended unsent, or may have, was told.
fn check_word(view: &View<'_>, email: &Email, handoff: &Handoff, found: &mut Vec<Violation>) {
    let wanted = match handoff.state.as_str() {
        "failed" => "email.failed",
        "unknown" => "email.unknown",
        "abandoned" => "email.resolved",
        // An envelope that another way replaced is cancelled, and its email is not.
        "cancelled" if email.state == "cancelled" => "email.cancelled",
        _ => return,
    };
    let was_read = !view.history.events.is_empty();
    if was_read && !view.events(&email.id).iter().any(|event| event.kind == wanted) {
        let why = format!("handoff {} is {} and there is no {wanted}", handoff.number, handoff.state);
        found.push(view.of_email(Rule::Silent, email, why));
    }
}

/// What was ever called unknown was made so by a fault.
fn check_doubt(view: &View<'_>, email: &Email, found: &mut Vec<Violation>) {
    let tried = |handoff: &Handoff| handoff.attempts.iter().any(|attempt| attempt.outcome == "unknown");
    let doubted = email.handoffs.iter().any(|handoff| handoff.state == "unknown" || tried(handoff))
        || view.events(&email.id).iter().any(|event| event.kind == "email.unknown");
    if doubted && !view.ambiguous(&email.id) {
        found.push(view.of_email(Rule::NeedlessDoubt, email, "no fault made its outcome unknown"));
    }
    for handoff in email.handoffs.iter().filter(|handoff| handoff.state == "unknown") {
        let theirs = |arrival: &&Arrival| arrival.heard && arrival.to.iter().any(|to| handoff.to.contains(to));
        if view.history.healed && view.arrivals(&email.id).iter().any(theirs) {
            let why = format!("handoff {} is unknown although somebody heard that it was taken", handoff.number);
            found.push(view.of_email(Rule::NeedlessDoubt, email, why));
        }
    }
    let proven = |handoff: &&Handoff| handoff.state == "unknown" && handoff.evidence.iter().any(proves);
    if let Some(handoff) = email.handoffs.iter().find(proven) {
        let why = format!("handoff {} is unknown although its arrival is on record", handoff.number);
        found.push(view.of_email(Rule::NeedlessDoubt, email, why));
    }
}

/// Every wish under a key was answered in the end, or refused for good.
fn check_answered(view: &View<'_>, found: &mut Vec<Violation>) {
    for (key, calls) in &view.by_key {
        let answered = |end: &End| match end {
            End::Ok { .. } => true,
            End::Fail { status, .. } => *status != 503,
            End::Info => false,
        };
        if !calls.iter().any(|call| answered(&call.end)) {
            found.push(view.of_key(Rule::Unanswered, *key, format!("{} calls, no answer", calls.len())));
        }
    }
}
