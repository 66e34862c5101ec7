//! Watches: runs of an agent that waits for mail, with a deadline and a resend budget.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::WatchId,
    inbox::watch::Watch,
    limits,
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::inbox::artifacts::WatchRequest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::inboxes::{find_inbox, parse_duration_ms};
use crate::{
    api::pagination::created_response,
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        params::PathParam,
    },
};

/// Maximum resend budget of a watch.
const MAX_WATCH_BUDGET: u32 = 100;
/// Default duration of a watch.
const DEFAULT_WATCH_MS: i64 = 10 * 60_000;

/// A watch to start.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWatchBody {
    /// How often the agent may request that the email is sent again, at most 100; 1 by default.
    #[serde(default)]
    budget: Option<u32>,
    /// When the watch ends: an RFC 3339 time, or a duration from now such as `5m`.
    ///
    /// 10 minutes by default, at most 7 days.
    #[serde(default)]
    deadline: Option<String>,
    /// `true`: only messages with an authenticated sender count.
    #[serde(default)]
    require_auth: Option<bool>,
}

/// A watch: one run of an agent that waits for mail.
#[derive(Serialize, ToSchema)]
pub(crate) struct WatchBody {
    /// Id of the watch.
    id: String,
    /// Id of the inbox.
    inbox_id: String,
    /// Revision; grows with every change.
    rev: u32,
    /// When the watch started.
    started_at: String,
    /// When the watch ends.
    deadline: String,
    /// How often the agent may ask for the mail again.
    budget: u32,
    /// How often the agent asked for the mail again.
    resends_used: u32,
    /// Whether only messages with an authenticated sender count.
    require_auth: bool,
    /// Only messages after this cursor count.
    cursor: String,
}

impl WatchBody {
    fn of(app: &App, watch: &Watch) -> Self {
        Self {
            id: watch.id.to_string(),
            inbox_id: watch.inbox.to_string(),
            rev: watch.rev,
            started_at: watch.started_at.to_string(),
            deadline: watch.deadline.to_string(),
            budget: watch.resend_budget,
            resends_used: watch.resends_used,
            require_auth: watch.require_auth,
            cursor: app.engine.ctx.cursor(watch.after_seq).to_string(),
        }
    }
}

/// Parses the id of a watch.
pub(crate) fn watch_id(text: &str) -> Result<WatchId, Problem> {
    let missing = |_not_an_id| Problem::new(Code::NotFound, format!("there is no watch {text}"));
    text.parse().map(WatchId).map_err(missing)
}

/// Start a watch: one run of an agent that waits for mail.
#[utoipa::path(post, path = "/v1/inboxes/{id}/watches", operation_id = "create_watch", tag = "inboxes", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = NewWatchBody,
    responses((status = 201, description = "Started", body = WatchBody), (status = 200, description = "Started before with this idempotency key", body = WatchBody)))]
pub(crate) async fn create(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &id).await?;
    let NewWatchBody { budget, deadline, require_auth } = body.parse_or_empty()?;
    let budget = budget.unwrap_or(1);
    if budget > MAX_WATCH_BUDGET {
        return Err(Problem::invalid_field("budget", format!("must be at most {MAX_WATCH_BUDGET}")).into());
    }
    let duration_ms = match deadline.as_deref() {
        None => DEFAULT_WATCH_MS,
        Some(text) => match Time::parse(text) {
            Some(at) => at.since(app.engine.ctx.now()),
            None => parse_duration_ms("deadline", text, limits::MAX_WATCH_MS)?,
        },
    };
    if !(1..=limits::MAX_WATCH_MS).contains(&duration_ms) {
        return Err(Problem::invalid_field("deadline", "must be within the next 7 days").into());
    }
    let require_auth = require_auth.unwrap_or(false);
    let mut digest_input = serde_json::json!([budget, deadline]);
    // Added only when it is set. So a call keeps the digest from before the field existed.
    if require_auth && let Some(members) = digest_input.as_array_mut() {
        members.push("require_auth".into());
    }
    let digest_input = digest_input.to_string();
    let keyed_call = auth.keyed_call("watches", &inbox.id.to_string(), digest_input.as_bytes());
    let request = WatchRequest { resend_budget: budget, duration_ms, require_auth };
    let watch = app.engine.artifacts.create_watch(&auth.caller, inbox.id, request, keyed_call).await?;
    Ok(created_response(watch.is_new, Json(WatchBody::of(&app, &watch.value))))
}

/// Read one watch.
#[utoipa::path(get, path = "/v1/watches/{id}", operation_id = "read_watch", tag = "inboxes", params(("id" = String, Path)),
    responses((status = 200, description = "The watch", body = WatchBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let watch = app.engine.artifacts.watch(&auth.caller, watch_id(&id)?).await?;
    Ok(Json(WatchBody::of(&app, &watch)).into_response())
}

/// Use one resend of a watch's budget.
///
/// Call this before you request the email again from its sender.
#[utoipa::path(post, path = "/v1/watches/{id}/resend", operation_id = "spend_watch_resend", tag = "inboxes", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "The email may be requested again", body = WatchBody),
        (status = 409, description = "The budget is used up, or the watch has ended", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn spend(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let id = watch_id(&id)?;
    let keyed_call = auth.keyed_call("watches/resend", &id.to_string(), b"");
    let watch = app.engine.artifacts.spend_resend(&auth.caller, id, keyed_call).await?;
    Ok(Json(WatchBody::of(&app, &watch)).into_response())
}
