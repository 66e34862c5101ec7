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
    digest,
    id::EmailId,
    key::KeyName,
    port::store::{Bound, Once},
    problem::{Code, Problem},
    record::{RecordChange, RecordEdit, RecordKind},
    team::Scope,
};
use uuid::Uuid;

use crate::{
    Asked, Caller, Engine,
    drafts::{AboutDraft, Draft, missing},
    operation, unavailable,
};

/// How often a step that raced with another is tried anew: each time another one came through.
pub const STEPS: usize = 200;

/// How the end of a turn came out.
#[derive(Debug)]
pub enum TurnEnd {
    /// Nothing is made of it any more, and the draft is what it was to be.
    Ended(Box<Draft>),
    /// This was made of it before.
    Became(EmailId),
    /// The draft changed meanwhile: look again.
    Changed,
}

impl AboutDraft {
    /// Whether it is to wait in the ledger and nobody knows yet that it does.
    pub fn is_pending(&self) -> bool {
        self.send_at.is_some() && self.email.is_none() && !self.sent && !self.removed
    }

    /// The same draft in its next turn: what it was to become is owed.
    #[must_use]
    pub fn next_turn(self) -> Self {
        Self { owed: self.email, email: None, turn: self.turn + 1, ..self }
    }
}

/// The problem of a draft that never rests.
pub fn restless() -> Problem {
    Problem::new(Code::StaleRev, "the draft changes all the time; try again")
}

impl Engine {
    /// A draft that owes nothing: what must not go was taken back, or had left, and then the draft is sent.
    pub async fn settled_draft(&self, caller: &Caller, id: Uuid) -> Result<Draft, Problem> {
        for _ in 0..STEPS {
            let draft = self.draft(caller, id).await?;
            let Some(owed) = draft.about.owed else { return Ok(draft) };
            let mut about = AboutDraft { owed: None, ..draft.about.clone() };
            if !self.is_taken_back(caller, owed).await? {
                (about.email, about.sent, about.removed) = (Some(owed), true, false);
            }
            match self.change_draft(caller, &draft, &about, None).await {
                Ok((draft, _)) => return Ok(draft),
                Err(problem) if problem.code == Code::StaleRev => {}
                Err(problem) => return Err(problem),
            }
        }
        Err(restless())
    }

    /// Takes an email back. False when it left, or may have.
    async fn is_taken_back(&self, caller: &Caller, id: EmailId) -> Result<bool, Problem> {
        match self.cancel(caller, id, None).await {
            Ok(_) => Ok(true),
            Err(problem) if problem.code == Code::TooLate => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// The key under which a turn of a draft becomes an email.
    pub fn key_of_turn(&self, caller: &Caller, draft: &Draft) -> Result<mailonce_core::key::Key, Problem> {
        self.own_key(caller, "draft", draft.id, draft.about.turn)
    }

    /// Ends a turn of which somebody may be making an email: takes its key and changes the draft, in one commit.
    pub async fn end_turn(&self, caller: &Caller, seen: &Draft, about: &AboutDraft) -> Result<TurnEnd, Problem> {
        caller.need(Scope::Send)?;
        let (now, team, kind) = (self.now(), caller.team.id, RecordKind::Draft);
        let key = self.key_of_turn(caller, seen)?;
        let digest = digest::of_operation("draft turn ended", &seen.id.to_string(), &[]);
        let operation = operation(caller, Some(&Asked { name: KeyName::Given(key), digest }), Vec::new(), now);
        let edit = RecordEdit { team, kind, id: seen.id, rev: seen.rev, about: self.draft_record(about)? };
        Ok(match self.store.change_record(edit, operation, now).await.map_err(unavailable)? {
            Once::Done(RecordChange::Changed(record)) => TurnEnd::Ended(Box::new(self.draft_view(&record)?)),
            Once::Mismatch(Bound::Email(email)) => TurnEnd::Became(email.id),
            // Somebody else ended it.
            Once::Done(RecordChange::Stale(_)) | Once::Repeated(_) | Once::Mismatch(_) => TurnEnd::Changed,
            Once::Done(RecordChange::Missing) => return Err(missing(seen.id)),
        })
    }

    /// Writes down what a draft became or is to become. The draft as it is then; `None` when it changed meanwhile.
    pub async fn note_email_of_draft(
        &self,
        caller: &Caller,
        seen: &Draft,
        email: EmailId,
    ) -> Result<Option<Draft>, Problem> {
        let about = AboutDraft { email: Some(email), ..seen.about.clone() };
        match self.change_draft(caller, seen, &about, None).await {
            Ok((draft, _)) => Ok(Some(draft)),
            Err(problem) if problem.code == Code::StaleRev => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Removes a draft. Of one that is to become an email nothing goes any more; when that can no longer be promised,
    /// the draft is sent and comes back as such.
    pub async fn remove_draft(&self, caller: &Caller, id: Uuid) -> Result<Draft, Problem> {
        caller.need(Scope::Send)?;
        for _ in 0..STEPS {
            let draft = self.settled_draft(caller, id).await?;
            if draft.about.sent {
                return Ok(draft);
            }
            if draft.about.removed {
                self.store.remove_record(caller.team.id, RecordKind::Draft, id).await.map_err(unavailable)?;
                return Ok(draft);
            }
            let about = AboutDraft { removed: true, ..draft.about.clone().next_turn() };
            if draft.about.email.is_none() {
                if let TurnEnd::Became(email) = self.end_turn(caller, &draft, &about).await? {
                    self.note_email_of_draft(caller, &draft, email).await?;
                }
                continue;
            }
            match self.change_draft(caller, &draft, &about, None).await {
                Err(problem) if problem.code != Code::StaleRev => return Err(problem),
                _ => {}
            }
        }
        Err(restless())
    }
}
