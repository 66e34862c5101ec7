//! What the ledger decided by itself: a cancel that it refused, a resend by policy, a fact that it took in.
//!
//! The worlds run the rules that decide these things, so a rule that is wrong would go unnoticed there. This judge decides
//! again, from what is on record alone.

use super::history::{
    Attempt, CallKind, CallOutcome, CallRecord, Email, Evidence, Handoff, HandoffTransition, HopCapability,
};
use crate::proof::history_index::HistoryIndex;
use crate::proof::invariants::Rule;
use crate::proof::violation::Violation;

/// How long an email that asks to be resent waits for evidence, in milliseconds.
const RESEND_POLICY_DELAY_MS: i64 = 600_000;
/// Milliseconds by which the clock of a ledger and that of a rig may differ.
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

/// A cancel is too late only when something left, was leaving or is in doubt.
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

/// Whether a handoff stood behind its marker while a call was made, or was ever in doubt before.
fn was_marked_before(moves: &[&HandoffTransition], number: u16, call: &CallRecord) -> bool {
    let own: Vec<&&HandoffTransition> = moves.iter().filter(|step| step.handoff == number).collect();
    let ended = call.ended.unwrap_or(u64::MAX);
    own.iter().enumerate().filter(|(_, step)| step.at <= ended).any(|(index, step)| match step.to.as_str() {
        "sent" | "delivered" | "bounced" | "complained" | "unknown" | "abandoned" => true,
        "sending" => own.get(index + 1).is_none_or(|next| next.at >= call.at),
        _ => false,
    })
}

/// The same, as far as the times on record tell.
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

/// Whether an attempt may have succeeded, by its own answer.
fn may_have_succeeded(view: &HistoryIndex<'_>, handoff: &Handoff, attempt: &Attempt) -> bool {
    // A provider that is busy with a key defers, and what it is busy with may be this mail.
    let busy = matches!(view.history.hops.get(&handoff.transport), Some(HopCapability::Keyed(_)));
    matches!(attempt.outcome.as_str(), "" | "unknown") || (busy && attempt.outcome == "deferred")
}

/// Whether a fact says that the next hop has the mail.
pub(super) fn proves_arrival(fact: &Evidence) -> bool {
    matches!(fact.says.as_str(), "accepted" | "delayed" | "delivered" | "bounced" | "complained")
}

/// The policy resends what is in doubt, ten minutes after its first attempt, while nothing proves that it arrived.
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

/// A fact that the next hop has the mail moves its handoff, and the worst news stands.
fn check_facts(view: &HistoryIndex<'_>, email: &Email, handoff: &Handoff, found: &mut Vec<Violation>) {
    let rank = |kind: &str| ["accepted", "delivered", "bounced", "complained"].iter().position(|news| *news == kind);
    let says = |fact: &Evidence| rank(if fact.says == "delayed" { "accepted" } else { &fact.says });
    let Some(worst) = handoff.evidence.iter().filter_map(says).max() else { return };
    let stands = rank(if handoff.state == "sent" { "accepted" } else { &handoff.state });
    let rule = match handoff.state.as_str() {
        "failed" | "cancelled" => Rule::FalseFailure,
        // Judged as a doubt, and as what is left lying.
        "unknown" | "queued" | "leased" | "sending" | "scheduled" => return,
        _ if stands.is_some_and(|stands| stands >= worst) => return,
        _ => Rule::Ignored,
    };
    let why = format!("handoff {} is {} although worse is on record", handoff.number, handoff.state);
    found.push(view.email_violation(rule, email, why));
}
