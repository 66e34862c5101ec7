//! Turns of a draft: each becomes one email at the most, and no two of them ever go.
//!
//! A draft can be sent, changed and removed at the same time, by several callers and on several nodes, while its time
//! comes. Three things decide, each in one commit:
//!
//! - The draft's rev decides which of them comes first. Whoever loses looks again.
//! - The key of a turn decides whether an email is made of it. Whoever ends a turn of which nobody can tell takes that
//!   key, so that a caller who is late finds it taken.
//! - The email decides whether it goes. One that must not go is written down as owed before it is taken back; nothing
//!   else is made of the draft until that is settled, by whoever comes next. If it left, it is what the draft became.

use mailonce_core::{
    access::team::ApiKeyScope,
    id::EmailId,
    key::EmailKey,
    outbound::digest,
    ports::store::{IdempotentResult, KeyBinding},
    problem::{Code, Problem},
    record::{RecordChangeResult, RecordEdit, RecordKind},
};
use uuid::Uuid;

use crate::{
    Caller, Engine, KeyedCall, operation,
    outbound::drafts::{Draft, DraftDetails, draft_not_found},
    unavailable,
};

/// How often a step that raced with another is tried anew: each time another one came through.
pub const MAX_CONFLICT_RETRIES: usize = 200;

/// How the end of a turn came out.
#[derive(Debug)]
pub enum SendCycleEnd {
    /// Nothing is made of it any more, and the draft is what it was to be.
    Ended(Box<Draft>),
    /// This was made of it before.
    AlreadySent(EmailId),
    /// The draft changed meanwhile: look again.
    Changed,
}

impl DraftDetails {
    /// Whether it is to wait in the ledger and nobody knows yet that it does.
    pub fn is_schedule_pending(&self) -> bool {
        self.send_at.is_some() && self.email.is_none() && !self.sent && !self.removed
    }

    /// The same draft in its next turn: what it was to become is owed.
    #[must_use]
    pub fn next_send_cycle(self) -> Self {
        Self { owed: self.email, email: None, turn: self.turn + 1, ..self }
    }
}

/// The problem of a draft that never rests.
pub fn draft_changes_too_fast() -> Problem {
    Problem::new(Code::StaleRev, "the draft changes all the time; try again")
}

impl Engine {
    /// A draft that owes nothing: what must not go was taken back, or had left, and then the draft is sent.
    pub async fn finish_pending_cancel(&self, caller: &Caller, id: Uuid) -> Result<Draft, Problem> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let draft = self.draft(caller, id).await?;
            let Some(owed) = draft.details.owed else { return Ok(draft) };
            let mut about = DraftDetails { owed: None, ..draft.details.clone() };
            if !self.try_cancel(caller, owed).await? {
                (about.email, about.sent, about.removed) = (Some(owed), true, false);
            }
            match self.change_draft(caller, &draft, &about, None).await {
                Ok((draft, _)) => return Ok(draft),
                Err(problem) if problem.code == Code::StaleRev => {}
                Err(problem) => return Err(problem),
            }
        }
        Err(draft_changes_too_fast())
    }

    /// Takes an email back. False when it left, or may have.
    async fn try_cancel(&self, caller: &Caller, id: EmailId) -> Result<bool, Problem> {
        match self.cancel(caller, id, None).await {
            Ok(_) => Ok(true),
            Err(problem) if problem.code == Code::TooLate => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// The key under which a turn of a draft becomes an email.
    pub fn send_cycle_key(&self, caller: &Caller, draft: &Draft) -> Result<mailonce_core::key::Key, Problem> {
        self.derived_key(caller, "draft", draft.id, draft.details.turn)
    }

    /// Ends a turn of which somebody may be making an email: takes its key and changes the draft, in one commit.
    pub async fn end_send_cycle(
        &self,
        caller: &Caller,
        seen: &Draft,
        about: &DraftDetails,
    ) -> Result<SendCycleEnd, Problem> {
        caller.require_scope(ApiKeyScope::Send)?;
        let (now, team, kind) = (self.now(), caller.team.id, RecordKind::Draft);
        let key = self.send_cycle_key(caller, seen)?;
        let digest = digest::operation_digest("draft turn ended", &seen.id.to_string(), &[]);
        let operation = operation(caller, Some(&KeyedCall { key: EmailKey::Given(key), digest }), Vec::new(), now);
        let edit = RecordEdit { team, kind, id: seen.id, rev: seen.rev, json: self.pack_draft(about)? };
        Ok(match self.store.change_record(edit, operation, now).await.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => {
                SendCycleEnd::Ended(Box::new(self.unpack_draft(&record)?))
            }
            IdempotentResult::KeyMismatch(KeyBinding::Email(email)) => SendCycleEnd::AlreadySent(email.id),
            // Somebody else ended it.
            IdempotentResult::Done(RecordChangeResult::Stale(_))
            | IdempotentResult::Replayed(_)
            | IdempotentResult::KeyMismatch(_) => SendCycleEnd::Changed,
            IdempotentResult::Done(RecordChangeResult::Missing) => return Err(draft_not_found(seen.id)),
        })
    }

    /// Writes down what a draft became or is to become. The draft as it is then; `None` when it changed meanwhile.
    pub async fn record_draft_email(
        &self,
        caller: &Caller,
        seen: &Draft,
        email: EmailId,
    ) -> Result<Option<Draft>, Problem> {
        let about = DraftDetails { email: Some(email), ..seen.details.clone() };
        match self.change_draft(caller, seen, &about, None).await {
            Ok((draft, _)) => Ok(Some(draft)),
            Err(problem) if problem.code == Code::StaleRev => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Removes a draft. Of one that is to become an email nothing goes any more; when that can no longer be promised,
    /// the draft is sent and comes back as such.
    pub async fn remove_draft(&self, caller: &Caller, id: Uuid) -> Result<Draft, Problem> {
        caller.require_scope(ApiKeyScope::Send)?;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let draft = self.finish_pending_cancel(caller, id).await?;
            if draft.details.sent {
                return Ok(draft);
            }
            if draft.details.removed {
                self.store.remove_record(caller.team.id, RecordKind::Draft, id).await.map_err(unavailable)?;
                return Ok(draft);
            }
            let about = DraftDetails { removed: true, ..draft.details.clone().next_send_cycle() };
            if draft.details.email.is_none() {
                if let SendCycleEnd::AlreadySent(email) = self.end_send_cycle(caller, &draft, &about).await? {
                    self.record_draft_email(caller, &draft, email).await?;
                }
                continue;
            }
            match self.change_draft(caller, &draft, &about, None).await {
                Err(problem) if problem.code != Code::StaleRev => return Err(problem),
                _ => {}
            }
        }
        Err(draft_changes_too_fast())
    }
}
