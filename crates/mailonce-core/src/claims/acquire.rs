//! Who gets a claim, and what everybody else is answered.

use serde_json::json;

use super::{Claim, ClaimChange, ClaimClock, ClaimLease, ClaimState, ClaimToken, LostHolderPolicy};
use crate::{
    control::stop::{Stop, StopMode, Stops},
    events::event::{EventKind, NewEvent},
    id::{ApiKeyId, ClaimId, TeamId},
    intent::Intent,
    key::{Key, KeyHash},
    mutant,
    ttl::Ttl,
};

/// A request for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewClaim {
    /// The id of the claim if there is none with this key.
    pub id: ClaimId,
    /// The team.
    pub team: TeamId,
    /// The key, given or derived from the intent.
    pub key: Key,
    /// What the side effect is about.
    pub intent: Option<Intent>,
    /// What the side effect contains.
    pub fingerprint: Option<String>,
    /// The keyed hash of the holder's secret.
    pub holder: Option<String>,
    /// The name of the holder that others see.
    pub label: Option<String>,
    /// The API key of the caller.
    pub api_key: Option<ApiKeyId>,
    /// The duration of the lease, in milliseconds.
    pub lease_ms: i64,
    /// How long the claim is remembered after its end.
    pub ttl: Ttl,
    /// Whether the claim begins with this call.
    pub begins_now: bool,
    /// What happens when the holder is lost after it began.
    pub on_unknown: LostHolderPolicy,
}

impl NewClaim {
    /// The hash under which the ledger stores its key.
    pub fn key_hash(&self) -> KeyHash {
        KeyHash::of_claim(self.team, &self.key)
    }

    fn lease(&self, clock: ClaimClock) -> ClaimLease {
        ClaimLease {
            issued_at: clock.now,
            expires_at: clock.now.plus(self.lease_ms),
            holder: self.holder.clone(),
            label: self.label.clone(),
            api_key: self.api_key,
        }
    }

    /// The stop that refuses the claim. In the mode `wait`, a stop refuses only a claim that begins at once.
    fn refusing_stop<'a>(&self, stops: &'a Stops) -> Option<&'a Stop> {
        let stop = stops.stop_for_claim(self.team, &[self.api_key])?;
        (self.begins_now || stop.mode == StopMode::Refuse).then_some(stop)
    }

    /// Decides about this request, from the claim that has the key, and from how often the key was bound before.
    pub fn decide(
        &self,
        existing: Option<Claim>,
        earlier_binds: u32,
        stops: &Stops,
        clock: ClaimClock,
    ) -> ClaimChange<AcquireAnswer> {
        let mut claim = existing;
        let mut events = claim.as_mut().map(|claim| claim.apply_deadlines(clock)).unwrap_or_default();
        let early = claim.as_ref().and_then(|claim| claim.answer_without_winning(self));
        let refusal = || self.refusing_stop(stops).cloned().map(AcquireAnswer::Stopped);
        let answer = match (early, &mut claim) {
            // The holder claimed it for later and asks for it now: it begins, or a stop keeps it from beginning.
            (Some(AcquireAnswer::Won(token)), Some(own)) if self.begins_now && own.state == ClaimState::Claimed => {
                refusal().unwrap_or_else(|| {
                    own.state = ClaimState::Begun;
                    events.push(own.changed(EventKind::ClaimBegun, clock.now, &json!({})));
                    AcquireAnswer::Won(token)
                })
            }
            (Some(early), _) => early,
            (None, claim) => refusal().unwrap_or_else(|| {
                let won = claim.get_or_insert_with(|| self.unclaimed(earlier_binds, clock));
                let (token, event) = won.grant(self, clock);
                events.push(event);
                AcquireAnswer::Won(token)
            }),
        };
        ClaimChange { answer, claim, new_result: None, new_payload: None, is_changed: !events.is_empty(), events }
    }

    fn unclaimed(&self, earlier_binds: u32, clock: ClaimClock) -> Claim {
        let free = Claim::free(self.id, self.team, self.key.clone(), earlier_binds, clock);
        Claim { intent: self.intent.clone(), ..free }
    }
}

/// The answer to a request for a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum AcquireAnswer {
    /// The caller has it, with this token. The same holder gets the same token again.
    Won(ClaimToken),
    /// It ended before.
    Ended,
    /// Another caller has it.
    Busy,
    /// Its holder was lost after it began.
    Unknown,
    /// A stop refuses it.
    Stopped(Stop),
    /// The key was used with another fingerprint.
    Mismatch,
}

/// The answer to a request for a claim, with the claim and, if it ended, its result.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct AcquireResult {
    /// The answer.
    pub answer: AcquireAnswer,
    /// The claim. `None` if a stop refused the first call for it.
    pub claim: Option<Claim>,
    /// The stored result of a claim that ended.
    pub result: Option<Vec<u8>>,
    /// The stored payload of an offered claim that the caller has.
    pub payload: Option<Vec<u8>>,
}

impl Claim {
    /// The answer for a caller that does not get a new lease. `None` when the claim is free.
    fn answer_without_winning(&self, request: &NewClaim) -> Option<AcquireAnswer> {
        if self.has_other_fingerprint(request.fingerprint.as_ref()) && !mutant!("claim-fingerprint-ignored") {
            return Some(AcquireAnswer::Mismatch);
        }
        if self.is_ended() {
            return Some(AcquireAnswer::Ended);
        }
        if self.is_free() || mutant!("claim-taken-while-busy") {
            return None;
        }
        match (self.state, &self.lease) {
            (ClaimState::Unknown, _) => Some(AcquireAnswer::Unknown),
            // A repeated call of the same holder, whose first answer was lost.
            (_, Some(lease))
                if (lease.holder.is_some() && lease.holder == request.holder) || mutant!("claim-holder-ignored") =>
            {
                Some(AcquireAnswer::Won(ClaimToken { fence: self.fence, issued_at: lease.issued_at }))
            }
            _ => Some(AcquireAnswer::Busy),
        }
    }

    /// Gives the claim to a caller.
    fn grant(&mut self, request: &NewClaim, clock: ClaimClock) -> (ClaimToken, NewEvent) {
        self.fence += u64::from(!mutant!("claim-fence-stands"));
        let lease = request.lease(clock);
        let token = ClaimToken { fence: self.fence, issued_at: lease.issued_at };
        let label = lease.label.clone();
        self.lease = Some(lease);
        self.freed_at = None;
        self.failure = None;
        self.state = if request.begins_now { ClaimState::Begun } else { ClaimState::Claimed };
        (self.on_unknown, self.ttl) = (request.on_unknown, request.ttl);
        if self.fingerprint.is_none() {
            self.fingerprint.clone_from(&request.fingerprint);
        }
        let kind = if request.begins_now { EventKind::ClaimBegun } else { EventKind::ClaimClaimed };
        let extra = label.map_or_else(|| json!({}), |label| json!({ "label": label }));
        (token, self.changed(kind, clock.now, &extra))
    }
}
