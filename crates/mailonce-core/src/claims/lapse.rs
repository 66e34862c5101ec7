//! What happens when a lease ends. The next call about a claim notices it, and so does a background loop.

use serde_json::json;

use super::{Claim, ClaimClock, ClaimState, LostHolderPolicy, RETRY_AFTER_MS, RepeatCause};
use crate::{
    events::event::{EventKind, NewEvent},
    mutant,
};

impl Claim {
    /// Applies the end of the lease and of the policy's pause. Returns the events; none if nothing is due.
    pub fn lapse(&mut self, clock: ClaimClock) -> Vec<NewEvent> {
        let mut events = Vec::new();
        if let Some(expires_at) = self.lease.as_ref().map(|lease| lease.expires_at).filter(|at| *at <= clock.now) {
            match self.state {
                _ if mutant!("claim-lease-never-ends") => {}
                ClaimState::Begun if mutant!("claim-freed-after-beginning") => {
                    self.state = ClaimState::Claimed;
                    self.set_free(clock.now);
                    events.push(self.changed(EventKind::ClaimFreed, clock.now, &json!({ "reason": "lease_ended" })));
                }
                ClaimState::Claimed => {
                    self.set_free(clock.now);
                    events.push(self.changed(EventKind::ClaimFreed, clock.now, &json!({ "reason": "lease_ended" })));
                }
                ClaimState::Begun => {
                    self.state = ClaimState::Unknown;
                    self.losses += 1;
                    let policy = self.on_unknown == LostHolderPolicy::Retry || mutant!("claim-hold-is-retry");
                    let may_retry = policy && (!self.retried || mutant!("claim-policy-again-and-again"));
                    let pause = if mutant!("claim-policy-without-pause") { 0 } else { RETRY_AFTER_MS };
                    self.retry_at = may_retry.then(|| expires_at.plus(pause));
                    let lost = self.changed(EventKind::ClaimUnknown, clock.now, &json!({}));
                    events.extend(Some(lost).filter(|_| !mutant!("claim-loss-untold")));
                }
                _ => {}
            }
        }
        if self.state == ClaimState::Unknown
            && self.retry_at.is_some_and(|at| clock.policy.is_some_and(|policy| at <= policy))
        {
            self.state = ClaimState::Claimed;
            self.set_free(clock.now);
            let cause = Some(RepeatCause::Policy).filter(|_| !mutant!("claim-repeat-unflagged"));
            (self.retried, self.repeat_cause) = (true, cause);
            events.push(self.changed(EventKind::ClaimFreed, clock.now, &json!({ "reason": "policy" })));
        }
        events
    }
}
