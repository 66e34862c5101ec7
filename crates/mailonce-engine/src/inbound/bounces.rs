//! Bounces: mail that tells what became of our mail, as evidence for its handoff.

use crate::{
    control::suppressions::SuppressionDetails,
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

/// Whether a report is about one of these recipients. Servers write addresses in a case of their own. A report of delay
/// that names our only recipient by another address comes from a server that forwards the mail, so it has it.
fn is_about_recipients(fate: &RecipientResult, recipients: &[String]) -> bool {
    let forwarded = fate.reported_status == hooks::ReportedStatus::Deferred && recipients.len() == 1;
    let named = Address::parse(&fate.recipient).ok();
    let same = |to: &String| *to == fate.recipient || (named.is_some() && Address::parse(to).ok() == named);
    fate.recipient.is_empty() || forwarded || recipients.iter().any(same)
}

impl Inbound {
    /// Reads a mail that came to one of our return paths, whose mark was checked when it came.
    pub(crate) async fn process_bounce(
        &self,
        delivery: &Delivery,
        raw: Arc<Vec<u8>>,
    ) -> Result<Option<DeliveryOutcome>, StoreError> {
        let DeliveryTarget::Return { email, handoff, attempt } = delivery.target else {
            return Ok(Some(DeliveryOutcome::Done));
        };
        let about = delivery.details.clone();
        let read = run_blocking_if_large(raw.len(), move || {
            let bounce = bounce::parse_bounce(&raw, &parse::parse(&raw), about.sender.as_deref(), &about.recipient);
            bounce.map(|bounce| (bounce, Sha256::digest(raw.as_slice()).into()))
        });
        match read.await {
            Ok(Some((bounce, name))) => {
                self.record_bounce(delivery, &bounce, BounceTarget { email, handoff, attempt }, name).await?;
                Ok(Some(DeliveryOutcome::Done))
            }
            Ok(None) => Ok(Some(DeliveryOutcome::Done)),
            Err(_panic) => Ok(Some(self.retry_parse_or_dead(delivery, "the parser ended unexpectedly"))),
        }
    }

    /// Learns from a report that came to an inbox: where bounces go to the sender, the returned mark still proves
    /// which attempt it is about.
    pub(crate) async fn record_returned_report(
        &self,
        delivery: &Delivery,
        raw: Arc<Vec<u8>>,
        parsed: ParsedMail,
        name: Option<[u8; 32]>,
    ) -> Result<(), StoreError> {
        let about = delivery.details.clone();
        let read = run_blocking_if_large(raw.len(), move || {
            let bounce = bounce::parse_bounce(&raw, &parsed, about.sender.as_deref(), &about.recipient)?;
            Some((bounce, name.unwrap_or_else(|| Sha256::digest(raw.as_slice()).into())))
        });
        // The message is filed already; a report that panics the parser is not read again.
        let Ok(Some((bounce, name))) = read.await else { return Ok(()) };
        let Some(tag) = bounce.tag.filter(|tag| self.is_own_return_path_tag(tag)) else { return Ok(()) };
        let about = BounceTarget { email: tag.email, handoff: tag.handoff, attempt: tag.attempt };
        self.record_bounce(delivery, &bounce, about, name).await
    }

    /// Whether we made a mark.
    pub(crate) fn is_own_return_path_tag(&self, tag: &AttemptTag) -> bool {
        let mac = self.ctx.secret.mac("return-path", &[&AttemptTag::mac_payload(tag.email, tag.handoff, tag.attempt)]);
        let ours = AttemptTag::new(tag.email, tag.handoff, tag.attempt, &mac);
        bool::from(subtle::ConstantTimeEq::ct_eq(ours.mac.as_slice(), tag.mac.as_slice()))
    }

    async fn record_bounce(
        &self,
        delivery: &Delivery,
        bounce: &Bounce,
        about: BounceTarget,
        name: [u8; 32],
    ) -> Result<(), StoreError> {
        let team = delivery.team;
        let Some(email) = self.ctx.store.email(team, about.email).await? else { return Ok(()) };
        let Some(handoff) = email.handoffs.get(usize::from(about.handoff)) else { return Ok(()) };
        for (at, fate) in
            bounce.recipients.iter().enumerate().filter(|(_, fate)| is_about_recipients(fate, &handoff.recipients))
        {
            let Some(says) = to_evidence(fate.reported_status) else { continue };
            let short = crate::runtime::hex::hex(&name[..12]);
            let fact = Evidence {
                handoff: about.handoff,
                attempt: Some(about.attempt),
                at: self.ctx.now(),
                source: EvidenceSource::Bounce,
                says,
                detail: format!("{} {}", fate.status.as_deref().unwrap_or_default(), fate.reason).trim().to_owned(),
                once: Some(format!("bounce:{short}:{at}")),
            };
            let acted = self
                .ctx
                .store
                .apply_action(team, about.email, HandoffAction::AddEvidence(fact), None, self.ctx.now())
                .await?;
            self.ctx.unknown_wakeup.notify_one();
            let learnt =
                matches!(acted, IdempotentResult::Done(HandoffActionResult::Applied(HandoffActionStatus::Done, _)));
            self.ctx.metrics.record_provider_event("bounce", if learnt { "recorded" } else { "already_known" });
            if learnt && says == EvidenceFinding::Bounced {
                self.suppress_bounced(delivery, fate, about.email, &handoff.recipients).await;
            }
        }
        Ok(())
    }

    /// Stops writing to an address whose mail came back for good.
    async fn suppress_bounced(
        &self,
        delivery: &Delivery,
        fate: &RecipientResult,
        email: EmailId,
        recipients: &[String],
    ) {
        let only = if let [only] = recipients { Some(only) } else { None };
        let named = recipients.iter().find(|to| **to == fate.recipient).or(only);
        let permanent = matches!(fate.reported_status, hooks::ReportedStatus::Bounced { permanent: true });
        let Some(address) = named.filter(|_| permanent).and_then(|to| Address::parse(to).ok()) else { return };
        let about = SuppressionDetails {
            reason: "bounced".into(),
            email: Some(email.0),
            source: None,
            detail: Some(fate.reason.clone()),
        };
        if let Err(problem) = self.control.suppress_by_report(delivery.team, &address, about).await {
            tracing::warn!(?problem, "an address that bounced could not be put on the list");
        }
    }
}
