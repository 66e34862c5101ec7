//! Decisions of the ledger: refused cancels, resends by policy, and evidence.
//!
//! The worlds run the rules that make these decisions, so a wrong rule would go unnoticed there. The checker decides
//! again, from recorded facts only.

use super::history::{
    Attempt, CallKind, CallOutcome, CallRecord, Email, Evidence, Handoff, HandoffTransition, HopCapability,
};
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::violation::Violation;

/// How long the `resend` policy waits for evidence, in milliseconds.
const RESEND_POLICY_DELAY_MS: i64 = 600_000;
/// Tolerated difference between the clocks of the ledger and the test, in milliseconds.
const CLOCK_SLACK_MS: i64 = 250;

pub(super) fn check(view: &HistoryIndex<'_>, found: &mut Vec<Violation>) {
    for call in view.history.calls.iter().filter(|call| call.verb == CallKind::Cancel) {
        check_cancel(view, call, found);
    }
    for email in &view.history.emails {
        for handoff in &email.handoffs {
            check_policy_timing(view, email, handoff, found);
            check_facts(view, email, handoff, found);
        }
    }
}

/// A cancel is too late only if something was sent, was being sent, or is unknown.
fn check_cancel(view: &HistoryIndex<'_>, call: &CallRecord, found: &mut Vec<Violation>) {
    let too_late = matches!(&call.end, CallOutcome::Fail { code, .. } if code == "too_late");
    let email = call.about.as_deref().and_then(|about| view.emails_by_id.get(about));
    let Some(email) = email.filter(|email| too_late && email.team == call.team) else { return };
    let left = if view.history.moves.is_empty() {
        view.overlaps_stall(call) || email.handoffs.iter().any(|handoff| may_have_been_sent(view, handoff, call))
    } else {
        let moves: Vec<&HandoffTransition> = view.history.moves.iter().filter(|step| step.email == email.id).collect();
        email.handoffs.iter().any(|handoff| was_marked_before(&moves, handoff.number, call))
    };
    if !left {
        let why = "a cancel was too late although nothing had left and nothing was in doubt";
        found.push(view.email_violation(Rule::Refusal, email, why));
    }
}

/// Whether a handoff was past its marker during a call, or unknown before.
fn was_marked_before(moves: &[&HandoffTransition], number: u16, call: &CallRecord) -> bool {
    let own: Vec<&&HandoffTransition> = moves.iter().filter(|step| step.handoff == number).collect();
    let ended = call.ended.unwrap_or(u64::MAX);
    own.iter().enumerate().filter(|(_, step)| step.at <= ended).any(|(index, step)| match step.to.as_str() {
        "sent" | "delivered" | "bounced" | "complained" | "unknown" | "abandoned" => true,
        "sending" => own.get(index + 1).is_none_or(|next| next.at >= call.at),
        _ => false,
    })
}

/// The same by the recorded times.
fn may_have_been_sent(view: &HistoryIndex<'_>, handoff: &Handoff, call: &CallRecord) -> bool {
    let (began, ended) = ((call.at / 1_000) as i64, call.ended.map_or(i64::MAX, |ended| (ended / 1_000) as i64));
    let was_open = |attempt: &Attempt| {
        let surely_over = attempt.ended_ms.is_some_and(|over| over < began - CLOCK_SLACK_MS);
        let begun = attempt.at_ms.is_none_or(|at| at <= ended.saturating_add(CLOCK_SLACK_MS));
        begun && (!surely_over || attempt.outcome == "accepted" || may_have_succeeded(view, handoff, attempt))
    };
    let known = |fact: &Evidence| {
        proves_arrival(fact) && fact.at_ms.is_none_or(|at| at <= ended.saturating_add(CLOCK_SLACK_MS))
    };
    handoff.attempts.iter().any(was_open) || handoff.evidence.iter().any(known)
}

/// Whether an attempt may have succeeded, by its own outcome.
fn may_have_succeeded(view: &HistoryIndex<'_>, handoff: &Handoff, attempt: &Attempt) -> bool {
    // A provider that is busy with a key defers, and it may be busy with this mail.
    let busy = matches!(view.history.hops.get(&handoff.transport), Some(HopCapability::Keyed(_)));
    matches!(attempt.outcome.as_str(), "" | "unknown") || (busy && attempt.outcome == "deferred")
}

/// Whether evidence says that the next hop has the mail.
pub(super) fn proves_arrival(fact: &Evidence) -> bool {
    matches!(fact.says.as_str(), "accepted" | "delayed" | "delivered" | "bounced" | "complained")
}

/// The policy resends an unknown outcome ten minutes after the first attempt, unless evidence proves its arrival.
fn check_policy_timing(view: &HistoryIndex<'_>, email: &Email, handoff: &Handoff, found: &mut Vec<Violation>) {
    for (index, fact) in handoff.evidence.iter().enumerate() {
        if fact.source != "policy" || fact.says != "again" {
            continue;
        }
        if handoff.evidence.iter().take(index).any(proves_arrival) {
            let why = format!("the policy sent handoff {} again although its arrival is on record", handoff.number);
            found.push(view.email_violation(Rule::Hasty, email, why));
        }
        let Some(at) = fact.at_ms else { continue };
        let open = |attempt: &&Attempt| {
            may_have_succeeded(view, handoff, attempt) || attempt.ended_ms.is_some_and(|ended| ended >= at)
        };
        let since = handoff.attempts.iter().filter(open).filter_map(|attempt| attempt.at_ms).min();
        if since.is_none_or(|since| at - since < RESEND_POLICY_DELAY_MS - CLOCK_SLACK_MS) {
            let why = format!("the policy sent handoff {} again before ten minutes of doubt were over", handoff.number);
            found.push(view.email_violation(Rule::Hasty, email, why));
        }
    }
}

/// Evidence that the next hop has the mail changes its handoff, and the worst report wins.
fn check_facts(view: &HistoryIndex<'_>, email: &Email, handoff: &Handoff, found: &mut Vec<Violation>) {
    let rank = |kind: &str| ["accepted", "delivered", "bounced", "complained"].iter().position(|news| *news == kind);
    let says = |fact: &Evidence| rank(if fact.says == "delayed" { "accepted" } else { &fact.says });
    let Some(worst) = handoff.evidence.iter().filter_map(says).max() else { return };
    let stands = rank(if handoff.state == "sent" { "accepted" } else { &handoff.state });
    let rule = match handoff.state.as_str() {
        "failed" | "cancelled" => Rule::FalseFailure,
        // Checked by the rules for unknown outcomes and liveness.
        "unknown" | "queued" | "leased" | "sending" | "scheduled" => return,
        _ if stands.is_some_and(|stands| stands >= worst) => return,
        _ => Rule::Ignored,
    };
    let why = format!("handoff {} is {} although worse is on record", handoff.number, handoff.state);
    found.push(view.email_violation(rule, email, why));
}
