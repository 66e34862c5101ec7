//! Notices: what is owed to an endpoint, how it went, and telling it again.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::{
        event::EventKind,
        notice::{Notice, NoticeAttempt, NoticeQuery, NoticeRecovery, NoticeState, ReplayFrom, WebhookError},
    },
    id::NoticeId,
    limits,
    problem::{Code, FieldError, Problem},
    time::Time,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::endpoints::endpoint_id;
use crate::api::events::event_log::parse_cursor;
use crate::api::{
    ApiResult, App, PathParam, QueryParams,
    door::{AuthedRequest, RawBody},
    outbound::emails::page_limit,
};

/// Which notices.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoticesQuery {
    /// `pending delivered dead dropped`.
    state: Option<String>,
    /// The type of the event.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    kind: Option<String>,
    /// The id of what the event is about.
    about: Option<String>,
    /// 1 to 100, 20 by default.
    limit: Option<String>,
    /// Where the page before ended.
    cursor: Option<String>,
}

impl NoticesQuery {
    fn parse(&self) -> Result<NoticeQuery, Problem> {
        let wrong =
            |field: &str, what: &str| Problem::for_field(Code::InvalidQuery, field, format!("{field} is {what}"));
        let state = self.state.as_deref().map(|word| {
            NoticeState::parse(word).ok_or_else(|| wrong("state", "one of pending, delivered, dead, dropped"))
        });
        let kind = self
            .kind
            .as_deref()
            .map(|word| EventKind::parse(word).ok_or_else(|| wrong("type", "the type of an event")));
        let about = self.about.as_deref().map(|id| id.parse().map_err(|_not_an_id| wrong("about", "an id")));
        let before = self.cursor.as_deref();
        let before =
            before.map(|text| text.parse().map_err(|_nonsense| wrong("cursor", "the next_cursor of another page")));
        Ok(NoticeQuery {
            state: state.transpose()?,
            kind: kind.transpose()?,
            subject_id: about.transpose()?,
            before: before.transpose()?,
            limit: page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?,
        })
    }
}

/// An attempt to tell.
#[derive(Serialize, ToSchema)]
pub(crate) struct NoticeAttemptBody {
    number: u32,
    at: String,
    /// The status of the answer, if there was one.
    status: Option<u16>,
    /// What went wrong: `blocked name connect tls timeout broken status`.
    error: Option<&'static str>,
    latency_ms: u32,
    /// The beginning of the answer, or what went wrong.
    response: String,
}

impl From<NoticeAttempt> for NoticeAttemptBody {
    fn from(attempt: NoticeAttempt) -> Self {
        Self {
            number: attempt.number,
            at: attempt.at.to_string(),
            status: attempt.status,
            error: attempt.error.map(WebhookError::as_str),
            latency_ms: attempt.latency_ms,
            response: attempt.response,
        }
    }
}

/// One event owed to one endpoint.
#[derive(Serialize, ToSchema)]
pub(crate) struct NoticeBody {
    /// Its `webhook-id`, the same at every attempt.
    id: String,
    endpoint: String,
    /// The cursor of its event.
    event: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// The id of what the event is about.
    about: String,
    /// `pending delivered dead dropped`.
    state: &'static str,
    /// Attempts that were begun.
    attempt_count: u32,
    /// When it is due. Null while it stands behind an earlier one about the same thing.
    next_attempt_at: Option<String>,
    created_at: String,
    settled_at: Option<String>,
    rev: u32,
    /// The latest attempts that ended, oldest first.
    attempts: Vec<NoticeAttemptBody>,
}

impl NoticeBody {
    fn of(app: &App, notice: Notice) -> Self {
        Self {
            id: notice.id.to_string(),
            endpoint: notice.endpoint.to_string(),
            event: app.engine.ctx.cursor(notice.seq).to_string(),
            kind: notice.kind.as_str(),
            about: notice.subject_id.to_string(),
            state: notice.state.as_str(),
            attempt_count: notice.attempts,
            next_attempt_at: notice.due_at.map(|at| at.to_string()),
            created_at: notice.created_at.to_string(),
            settled_at: notice.settled_at.map(|at| at.to_string()),
            rev: notice.rev,
            attempts: notice.attempt_log.into_iter().map(NoticeAttemptBody::from).collect(),
        }
    }
}

/// Notices, those of the latest events first.
#[derive(Serialize, ToSchema)]
pub(crate) struct NoticePage {
    data: Vec<NoticeBody>,
    next_cursor: Option<String>,
}

