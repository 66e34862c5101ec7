//! Escalations: questions for a person. Each is opened once and decided once. Agents may open one; people decide.

use crate::{
    access::caller::Caller,
    conversation::{Escalations, diff, preview::Preview},
    outbound::content_guard::content_fingerprint,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CreateOutcome, CursorPage},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::escalation::{
        Decision, DecisionRecord, EmailEdit, Escalation, EscalationReason, EscalationState, EscalationSubject,
    },
    id::{ApiKeyId, EmailId, MessageId, TeamId, ThreadId},
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

/// Pages of records that are read to fill one page of a filtered list.
const MAX_PAGES: usize = 10;
/// Recipients of a held email for whom an earlier email with the same intent is looked up.
const RECIPIENT_SCAN_LIMIT: usize = 5;

/// An escalation as the API shows it.
#[derive(Clone, Debug)]
pub struct EscalationView {
    /// Its id.
    pub id: Uuid,
    /// Its revision number.
    pub rev: u32,
    /// When it was opened.
    pub created_at: Time,
    /// Its reason, subject, state and decision.
    pub escalation: Escalation,
    /// The email that it is about, with a preview. Set only when a single escalation is read.
    pub email: Option<(Email, Option<Preview>)>,
    /// The earlier email because of which this one is held, with a line diff. Set only when one escalation is read.
    pub earlier_email: Option<(Email, Vec<String>)>,
    /// The name of the person who decided. Set only when one escalation is read.
    pub decided_by: Option<String>,
}

/// Filters for a list of escalations.
#[derive(Clone, Copy, Debug, Default)]
pub struct EscalationQuery {
    /// Only escalations in this state.
    pub state: Option<EscalationState>,
    /// Only escalations with this reason.
    pub reason: Option<EscalationReason>,
}

/// A question that an agent asks a person.
#[derive(Clone, Debug)]
pub struct NewEscalation {
    /// The question in the agent's own words.
    pub question: String,
    /// The message that it is about.
    pub message: Option<MessageId>,
    /// The thread that it is about.
    pub thread: Option<ThreadId>,
    /// The email that it is about.
    pub email: Option<EmailId>,
    /// The agent's name for the matter. Asking the same question about it again returns the existing escalation.
    pub entity: Option<String>,
}

/// A request to decide an escalation.
#[derive(Clone, Debug)]
pub struct DecisionRequest {
    /// The decision.
    pub decision: Decision,
    /// The revision that the person saw. A stale revision is refused.
    pub rev: u32,
    /// The new subject and content, for [`Decision::Edit`].
    pub edit: Option<EmailEdit>,
    /// Why the person decided so.
    pub reason: Option<String>,
    /// The digest of the preview that the person saw. When set, the decision is refused if the preview has changed.
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
        decided_by: None,
    })
}

/// Whether a character may not be in a question: control characters other than line breaks and tabs, which no email can
/// have and which a terminal would obey.
pub(super) fn is_forbidden_in_question(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\r' | '\t')
}

impl Escalations {
    /// Opens an escalation for an agent's question, or returns the one that is already open.
    pub async fn ask_person(
        &self,
        caller: &Caller,
        new: NewEscalation,
    ) -> Result<CreateOutcome<EscalationView>, Problem> {
        caller.require_scope(ApiKeyScope::Reply)?;
        if new.question.chars().any(is_forbidden_in_question) {
            let detail = "must have no control characters other than line breaks and tabs";
            return Err(Problem::invalid_field("question", detail));
        }
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
        // Deduplicate per inbox: an agent restricted to another inbox must not see this escalation or its decision.
        if let Some(restriction) = &caller.inbox_restriction
            && about.inbox.is_none()
        {
            about.inbox = restriction.first_inbox();
        }
        let escalation = Escalation::open(EscalationReason::Asked, about, Some(caller.key.id));
        let created = self.open_escalation(caller.team.id, escalation).await.map_err(unavailable)?;
        Ok(CreateOutcome { value: view(&created.value)?, is_new: created.is_new })
    }

