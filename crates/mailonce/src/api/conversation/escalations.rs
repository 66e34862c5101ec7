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
    notification_state::NotificationState,
    preview::{Preview, PreviewFile},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{
    api::{
        inbox::message_body::message_id,
        outbound::{
            email_bodies::EmailBody,
            emails::{email_id, page_limit},
        },
        pagination::created_response,
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::{check_required_text, check_text, object_or_null},
        params::{PathParam, QueryParams},
    },
};

/// Maximum length of a question, in characters.
pub(crate) const MAX_QUESTION_CHARS: usize = 4_000;

/// What an escalation is about.
#[derive(Serialize, ToSchema)]
pub(crate) struct EscalationSubjectBody {
    /// Id of the email.
    email: Option<String>,
    /// Id of the message.
    message: Option<String>,
    /// Id of the thread.
    thread: Option<String>,
    /// Id of the inbox.
    inbox: Option<String>,
    /// The agent's question.
    question: Option<String>,
    /// The agent's own id of the matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    entity: Option<String>,
    /// The rule that requires approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<RuleRefBody>,
    /// Id of the claim whose holder was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    /// The missing transport: emails wait for it, but no node has it configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<String>,
    /// Since when the transport is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_since: Option<String>,
}

/// A rule, with its name at the time when it matched.
#[derive(Serialize, ToSchema)]
pub(crate) struct RuleRefBody {
    id: String,
    name: String,
}

/// The decision about an escalation.
#[derive(Serialize, ToSchema)]
pub(crate) struct DecisionRecordBody {
    /// The decision: `release edit reject sent resend abandon done retry`.
    #[serde(rename = "as")]
    decision: &'static str,
    /// When it was decided.
    at: String,
    /// Id of the API key, session or approval link that decided; null when the escalation expired.
    by: Option<String>,
    /// Id of the person who decided, or of the notification target whose link was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    person: Option<String>,
    /// Reason that the person gave.
    reason: Option<String>,
    edit: Option<EditBody>,
}

/// New content for a held email.
///
/// Setting only one of `text` and `html` replaces both parts.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditBody {
    /// New subject.
    #[serde(default)]
    subject: Option<String>,
    /// New plain text body.
    #[serde(default)]
    text: Option<String>,
    /// New HTML body.
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
            person: decided.person.map(|id| id.to_string()),
            reason: decided.reason.clone(),
            edit: decided.edit.as_ref().map(edit),
        }
    }
}

/// A held email with its content.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldEmailBody {
    #[serde(flatten)]
    email: EmailBody,
    /// Plain text body.
    text: Option<String>,
    /// HTML body.
    html: Option<String>,
    /// The visible text of the HTML part.
    html_as_text: Option<String>,
    /// Reply-To addresses; empty when replies go to the sender.
    reply_to: Vec<String>,
    /// The attachments.
    attachments: Vec<HeldAttachmentBody>,
    /// Warnings for the person who decides: text and HTML that differ, replies that go elsewhere, executable files.
    warnings: Vec<String>,
    /// The whole email as plain text, as the approval page shows it; null when the content is no longer stored.
    approval_text: Option<String>,
    /// Pass it with the decision, so that the decision applies only to exactly this content.
    digest: Option<String>,
}

/// An attachment of a held email, without its bytes. `GET /v1/emails/{id}/attachments/{n}` returns the bytes; the first is
/// number 0.
#[derive(Serialize, ToSchema)]
pub(crate) struct HeldAttachmentBody {
    /// File name as it will be sent.
    filename: Option<String>,
    /// Declared content type.
    content_type: Option<String>,
    /// Size in bytes.
    size: u64,
    /// SHA-256 of the content, in hexadecimal.
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
            html_as_text: preview.as_mut().and_then(|preview| preview.html_as_text.take()),
            reply_to: preview.as_mut().map_or_else(Vec::new, |preview| std::mem::take(&mut preview.reply_to)),
            warnings: preview.as_mut().map_or_else(Vec::new, |preview| std::mem::take(&mut preview.warnings)),
            attachments: preview.map_or_else(Vec::new, |preview| preview.attachments.into_iter().map(file).collect()),
        }
    }
}

/// The earlier email that a held email looks like.
#[derive(Serialize, ToSchema)]
pub(crate) struct SimilarEmailBody {
    email: EmailBody,
    /// Line diff of subject and text: `- ` is only in the earlier email, `+ ` only in the held one.
    diff: Vec<String>,
}

/// How far people and notification targets were told of a question.
#[derive(Serialize, ToSchema)]
pub(crate) struct NotificationStateBody {
    /// How many were told.
    sent: u32,
    /// How many were given up, because the last attempt failed.
    failed: u32,
    /// When the next attempt is due; null when none is.
    next_at: Option<String>,
}

impl From<NotificationState> for NotificationStateBody {
    fn from(state: NotificationState) -> Self {
        Self { sent: state.sent, failed: state.failed, next_at: state.next_at.map(|at| at.to_string()) }
    }
}

