//! Escalations: questions for a person, asked once and answered once. Agents may ask; people decide.

use crate::{
    access::caller::Caller,
    conversation::{Escalations, diff, preview::Preview},
    outbound::content_guard::content_fingerprint,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{invalid_field, key_mismatch, unavailable},
        records::{self, CreateOutcome, CursorPage},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::escalation::{
        Decision, DecisionRecord, EmailEdit, Escalation, EscalationReason, EscalationState, EscalationSubject,
    },
    id::{EmailId, MessageId, ThreadId},
    limits,
    operation::IdempotentResult,
    outbound::{
        content::{EmailContent, RawContent},
        email::Email,
        email_query::EmailQuery,
    },
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{Record, RecordChangeResult, RecordKind},
    time::Time,
};
use uuid::Uuid;

/// Pages of records that one page of a list is picked from.
const MAX_PAGES: usize = 10;
/// Recipients of a held email for whom an earlier one is looked up.
const RECIPIENT_SCAN_LIMIT: usize = 5;

/// A question as people see it.
#[derive(Clone, Debug)]
pub struct EscalationView {
    /// Its id.
    pub id: Uuid,
    /// Its rev.
    pub rev: u32,
    /// When it was asked.
    pub created_at: Time,
    /// What it says.
    pub escalation: Escalation,
    /// The email it is about, with what that says; only when one question is read.
    pub email: Option<(Email, Option<Preview>)>,
    /// The email that the draft looks like, and what differs.
    pub earlier_email: Option<(Email, Vec<String>)>,
}

/// Which questions to list.
#[derive(Clone, Copy, Debug, Default)]
pub struct EscalationQuery {
    /// In this state.
    pub state: Option<EscalationState>,
    /// For this reason.
    pub reason: Option<EscalationReason>,
}

/// A question that an agent asks.
#[derive(Clone, Debug)]
pub struct NewEscalation {
    /// In its own words.
    pub question: String,
    /// About this message.
    pub message: Option<MessageId>,
    /// About this thread.
    pub thread: Option<ThreadId>,
    /// About this email.
    pub email: Option<EmailId>,
    /// What the agent calls the matter: the same question about it again is the same question.
    pub entity: Option<String>,
}

/// What a person decides.
#[derive(Clone, Debug)]
pub struct DecisionRequest {
    /// What.
    pub decision: Decision,
    /// The rev that was seen.
    pub rev: u32,
    /// Other words.
    pub edit: Option<EmailEdit>,
    /// Why.
    pub reason: Option<String>,
    /// The digest of the preview that was shown, when the decision is bound to one.
    pub preview_digest: Option<String>,
}

fn view(record: &Record) -> Result<EscalationView, Problem> {
    Ok(EscalationView {
        id: record.id,
        rev: record.rev,
        created_at: record.created_at,
        escalation: records::decode(record)?,
        email: None,
        earlier_email: None,
    })
}

