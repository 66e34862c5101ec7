//! P16: teams are isolated.

use super::history::{CallOutcome, CallRecord};
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::violation::Violation;

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    for call in &view.history.calls {
        for id in call.acknowledged_ids().unwrap_or_default() {
            if let Some(email) = view.emails_by_id.get(id.as_str()).filter(|email| email.team != call.team) {
                let why = format!("{} got an email of {}", call.team, email.team);
                found.push(view.email_violation(Rule::Crossed, email, why));
            }
        }
        if let Some(email) = call.about.as_deref().and_then(|id| view.emails_by_id.get(id))
            && email.team != call.team
            && !is_not_found_or_unanswered(call)
        {
            let why = format!("{} called about an email of {} and did not get not_found", call.team, email.team);
            found.push(view.email_violation(Rule::Crossed, email, why));
        }
    }
    for event in &view.history.events {
        if let Some(email) = view.emails_by_id.get(event.about.as_str()).filter(|email| email.team != event.team) {
            let why = format!("event {} of {} is about an email of {}", event.seq, event.team, email.team);
            found.push(view.email_violation(Rule::Crossed, email, why));
        }
    }
}

/// Whether a call got `not_found` or no reply, so that it revealed nothing.
fn is_not_found_or_unanswered(call: &CallRecord) -> bool {
    matches!(call.end, CallOutcome::Info | CallOutcome::Fail { status: 404 | 503, .. })
}