/// From where to tell again: one of `since` and `after`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecoverBody {
    /// Events at or after this time.
    #[serde(default)]
    since: Option<String>,
    /// Events after this cursor; `0` for all.
    #[serde(default)]
    after: Option<String>,
    /// `failed` (default): what was given up or waits for its next try. `all`: everything, also what was delivered.
    #[serde(default)]
    include: Option<String>,
}

/// What is told again.
#[derive(Serialize, ToSchema)]
pub(crate) struct RecoveryBody {
    /// The cursor behind which events are told again. Null when this was asked before.
    after: Option<String>,
    /// Failed notices that are due now. At 5000 there may be more: ask again under another key.
    requeued: Option<usize>,
}

fn invalid_field(path: &str, message: &str) -> Problem {
    Problem::from(vec![FieldError::new(path, message)])
}

fn notice_id(text: &str) -> Result<NoticeId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no notice {text}")))
}

/// List what is and was owed to an endpoint.
#[utoipa::path(get, path = "/v1/endpoints/{id}/notices", operation_id = "list_notices", tag = "endpoints", params(("id" = String, Path), NoticesQuery),
    responses((status = 200, description = "A page", body = NoticePage)))]
pub(crate) async fn list(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    query: QueryParams<NoticesQuery>,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let (rows, next) = app.engine.events.notices(&door.caller, endpoint_id(&id)?, query.0.parse()?).await?;
    let data = rows.into_iter().map(|notice| NoticeBody::of(&app, notice)).collect();
    Ok(Json(NoticePage { data, next_cursor: next.map(|seq| seq.to_string()) }).into_response())
}

/// Read one notice, with its latest attempts.
#[utoipa::path(get, path = "/v1/notices/{id}", operation_id = "read_notice", tag = "endpoints", params(("id" = String, Path)),
    responses((status = 200, description = "The notice", body = NoticeBody)))]
pub(crate) async fn read(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let notice = app.engine.events.notice(&door.caller, notice_id(&id)?).await?;
    Ok(Json(NoticeBody::of(&app, notice)).into_response())
}

/// Tell a notice again, at once and under its id, whatever became of it before.
#[utoipa::path(post, path = "/v1/notices/{id}/replay", operation_id = "replay_notice", tag = "endpoints", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 200, description = "The notice as it is now", body = NoticeBody)))]
pub(crate) async fn replay(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let id = notice_id(&id)?;
    let asked = door.keyed_call("notices/replay", &id.to_string(), b"");
    let notice = app.engine.events.replay_notice(&door.caller, id, asked).await?;
    Ok(Json(NoticeBody::of(&app, notice)).into_response())
}

/// Tell an endpoint again what failed, or everything, from some place on.
#[utoipa::path(post, path = "/v1/endpoints/{id}/recover", operation_id = "recover_endpoint", tag = "endpoints", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")), request_body = RecoverBody,
    responses((status = 202, description = "It is under way", body = RecoveryBody),
        (status = 410, description = "The cursor is from before a restore", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn recover(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let id = endpoint_id(&id)?;
    app.engine.events.endpoint(&door.caller, id).await?;
    let RecoverBody { since, after, include } = body.parse()?;
    let since = match (since, after) {
        (Some(since), None) => ReplayFrom::Time(
            Time::parse(&since).ok_or_else(|| invalid_field("since", "is an RFC 3339 time with an offset"))?,
        ),
        (None, Some(after)) => ReplayFrom::Event(app.engine.ctx.seq_of(parse_cursor(&after)?)?),
        _ => return Err(invalid_field("since", "or after is given, and not both").into()),
    };
    let everything = match include.as_deref() {
        None | Some("failed") => false,
        Some("all") => true,
        Some(_) => return Err(invalid_field("include", "is failed or all").into()),
    };
    let asked = door.keyed_call("endpoints/recover", &id.to_string(), &body.canonical()?);
    let recovery = NoticeRecovery { from: since, include_delivered: everything };
    let recovering = app.engine.events.recover_notices(&door.caller, id, recovery, asked).await?;
    let body = RecoveryBody {
        after: recovering.map(|it| app.engine.ctx.cursor(it.after_seq).to_string()),
        requeued: recovering.map(|it| it.requeued),
    };
    Ok((axum::http::StatusCode::ACCEPTED, Json(body)).into_response())
}
