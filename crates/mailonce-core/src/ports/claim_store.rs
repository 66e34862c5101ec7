//! The part of the store for claims. It follows the rules of the store: every method is one transaction and idempotent,
//! time and ids are arguments, every row and every query carries its team.

use async_trait::async_trait;

use super::store::Result;
use crate::{
    claims::{
        Claim, ClaimClock, ClaimQuery,
        acquire::{AcquireResult, NewClaim},
        action::{ClaimAction, ClaimActionResult},
        offer::{NewOffer, OfferResult},
    },
    id::{ClaimId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};

/// Claims. The module documentation states the rules that every method follows.
#[async_trait]
pub trait ClaimStore: Send + Sync + 'static {
    /// Gives a claim to the caller if it is free, or says why not. Of concurrent callers one wins.
    ///
    /// A claim that begins with this call is excluded by stops like a marker: after a stop was created, no claim in its
    /// scope begins, on any node.
    async fn acquire_claim(&self, new_claim: NewClaim, clock: ClaimClock) -> Result<AcquireResult>;
    /// Makes a claim that waits for a worker, or says that the key has it already. Of concurrent offers one makes it.
    async fn offer_claim(&self, offer: NewOffer, clock: ClaimClock) -> Result<OfferResult>;
    /// The payload of an offered claim. `None` if it has none.
    async fn claim_payload(&self, team: TeamId, id: ClaimId) -> Result<Option<Vec<u8>>>;
    /// Applies a command or records a fact. The key of the operation is bound only when the action was applied.
    async fn apply_claim_action(
        &self,
        team: TeamId,
        id: ClaimId,
        action: ClaimAction,
        operation: Option<KeyedOperation>,
        clock: ClaimClock,
    ) -> Result<IdempotentResult<ClaimActionResult>>;
    /// One claim and its result.
    async fn claim(&self, team: TeamId, id: ClaimId) -> Result<Option<(Claim, Option<Vec<u8>>)>>;
    /// Claims, newest first.
    async fn claims(&self, team: TeamId, query: ClaimQuery) -> Result<Vec<Claim>>;
    /// Applies up to `max` ended leases and policy pauses. Returns the changed claims of all teams.
    async fn apply_claim_deadlines(&self, max: usize, clock: ClaimClock) -> Result<Vec<Claim>>;
    /// Unknown claims of all teams, in the order of their ids, after the given one.
    async fn unknown_claims(&self, after: Option<ClaimId>, limit: usize) -> Result<Vec<Claim>>;
    /// Forgets up to `max` claims whose memory ended by this time. A tombstone keeps how often the key was bound.
    async fn forget_claims(&self, max: usize, cutoff: Time) -> Result<usize>;
}