/// An escalation: a question for a person.
#[derive(Serialize, ToSchema)]
pub(crate) struct EscalationBody {
    /// Id of the escalation.
    id: String,
    /// Revision; grows with every change.
    rev: u32,
    /// When the escalation was opened.
    created_at: String,
    /// Why a person is asked: `cap unknown looks_duplicate overlaps approval asked loop unanswered`.
    reason: &'static str,
    /// `open resolved expired moot`.
    state: &'static str,
    /// The decisions that are allowed.
    allowed_decisions: Vec<&'static str>,
    about: EscalationSubjectBody,
    /// When the escalation expires and is decided without a person.
    expires_at: Option<String>,
    decision: Option<DecisionRecordBody>,
    /// Name of the person who decided; only when a single escalation is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_by: Option<String>,
    /// When the decision was carried out.
    executed_at: Option<String>,
    /// Id of the API key that opened the escalation.
    opened_by: Option<String>,
    /// The email that the escalation is about; only when a single escalation is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<HeldEmailBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    similar_email: Option<SimilarEmailBody>,
    /// How far recipients were told; only when a single escalation is read with the scope `admin`, after the first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    notifications: Option<NotificationStateBody>,
}

impl EscalationBody {
    fn of(app: &App, view: &EscalationView) -> Self {
        let escalation = &view.escalation;
        let about = &escalation.about;
        let similar = |(email, diff): &(Email, Vec<String>)| SimilarEmailBody {
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
                claim: about.claim.map(|id| id.to_string()),
                transport: about.transport.clone(),
                missing_since: about.since.map(|at| at.to_string()),
            },
            expires_at: escalation.expiry.map(|(at, _)| at.to_string()),
            decision: escalation.decision.as_ref().map(DecisionRecordBody::from),
            decided_by: view.decided_by.clone(),
            executed_at: escalation.executed_at.map(|at| at.to_string()),
            opened_by: escalation.opened_by.map(|id| id.to_string()),
            email: view.email.as_ref().map(|(email, preview)| HeldEmailBody::of(app, email, preview.clone())),
            similar_email: view.earlier_email.as_ref().map(similar),
            notifications: None,
        }
    }
}

/// A page of escalations, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct EscalationPage {
    data: Vec<EscalationBody>,
    /// Pass it as `cursor` to get the next page; null at the end. A page with few results may still have a next page.
    next_cursor: Option<String>,
}

/// Filters for the list of escalations.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EscalationListQuery {
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Only in this state: `open resolved expired moot`.
    state: Option<String>,
    /// Only with this reason: `cap unknown looks_duplicate overlaps approval asked loop unanswered`.
    reason: Option<String>,
}

