//! Doing what a person decided, so that it is done once however often it is tried.

use mailonce_core::{
    content::Content,
    conversation::escalation::{Decided, Decision, Edit, Escalation, Reason},
    digest::Digest,
    dispatch::{Act, Choice, Verdict},
    email::{Channel, EmailState, Refusal},
    id::{EmailId, TeamId},
    port::store::{Acted, Once, Resend, StoreError},
    record::{Record, RecordChange},
};

use crate::Engine;

/// How often something that raced with another change is tried anew.
const TRIES: usize = 5;

fn unreadable(record: &Record, error: &serde_json::Error) -> StoreError {
    StoreError::Corrupt(format!("escalation {}: {error}", record.id))
}

impl Engine {
    /// Does what was decided and notes that it is done. Nothing when that was before.
    pub(crate) async fn finish(&self, record: &Record) -> Result<(), StoreError> {
        let mut record = record.clone();
        for _ in 0..TRIES {
            let mut escalation: Escalation =
                serde_json::from_str(&record.about).map_err(|error| unreadable(&record, &error))?;
            if !escalation.is_undone() {
                return Ok(());
            }
            self.carry_out(&record, &escalation).await?;
            let now = self.now();
            escalation.done_at = Some(now);
            let about = serde_json::to_string(&escalation).map_err(|error| unreadable(&record, &error))?;
            match self.store.change_record(record.edit(about), None, now).await? {
                Once::Done(RecordChange::Stale(current)) => record = current,
                _ => return Ok(()),
            }
        }
        Err(StoreError::Unreachable(format!("escalation {} changes too fast", record.id)))
    }

    async fn carry_out(&self, record: &Record, escalation: &Escalation) -> Result<(), StoreError> {
        let (Some(decided), Some(email)) = (&escalation.decided, escalation.about.email) else { return Ok(()) };
        // Of a question that an agent asked, or a thread that goes round, nothing waits.
        if matches!(escalation.reason, Reason::Asked | Reason::Loop | Reason::Unanswered | Reason::Orphaned) {
            return Ok(());
        }
        let team = record.team;
        match decided.decision {
            Decision::Release => {
                self.release(team, email).await?;
            }
            Decision::Reject => self.take_back(team, email).await?,
            Decision::Edit => self.send_edited(team, email, decided).await?,
            Decision::Sent => self.settle_doubt(team, email, Choice::Sent, decided).await?,
            Decision::Resend => self.settle_doubt(team, email, Choice::Resend, decided).await?,
            Decision::Abandon => self.settle_doubt(team, email, Choice::Abandon, decided).await?,
        }
        Ok(())
    }

    /// Takes a held email back. One that left meanwhile, by its sender's own word, stays.
    async fn take_back(&self, team: TeamId, id: EmailId) -> Result<(), StoreError> {
        let cancelled = self.store.cancel(team, id, None, self.now()).await?;
        if let Once::Done(mailonce_core::port::store::Change::Refused(refusal, email)) = cancelled {
            tracing::warn!(email = %id, ?refusal, state = email.state().word(), "a rejected email had left before");
        }
        Ok(())
    }

    /// The next version of a held email, with other words; the held one is taken back in the same commit, so that nobody
    /// else answers between. The same again when it was made before.
    async fn send_edited(&self, team: TeamId, id: EmailId, decided: &Decided) -> Result<(), StoreError> {
        let Some(detail) = self.store.email_detail(team, id).await? else { return Ok(()) };
        let (email, edit) = (detail.email, decided.edit.clone().unwrap_or_default());
        if email.resent_as.is_some() || email.state() != EmailState::Held {
            return Ok(());
        }
        let Some(mut content) = detail.body.as_deref().and_then(|body| self.bodies.unpack(body)) else {
            tracing::error!(email = %id, "the body of a held email cannot be read; it is taken back");
            return self.take_back(team, id).await;
        };
        apply(&mut content, edit);
        let body = self.bodies.pack(&content);
        let envelopes = self.envelopes_again(&email, &body);
        let now = self.now();
        let mut wish = self.next_version((decided.by, Channel::Http), &email, body.into(), envelopes, now);
        wish.care.takes_back = true;
        // It goes at the time it was wished for, as it would have without other words.
        wish.due = email.wished_for(now);
        wish.digest = Digest::of(&content);
        wish.head.subject = content.subject;
        wish.head.reason = Some("a person gave it other words".into());
        match self.store.resend(wish, None, now).await? {
            Once::Done(Resend::Refused(refusal, _)) => {
                tracing::error!(email = %id, ?refusal, "other words for a held email were refused");
            }
            _ => self.ways.wake(),
        }
        Ok(())
    }

    async fn settle_doubt(
        &self,
        team: TeamId,
        id: EmailId,
        choice: Choice,
        decided: &Decided,
    ) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let Some(email) = self.store.email(team, id).await? else { return Ok(()) };
            if email.state() != EmailState::Unknown {
                return Ok(());
            }
            let reason = decided.reason.clone().unwrap_or_else(|| "decided about an escalation".into());
            let act = Act::Resolve { choice, rev: email.rev, handoff: None, reason };
            let acted = self.store.act(team, id, act, None, self.now()).await?;
            self.ways.wake();
            if !matches!(acted, Once::Done(Acted::Email(Verdict::Refused(Refusal::StaleRev), _))) {
                self.metrics.resolved("person");
                return Ok(());
            }
        }
        Err(StoreError::Unreachable(format!("email {id} changes too fast")))
    }
}

/// Other words. A text without a page, or a page without a text, replaces both: the other would still say the old.
fn apply(content: &mut Content, edit: Edit) {
    if let Some(subject) = edit.subject {
        content.subject = subject;
    }
    if edit.text.is_some() || edit.html.is_some() {
        (content.text, content.html) = (edit.text, edit.html);
    }
}
