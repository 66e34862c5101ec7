//! Carries out what a person decided about an escalation. Every step is idempotent, so a retry after a crash is safe.

use crate::conversation::Escalations;
use mailonce_core::{
    claims::ClaimResolution,
    control::budget::{AtLimit, Charge},
    conversation::escalation::{Decision, DecisionRecord, EmailEdit, Escalation, EscalationReason},
    handoff::{
        action::{HandoffAction, HandoffActionStatus, Resolution},
        lease::HandoffActionResult,
    },
    id::{EmailId, TeamId},
    operation::IdempotentResult,
    outbound::{
        content::EmailContent,
        digest::Digest,
        email::{Channel, Email, EmailChangeRefusal, EmailState, Guard},
        email_commands::EmailResendResult,
        policy_trace::PolicyTrace,
    },
    ports::store::StoreError,
    record::{Record, RecordChangeResult},
    time::Time,
};

/// How often a change is retried after it lost a race against another change.
const MAX_CONFLICT_RETRIES: usize = 5;

fn unreadable(record: &Record, error: &serde_json::Error) -> StoreError {
    StoreError::Corrupt(format!("escalation {}: {error}", record.id))
}

impl Escalations {
    /// Carries out the decision of an escalation and records that it was executed. Does nothing when it already was.
    pub(crate) async fn complete_decision(&self, record: &Record) -> Result<(), StoreError> {
        let mut record = record.clone();
        for _ in 0..MAX_CONFLICT_RETRIES {
            let mut escalation: Escalation =
                serde_json::from_str(&record.json).map_err(|error| unreadable(&record, &error))?;
            if !escalation.has_pending_decision() {
                return Ok(());
            }
            self.apply_decision(&record, &escalation).await?;
            let now = self.ctx.now();
            escalation.executed_at = Some(now);
            let about = serde_json::to_string(&escalation).map_err(|error| unreadable(&record, &error))?;
            match self.ctx.store.change_record(record.edit(about), None, now).await? {
                IdempotentResult::Done(RecordChangeResult::Stale(current)) => record = current,
                _ => return Ok(()),
            }
        }
        Err(StoreError::Unreachable(format!("escalation {} kept changing while its decision was applied", record.id)))
    }

    async fn apply_decision(&self, record: &Record, escalation: &Escalation) -> Result<(), StoreError> {
        if let (Some(decision), Some(claim)) = (&escalation.decision, escalation.about.claim) {
            let resolution = match decision.decision {
                Decision::Done => ClaimResolution::Done,
                Decision::Retry => ClaimResolution::Retry,
                _ => ClaimResolution::Abandon,
            };
            return self.ctx.resolve_unknown_claim(record.team, claim, resolution, decision.by).await;
        }
        let (Some(decision), Some(email)) = (&escalation.decision, escalation.about.email) else { return Ok(()) };
        // For these reasons no email is held or unknown, so there is nothing to carry out.
        if matches!(
            escalation.reason,
            EscalationReason::Asked
                | EscalationReason::Loop
                | EscalationReason::Unanswered
                | EscalationReason::Orphaned
                | EscalationReason::ClaimUnknown
        ) {
            return Ok(());
        }
        let team = record.team;
        match decision.decision {
            Decision::Release => self.release_hold(team, email, escalation.reason).await?,
            Decision::Reject => self.cancel_held_email(team, email).await?,
            Decision::Edit => self.send_edited(team, email, escalation.reason, decision).await?,
            Decision::Sent => self.resolve_unknown(team, email, Resolution::Sent, decision).await?,
            Decision::Resend => self.resolve_unknown(team, email, Resolution::Resend, decision).await?,
            Decision::Abandon => self.resolve_unknown(team, email, Resolution::Abandon, decision).await?,
            // Decisions about claims.
            Decision::Done | Decision::Retry => {}
        }
        Ok(())
    }

    /// Removes the hold that an escalation is about. Whoever releases email that a budget holds overrides the budget.
    async fn release_hold(&self, team: TeamId, id: EmailId, reason: EscalationReason) -> Result<(), StoreError> {
        let Some(hold) = reason.hold() else { return Ok(()) };
        if let Some(email) = self.budgets.release_hold(team, id, hold, hold == Guard::Budget).await? {
            self.escalate_if_stuck(&email).await;
        }
        Ok(())
    }

    /// Cancels a held email. An email that its sender released in the meantime is not affected.
    async fn cancel_held_email(&self, team: TeamId, id: EmailId) -> Result<(), StoreError> {
        let cancelled = self.ctx.store.cancel(team, id, None, self.ctx.now()).await?;
        if let IdempotentResult::Done(mailonce_core::outbound::email_commands::EmailChangeResult::Refused(
            refusal,
            email,
        )) = cancelled
        {
            let state = email.state().as_str();
            tracing::warn!(email = %id, ?refusal, state, "a person rejected an email that can no longer be cancelled");
        }
        Ok(())
    }

