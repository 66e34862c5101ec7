//! P16: teams never meet.

use super::history::{CallOutcome, CallRecord};
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::violation::Violation;

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    for call in &view.history.calls {
        for id in call.acknowledged_ids().unwrap_or_default() {
            if let Some(email) = view.emails_by_id.get(id.as_str()).filter(|email| email.team != call.team) {
                let why = format!("{} was told of an email of {}", call.team, email.team);
                found.push(view.email_violation(Rule::Crossed, email, why));
            }
        }
        if let Some(email) = call.about.as_deref().and_then(|id| view.emails_by_id.get(id))
            && email.team != call.team
            && !reveals_nothing(call)
        {
            let why =
                format!("{} asked about an email of {} and was not told that there is none", call.team, email.team);
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

/// Whether a call was told that there is no such email, or nothing.
fn reveals_nothing(call: &CallRecord) -> bool {
    matches!(call.end, CallOutcome::Info | CallOutcome::Fail { status: 404 | 503, .. })
}
