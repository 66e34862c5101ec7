//! What happens when a lease ends. The next call about a claim notices it, and so does a background loop.

use serde_json::json;

use super::{Claim, ClaimClock, ClaimState, LostHolderPolicy, RETRY_AFTER_MS, RepeatCause};
use crate::events::event::{EventKind, NewEvent};

impl Claim {
    /// Frees the claim or makes it unknown, if its lease or the pause of its policy has ended. Returns the events; none
    /// if nothing is due.
    pub fn apply_deadlines(&mut self, clock: ClaimClock) -> Vec<NewEvent> {
        #[cfg(feature = "failpoints")]
        let before = self.clone();
        let mut events = Vec::new();
        if let Some(expires_at) = self.lease.as_ref().map(|lease| lease.expires_at).filter(|at| *at <= clock.now) {
            match self.state {
                ClaimState::Claimed => {
                    self.set_free(clock.now);
                    events.push(self.changed(EventKind::ClaimFreed, clock.now, &json!({ "reason": "lease_ended" })));
                }
                ClaimState::Begun => {
                    self.state = ClaimState::Unknown;
                    self.times_unknown += 1;
                    let may_retry = self.on_unknown == LostHolderPolicy::Retry && !self.retried;
                    self.retry_at = may_retry.then(|| expires_at.plus(RETRY_AFTER_MS));
                    events.push(self.changed(EventKind::ClaimUnknown, clock.now, &json!({})));
                }
                _ => {}
            }
        }
        if self.state == ClaimState::Unknown
            && self.retry_at.is_some_and(|at| clock.policy.is_some_and(|policy| at <= policy))
        {
            self.state = ClaimState::Claimed;
            self.set_free(clock.now);
            (self.retried, self.repeat_cause) = (true, Some(RepeatCause::Policy));
            events.push(self.changed(EventKind::ClaimFreed, clock.now, &json!({ "reason": "policy" })));
        }
        #[cfg(feature = "failpoints")]
        super::mutants::alter_deadlines(&before, self, &mut events, clock);
        events
    }
}