impl Escalations {
    /// An agent asks a person.
    pub async fn ask_person(
        &self,
        caller: &Caller,
        new: NewEscalation,
    ) -> Result<CreateOutcome<EscalationView>, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        let mut about =
            EscalationSubject { question: Some(new.question), entity: new.entity, ..EscalationSubject::default() };
        if let Some(id) = new.message {
            let missing = || Problem::new(Code::NotFound, format!("there is no message {id}"));
            let message = self.ctx.store.message(caller.team.id, id).await.map_err(unavailable)?.ok_or_else(missing)?;
            let (_, inbox) = self.inboxes.thread(caller, message.thread).await.map_err(|_not_theirs| missing())?;
            (about.message, about.thread, about.inbox) = (Some(id), Some(message.thread), Some(inbox.id));
        } else if let Some(id) = new.thread {
            let (_, inbox) = self.inboxes.thread(caller, id).await?;
            (about.thread, about.inbox) = (Some(id), Some(inbox.id));
        }
        if let Some(id) = new.email {
            about.email = Some(self.outbound.email(caller, id).await?.id);
        }
        // The same question of an agent of another inbox is another question, whose answer is not this agent's to read.
        if let Some(ties) = &caller.inbox_restriction
            && about.inbox.is_none()
        {
            about.inbox = ties.first_inbox();
        }
        let escalation = Escalation::open(EscalationReason::Asked, about, Some(caller.key.id));
        let made = self.open_escalation(caller.team.id, escalation).await.map_err(unavailable)?;
        Ok(CreateOutcome { value: view(&made.value)?, is_new: made.is_new })
    }

    /// Whether a caller may see a question: one tied to inboxes sees theirs and its own.
    async fn may_see_escalation(&self, caller: &Caller, escalation: &Escalation) -> Result<bool, Problem> {
        if escalation.asked_by == Some(caller.key.id) {
            return Ok(true);
        }
        let Some(ties) = &caller.inbox_restriction else { return Ok(true) };
        let about = (escalation.about.inbox, escalation.about.email);
        self.access.is_within_restriction(ties, caller.team.id, about).await.map_err(unavailable)
    }

    /// Questions, newest first.
    pub async fn escalations(
        &self,
        caller: &Caller,
        query: EscalationQuery,
        mut before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<EscalationView>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        let mut rows = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.ctx.team_records(caller, RecordKind::Escalation, before, limits::PAGE_ROWS, view).await?;
            let read = page.rows.len();
            for (n, row) in page.rows.into_iter().enumerate() {
                before = Some(row.id);
                let wanted = query.state.is_none_or(|state| row.escalation.state == state)
                    && query.reason.is_none_or(|reason| row.escalation.reason == reason);
                if wanted && self.may_see_escalation(caller, &row.escalation).await? {
                    rows.push(row);
                }
                if rows.len() == limit {
                    let more = n + 1 < read || page.next.is_some();
                    return Ok(CursorPage { rows, next: before.filter(|_| more) });
                }
            }
            if page.next.is_none() {
                return Ok(CursorPage { rows, next: None });
            }
        }
        Ok(CursorPage { rows, next: before })
    }

    /// One question, with the email it is about and what that looks like.
    pub async fn escalation(&self, caller: &Caller, id: Uuid) -> Result<EscalationView, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        self.escalation_with_preview(caller, id).await
    }

    /// A question of the caller's team that the caller may see.
    async fn visible_escalation(&self, caller: &Caller, id: Uuid) -> Result<(Record, EscalationView), Problem> {
        let record = self.ctx.team_record(caller, RecordKind::Escalation, id).await?;
        let shown = view(&record)?;
        if !self.may_see_escalation(caller, &shown.escalation).await? {
            return Err(records::not_found(RecordKind::Escalation, &id.to_string()));
        }
        Ok((record, shown))
    }

    /// The same with the email it is about and what that looks like: for whoever may read it, and whoever decided it.
    async fn escalation_with_preview(&self, caller: &Caller, id: Uuid) -> Result<EscalationView, Problem> {
        let (_, mut shown) = self.visible_escalation(caller, id).await?;
        let Some(email) = shown.escalation.about.email else { return Ok(shown) };
        let detail = self.ctx.store.email_detail(caller.team.id, email).await.map_err(unavailable)?;
        let Some(detail) = detail else { return Ok(shown) };
        let content = detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body));
        if let Some(content) = &content {
            let earlier = self.find_earlier_email(shown.escalation.reason, &detail.email, content).await;
            let own = |(email, _): &(Email, Vec<String>)| caller.may_see_sender(&email.head.from);
            shown.earlier_email = earlier.map_err(unavailable)?.filter(own);
        }
        let preview = match &content {
            Some(content) => Some(self.preview(&detail.email, content).await.map_err(unavailable)?),
            None => None,
        };
        shown.email = Some((detail.email, preview));
        Ok(shown)
    }

    /// The earlier email because of which another is held, and what differs.
    async fn find_earlier_email(
        &self,
        reason: EscalationReason,
        email: &Email,
        content: &EmailContent,
    ) -> Result<Option<(Email, Vec<String>)>, StoreError> {
        let found = match reason {
            EscalationReason::LooksDuplicate => self.find_earlier_look_alike(email, content).await?,
            EscalationReason::Overlaps => self.find_same_intent(email).await?,
            _ => None,
        };
        let Some((other, said)) = found else { return Ok(None) };
        let whole = |content: &EmailContent| {
            let words = content.text.as_deref().or(content.html.as_deref()).unwrap_or_default();
            format!("{}\n{words}", content.subject)
        };
        Ok(Some((other, diff::lines(&whole(&said), &whole(content)))))
    }

    /// The latest email before this one that looks like it, with what it says.
    async fn find_earlier_look_alike(
        &self,
        email: &Email,
        content: &EmailContent,
    ) -> Result<Option<(Email, EmailContent)>, StoreError> {
        let latest = self.outbound.latest_emails(email.team, Some(email.id), email.head.created_at).await?;
        let Some(other) =
            self.outbound.find_look_alike(&content_fingerprint(email.team, content), content, &latest).await?
        else {
            return Ok(None);
        };
        Ok(self.outbound.stored_content(other).await?.map(|said| (other.clone(), said)))
    }

    /// The latest email before this one that says the same intent to one of its recipients, with what it says.
    async fn find_same_intent(&self, email: &Email) -> Result<Option<(Email, EmailContent)>, StoreError> {
        for to in email.head.to.iter().take(RECIPIENT_SCAN_LIMIT) {
            let (to, before) = (Some(to.clone()), Some(email.id));
            let query = EmailQuery { to, before, limit: limits::PAGE_ROWS, ..EmailQuery::default() };
            let page = self.ctx.store.emails(email.team, query).await?;
            let same = page.rows.into_iter().find(|other| other.head.intent == email.head.intent);
            let Some(other) = same else { continue };
            if let Some(said) = self.outbound.stored_content(&other).await? {
                return Ok(Some((other, said)));
            }
        }
        Ok(None)
    }

    /// A person decides. What was decided is done before this returns, or soon after a crash.
    pub async fn resolve_escalation(
        &self,
        caller: &Caller,
        id: Uuid,
        verdict: DecisionRequest,
        asked: Option<KeyedCall>,
    ) -> Result<EscalationView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let (kind, now) = (RecordKind::Escalation, self.ctx.now());
        let (record, _) = self.visible_escalation(caller, id).await?;
        if !self.ctx.is_repeated_call(caller, asked.as_ref()).await? {
            let decided = DecisionRecord {
                decision: verdict.decision,
                at: now,
                by: Some(caller.key.id),
                reason: verdict.reason,
                edit: verdict.edit.map(EmailEdit::without_blanks),
                shown: verdict.preview_digest,
            };
            self.check_preview_digest(caller, &record, decided.shown.as_deref()).await?;
            let escalation = self.with_decision(&record, verdict.rev, decided).await?;
            let edit = record.edit(records::encode(&escalation)?);
            let operation = operation(caller, asked.as_ref(), Vec::new(), now);
            match self.ctx.store.change_record(edit, operation, now).await.map_err(unavailable)? {
                IdempotentResult::Done(RecordChangeResult::Changed(_)) | IdempotentResult::Replayed(_) => {}
                IdempotentResult::Done(RecordChangeResult::Stale(record)) => return Err(stale_rev(&record)),
                IdempotentResult::Done(RecordChangeResult::Missing) => {
                    return Err(records::not_found(kind, &id.to_string()));
                }
                IdempotentResult::KeyMismatch(bound) => return Err(key_mismatch(&bound)),
            }
        }
        let record = self.ctx.team_record(caller, kind, id).await?;
        self.complete_decision(&record).await.map_err(unavailable)?;
        self.escalation_with_preview(caller, id).await
    }

    /// Refuses a decision about something else than what would be sent.
    async fn check_preview_digest(&self, caller: &Caller, record: &Record, shown: Option<&str>) -> Result<(), Problem> {
        let Some(shown) = shown else { return Ok(()) };
        let escalation: Escalation = records::decode(record)?;
        let Some(id) = escalation.about.email else { return Err(invalid_field("digest", "belongs to no email")) };
        let detail = self.ctx.store.email_detail(caller.team.id, id).await.map_err(unavailable)?;
        let Some(detail) = detail else { return Err(preview_changed(record)) };
        let Some(content) = detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)) else {
            return Err(preview_changed(record));
        };
        let preview = self.preview(&detail.email, &content).await.map_err(unavailable)?;
        if preview.digest(id) == shown { Ok(()) } else { Err(preview_changed(record)) }
    }

    /// The question with this answer, or why it cannot be.
    async fn with_decision(&self, record: &Record, rev: u32, decided: DecisionRecord) -> Result<Escalation, Problem> {
        let mut escalation: Escalation = records::decode(record)?;
        if escalation.state != EscalationState::Open {
            return Err(not_open(escalation.state, record.rev));
        }
        if record.rev != rev {
            return Err(stale_rev(record));
        }
        // Its sender may have taken back what it is about, a moment ago.
        if self.is_moot(record, &escalation).await.map_err(unavailable)? {
            self.review_escalation(record).await.map_err(unavailable)?;
            return Err(not_open(EscalationState::Moot, record.rev + 1));
        }
        let choices = escalation.reason.allowed_decisions();
        if !choices.contains(&decided.decision) {
            let words: Vec<&str> = choices.iter().map(|choice| choice.as_str()).collect();
            return Err(invalid_field("as", format!("is one of {} here", words.join(", "))));
        }
        match (decided.decision, &decided.edit) {
            (Decision::Edit, Some(edit)) => check_edit(edit)?,
            (Decision::Edit, None) => return Err(invalid_field("edit", "is missing: it holds the other words")),
            (_, Some(_)) => return Err(invalid_field("edit", "goes with `as: edit` alone")),
            (_, None) => {}
        }
        escalation.decide(decided);
        Ok(escalation)
    }
}

