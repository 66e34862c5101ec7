//! Notices: the webhook requests for an endpoint, their attempts, and replays.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::{
        event::EventKind,
        notice::{Notice, NoticeAttempt, NoticeQuery, NoticeRecovery, NoticeState, ReplayFrom, WebhookError},
    },
    id::NoticeId,
    limits,
    problem::{Code, Problem},
    time::Time,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::endpoints::endpoint_id;
use crate::{
    api::{events::event_log::parse_cursor, outbound::emails::page_limit},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        params::{PathParam, QueryParams},
    },
};

/// Filters for the list of notices.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoticesQuery {
    /// Only in this state: `pending delivered dead dropped`.
    state: Option<String>,
    /// Only for this event type.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    kind: Option<String>,
    /// Only for events about the object with this id.
    about: Option<String>,
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl NoticesQuery {
    fn parse(&self) -> Result<NoticeQuery, Problem> {
        let invalid =
            |field: &str, expected: &str| Problem::invalid_query(field, format!("{field} must be {expected}"));
        let state = self.state.as_deref().map(|word| {
            NoticeState::parse(word).ok_or_else(|| invalid("state", "one of pending, delivered, dead, dropped"))
        });
        let kind =
            self.kind.as_deref().map(|word| EventKind::parse(word).ok_or_else(|| invalid("type", "an event type")));
        let about = self.about.as_deref().map(|id| id.parse().map_err(|_not_an_id| invalid("about", "an id")));
        let before = self.cursor.as_deref();
        let before =
            before.map(|text| text.parse().map_err(|_invalid| invalid("cursor", "the next_cursor of a previous page")));
        Ok(NoticeQuery {
            state: state.transpose()?,
            kind: kind.transpose()?,
            subject_id: about.transpose()?,
            before: before.transpose()?,
            limit: page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?,
        })
    }
}

/// An attempt to send a notice.
#[derive(Serialize, ToSchema)]
pub(crate) struct NoticeAttemptBody {
    number: u32,
    at: String,
    /// HTTP status of the response, if there was one.
    status: Option<u16>,
    /// Why the attempt failed: `blocked name connect tls timeout broken status`.
    error: Option<&'static str>,
    latency_ms: u32,
    /// Start of the response body, or the error message.
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

/// A notice: one event to be sent to one endpoint.
#[derive(Serialize, ToSchema)]
pub(crate) struct NoticeBody {
    /// Id of the notice; the `webhook-id` header of every attempt.
    id: String,
    endpoint: String,
    /// Cursor of the event.
    event: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Id of the object that the event is about.
    about: String,
    /// `pending delivered dead dropped`.
    state: &'static str,
    /// Number of attempts that were started.
    attempt_count: u32,
    /// When the next attempt is due; null while an earlier notice about the same object is pending.
    next_attempt_at: Option<String>,
    created_at: String,
    settled_at: Option<String>,
    rev: u32,
    /// The latest finished attempts, oldest first.
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

/// A page of notices, latest events first.
#[derive(Serialize, ToSchema)]
pub(crate) struct NoticePage {
    data: Vec<NoticeBody>,
    next_cursor: Option<String>,
}

/// Which notices to send again. Set either `since` or `after`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecoverBody {
    /// Events at or after this time.
    #[serde(default)]
    since: Option<String>,
    /// Events after this cursor; `0` for all.
    #[serde(default)]
    after: Option<String>,
    /// `failed` (default): dead notices, and notices that wait for a retry. `all`: also those that were delivered.
    #[serde(default)]
    include: Option<String>,
}

/// Result of a recovery.
#[derive(Serialize, ToSchema)]
pub(crate) struct RecoveryBody {
    /// Events after this cursor are sent again. Null when the call is a replay.
    after: Option<String>,
    /// Number of failed notices that are due now. At 5000 there may be more: call again with a new idempotency key.
    requeued: Option<usize>,
}

fn notice_id(text: &str) -> Result<NoticeId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no notice {text}")))
}

/// List the notices of an endpoint.
#[utoipa::path(get, path = "/v1/endpoints/{id}/notices", operation_id = "list_notices", tag = "endpoints", params(("id" = String, Path), NoticesQuery),
    responses((status = 200, description = "A page of results", body = NoticePage)))]
pub(crate) async fn list(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    query: QueryParams<NoticesQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let (rows, next) = app.engine.events.notices(&auth.caller, endpoint_id(&id)?, query.0.parse()?).await?;
    let data = rows.into_iter().map(|notice| NoticeBody::of(&app, notice)).collect();
    Ok(Json(NoticePage { data, next_cursor: next.map(|seq| seq.to_string()) }).into_response())
}

/// Read one notice, with its latest attempts.
#[utoipa::path(get, path = "/v1/notices/{id}", operation_id = "read_notice", tag = "endpoints", params(("id" = String, Path)),
    responses((status = 200, description = "The notice", body = NoticeBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let notice = app.engine.events.notice(&auth.caller, notice_id(&id)?).await?;
    Ok(Json(NoticeBody::of(&app, notice)).into_response())
}

/// Replay a notice.
///
/// Sends it again at once with the same `webhook-id`, whatever its state is.
#[utoipa::path(post, path = "/v1/notices/{id}/replay", operation_id = "replay_notice", tag = "endpoints", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "The updated notice", body = NoticeBody)))]
pub(crate) async fn replay(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id = notice_id(&id)?;
    let keyed_call = auth.keyed_call("notices/replay", &id.to_string(), b"");
    let notice = app.engine.events.replay_notice(&auth.caller, id, keyed_call).await?;
    Ok(Json(NoticeBody::of(&app, notice)).into_response())
}

/// Send past events to an endpoint again.
///
/// Sends the failed notices, or all events, from a time or a cursor on.
#[utoipa::path(post, path = "/v1/endpoints/{id}/recover", operation_id = "recover_endpoint", tag = "endpoints", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = RecoverBody,
    responses((status = 202, description = "The recovery was started", body = RecoveryBody),
        (status = 410, description = "The cursor is from before a restore or database failover, or events after it were deleted", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn recover(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id = endpoint_id(&id)?;
    app.engine.events.endpoint(&auth.caller, id).await?;
    let RecoverBody { since, after, include } = body.parse()?;
    let since = match (since, after) {
        (Some(since), None) => ReplayFrom::Time(
            Time::parse(&since)
                .ok_or_else(|| Problem::invalid_field("since", "must be an RFC 3339 time with an offset"))?,
        ),
        (None, Some(after)) => ReplayFrom::Event(app.engine.ctx.seq_of(parse_cursor(&after)?)?),
        _ => return Err(Problem::invalid_field("since", "or after must be set, but not both").into()),
    };
    let include_delivered = match include.as_deref() {
        None | Some("failed") => false,
        Some("all") => true,
        Some(_) => return Err(Problem::invalid_field("include", "must be failed or all").into()),
    };
    let keyed_call = auth.keyed_call("endpoints/recover", &id.to_string(), &body.canonical()?);
    let recovery = NoticeRecovery { from: since, include_delivered };
    let result = app.engine.events.recover_notices(&auth.caller, id, recovery, keyed_call).await?;
    let body = RecoveryBody {
        after: result.map(|it| app.engine.ctx.cursor(it.after_seq).to_string()),
        requeued: result.map(|it| it.requeued),
    };
    Ok((axum::http::StatusCode::ACCEPTED, Json(body)).into_response())
}
