//! The loop that notices ended leases, opens escalations for lost claims, and forgets old ones.

use mailonce_core::{
    claims::{Claim, ClaimState},
    conversation::escalation::{Escalation, EscalationReason, EscalationSubject},
    mutant,
    ports::store::StoreError,
    record::RecordKind,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

use super::Claims;

/// How often ended leases are looked for.
const LAPSE_INTERVAL: Duration = Duration::from_secs(1);
/// How often unknown claims without an escalation are looked for. Only a process that ended between the two leaves some.
const ESCALATION_INTERVAL: Duration = Duration::from_secs(10);
/// How often forgotten claims are removed.
const FORGET_INTERVAL: Duration = Duration::from_secs(15);
/// Claims that one commit changes.
const BATCH_SIZE: usize = 200;

/// The question about a claim whose holder was lost.
pub(crate) fn escalation_of(claim: &Claim) -> Escalation {
    let holder = claim.lease.as_ref().and_then(|lease| lease.label.as_deref());
    let holder = holder.map_or_else(|| "Its holder".to_owned(), |label| format!("Its holder `{label}`"));
    let about = EscalationSubject {
        claim: Some(claim.id),
        attempts: Some(claim.times_unknown),
        question: Some(format!("Did the side effect `{}` happen? {holder} was lost after it began.", claim.key)),
        entity: claim.intent.as_ref().map(|intent| intent.entity.clone()),
        ..EscalationSubject::default()
    };
    Escalation::open(EscalationReason::ClaimUnknown, about, None)
}

impl Claims {
    /// Notices ended leases, opens escalations and forgets old claims, until `stop` changes. A loop of its own, because
    /// many claims must not delay other work.
    pub async fn run_claims_loop(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut lapse_rounds = tokio::time::interval(LAPSE_INTERVAL);
        let mut escalation_rounds = tokio::time::interval(ESCALATION_INTERVAL);
        let mut forget_rounds = tokio::time::interval(FORGET_INTERVAL);
        while !*stop.borrow() {
            let (what, outcome) = tokio::select! {
                biased;
                _ = stop.changed() => return,
                _ = lapse_rounds.tick() => ("notice ended leases of claims", self.apply_due_deadlines().await),
                _ = escalation_rounds.tick() => ("ask about lost claims", self.escalate_unknown().await),
                _ = forget_rounds.tick() => ("forget old claims", self.forget_old().await),
            };
            if let Err(error) = outcome {
                tracing::warn!(%error, "cannot {what}");
            }
        }
    }

    /// Applies ended leases and policy pauses, and opens escalations for claims whose holder is lost.
    pub async fn apply_due_deadlines(&self) -> Result<(), StoreError> {
        loop {
            let changed = self.ctx.store.apply_claim_deadlines(BATCH_SIZE, self.ctx.claim_clock()).await?;
            if !changed.is_empty() {
                crate::failpoint!("claim-lapsed");
            }
            for claim in &changed {
                self.escalate_or_log(claim).await;
            }
            if changed.len() < BATCH_SIZE {
                return Ok(());
            }
        }
    }

    /// Opens the escalations that a process which ended could not open any more.
    async fn escalate_unknown(&self) -> Result<(), StoreError> {
        let mut position = self.scan_position.lock().await;
        let claims = self.ctx.store.unknown_claims(*position, BATCH_SIZE).await?;
        for claim in &claims {
            self.escalate(claim).await?;
        }
        *position = claims.last().filter(|_| claims.len() == BATCH_SIZE).map(|claim| claim.id);
        Ok(())
    }

    /// Forgets claims whose memory ended, in as many commits as it takes.
    pub async fn forget_old(&self) -> Result<(), StoreError> {
        // Nothing is forgotten while the clock is not confirmed.
        while let Some(cutoff) = self.ctx.time.expiry_cutoff() {
            if self.ctx.store.forget_claims(BATCH_SIZE, cutoff).await? < BATCH_SIZE {
                break;
            }
        }
        Ok(())
    }

    async fn escalate(&self, claim: &Claim) -> Result<(), StoreError> {
        if !claim.needs_decision() || mutant!("claim-loss-unasked") {
            return Ok(());
        }
        self.ctx.ensure_open_escalation(claim.team, escalation_of(claim)).await
    }

    /// Asks a person about a claim whose holder is lost. After a failure the next round asks.
    pub(super) async fn escalate_or_log(&self, claim: &Claim) {
        if let Err(error) = self.escalate(claim).await {
            tracing::warn!(%error, claim = %claim.id, "cannot ask about a lost claim");
        }
    }

    /// Opens the escalation of a claim that became unknown, and closes it when the outcome is known.
    pub(super) async fn sync_escalation(&self, claim: &Claim) {
        if claim.state == ClaimState::Unknown {
            return self.escalate_or_log(claim).await;
        }
        if claim.times_unknown == 0 {
            return;
        }
        let name = escalation_of(claim).dedup_name();
        let closed = async {
            match self.ctx.store.record_by_name(claim.team, RecordKind::Escalation, &name).await? {
                Some(record) => self.ctx.review_escalation(&record).await,
                None => Ok(()),
            }
        };
        if let Err(error) = closed.await {
            tracing::warn!(%error, claim = %claim.id, "cannot close the escalation of a claim");
        }
    }
}
