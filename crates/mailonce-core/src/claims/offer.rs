//! Offers: claims that wait for a worker, with the payload that the worker needs. An application writes one into its
//! outbox, in its own transaction.

use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

use super::{Claim, ClaimChange, ClaimClock, ClaimState, LostHolderPolicy, ResultPresence, erasure::ClaimKey};
use crate::{
    control::stop::{Stop, StopMode, Stops},
    events::event::EventKind,
    exact_json::ExactJson,
    id::{ClaimId, TeamId},
    key::{Key, KeyHash},
    mutant,
    time::Time,
    ttl,
};

/// That a claim was offered. The store keeps the payload itself beside the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimOffer {
    /// The hash of the payload. Another payload under the same key is a mismatch.
    pub digest: String,
    /// When it was offered: first, or latest after its end. The claim is remembered for at least the default time from
    /// here.
    pub at: Time,
}

/// A claim to offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOffer {
    /// The id of the claim if there is none with this key.
    pub id: ClaimId,
    /// The team.
    pub team: TeamId,
    /// The key.
    pub key: Key,
    /// The hash of the payload, from [`payload_digest`].
    pub digest: String,
    /// The payload as the store keeps it.
    pub payload: Vec<u8>,
}

/// The answer to an offer.
#[derive(Clone, Debug, PartialEq)]
pub enum OfferAnswer {
    /// The claim has the payload, now or since an earlier offer.
    Offered,
    /// The key was used with another payload.
    Mismatch,
    /// A stop refuses new claims.
    Stopped(Stop),
}

/// The answer to an offer, with the claim.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct OfferResult {
    /// The answer.
    pub answer: OfferAnswer,
    /// The claim. `None` if a stop refused it.
    pub claim: Option<Claim>,
}

/// The hash of a payload. The order of the fields and the white space do not matter; every digit of a number does.
pub fn payload_digest(payload: &ExactJson) -> Result<String, serde_json::Error> {
    let hash = Sha256::digest(payload.canonical()?);
    Ok(hash.iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _infallible = write!(hex, "{byte:02x}");
        hex
    }))
}

impl NewOffer {
    /// The hash under which the ledger stores its key.
    pub fn key_hash(&self) -> KeyHash {
        KeyHash::of_claim(self.team, &self.key)
    }

    /// Decides about this offer, from the claim that has the key, and from how often the key was bound before.
    ///
    /// A claim that a caller made without a payload gets this one, whatever its state: the key says that it is the same
    /// side effect. A repeated offer changes only how long a claim that has ended is remembered.
    pub fn decide(
        &self,
        existing: Option<Claim>,
        earlier_binds: u32,
        stops: &Stops,
        clock: ClaimClock,
    ) -> ClaimChange<OfferAnswer> {
        let answer = match existing.as_ref().map(|claim| &claim.offer) {
            Some(Some(known)) if known.digest == self.digest || mutant!("claim-payload-ignored") => {
                Some(OfferAnswer::Offered)
            }
            Some(Some(_)) => Some(OfferAnswer::Mismatch),
            Some(None) => None,
            // A stop in the mode `wait` keeps the claim from beginning, not from waiting for its worker.
            None => stops
                .stop_for_claim(self.team, &[])
                .filter(|stop| stop.mode == StopMode::Refuse)
                .map(|stop| OfferAnswer::Stopped(stop.clone())),
        };
        if let Some(answer) = answer {
            let mut claim = existing;
            let is_changed = answer == OfferAnswer::Offered
                && claim.as_mut().is_some_and(|claim| claim.count_memory_from_offer(clock.now));
            return ClaimChange { answer, claim, new_result: None, new_payload: None, is_changed, events: vec![] };
        }
        let mut claim = existing.unwrap_or_else(|| self.unclaimed(earlier_binds, clock));
        let mut events = claim.apply_deadlines(clock);
        claim.offer = Some(ClaimOffer { digest: self.digest.clone(), at: clock.now });
        events.push(claim.changed(EventKind::ClaimOffered, clock.now, &json!({})));
        ClaimChange {
            answer: OfferAnswer::Offered,
            claim: Some(claim),
            new_result: None,
            new_payload: Some(self.payload.clone()),
            is_changed: true,
            events,
        }
    }

    fn unclaimed(&self, earlier_binds: u32, clock: ClaimClock) -> Claim {
        Claim::free(self.id, self.team, self.key.clone(), earlier_binds, clock)
    }
}

impl Claim {
    /// Counts the memory of a claim that has ended from this offer: the row may be offered again before it is marked,
    /// and must still find the claim. Returns whether that changed it.
    fn count_memory_from_offer(&mut self, now: Time) -> bool {
        let has_ended = self.is_ended();
        let Some(offer) = self.offer.as_mut().filter(|offer| has_ended && offer.at < now) else { return false };
        offer.at = now;
        self.rev += 1;
        true
    }

    /// A claim that nobody has yet.
    pub(super) fn free(id: ClaimId, team: TeamId, key: Key, earlier_binds: u32, clock: ClaimClock) -> Self {
        Self {
            id,
            team,
            key: ClaimKey::Given(key),
            bind_number: earlier_binds + 1,
            intent: None,
            fingerprint: None,
            offer: None,
            state: ClaimState::Claimed,
            rev: 0,
            created_at: clock.now,
            fence: 0,
            lease: None,
            on_unknown: LostHolderPolicy::Hold,
            ttl: ttl::DEFAULT,
            retry_at: None,
            times_unknown: 0,
            retried: false,
            repeat_cause: None,
            freed_at: None,
            ended_at: None,
            failure: None,
            completed_by: Vec::new(),
            corrected: false,
            result: ResultPresence::None,
            reports: Vec::new(),
            decision: None,
        }
    }
}
