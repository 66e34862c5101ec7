//! Bounces: parses delivery reports about our emails and records them as evidence for their handoffs.

use crate::{
    control::suppressions::{SuppressionDetails, SuppressionScope},
    inbound::{Inbound, hooks::to_evidence},
    runtime::blocking::run_blocking_if_large,
};
use mailonce_core::{
    address::Address,
    handoff::{
        Evidence, EvidenceFinding, EvidenceSource,
        action::{HandoffAction, HandoffActionStatus},
        lease::HandoffActionResult,
    },
    id::EmailId,
    inbound::delivery::{Delivery, DeliveryOutcome, DeliveryTarget},
    operation::IdempotentResult,
    ports::store::StoreError,
};
use mailonce_mail::{
    bounce::{self, Bounce, RecipientResult},
    hooks,
    parse::{self, ParsedMail},
    return_path::AttemptTag,
};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// The handoff and attempt a report is about.
#[derive(Clone, Copy)]
struct BounceTarget {
    email: EmailId,
    handoff: u16,
    attempt: u32,
}

/// Whether a report is about one of these recipients. Servers may change the case of an address. A delay report with
/// another address than our only recipient comes from a server that forwards the mail, so that server has accepted it.
fn is_about_recipients(result: &RecipientResult, recipients: &[String]) -> bool {
    let forwarded = result.reported_status == hooks::ReportedStatus::Deferred && recipients.len() == 1;
    let reported = Address::parse(&result.recipient).ok();
    let is_same = |to: &String| *to == result.recipient || (reported.is_some() && Address::parse(to).ok() == reported);
    result.recipient.is_empty() || forwarded || recipients.iter().any(is_same)
}

impl Inbound {
    /// Processes a mail to one of our return paths. The tag in the return path was verified on receipt.
    pub(crate) async fn process_bounce(
        &self,
        delivery: &Delivery,
        raw: Arc<Vec<u8>>,
    ) -> Result<Option<DeliveryOutcome>, StoreError> {
        let DeliveryTarget::Return { email, handoff, attempt } = delivery.target else {
            return Ok(Some(DeliveryOutcome::Done));
        };
        let details = delivery.details.clone();
        let parse_task = run_blocking_if_large(raw.len(), move || {
            let bounce = bounce::parse_bounce(&raw, &parse::parse(&raw), details.sender.as_deref(), &details.recipient);
            bounce.map(|bounce| (bounce, Sha256::digest(raw.as_slice()).into()))
        });
        match parse_task.await {
            Ok(Some((bounce, report_hash))) => {
                self.record_bounce(delivery, &bounce, BounceTarget { email, handoff, attempt }, report_hash).await?;
                Ok(Some(DeliveryOutcome::Done))
            }
            Ok(None) => Ok(Some(DeliveryOutcome::Done)),
            Err(_panic) => Ok(Some(self.retry_parse_or_dead(delivery, "the parser panicked"))),
        }
    }

    /// Records a delivery report that arrived in an inbox. This happens where bounces go to the sender's own address.
    /// The returned tag still proves which attempt the report is about.
    pub(crate) async fn record_returned_report(
        &self,
        delivery: &Delivery,
        raw: Arc<Vec<u8>>,
        parsed: ParsedMail,
        report_hash: Option<[u8; 32]>,
    ) -> Result<(), StoreError> {
        let details = delivery.details.clone();
        let parse_task = run_blocking_if_large(raw.len(), move || {
            let bounce = bounce::parse_bounce(&raw, &parsed, details.sender.as_deref(), &details.recipient)?;
            Some((bounce, report_hash.unwrap_or_else(|| Sha256::digest(raw.as_slice()).into())))
        });
        // The message is filed already, so a report that makes the parser panic is not retried.
        let Ok(Some((bounce, report_hash))) = parse_task.await else { return Ok(()) };
        let Some(tag) = bounce.tag.filter(|tag| self.is_own_return_path_tag(tag)) else { return Ok(()) };
        let target = BounceTarget { email: tag.email, handoff: tag.handoff, attempt: tag.attempt };
        self.record_bounce(delivery, &bounce, target, report_hash).await
    }

    /// Whether the MAC of a return-path tag is ours.
    pub(crate) fn is_own_return_path_tag(&self, tag: &AttemptTag) -> bool {
        let mac = self.ctx.secret.mac("return-path", &[&AttemptTag::mac_payload(tag.email, tag.handoff, tag.attempt)]);
        let expected = AttemptTag::new(tag.email, tag.handoff, tag.attempt, &mac);
        bool::from(subtle::ConstantTimeEq::ct_eq(expected.mac.as_slice(), tag.mac.as_slice()))
    }

    async fn record_bounce(
        &self,
        delivery: &Delivery,
        bounce: &Bounce,
        target: BounceTarget,
        report_hash: [u8; 32],
    ) -> Result<(), StoreError> {
        let team = delivery.team;
        let Some(email) = self.ctx.store.email(team, target.email).await? else { return Ok(()) };
        let Some(handoff) = email.handoffs.get(usize::from(target.handoff)) else { return Ok(()) };
        for (index, result) in
            bounce.recipients.iter().enumerate().filter(|(_, result)| is_about_recipients(result, &handoff.recipients))
        {
            let Some(finding) = to_evidence(result.reported_status) else { continue };
            let short_hash = crate::runtime::hex::hex(&report_hash[..12]);
            let evidence = Evidence {
                handoff: target.handoff,
                attempt: Some(target.attempt),
                at: self.ctx.now(),
                source: EvidenceSource::Bounce,
                finding,
                detail: format!("{} {}", result.status.as_deref().unwrap_or_default(), result.reason).trim().to_owned(),
                dedup_key: Some(format!("bounce:{short_hash}:{index}")),
            };
            let acted = self
                .ctx
                .store
                .apply_action(team, target.email, HandoffAction::AddEvidence(evidence), None, self.ctx.now())
                .await?;
            self.ctx.unknown_wakeup.notify_one();
            let is_new =
                matches!(acted, IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, _)));
            self.ctx.metrics.record_provider_event("bounce", if is_new { "recorded" } else { "already_known" });
            if is_new && finding == EvidenceFinding::Bounced {
                self.suppress_bounced(delivery, result, target.email, &handoff.recipients).await;
            }
        }
        Ok(())
    }

    /// Suppresses an address that bounced permanently.
    async fn suppress_bounced(
        &self,
        delivery: &Delivery,
        result: &RecipientResult,
        email: EmailId,
        recipients: &[String],
    ) {
        let only = if let [only] = recipients { Some(only) } else { None };
        let address_as_sent = recipients.iter().find(|to| **to == result.recipient).or(only);
        let permanent = matches!(result.reported_status, hooks::ReportedStatus::Bounced { permanent: true });
        let Some(address) = address_as_sent.filter(|_| permanent).and_then(|to| Address::parse(to).ok()) else {
            return;
        };
        let details = SuppressionDetails {
            scope: SuppressionScope::All,
            reason: "bounced".into(),
            email: Some(email.0),
            source: None,
            detail: Some(result.reason.clone()),
        };
        if let Err(problem) = self.control.suppress_by_report(delivery.team, &address, details).await {
            tracing::warn!(?problem, "a bounced address could not be suppressed");
        }
    }
}
