//! Mutants of claims: wrong ends of leases, and wrong answers to late completions. Compiled only with the feature `failpoints`; see [`crate::mutant`].

use serde_json::json;

use super::{
    Claim, ClaimClock, ClaimState, LostHolderPolicy, RETRY_AFTER_MS, RepeatCause,
    action::{ClaimActionStatus, ClaimRefusal},
};
use crate::{
    events::event::{EventKind, NewEvent},
    mutant::is_on,
    time::Time,
};

/// Alters what the end of a lease, or of the policy's pause, made of a claim.
pub(super) fn alter_deadlines(before: &Claim, claim: &mut Claim, events: &mut Vec<NewEvent>, clock: ClaimClock) {
    let has_lease_ended = claim.rev != before.rev && before.state != ClaimState::Unknown;
    if has_lease_ended && is_on("claim-lease-never-ends") {
        *claim = before.clone();
        events.clear();
    }
    let is_lost = claim.rev != before.rev && before.state == ClaimState::Begun;
    if is_lost && is_on("claim-freed-after-beginning") {
        *claim = Claim { state: ClaimState::Claimed, ..before.clone() };
        claim.set_free(clock.now);
        *events = vec![claim.changed(EventKind::ClaimFreed, clock.now, &json!({ "reason": "lease_ended" }))];
    }
    if is_lost && claim.state == ClaimState::Unknown {
        claim.retry_at = altered_retry(before);
    }
    if is_on("claim-loss-untold") {
        events.retain(|event| event.kind != EventKind::ClaimUnknown);
    }
    if claim.repeat_cause == Some(RepeatCause::Policy) && !before.retried && is_on("claim-repeat-unflagged") {
        claim.repeat_cause = before.repeat_cause;
    }
}

/// A wrong answer to a completion that comes after the lease ended. `None` keeps the right one.
pub(super) fn late_completion(is_in_time: bool) -> Option<ClaimActionStatus> {
    let refused = ClaimActionStatus::Refused(ClaimRefusal::StaleToken);
    match is_in_time {
        false if is_on("claim-late-completion-refused") => Some(refused),
        false if is_on("claim-late-completion-dropped") => Some(ClaimActionStatus::Applied),
        _ => None,
    }
}

/// When the policy frees a claim that has just lost its holder.
fn altered_retry(before: &Claim) -> Option<Time> {
    let frees = before.on_unknown == LostHolderPolicy::Retry || is_on("claim-hold-is-retry");
    let pause = if is_on("claim-policy-without-pause") { 0 } else { RETRY_AFTER_MS };
    let may_retry = frees && (!before.retried || is_on("claim-policy-again-and-again"));
    before.lease.as_ref().filter(|_| may_retry).map(|lease| lease.expires_at.plus(pause))
}