    /// Whether a caller may see an escalation. A caller restricted to inboxes sees those of its inboxes and its own.
    async fn may_see_escalation(&self, caller: &Caller, escalation: &Escalation) -> Result<bool, Problem> {
        if escalation.opened_by == Some(caller.key.id) {
            return Ok(true);
        }
        let Some(restriction) = &caller.inbox_restriction else { return Ok(true) };
        let about = (escalation.about.inbox, escalation.about.email);
        self.access.is_within_restriction(restriction, caller.team.id, about).await.map_err(unavailable)
    }

    /// Lists escalations, newest first.
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

    /// One escalation, with a preview of the email that it is about.
    pub async fn escalation(&self, caller: &Caller, id: Uuid) -> Result<EscalationView, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        self.escalation_with_preview(caller, id).await
    }

    /// An escalation of the caller's team, or `not_found` when the caller may not see it.
    async fn visible_escalation(&self, caller: &Caller, id: Uuid) -> Result<(Record, EscalationView), Problem> {
        let record = self.ctx.team_record(caller, RecordKind::Escalation, id).await?;
        let shown = view(&record)?;
        if !self.may_see_escalation(caller, &shown.escalation).await? {
            return Err(records::not_found(RecordKind::Escalation, &id.to_string()));
        }
        Ok((record, shown))
    }

    /// An escalation with a preview of its email. The callers of this method check the scope.
    async fn escalation_with_preview(&self, caller: &Caller, id: Uuid) -> Result<EscalationView, Problem> {
        let (_, mut shown) = self.visible_escalation(caller, id).await?;
        shown.decided_by = self.decider_name(caller.team.id, &shown.escalation).await?;
        let Some(email) = shown.escalation.about.email else { return Ok(shown) };
        let detail = self.ctx.store.email_detail(caller.team.id, email).await.map_err(unavailable)?;
        let Some(detail) = detail else { return Ok(shown) };
        let content = detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body));
        if let Some(content) = &content {
            let earlier = self.find_earlier_email(shown.escalation.reason, &detail.email, content).await;
            let own = |(email, _): &(Email, Vec<String>)| caller.may_see_sender(&email.head.from);
            shown.earlier_email = earlier.map_err(unavailable)?.filter(own);
        }
        let preview = match content {
            Some(content) => Some(self.preview(&detail.email, content).await.map_err(unavailable)?),
            None => None,
        };
        shown.email = Some((detail.email, preview));
        Ok(shown)
    }

    /// The name of the person who decided, or of the notification target whose link was used.
    async fn decider_name(&self, team: TeamId, escalation: &Escalation) -> Result<Option<String>, Problem> {
        let Some(id) = escalation.decision.as_ref().and_then(|decision| decision.person) else { return Ok(None) };
        if let Some(view) = self.access.person_of(team, id).await? {
            return Ok(Some(view.person.name));
        }
        let target = self.ctx.store.record(team, RecordKind::NotificationTarget, id.0).await.map_err(unavailable)?;
        Ok(target.map(|record| record.name))
    }

    /// The problem for a decision about an escalation that has changed since it was read.
    async fn conflict_with(&self, record: &Record) -> Result<Problem, Problem> {
        let escalation: Escalation = records::decode(record)?;
        match escalation.state {
            EscalationState::Open => Ok(stale_rev(record)),
            _ => self.not_open(record.team, record.rev, &escalation).await,
        }
    }

    /// The problem for a decision about an escalation that is closed. It names whoever decided, and how.
    pub(super) async fn not_open(&self, team: TeamId, rev: u32, escalation: &Escalation) -> Result<Problem, Problem> {
        let state = escalation.state.as_str();
        let decided = escalation.decision.as_ref().filter(|decided| decided.by.is_some());
        let Some(decided) = decided else {
            let problem = Problem::new(Code::NotOpen, format!("this escalation is {state}"));
            return Ok(problem.with_extension("state", state).with_extension("rev", rev));
        };
        let name = match self.decider_name(team, escalation).await? {
            Some(name) => name,
            None => self.key_name(team, decided.by).await?,
        };
        let decision = decided.decision.as_str();
        let detail = format!("this escalation is {state}: {name} decided `{decision}` at {}", decided.at);
        let problem = Problem::new(Code::NotOpen, detail).with_extension("state", state).with_extension("rev", rev);
        Ok(problem.with_extension("decided_by", name).with_extension("as", decision))
    }

    /// The name of an API key that decided.
    async fn key_name(&self, team: TeamId, id: Option<ApiKeyId>) -> Result<String, Problem> {
        let keys = self.ctx.store.api_keys(team).await.map_err(unavailable)?;
        let key = keys.into_iter().find(|key| Some(key.id) == id);
        Ok(key.map_or_else(|| "somebody".to_owned(), |key| format!("API key {}", key.details.name)))
    }

    /// The earlier email because of which this one is held, with a line diff.
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
        let Some((other, earlier_content)) = found else { return Ok(None) };
        let full_text = |content: &EmailContent| {
            let body = content.text.as_deref().or(content.html.as_deref()).unwrap_or_default();
            format!("{}\n{body}", content.subject)
        };
        Ok(Some((other, diff::lines(&full_text(&earlier_content), &full_text(content)))))
    }

    /// The latest earlier email that looks like this one, with its content.
    async fn find_earlier_look_alike(
        &self,
        email: &Email,
        content: &EmailContent,
    ) -> Result<Option<(Email, EmailContent)>, StoreError> {
        let latest =
            self.outbound.content_guard.latest_emails(email.team, Some(email.id), email.head.created_at).await?;
        let similar = self
            .outbound
            .content_guard
            .find_look_alike(&content_fingerprint(email.team, content), content, &latest)
            .await?;
        let is_spelling = |other: &&Email| match (&other.head.intent, &email.head.intent) {
            (Some(other_intent), Some(intent)) => other_intent.is_spelling_of(intent) && other.head.to == email.head.to,
            _ => false,
        };
        let Some(other) = similar.or_else(|| latest.iter().find(is_spelling)) else { return Ok(None) };
        Ok(self
            .outbound
            .content_guard
            .stored_content(other)
            .await?
            .map(|earlier_content| (other.clone(), earlier_content)))
    }

    /// The latest earlier email with the same intent to one of the recipients, with its content.
    async fn find_same_intent(&self, email: &Email) -> Result<Option<(Email, EmailContent)>, StoreError> {
        for to in email.head.to.iter().take(RECIPIENT_SCAN_LIMIT) {
            let (to, before) = (Some(to.clone()), Some(email.id));
            let query = EmailQuery { to, before, limit: limits::PAGE_ROWS, ..EmailQuery::default() };
            let page = self.ctx.store.emails(email.team, query).await?;
            let same = page.rows.into_iter().find(|other| other.head.intent == email.head.intent);
            let Some(other) = same else { continue };
            if let Some(earlier_content) = self.outbound.content_guard.stored_content(&other).await? {
                return Ok(Some((other, earlier_content)));
            }
        }
        Ok(None)
    }

    /// Records a person's decision and carries it out before returning. After a crash the escalation worker does that.
    pub async fn resolve_escalation(
        &self,
        caller: &Caller,
        id: Uuid,
        request: DecisionRequest,
        keyed_call: Option<KeyedCall>,
    ) -> Result<EscalationView, Problem> {
        caller.require_decider()?;
        let (kind, now) = (RecordKind::Escalation, self.ctx.now());
        let (record, _) = self.visible_escalation(caller, id).await?;
        if !self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await? {
            let decision = DecisionRecord {
                decision: request.decision,
                at: now,
                by: Some(caller.key.id),
                person: caller.person(),
                reason: request.reason,
                edit: request.edit.map(EmailEdit::without_blanks),
                shown: request.preview_digest,
            };
            self.check_preview_digest(caller, &record, decision.shown.as_deref()).await?;
            let escalation = self.with_decision(&record, request.rev, decision).await?;
            let edit = record.edit(records::encode(&escalation)?);
            let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
            match self.ctx.store.change_record(edit, operation, now).await.map_err(unavailable)? {
                IdempotentResult::Done(RecordChangeResult::Changed(_)) | IdempotentResult::Replayed(_) => {}
                IdempotentResult::Done(RecordChangeResult::Stale(record)) => {
                    return Err(self.conflict_with(&record).await?);
                }
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

    /// Refuses a decision whose digest does not match the preview of what would be sent.
    async fn check_preview_digest(&self, caller: &Caller, record: &Record, shown: Option<&str>) -> Result<(), Problem> {
        let Some(shown) = shown else { return Ok(()) };
        let escalation: Escalation = records::decode(record)?;
        let Some(id) = escalation.about.email else {
            return Err(Problem::invalid_field(
                "digest",
                "is not allowed: this escalation is not about an email. Leave it out.",
            ));
        };
        let detail = self.ctx.store.email_detail(caller.team.id, id).await.map_err(unavailable)?;
        let Some(detail) = detail else { return Err(preview_changed(record)) };
        let Some(content) = detail.body.as_deref().and_then(|body| self.ctx.packer.unpack(body)) else {
            return Err(preview_changed(record));
        };
        let preview = self.preview(&detail.email, content).await.map_err(unavailable)?;
        if preview.digest(id) == shown { Ok(()) } else { Err(preview_changed(record)) }
    }

    /// The escalation with this decision, or the problem that prevents it.
    async fn with_decision(&self, record: &Record, rev: u32, decision: DecisionRecord) -> Result<Escalation, Problem> {
        let mut escalation: Escalation = records::decode(record)?;
        if escalation.state != EscalationState::Open || record.rev != rev {
            return Err(self.conflict_with(record).await?);
        }
        // The sender may have cancelled or released the email since.
        if self.is_moot(record, &escalation).await.map_err(unavailable)? {
            self.review_escalation(record).await.map_err(unavailable)?;
            escalation.state = EscalationState::Moot;
            return Err(self.not_open(record.team, record.rev + 1, &escalation).await?);
        }
        let allowed = escalation.reason.allowed_decisions();
        if !allowed.contains(&decision.decision) {
            let names: Vec<&str> = allowed.iter().map(|choice| choice.as_str()).collect();
            return Err(Problem::invalid_field(
                "as",
                format!("must be one of {} for this escalation", names.join(", ")),
            ));
        }
        match (decision.decision, &decision.edit) {
            (Decision::Edit, Some(edit)) => check_edit(edit)?,
            (Decision::Edit, None) => {
                return Err(Problem::invalid_field(
                    "edit",
                    "is required with `as: edit`: give `subject`, `text` or `html`",
                ));
            }
            (_, Some(_)) => return Err(Problem::invalid_field("edit", "is only allowed with `as: edit`")),
            (_, None) => {}
        }
        escalation.decide(decision);
        Ok(escalation)
    }
}

fn preview_changed(record: &Record) -> Problem {
    let detail = "the email has changed since the preview with this `digest`";
    let next = "Read the escalation again, check `draft.shown`, and decide with the new `digest`.";
    Problem::new(Code::StaleRev, detail).with_extension("rev", record.rev).with_extension("next", next)
}

fn stale_rev(record: &Record) -> Problem {
    Problem::new(Code::StaleRev, "this escalation has changed since `rev` was read").with_extension("rev", record.rev)
}

/// Validates an edit by the same rules as a send.
fn check_edit(edit: &EmailEdit) -> Result<(), Problem> {
    if edit.subject.is_none() && edit.text.is_none() && edit.html.is_none() {
        return Err(Problem::invalid_field("edit", "must set `subject`, `text` or `html`"));
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
