//! Escalations: questions for a person.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::escalation::{Decision, DecisionRecord, EmailEdit, EscalationReason, EscalationState},
    limits,
    outbound::email::Email,
    problem::{Code, Problem},
};
use mailonce_engine::conversation::{
    escalations::{DecisionRequest, EscalationQuery, EscalationView, NewEscalation},
    preview::{Preview, PreviewFile},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::api::{
    ApiResult, App, PathParam, QueryParams,
    door::{AuthedRequest, RawBody},
    inbox::{
        inboxes::{invalid_field, invalid_query},
        messages::message_id,
    },
    outbound::emails::{email_id, page_limit},
    pagination::created_response,
    wire::{EmailBody, check_required_text, check_text, object_or_null},
};

/// Characters of a question.
pub(crate) const MAX_QUESTION_CHARS: usize = 4_000;

/// What a question is about.
#[derive(Serialize, ToSchema)]
pub(crate) struct EscalationSubjectBody {
    email: Option<String>,
    message: Option<String>,
    thread: Option<String>,
    inbox: Option<String>,
    /// The agent's own words.
    question: Option<String>,
    /// What the agent calls the matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    entity: Option<String>,
    /// The rule that wants a person to look first.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<RuleRefBody>,
    /// The transport that mail waits for although no node has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<String>,
    /// Since when it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_since: Option<String>,
}

/// A rule, by the name it had when it spoke.
#[derive(Serialize, ToSchema)]
pub(crate) struct RuleRefBody {
    id: String,
    name: String,
}

/// What was decided.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecisionRecordBody {
    /// `release edit reject sent resend abandon`.
    #[serde(rename = "as")]
    decision: &'static str,
    at: String,
    /// The id of the API key; null when time decided.
    by: Option<String>,
    reason: Option<String>,
    edit: Option<EditBody>,
}

/// Other words for a held email. A `text` without `html`, or the other way round, replaces both.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditBody {
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    html: Option<String>,
}

impl From<&DecisionRecord> for DecisionRecordBody {
    fn from(decided: &DecisionRecord) -> Self {
        let edit = |edit: &EmailEdit| EditBody {
            subject: edit.subject.clone(),
            text: edit.text.clone(),
            html: edit.html.clone(),
        };
        Self {
            decision: decided.decision.as_str(),
            at: decided.at.to_string(),
            by: decided.by.map(|id| id.to_string()),
            reason: decided.reason.clone(),
            edit: decided.edit.as_ref().map(edit),
        }
    }
}

/// An email that waits, with what it says.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldEmailBody {
    #[serde(flatten)]
    email: EmailBody,
    text: Option<String>,
    html: Option<String>,
    /// What a reader of the HTML part sees.
    html_as_text: Option<String>,
    /// Where answers go, when that is not the sender.
    reply_to: Vec<String>,
    /// The files that go with it.
    attachments: Vec<HeldAttachmentBody>,
    /// What a person should notice: parts that say different things, answers that go elsewhere, programs.
    warnings: Vec<String>,
    /// Everything above as plain text, as the approval page shows it; null when the content is no longer kept.
    approval_text: Option<String>,
    /// Pass it with the decision, which then counts for exactly this content.
    digest: Option<String>,
}

/// A file that goes with an email.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldAttachmentBody {
    filename: Option<String>,
    content_type: Option<String>,
    size: u64,
    sha256: String,
}

impl HeldEmailBody {
    fn of(app: &App, email: &Email, mut preview: Option<Preview>) -> Self {
        let file = |file: PreviewFile| HeldAttachmentBody {
            filename: file.filename,
            content_type: file.content_type,
            size: file.size,
            sha256: file.sha256,
        };
        Self {
            email: EmailBody::of(email, app.engine.ctx.message_id(email)),
            approval_text: preview.as_ref().map(Preview::to_plain_text),
            digest: preview.as_ref().map(|preview| preview.digest(email.id)),
            text: preview.as_mut().and_then(|preview| preview.text.take()),
            html: preview.as_mut().and_then(|preview| preview.html.take()),
            html_as_text: preview.as_mut().and_then(|preview| preview.html_shows.take()),
            reply_to: preview.as_mut().map_or_else(Vec::new, |preview| std::mem::take(&mut preview.reply_to)),
            warnings: preview.as_mut().map_or_else(Vec::new, |preview| std::mem::take(&mut preview.warnings)),
            attachments: preview.map_or_else(Vec::new, |preview| preview.attachments.into_iter().map(file).collect()),
        }
    }
}

