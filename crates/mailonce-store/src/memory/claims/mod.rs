//! Claims: implements `ClaimStore` for [`Memory`].

use async_trait::async_trait;
use mailonce_core::{
    claims::{
        Claim, ClaimChange, ClaimClock, ClaimQuery, ClaimState,
        acquire::{AcquireAnswer, AcquireResult, NewClaim},
        action::{ClaimAction, ClaimActionResult, ClaimActionStatus},
        offer::{NewOffer, OfferResult},
    },
    control::erasure::AddressEraser,
    id::{ClaimId, TeamId},
    key::KeyHash,
    limits,
    operation::{IdempotentResult, KeyedOperation},
    ports::{claim_store::ClaimStore, erasure_store::EraseClaimResult, store::Result},
    time::Time,
};
use std::collections::BTreeMap;

use super::{Memory, Tables};

/// The claims, their results and payloads, and the tombstones of forgotten ones.
#[derive(Default)]
pub(crate) struct ClaimTables {
    claims: BTreeMap<ClaimId, Claim>,
    results: BTreeMap<ClaimId, Vec<u8>>,
    payloads: BTreeMap<ClaimId, Vec<u8>>,
    /// How often a key was bound, and when it was forgotten.
    tombstones: BTreeMap<(TeamId, KeyHash), (u32, Time)>,
}

impl ClaimTables {
    fn by_key(&self, team: TeamId, key: KeyHash) -> Option<&Claim> {
        self.claims.values().find(|claim| claim.team == team && claim.key_hash() == key)
    }

    fn by_id(&self, team: TeamId, id: ClaimId) -> Option<&Claim> {
        self.claims.get(&id).filter(|claim| claim.team == team)
    }

    /// Erases a claim that nobody needs any more, with its result and its payload.
    pub(crate) fn erase(&mut self, eraser: &AddressEraser, id: ClaimId) -> EraseClaimResult {
        let Some(claim) = self.claims.get_mut(&id).filter(|claim| claim.team == eraser.team) else {
            return EraseClaimResult::Missing;
        };
        if !claim.erase(eraser) {
            return EraseClaimResult::NotEnded;
        }
        self.results.remove(&id);
        self.payloads.remove(&id);
        EraseClaimResult::Erased
    }

    fn forget(&mut self, id: ClaimId, now: Time) {
        let Some(claim) = self.claims.remove(&id) else { return };
        self.results.remove(&id);
        self.payloads.remove(&id);
        self.tombstones.insert((claim.team, claim.key_hash()), (claim.bind_number, now));
    }
}

impl Tables {
    fn save_claim_change<T>(&mut self, change: &ClaimChange<T>) {
        let Some(claim) = change.claim.as_ref().filter(|_| change.is_changed) else { return };
        self.claims.claims.insert(claim.id, claim.clone());
        self.claims.results.extend(change.new_result.clone().map(|result| (claim.id, result)));
        self.claims.payloads.extend(change.new_payload.clone().map(|payload| (claim.id, payload)));
        self.events.log.entry(claim.team).or_default().extend(change.events.clone());
    }

    /// The claim with a key, and how often the key was bound before. Forgets one whose memory has ended.
    fn claim_of_key(&mut self, team: TeamId, key: KeyHash, cutoff: Time, now: Time) -> (Option<Claim>, u32) {
        if let Some(old) = self.claims.by_key(team, key).filter(|claim| claim.is_forgotten(cutoff)) {
            self.claims.forget(old.id, now);
        }
        let binds = self.claims.tombstones.get(&(team, key)).map_or(0, |(binds, _)| *binds);
        (self.claims.by_key(team, key).cloned(), binds)
    }

    fn acquire_claim(&mut self, new: &NewClaim, cutoff: Time, clock: ClaimClock) -> AcquireResult {
        let (existing, binds) = self.claim_of_key(new.team, new.key_hash(), cutoff, clock.now);
        let change = new.decide(existing, binds, &self.stops(), clock);
        self.save_claim_change(&change);
        let ended = change.claim.as_ref().filter(|_| change.answer == AcquireAnswer::Ended);
        let result = ended.and_then(|claim| self.claims.results.get(&claim.id).cloned());
        let won = change.claim.as_ref().filter(|_| matches!(change.answer, AcquireAnswer::Won(_)));
        let payload = won.and_then(|claim| self.claims.payloads.get(&claim.id).cloned());
        AcquireResult { answer: change.answer, claim: change.claim, result, payload }
    }

    fn offer_claim(&mut self, offer: &NewOffer, cutoff: Time, clock: ClaimClock) -> OfferResult {
        let (existing, binds) = self.claim_of_key(offer.team, offer.key_hash(), cutoff, clock.now);
        let change = offer.decide(existing, binds, &self.stops(), clock);
        self.save_claim_change(&change);
        OfferResult { answer: change.answer, claim: change.claim }
    }

