//! The claims part of the store, as one process of a node sees it.

use crate::world::store::FaultyStore;
use async_trait::async_trait;
use mailonce_core::{
    claims::{
        Claim, ClaimClock, ClaimQuery,
        acquire::{AcquireResult, NewClaim},
        action::{ClaimAction, ClaimActionResult},
        offer::{NewOffer, OfferResult},
    },
    id::{ClaimId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    ports::{claim_store::ClaimStore, store::Result},
    time::Time,
};

/// Each method goes through the faulty network.
#[async_trait]
impl ClaimStore for FaultyStore {
    async fn acquire_claim(&self, new_claim: NewClaim, clock: ClaimClock) -> Result<AcquireResult> {
        self.call_with_faults("acquire_claim", true, self.inner.acquire_claim(new_claim, clock)).await
    }

    async fn offer_claim(&self, offer: NewOffer, clock: ClaimClock) -> Result<OfferResult> {
        self.call_with_faults("offer_claim", true, self.inner.offer_claim(offer, clock)).await
    }

    async fn claim_payload(&self, team: TeamId, id: ClaimId) -> Result<Option<Vec<u8>>> {
        self.call_with_faults("claim_payload", false, self.inner.claim_payload(team, id)).await
    }

    async fn apply_claim_action(
        &self,
        team: TeamId,
        id: ClaimId,
        action: ClaimAction,
        operation: Option<KeyedOperation>,
        clock: ClaimClock,
    ) -> Result<IdempotentResult<ClaimActionResult>> {
        let call = self.inner.apply_claim_action(team, id, action, operation, clock);
        self.call_with_faults("apply_claim_action", true, call).await
    }

    async fn claim(&self, team: TeamId, id: ClaimId) -> Result<Option<(Claim, Option<Vec<u8>>)>> {
        self.call_with_faults("claim", false, self.inner.claim(team, id)).await
    }

    async fn claims(&self, team: TeamId, query: ClaimQuery) -> Result<Vec<Claim>> {
        self.call_with_faults("claims", false, self.inner.claims(team, query)).await
    }

    async fn apply_claim_deadlines(&self, max: usize, clock: ClaimClock) -> Result<Vec<Claim>> {
        self.call_with_faults("apply_claim_deadlines", true, self.inner.apply_claim_deadlines(max, clock)).await
    }

    async fn unknown_claims(&self, after: Option<ClaimId>, limit: usize) -> Result<Vec<Claim>> {
        self.call_with_faults("unknown_claims", false, self.inner.unknown_claims(after, limit)).await
    }

    async fn forget_claims(&self, max: usize, cutoff: Time) -> Result<usize> {
        self.call_with_faults("forget_claims", true, self.inner.forget_claims(max, cutoff)).await
    }
}