/// The email that a held one looks like.
#[derive(Serialize, ToSchema)]
pub(crate) struct SimilarEmailBody {
    email: EmailBody,
    /// Subject and text line by line: `- ` only there, `+ ` only in the held one.
    diff: Vec<String>,
}

/// A question for a person.
#[derive(Serialize, ToSchema)]
pub(crate) struct EscalationBody {
    id: String,
    rev: u32,
    created_at: String,
    /// `cap unknown looks_duplicate overlaps approval asked loop unanswered`.
    reason: &'static str,
    /// `open resolved expired moot`.
    state: &'static str,
    /// What may be decided.
    allowed_decisions: Vec<&'static str>,
    about: EscalationSubjectBody,
    /// When it is decided without a person.
    expires_at: Option<String>,
    decision: Option<DecisionRecordBody>,
    /// When what was decided was done.
    executed_at: Option<String>,
    /// The id of the API key that asked.
    opened_by: Option<String>,
    /// The email it is about; only when one question is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<HeldEmailBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    similar_email: Option<SimilarEmailBody>,
}

impl EscalationBody {
    fn of(app: &App, view: &EscalationView) -> Self {
        let escalation = &view.escalation;
        let about = &escalation.about;
        let alike = |(email, diff): &(Email, Vec<String>)| SimilarEmailBody {
            email: EmailBody::of(email, app.engine.ctx.message_id(email)),
            diff: diff.clone(),
        };
        Self {
            id: view.id.to_string(),
            rev: view.rev,
            created_at: view.created_at.to_string(),
            reason: escalation.reason.as_str(),
            state: escalation.state.as_str(),
            allowed_decisions: escalation.reason.allowed_decisions().iter().map(|choice| choice.as_str()).collect(),
            about: EscalationSubjectBody {
                email: about.email.map(|id| id.to_string()),
                message: about.message.map(|id| id.to_string()),
                thread: about.thread.map(|id| id.to_string()),
                inbox: about.inbox.map(|id| id.to_string()),
                question: about.question.clone(),
                entity: about.entity.clone(),
                rule: about.rule.as_ref().map(|rule| RuleRefBody { id: rule.id.to_string(), name: rule.name.clone() }),
                transport: about.transport.clone(),
                missing_since: about.since.map(|at| at.to_string()),
            },
            expires_at: escalation.expiry.map(|(at, _)| at.to_string()),
            decision: escalation.decision.as_ref().map(DecisionRecordBody::from),
            executed_at: escalation.executed_at.map(|at| at.to_string()),
            opened_by: escalation.opened_by.map(|id| id.to_string()),
            email: view.email.as_ref().map(|(email, preview)| HeldEmailBody::of(app, email, preview.clone())),
            similar_email: view.earlier_email.as_ref().map(alike),
        }
    }
}

/// Questions, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct EscalationPage {
    data: Vec<EscalationBody>,
    /// Pass it as `cursor`; null at the end. A page may be short and still have more behind it.
    next_cursor: Option<String>,
}

/// Which questions.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EscalationListQuery {
    /// 1 to 100, 20 by default.
    limit: Option<String>,
    /// Where the page before ended.
    cursor: Option<String>,
    /// `open resolved expired moot`.
    state: Option<String>,
    /// `cap unknown looks_duplicate overlaps approval asked loop unanswered`.
    reason: Option<String>,
}

