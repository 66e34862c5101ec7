//! Doing what a person decided, so that it is done once however often it is tried.

use crate::conversation::Escalations;
use mailonce_core::{
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
        email::{Channel, EmailChangeRefusal, EmailState},
        email_commands::EmailResendResult,
    },
    ports::store::StoreError,
    record::{Record, RecordChangeResult},
};

/// How often something that raced with another change is tried anew.
const MAX_CONFLICT_RETRIES: usize = 5;

fn unreadable(record: &Record, error: &serde_json::Error) -> StoreError {
    StoreError::Corrupt(format!("escalation {}: {error}", record.id))
}

impl Escalations {
    /// Does what was decided and notes that it is done. Nothing when that was before.
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
            escalation.done_at = Some(now);
            let about = serde_json::to_string(&escalation).map_err(|error| unreadable(&record, &error))?;
            match self.ctx.store.change_record(record.edit(about), None, now).await? {
                IdempotentResult::Done(RecordChangeResult::Stale(current)) => record = current,
                _ => return Ok(()),
            }
        }
        Err(StoreError::Unreachable(format!("escalation {} changes too fast", record.id)))
    }

    async fn apply_decision(&self, record: &Record, escalation: &Escalation) -> Result<(), StoreError> {
        let (Some(decided), Some(email)) = (&escalation.decided, escalation.about.email) else { return Ok(()) };
        // Of a question that an agent asked, or a thread that goes round, nothing waits.
        if matches!(
            escalation.reason,
            EscalationReason::Asked
                | EscalationReason::Loop
                | EscalationReason::Unanswered
                | EscalationReason::Orphaned
        ) {
            return Ok(());
        }
        let team = record.team;
        match decided.decision {
            Decision::Release => {
                self.outbound.release_held(team, email).await?;
            }
            Decision::Reject => self.cancel_held_email(team, email).await?,
            Decision::Edit => self.send_edited(team, email, decided).await?,
            Decision::Sent => self.resolve_unknown(team, email, Resolution::Sent, decided).await?,
            Decision::Resend => self.resolve_unknown(team, email, Resolution::Resend, decided).await?,
            Decision::Abandon => self.resolve_unknown(team, email, Resolution::Abandon, decided).await?,
        }
        Ok(())
    }

    /// Takes a held email back. One that left meanwhile, by its sender's own word, stays.
    async fn cancel_held_email(&self, team: TeamId, id: EmailId) -> Result<(), StoreError> {
        let cancelled = self.ctx.store.cancel(team, id, None, self.ctx.now()).await?;
        if let IdempotentResult::Done(mailonce_core::outbound::email_commands::EmailChangeResult::Refused(
            refusal,
            email,
        )) = cancelled
        {
            tracing::warn!(email = %id, ?refusal, state = email.state().as_str(), "a rejected email had left before");
        }
        Ok(())
    }

    /// The next version of a held email, with other words; the held one is taken back in the same commit, so that nobody
    /// else answers between. The same again when it was made before.
    async fn send_edited(&self, team: TeamId, id: EmailId, decided: &DecisionRecord) -> Result<(), StoreError> {
        let Some(detail) = self.ctx.store.email_detail(team, id).await? else { return Ok(()) };
        let (email, edit) = (detail.email, decided.edit.clone().unwrap_or_default());
        if email.resent_as.is_some() || email.state() != EmailState::Held {
            return Ok(());
        }
        let Some(mut content) = detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)) else {
            tracing::error!(email = %id, "the body of a held email cannot be read; it is taken back");
            return self.cancel_held_email(team, id).await;
        };
        apply_edit(&mut content, edit);
        let body = self.ctx.packer.pack(&content);
        let envelopes = self.outbound.rebuild_envelopes(&email, &body);
        let now = self.ctx.now();
        let mut wish =
            self.outbound.build_next_version((decided.by, Channel::Http), &email, body.into(), envelopes, now);
        wish.guard_input.cancels_previous = true;
        // It goes at the time it was wished for, as it would have without other words.
        wish.due_at = email.requested_due_at(now);
        wish.digest = Digest::of_content(&content);
        wish.head.subject = content.subject;
        wish.head.reason = Some("a person gave it other words".into());
        match self.ctx.store.resend(wish, None, now).await? {
            IdempotentResult::Done(EmailResendResult::Refused(refusal, _)) => {
                tracing::error!(email = %id, ?refusal, "other words for a held email were refused");
            }
            _ => self.ctx.transports.wake_all(),
        }
        Ok(())
    }

    async fn resolve_unknown(
        &self,
        team: TeamId,
        id: EmailId,
        choice: Resolution,
        decided: &DecisionRecord,
    ) -> Result<(), StoreError> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let Some(email) = self.ctx.store.email(team, id).await? else { return Ok(()) };
            if email.state() != EmailState::Unknown {
                return Ok(());
            }
            let reason = decided.reason.clone().unwrap_or_else(|| "decided about an escalation".into());
            let act = HandoffAction::Resolve { resolution: choice, rev: email.rev, handoff: None, reason };
            let acted = self.ctx.store.apply_action(team, id, act, None, self.ctx.now()).await?;
            self.ctx.transports.wake_all();
            if !matches!(
                acted,
                IdempotentResult::Done(HandoffActionResult::Applied(
                    HandoffActionStatus::Refused(EmailChangeRefusal::StaleRev),
                    _
                ))
            ) {
                self.ctx.metrics.record_resolved("person");
                return Ok(());
            }
        }
        Err(StoreError::Unreachable(format!("email {id} changes too fast")))
    }
}

/// Other words. A text without a page, or a page without a text, replaces both: the other would still say the old.
fn apply_edit(content: &mut EmailContent, edit: EmailEdit) {
    if let Some(subject) = edit.subject {
        content.subject = subject;
    }
    if edit.text.is_some() || edit.html.is_some() {
        (content.text, content.html) = (edit.text, edit.html);
    }
}
