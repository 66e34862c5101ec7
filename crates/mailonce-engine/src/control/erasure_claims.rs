//! The erasure of claims: one that names the person loses its texts, its result and its payload.

use crate::{
    control::{Erasures, erasure_steps::BATCH},
    events::message_texts::remove_fields,
    runtime::blocking::run_blocking_if_large,
};
use mailonce_core::{
    claims::{Claim, ClaimQuery, ResultPresence},
    control::erasure::{AddressEraser, Erasure, MAX_OPEN_EMAILS},
    id::{ClaimId, TeamId},
    ports::{erasure_store::EraseClaimResult, store::StoreError},
};
use serde_json::Value;
use uuid::Uuid;

impl Erasures {
    /// Erases one page of claims.
    pub(super) async fn erase_claims(&self, eraser: &AddressEraser, erasure: &mut Erasure) -> Result<bool, StoreError> {
        let before = erasure.cursor.as_deref().and_then(|cursor| cursor.parse().ok());
        let query = ClaimQuery { before, limit: BATCH, ..ClaimQuery::default() };
        let page = self.ctx.store.claims(eraser.team, query).await?;
        let until = erasure.requested_at;
        for claim in page.iter().filter(|claim| claim.created_at <= until) {
            self.erase_claim(eraser, claim, erasure).await?;
        }
        let last = page.last().filter(|_| page.len() == BATCH);
        Ok(self.continue_after(erasure, last.map(|claim| claim.id.to_string())))
    }

    /// Erases the claims that have ended by now. The others stay in `open_claims`.
    pub(super) async fn erase_ended_claims(
        &self,
        eraser: &AddressEraser,
        erasure: &mut Erasure,
    ) -> Result<(), StoreError> {
        for id in std::mem::take(&mut erasure.open_claims) {
            if let Some(claim) = self.claim_without_result(eraser.team, id.0).await? {
                self.erase_claim(eraser, &claim, erasure).await?;
            }
        }
        Ok(())
    }

    /// Erases one claim that names the person, or remembers it until it has ended.
    async fn erase_claim(
        &self,
        eraser: &AddressEraser,
        claim: &Claim,
        erasure: &mut Erasure,
    ) -> Result<(), StoreError> {
        if !self.is_named_in_claim(eraser, claim).await? {
            return Ok(());
        }
        match self.ctx.store.erase_claim(eraser, claim.id).await? {
            EraseClaimResult::Erased => erasure.counts.claims += 1,
            EraseClaimResult::NotEnded if erasure.open_claims.len() < MAX_OPEN_EMAILS => {
                erasure.open_claims.push(claim.id);
            }
            EraseClaimResult::NotEnded => erasure.has_more_open = true,
            EraseClaimResult::Missing => {}
        }
        Ok(())
    }

    async fn is_named_in_claim(&self, eraser: &AddressEraser, claim: &Claim) -> Result<bool, StoreError> {
        if claim.is_named(eraser) {
            return Ok(true);
        }
        let (team, id, store) = (claim.team, claim.id, &self.ctx.store);
        let result = match claim.result {
            ResultPresence::Stored => store.claim(team, id).await?.and_then(|(_, result)| result),
            ResultPresence::None | ResultPresence::Omitted => None,
        };
        let payload = match claim.offer {
            Some(_) => store.claim_payload(team, id).await?,
            None => None,
        };
        for packed in [result, payload].into_iter().flatten() {
            if self.is_named_in_contents(eraser, packed).await {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a packed result or payload names the person.
    async fn is_named_in_contents(&self, eraser: &AddressEraser, packed: Vec<u8>) -> bool {
        let (packer, eraser) = (self.ctx.packer.clone(), eraser.clone());
        let is_named = move || {
            let Some(bytes) = packer.unpack_raw(&packed) else { return false };
            match serde_json::from_slice::<Value>(&bytes) {
                Ok(value) => eraser.is_in_value(&value),
                // Nested too deeply, for example.
                Err(_) => eraser.is_in(&String::from_utf8_lossy(&bytes)),
            }
        };
        run_blocking_if_large(usize::MAX, is_named).await.unwrap_or(true)
    }

    /// A claim, read without its result, which may be large.
    pub(super) async fn claim_without_result(&self, team: TeamId, id: Uuid) -> Result<Option<Claim>, StoreError> {
        let next = Uuid::from_u128(id.as_u128().saturating_add(1));
        let query = ClaimQuery { before: Some(ClaimId(next)), limit: 1, ..ClaimQuery::default() };
        Ok(self.ctx.store.claims(team, query).await?.pop().filter(|claim| claim.id.0 == id))
    }

    pub(super) async fn is_claim_erased(&self, team: TeamId, id: Uuid) -> Result<bool, StoreError> {
        Ok(self.claim_without_result(team, id).await?.is_some_and(|claim| claim.is_erased()))
    }

    /// Removes the texts from the data of an event about a claim that was erased.
    pub(super) async fn strip_claim_event(&self, team: TeamId, id: Uuid, data: &mut Value) -> Result<(), StoreError> {
        let claim = self.claim_without_result(team, id).await?;
        if let Some(claim) = claim.filter(Claim::is_erased) {
            remove_fields(data, &["label"]);
            if let Some(shown) = data.get_mut("key") {
                *shown = claim.key.to_string().into();
            }
        }
        Ok(())
    }
}