    fn apply_claim_action(
        &mut self,
        (team, id): (TeamId, ClaimId),
        action: ClaimAction,
        operation: Option<&KeyedOperation>,
        clock: ClaimClock,
    ) -> IdempotentResult<ClaimActionResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, clock.now)) {
            return answer;
        }
        let Some(claim) = self.claims.by_id(team, id).cloned() else {
            return IdempotentResult::Done(ClaimActionResult::Missing);
        };
        let act = action.act(&claim);
        let change = claim.apply(action, &self.stops(), clock);
        let is_applied = change.answer == ClaimActionStatus::Applied;
        // A refused call with a key changes nothing. The end of a lease that it noticed is noticed again by the next call.
        if is_applied || operation.is_none() {
            self.save_claim_change(&change);
        }
        if is_applied {
            self.record_act(act, clock.now);
            operation.into_iter().for_each(|operation| self.outbound.bind_operation(operation));
        }
        let done = change
            .claim
            .map_or(ClaimActionResult::Missing, |claim| ClaimActionResult::Done(change.answer, Box::new(claim)));
        IdempotentResult::Done(done)
    }

    fn apply_claim_deadlines(&mut self, max: usize, clock: ClaimClock) -> Vec<Claim> {
        let mut changed = Vec::new();
        let mut due: Vec<Claim> =
            self.claims.claims.values().filter(|claim| claim.due_at().is_some()).cloned().collect();
        due.sort_by_key(Claim::due_at);
        for mut claim in due {
            let events = claim.apply_deadlines(clock);
            if changed.len() == max || events.is_empty() {
                continue;
            }
            self.events.log.entry(claim.team).or_default().extend(events);
            self.claims.claims.insert(claim.id, claim.clone());
            changed.push(claim);
        }
        changed
    }
}

#[async_trait]
impl ClaimStore for Memory {
    async fn acquire_claim(&self, new_claim: NewClaim, clock: ClaimClock) -> Result<AcquireResult> {
        let mut tables = self.lock_tables();
        let cutoff = self.time.expiry_cutoff(clock.now);
        let clock = ClaimClock { now: self.time.commit_time(clock.now), ..clock };
        Ok(tables.acquire_claim(&new_claim, cutoff, clock))
    }

    async fn offer_claim(&self, offer: NewOffer, clock: ClaimClock) -> Result<OfferResult> {
        let mut tables = self.lock_tables();
        let cutoff = self.time.expiry_cutoff(clock.now);
        let clock = ClaimClock { now: self.time.commit_time(clock.now), ..clock };
        Ok(tables.offer_claim(&offer, cutoff, clock))
    }

    async fn claim_payload(&self, team: TeamId, id: ClaimId) -> Result<Option<Vec<u8>>> {
        let tables = self.lock_tables();
        Ok(tables.claims.by_id(team, id).and_then(|claim| tables.claims.payloads.get(&claim.id).cloned()))
    }

    async fn apply_claim_action(
        &self,
        team: TeamId,
        id: ClaimId,
        action: ClaimAction,
        operation: Option<KeyedOperation>,
        clock: ClaimClock,
    ) -> Result<IdempotentResult<ClaimActionResult>> {
        let mut tables = self.lock_tables();
        let clock = ClaimClock { now: self.time.commit_time(clock.now), ..clock };
        Ok(tables.apply_claim_action((team, id), action, operation.as_ref(), clock))
    }

    async fn claim(&self, team: TeamId, id: ClaimId) -> Result<Option<(Claim, Option<Vec<u8>>)>> {
        let tables = self.lock_tables();
        let found = tables.claims.by_id(team, id).cloned();
        Ok(found.map(|claim| (claim, tables.claims.results.get(&id).cloned())))
    }

    async fn claims(&self, team: TeamId, query: ClaimQuery) -> Result<Vec<Claim>> {
        let tables = self.lock_tables();
        let rows = tables.claims.claims.values().rev().filter(|claim| claim.team == team && query.matches(claim));
        Ok(rows.take(query.limit).cloned().collect())
    }

    async fn apply_claim_deadlines(&self, max: usize, clock: ClaimClock) -> Result<Vec<Claim>> {
        Ok(self.lock_tables().apply_claim_deadlines(max, clock))
    }

    async fn unknown_claims(&self, after: Option<ClaimId>, limit: usize) -> Result<Vec<Claim>> {
        let tables = self.lock_tables();
        let unknown = |claim: &&Claim| claim.state == ClaimState::Unknown && after.is_none_or(|after| claim.id > after);
        Ok(tables.claims.claims.values().filter(unknown).take(limit).cloned().collect())
    }

    async fn forget_claims(&self, max: usize, cutoff: Time) -> Result<usize> {
        let mut tables = self.lock_tables();
        let mut expired: Vec<&Claim> =
            tables.claims.claims.values().filter(|claim| claim.is_forgotten(cutoff)).collect();
        expired.sort_by_key(|claim| claim.forget_at());
        let expired: Vec<ClaimId> = expired.into_iter().take(max).map(|claim| claim.id).collect();
        expired.iter().for_each(|id| tables.claims.forget(*id, cutoff));
        tables.claims.tombstones.retain(|_, (_, at)| cutoff.since(*at) < limits::TOMBSTONE_MS);
        Ok(expired.len())
    }
}