fn not_open(state: EscalationState, rev: u32) -> Problem {
    let problem = Problem::new(Code::NotOpen, format!("this escalation is {}", state.as_str()));
    problem.with_extension("state", state.as_str()).with_extension("rev", rev)
}

fn preview_changed(record: &Record) -> Problem {
    let detail = "the email is not the one with this `digest`";
    let next = "Read the escalation again, look at `draft.shown`, and decide with the `digest` beside it.";
    Problem::new(Code::StaleRev, detail).with_extension("rev", record.rev).with_extension("next", next)
}

fn stale_rev(record: &Record) -> Problem {
    Problem::new(Code::StaleRev, "this escalation changed since it was looked at").with_extension("rev", record.rev)
}

/// Other words are words that could have been sent.
fn check_edit(edit: &EmailEdit) -> Result<(), Problem> {
    if edit.subject.is_none() && edit.text.is_none() && edit.html.is_none() {
        return Err(invalid_field("edit", "changes nothing"));
    }
    let text = edit.text.clone().or_else(|| edit.html.is_none().then(|| "-".to_owned()));
    let raw = RawContent {
        from: "a@mailonce.test".into(),
        to: vec!["b@mailonce.test".into()],
        subject: edit.subject.clone().unwrap_or_default(),
        text,
        html: edit.html.clone(),
        ..RawContent::default()
    };
    EmailContent::validate(raw).map_err(|mut faults| {
        faults.iter_mut().for_each(|fault| fault.path = format!("edit.{}", fault.path));
        Problem::from(faults)
    })?;
    Ok(())
}