    /// Creates the next version of a held email with the person's edit. The same transaction cancels the held version,
    /// so that no other reply can take its place in between. Does nothing when the next version already exists.
    async fn send_edited(
        &self,
        team: TeamId,
        id: EmailId,
        reason: EscalationReason,
        decision: &DecisionRecord,
    ) -> Result<(), StoreError> {
        let Some(detail) = self.ctx.store.email_detail(team, id).await? else { return Ok(()) };
        let (email, edit) = (detail.email, decision.edit.clone().unwrap_or_default());
        if email.resent_as.is_some() || email.state() != EmailState::Held {
            return Ok(());
        }
        let Some(mut content) = detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)) else {
            tracing::error!(email = %id, "the body of a held email cannot be decoded; cancelling the email");
            return self.cancel_held_email(team, id).await;
        };
        apply_edit(&mut content, edit);
        let body = self.ctx.packer.pack(&content);
        let envelopes = self.outbound.rebuild_envelopes(&email, &body);
        let now = self.ctx.now();
        let mut new_email =
            self.outbound.build_next_version((decision.by, Channel::Http), &email, body.into(), envelopes, now);
        new_email.guard_input.cancels_previous = true;
        // It still counts for the API key that sent it, and that key's stops hold it. The escalation names the person.
        new_email.head.caller = email.head.caller;
        // The other holds stay, and its budgets are asked again.
        new_email.guard_input.holds =
            reason.hold().map_or(email.holds, |hold| email.holds.without(hold)).without(Guard::Budget);
        new_email.guard_input.charges = self.charges_of_edited(&email, reason, now).await?;
        let mut trace = PolicyTrace::default();
        self.budgets.trace_budgets(team, &new_email.guard_input.charges, &mut trace).await;
        new_email.head.policy = Some(trace);
        // The edited email keeps the send time that the caller requested.
        new_email.due_at = email.requested_due_at(now);
        new_email.digest = Digest::of_content(&content);
        new_email.head.subject = content.subject;
        new_email.head.template = None;
        new_email.head.reason = Some("edited by a person".into());
        match self.ctx.store.resend(new_email, None, now).await? {
            IdempotentResult::Done(EmailResendResult::Refused(refusal, _)) => {
                tracing::error!(email = %id, ?refusal, "the edited version of a held email was refused");
            }
            IdempotentResult::Done(EmailResendResult::First(email)) => {
                self.ctx.transports.wake_all();
                self.escalate_if_stuck(&email).await;
            }
            _ => self.ctx.transports.wake_all(),
        }
        Ok(())
    }

    /// The charges of the edited version. It is accepted in any case: a budget without room holds it, and flags it if
    /// the person was asked about that budget.
    async fn charges_of_edited(
        &self,
        email: &Email,
        reason: EscalationReason,
        now: Time,
    ) -> Result<Vec<Charge>, StoreError> {
        let mut charges = self.budgets.charges_of_held(email, now).await?;
        for charge in charges.iter_mut().filter(|charge| charge.at_limit != AtLimit::Flag) {
            charge.at_limit = if reason == EscalationReason::Budget { AtLimit::Flag } else { AtLimit::Hold };
        }
        Ok(charges)
    }

    async fn resolve_unknown(
        &self,
        team: TeamId,
        id: EmailId,
        resolution: Resolution,
        decision: &DecisionRecord,
    ) -> Result<(), StoreError> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let Some(email) = self.ctx.store.email(team, id).await? else { return Ok(()) };
            if email.state() != EmailState::Unknown {
                return Ok(());
            }
            let reason = decision.reason.clone().unwrap_or_else(|| "decided about an escalation".into());
            let action = HandoffAction::Resolve { resolution, rev: email.rev, handoff: None, reason };
            let result = self.ctx.store.apply_action(team, id, action, None, self.ctx.now()).await?;
            self.ctx.transports.wake_all();
            if !matches!(
                result,
                IdempotentResult::Done(HandoffActionResult::Applied(
                    HandoffActionStatus::Refused(EmailChangeRefusal::StaleRev),
                    _
                ))
            ) {
                self.ctx.metrics.record_resolved("person");
                return Ok(());
            }
        }
        Err(StoreError::Unreachable(format!("email {id} kept changing while its unknown outcome was resolved")))
    }
}

/// Applies an edit. An edit of only the text or only the HTML removes the other part, which would still hold the old
/// content.
fn apply_edit(content: &mut EmailContent, edit: EmailEdit) {
    // From now on the wording is the person's, and it counts when this version is compared.
    content.template = None;
    if let Some(subject) = edit.subject {
        content.subject = subject;
    }
    if edit.text.is_some() || edit.html.is_some() {
        (content.text, content.html) = (edit.text, edit.html);
    }
}