/// List escalations, newest first.
#[utoipa::path(get, path = "/v1/escalations", operation_id = "list_escalations", tag = "escalations", params(EscalationListQuery),
    responses((status = 200, description = "A page of results", body = EscalationPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    auth: AuthedRequest,
    query: QueryParams<EscalationListQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let EscalationListQuery { limit, cursor, state, reason } = query.0;
    let state = state.as_deref().map(|word| {
        EscalationState::parse(word)
            .ok_or_else(|| Problem::invalid_query("state", "state must be open, resolved, expired or moot"))
    });
    let reason = reason.as_deref().map(|word| {
        let all: Vec<&str> = EscalationReason::ALL.iter().map(|reason| reason.as_str()).collect();
        EscalationReason::parse(word)
            .ok_or_else(|| Problem::invalid_query("reason", format!("reason must be one of {}", all.join(", "))))
    });
    let filter = EscalationQuery { state: state.transpose()?, reason: reason.transpose()? };
    let invalid = |_not_an_id| Problem::invalid_query("cursor", "cursor must be the next_cursor of a previous page");
    let before = cursor.as_deref().map(|text| text.parse::<Uuid>().map_err(invalid)).transpose()?;
    let limit = page_limit(limit.as_deref(), limits::PAGE_ROWS, 20)?;
    let page = app.engine.escalations.escalations(&auth.caller, filter, before, limit).await?;
    let data = page.rows.iter().map(|view| EscalationBody::of(&app, view)).collect();
    Ok(Json(EscalationPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// A question from an agent to a person.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEscalationBody {
    /// The question, at most 4,000 characters.
    question: String,
    /// Id of the message that the question is about.
    #[serde(default)]
    message: Option<String>,
    /// Id of the thread that the question is about.
    #[serde(default)]
    thread: Option<String>,
    /// Id of the email that the question is about.
    #[serde(default)]
    email: Option<String>,
    /// Your own id of the matter. Asking the same question about it again returns the first escalation.
    #[serde(default)]
    entity: Option<String>,
}

/// Ask a person.
///
/// Asking the same question again returns the first escalation.
#[utoipa::path(post, path = "/v1/escalations", operation_id = "create_escalation", tag = "escalations", request_body = NewEscalationBody,
    responses((status = 201, description = "Created", body = EscalationBody), (status = 200, description = "The question was asked before", body = EscalationBody)))]
pub(crate) async fn ask(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let NewEscalationBody { question, message, thread, email, entity } = body.parse()?;
    if question.trim().is_empty() || question.chars().count() > MAX_QUESTION_CHARS {
        return Err(Problem::invalid_field("question", format!("must be 1 to {MAX_QUESTION_CHARS} characters")).into());
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
    let escalation = app.engine.escalations.ask_person(&auth.caller, new).await?;
    Ok(created_response(escalation.is_new, Json(EscalationBody::of(&app, &escalation.value))))
}

fn escalation_id(text: &str) -> Result<Uuid, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no escalation {text}")))
}

/// Read one escalation, with its email and the similar earlier email.
#[utoipa::path(get, path = "/v1/escalations/{id}", operation_id = "read_escalation", tag = "escalations", params(("id" = String, Path)),
    responses((status = 200, description = "The escalation", body = EscalationBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let view = app.engine.escalations.escalation(&auth.caller, escalation_id(&id)?).await?;
    let notifications = app.engine.notifications.notification_state(&auth.caller, &view).await?;
    let notifications = notifications.map(NotificationStateBody::from);
    Ok(Json(EscalationBody { notifications, ..EscalationBody::of(&app, &view) }).into_response())
}

/// A person's decision.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecisionBody {
    /// `release`, `edit` or `reject` a held email; `sent`, `resend` or `abandon` an email with an unknown outcome; `done`,
    /// `retry` or `abandon` a claim whose holder was lost.
    ///
    /// `allowed_decisions` of the escalation lists the valid values.
    #[serde(rename = "as")]
    decision: String,
    /// The `rev` that you read; the call is refused if the object has changed since.
    rev: u32,
    /// The new content, with the decision `edit`.
    #[serde(default, deserialize_with = "object_or_null")]
    edit: Option<EditBody>,
    /// Reason, for people who read the escalation later.
    #[serde(default)]
    reason: Option<String>,
    /// The `digest` of the email that the person saw. The decision is refused if the content differs.
    #[serde(default)]
    digest: Option<String>,
}

/// Decide an escalation.
///
/// Needs the scope `approve` or `admin`, which agents should not have.
#[utoipa::path(post, path = "/v1/escalations/{id}/resolve", operation_id = "resolve_escalation", tag = "escalations", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = DecisionBody,
    responses((status = 200, description = "The updated escalation", body = EscalationBody),
        (status = 409, description = "The escalation changed since you read it, or is no longer open", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn resolve(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_decider()?;
    let id = escalation_id(&id)?;
    let keyed_call = auth.keyed_call("escalations/resolve", &id.to_string(), &body.canonical()?);
    let DecisionBody { decision, rev, edit, reason, digest } = body.parse()?;
    check_text("reason", reason.as_deref().unwrap_or_default())?;
    let invalid =
        || Problem::invalid_field("as", "must be release, edit, reject, sent, resend, abandon, done or retry");
    let decision = Decision::parse(&decision).ok_or_else(invalid)?;
    let edit = edit.map(|EditBody { subject, text, html }| EmailEdit { subject, text, html });
    let request = DecisionRequest { decision, rev, edit, reason, preview_digest: digest };
    let view = app.engine.escalations.resolve_escalation(&auth.caller, id, request, keyed_call).await?;
    Ok(Json(EscalationBody::of(&app, &view)).into_response())
}

/// The addressee of an approval link.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewApprovalLinkBody {
    /// Id of the person who decides. The role must be `approver` or `admin`.
    person: String,
}

/// An approval link.
#[derive(Serialize, ToSchema)]
pub(crate) struct ApprovalLinkBody {
    /// The link. Whoever has it can decide this question as the person.
    url: String,
    /// When the link stops working.
    expires_at: String,
}

/// Make the link by which a person decides an escalation.
///
/// It works for 72 hours, without signing in, until somebody decided. It is bound to exactly what will be sent. The same
/// call again returns the same link. Give it to nobody but the person.
#[utoipa::path(post, path = "/v1/escalations/{id}/approval-links", operation_id = "create_approval_link", tag = "escalations", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    request_body = NewApprovalLinkBody, responses((status = 201, description = "The link", body = ApprovalLinkBody),
        (status = 409, description = "The escalation is no longer open", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create_link(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id = escalation_id(&id)?;
    let keyed_call = auth.keyed_call("approval-links", &id.to_string(), &body.canonical()?);
    let NewApprovalLinkBody { person } = body.parse()?;
    let person = person
        .parse()
        .map_err(|_not_an_id| Problem::invalid_field("person", "is not the id of a person of the team"))?;
    let link = app.engine.notifications.create_approval_link(&auth.caller, id, person, keyed_call).await?;
    let url = format!("{}/a/{}", app.public_url, link.token);
    Ok(created_response(true, Json(ApprovalLinkBody { url, expires_at: link.expires_at.to_string() })))
}
