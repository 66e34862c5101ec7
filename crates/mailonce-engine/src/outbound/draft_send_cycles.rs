//! Send cycles of a draft: each cycle creates at most one email, and at most one email of a draft is ever sent.
//!
//! Several callers on several nodes can send, change and remove a draft at the same time, while its send time arrives.
//! Three things decide who wins, each in one commit:
//!
//! - The draft's rev orders concurrent changes. The loser reads the draft again.
//! - The idempotency key of a cycle decides whether the cycle creates an email. A caller that ends a cycle without
//!   knowing its outcome binds that key itself, so that a late sender finds it taken.
//! - The email's state decides whether it is sent. An email that must not be sent is recorded in `owed` before it is
//!   cancelled. The next caller completes that cancel before it does anything else with the draft. If the email can no
//!   longer be cancelled, the draft counts as sent.

use crate::{
    access::caller::Caller,
    outbound::{
        Drafts,
        drafts::{Draft, DraftDetails, draft_not_found},
    },
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::unavailable,
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::EmailId,
    key::EmailKey,
    operation::IdempotentResult,
    outbound::{digest, key_binding::KeyBinding},
    problem::{Code, Problem},
    record::{RecordChangeResult, RecordEdit, RecordKind},
};
use uuid::Uuid;

/// How often a step is retried after it lost a race. Each retry means that another caller made progress.
pub const MAX_CONFLICT_RETRIES: usize = 200;

/// The result of ending a send cycle.
#[derive(Debug)]
pub enum SendCycleEnd {
    /// The cycle creates no email any more, and the draft was changed.
    Ended(Box<Draft>),
    /// The cycle had already created this email.
    AlreadySent(EmailId),
    /// The draft changed meanwhile; read it again.
    Changed,
}

impl DraftDetails {
    /// Whether it has a send time, but no email is recorded for it yet.
    pub fn is_schedule_pending(&self) -> bool {
        self.send_at.is_some() && self.email.is_none() && !self.sent && !self.removed
    }

    /// The draft in its next cycle. Its current email moves to `owed`, because it must be cancelled first.
    #[must_use]
    pub fn next_send_cycle(self) -> Self {
        Self { email_to_cancel: self.email, email: None, send_cycle: self.send_cycle + 1, ..self }
    }
}

/// The problem for a draft that keeps changing under the call.
pub fn draft_changes_too_fast() -> Problem {
    Problem::new(Code::StaleRev, "the draft keeps changing; try again")
}

impl Drafts {
    /// Completes a pending cancel and returns the draft. If the email can no longer be cancelled, the draft is marked
    /// as sent.
    pub async fn finish_pending_cancel(&self, caller: &Caller, id: Uuid) -> Result<Draft, Problem> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let draft = self.draft(caller, id).await?;
            let Some(owed) = draft.details.email_to_cancel else { return Ok(draft) };
            let mut details = DraftDetails { email_to_cancel: None, ..draft.details.clone() };
            if !self.try_cancel(caller, owed).await? {
                (details.email, details.sent, details.removed) = (Some(owed), true, false);
            }
            match self.change_draft(caller, &draft, &details, None).await {
                Ok((draft, _)) => return Ok(draft),
                Err(problem) if problem.code == Code::StaleRev => {}
                Err(problem) => return Err(problem),
            }
        }
        Err(draft_changes_too_fast())
    }

    /// Cancels an email. Returns false when it has left, or may have.
    async fn try_cancel(&self, caller: &Caller, id: EmailId) -> Result<bool, Problem> {
        match self.outbound.cancel(caller, id, None).await {
            Ok(_) => Ok(true),
            Err(problem) if problem.code == Code::TooLate => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// The idempotency key under which the draft's current cycle creates its email.
    pub fn send_cycle_key(&self, caller: &Caller, draft: &Draft) -> Result<mailonce_core::key::Key, Problem> {
        self.ctx.derived_key(caller, "draft", draft.id, draft.details.send_cycle)
    }

    /// Ends a cycle while another caller may be creating its email. Binds the cycle's key and changes the draft in one
    /// commit.
    pub async fn end_send_cycle(
        &self,
        caller: &Caller,
        seen: &Draft,
        details: &DraftDetails,
    ) -> Result<SendCycleEnd, Problem> {
        caller.require_scope(ApiKeyScope::Send)?;
        let (now, team, kind) = (self.ctx.now(), caller.team.id, RecordKind::Draft);
        let key = self.send_cycle_key(caller, seen)?;
        let digest = digest::operation_digest("draft turn ended", &seen.id.to_string(), &[]);
        let operation = operation(caller, Some(&KeyedCall { key: EmailKey::Given(key), digest }), Vec::new(), now);
        let edit = RecordEdit { team, kind, id: seen.id, rev: seen.rev, json: self.pack_draft(details)? };
        Ok(match self.ctx.store.change_record(edit, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => {
                SendCycleEnd::Ended(Box::new(self.unpack_draft(&record)?))
            }
            IdempotentResult::KeyMismatch(KeyBinding::Email(email)) => SendCycleEnd::AlreadySent(email.id),
            // Another caller ended the cycle.
            IdempotentResult::Done(RecordChangeResult::Stale(_))
            | IdempotentResult::Replayed(_)
            | IdempotentResult::KeyMismatch(_) => SendCycleEnd::Changed,
            IdempotentResult::Done(RecordChangeResult::Missing) => return Err(draft_not_found(seen.id)),
        })
    }

    /// Records the email of the current cycle and returns the changed draft. `None` when the draft changed meanwhile.
    pub async fn record_draft_email(
        &self,
        caller: &Caller,
        seen: &Draft,
        email: EmailId,
    ) -> Result<Option<Draft>, Problem> {
        let details = DraftDetails { email: Some(email), ..seen.details.clone() };
        match self.change_draft(caller, seen, &details, None).await {
            Ok((draft, _)) => Ok(Some(draft)),
            Err(problem) if problem.code == Code::StaleRev => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Removes a draft and cancels its email, if there is one. When the email can no longer be cancelled, the draft is
    /// marked as sent and returned.
    pub async fn remove_draft(&self, caller: &Caller, id: Uuid) -> Result<Draft, Problem> {
        caller.require_scope(ApiKeyScope::Send)?;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let draft = self.finish_pending_cancel(caller, id).await?;
            if draft.details.sent {
                return Ok(draft);
            }
            if draft.details.removed {
                self.ctx.store.remove_record(caller.team.id, RecordKind::Draft, id).await.map_err(unavailable)?;
                return Ok(draft);
            }
            let details = DraftDetails { removed: true, ..draft.details.clone().next_send_cycle() };
            if draft.details.email.is_none() {
                if let SendCycleEnd::AlreadySent(email) = self.end_send_cycle(caller, &draft, &details).await? {
                    self.record_draft_email(caller, &draft, email).await?;
                }
                continue;
            }
            match self.change_draft(caller, &draft, &details, None).await {
                Err(problem) if problem.code != Code::StaleRev => return Err(problem),
                _ => {}
            }
        }
        Err(draft_changes_too_fast())
    }
}