/// List questions, newest first.
#[utoipa::path(get, path = "/v1/escalations", operation_id = "list_escalations", tag = "escalations", params(EscalationListQuery),
    responses((status = 200, description = "A page", body = EscalationPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    door: AuthedRequest,
    query: QueryParams<EscalationListQuery>,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let EscalationListQuery { limit, cursor, state, reason } = query.0;
    let state = state.as_deref().map(|word| {
        EscalationState::parse(word).ok_or_else(|| invalid_query("state", "state is open, resolved, expired or moot"))
    });
    let reason = reason.as_deref().map(|word| {
        let all: Vec<&str> = EscalationReason::ALL.iter().map(|reason| reason.as_str()).collect();
        EscalationReason::parse(word)
            .ok_or_else(|| invalid_query("reason", &format!("reason is one of {}", all.join(", "))))
    });
    let wanted = EscalationQuery { state: state.transpose()?, reason: reason.transpose()? };
    let wrong = |_not_an_id| invalid_query("cursor", "cursor is the next_cursor of another page");
    let before = cursor.as_deref().map(|text| text.parse::<Uuid>().map_err(wrong)).transpose()?;
    let limit = page_limit(limit.as_deref(), limits::PAGE_ROWS, 20)?;
    let page = app.engine.escalations.escalations(&door.caller, wanted, before, limit).await?;
    let data = page.rows.iter().map(|view| EscalationBody::of(&app, view)).collect();
    Ok(Json(EscalationPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// A question that an agent asks.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEscalationBody {
    /// In your own words.
    question: String,
    /// About this message, thread or email.
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    thread: Option<String>,
    #[serde(default)]
    email: Option<String>,
    /// What you call the matter: the same question about it again is the same question.
    #[serde(default)]
    entity: Option<String>,
}

/// Ask a person. The same question is asked once.
#[utoipa::path(post, path = "/v1/escalations", operation_id = "create_escalation", tag = "escalations", request_body = NewEscalationBody,
    responses((status = 201, description = "Asked", body = EscalationBody), (status = 200, description = "Asked before", body = EscalationBody)))]
pub(crate) async fn ask(State(app): State<App>, door: AuthedRequest, body: RawBody) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Reply)?;
    let NewEscalationBody { question, message, thread, email, entity } = body.parse()?;
    if question.trim().is_empty() || question.chars().count() > MAX_QUESTION_CHARS {
        return Err(invalid_field("question", format!("is 1 to {MAX_QUESTION_CHARS} characters")).into());
    }
    entity.as_deref().map_or(Ok(()), |entity| check_required_text("entity", entity))?;
    let no_thread = |text: &str| Problem::new(Code::NotFound, format!("there is no thread {text}"));
    let new = NewEscalation {
        question,
        message: message.as_deref().map(message_id).transpose()?,
        thread: thread.as_deref().map(|text| text.parse().map_err(|_not_an_id| no_thread(text))).transpose()?,
        email: email.as_deref().map(email_id).transpose()?,
        entity,
    };
    let asked = app.engine.escalations.ask_person(&door.caller, new).await?;
    Ok(created_response(asked.is_new, Json(EscalationBody::of(&app, &asked.value))))
}

fn escalation_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no escalation {text}")))
}

/// Read one question, with the email it is about and the one that looks like it.
#[utoipa::path(get, path = "/v1/escalations/{id}", operation_id = "read_escalation", tag = "escalations", params(("id" = String, Path)),
    responses((status = 200, description = "The question", body = EscalationBody)))]
pub(crate) async fn read(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let view = app.engine.escalations.escalation(&door.caller, escalation_id(&id)?).await?;
    Ok(Json(EscalationBody::of(&app, &view)).into_response())
}

/// What a person decides.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionBody {
    /// `release edit reject` of a held email, `sent resend abandon` of an unknown one; `allowed_decisions` lists which.
    #[serde(rename = "as")]
    decision: String,
    /// The rev that was seen.
    rev: u32,
    /// The other words, with `edit`.
    #[serde(default, deserialize_with = "object_or_null")]
    edit: Option<EditBody>,
    /// Why, for whoever reads it later.
    #[serde(default)]
    reason: Option<String>,
    /// The `digest` of the email that was shown. The decision is refused if anything else would be sent.
    #[serde(default)]
    digest: Option<String>,
}

/// Decide a question. Needs the scope `admin`, which agents do not have.
#[utoipa::path(post, path = "/v1/escalations/{id}/resolve", operation_id = "resolve_escalation", tag = "escalations", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")), request_body = DecisionBody,
    responses((status = 200, description = "The question as it is now", body = EscalationBody),
        (status = 409, description = "It changed since it was looked at, or is no longer open", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn resolve(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let id = escalation_id(&id)?;
    let asked = door.keyed_call("escalations/resolve", &id.to_string(), &body.canonical()?);
    let DecisionBody { decision, rev, edit, reason, digest } = body.parse()?;
    check_text("reason", reason.as_deref().unwrap_or_default())?;
    let wrong = || invalid_field("as", "is release, edit, reject, sent, resend or abandon");
    let decision = Decision::parse(&decision).ok_or_else(wrong)?;
    let edit = edit.map(|EditBody { subject, text, html }| EmailEdit { subject, text, html });
    let verdict = DecisionRequest { decision, rev, edit, reason, preview_digest: digest };
    let view = app.engine.escalations.resolve_escalation(&door.caller, id, verdict, asked).await?;
    Ok(Json(EscalationBody::of(&app, &view)).into_response())
}
