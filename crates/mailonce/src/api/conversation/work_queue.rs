//! Work for agents: messages with the lease of their thread, and what an agent says about them.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope, conversation::message_progress::Acknowledgement, limits, problem::Problem,
};
use mailonce_engine::conversation::{
    threads::{MAX_LEASE_MS, ThreadLeaseView},
    work_queue::{MAX_MESSAGES_PER_CALL, WorkItem, WorkRequest},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

use crate::api::{
    ApiResult, App, PathParam,
    door::{AuthedRequest, RawBody},
    inbox::{
        inboxes::{inbox_id, invalid_field},
        messages::{MessageBody, message_id},
    },
    wire::check_required_text,
};

/// How long a lease lasts when nobody says, in seconds.
const DEFAULT_LEASE_S: u32 = 30;
/// How long a message may be put off, in seconds.
const MAX_DELAY_S: u32 = 86_400;

/// A lease.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeaseBody {
    /// Show it as `lease` when you answer.
    token: String,
    /// Grows with each lease of the thread.
    fence: u64,
    holder: String,
    expires_at: String,
}

impl From<ThreadLeaseView> for LeaseBody {
    fn from(lease: ThreadLeaseView) -> Self {
        let ThreadLeaseView { token, fence, holder, expires_at } = lease;
        Self { token, fence, holder, expires_at: expires_at.to_string() }
    }
}

/// How long a lease is to last, in milliseconds.
pub(crate) fn lease_duration_ms(ttl_s: Option<u32>) -> Result<i64, Problem> {
    let ms = i64::from(ttl_s.unwrap_or(DEFAULT_LEASE_S)) * 1000;
    if (1_000..=MAX_LEASE_MS).contains(&ms) { Ok(ms) } else { Err(invalid_field("ttl_s", "is 1 to 600")) }
}

/// Who holds a lease, as people call it.
pub(crate) fn lease_holder(door: &AuthedRequest, given: Option<String>) -> Result<String, Problem> {
    given.as_deref().map_or(Ok(()), |holder| check_required_text("holder", holder))?;
    Ok(given.unwrap_or_else(|| door.caller.key.details.name.clone()))
}

/// A wish for work.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NextMessagesBody {
    /// At most so many messages, 1 to 10; 1 by default.
    #[serde(default)]
    limit: Option<usize>,
    /// How long each lease lasts, 1 to 600 seconds; 30 by default.
    #[serde(default)]
    ttl_s: Option<u32>,
    /// How long to wait for a message, up to 60 seconds; 0 by default.
    #[serde(default)]
    wait: Option<u64>,
    /// Who asks, as people call it; the name of the API key by default.
    #[serde(default)]
    holder: Option<String>,
}

/// A message to work on.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkItemBody {
    message: MessageBody,
    lease: LeaseBody,
    /// What people wrote in the thread since. Read it, and name it in `seen` when you answer.
    newer_messages: Vec<String>,
}

impl WorkItemBody {
    fn of(app: &App, taken: WorkItem) -> Self {
        let newer_messages = taken.newer_messages.iter().map(ToString::to_string).collect();
        Self { message: MessageBody::of(app, &taken.message), lease: LeaseBody::from(taken.lease), newer_messages }
    }
}

/// Messages to work on.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkItemPage {
    data: Vec<WorkItemBody>,
}

/// Take the oldest messages that nobody works on, each with the lease of its thread.
#[utoipa::path(post, path = "/v1/inboxes/{id}/next", operation_id = "lease_messages", tag = "conversations", request_body = Option<NextMessagesBody>,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 200, description = "What there was, perhaps nothing", body = WorkItemPage)))]
pub(crate) async fn next(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Reply)?;
    let asked = door.keyed_call("next", &id, &body.canonical()?);
    let NextMessagesBody { limit, ttl_s, wait, holder: given } = body.parse_or_empty()?;
    let inbox = if id.contains('@') {
        app.engine.inboxes.inbox_by_address(&door.caller, &id).await?.id
    } else {
        inbox_id(&id)?
    };
    let limit = limit.unwrap_or(1);
    if !(1..=MAX_MESSAGES_PER_CALL).contains(&limit) {
        return Err(invalid_field("limit", format!("is 1 to {MAX_MESSAGES_PER_CALL}")).into());
    }
    let wait = Duration::from_secs(wait.unwrap_or(0).min(limits::MAX_WAIT_MS as u64 / 1000));
    let request = WorkRequest { limit, ttl_ms: lease_duration_ms(ttl_s)?, wait, holder: lease_holder(&door, given)? };
    // On the heap: many workers wait at a time.
    let taken = Box::pin(app.engine.conversations.lease_messages(&door.caller, inbox, request, asked)).await?;
    let data = taken.into_iter().map(|taken| WorkItemBody::of(&app, taken)).collect();
    Ok(Json(WorkItemPage { data }).into_response())
}

/// What an agent says about a message that it holds.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcknowledgementBody {
    /// The token of the lease.
    lease: String,
    /// For `nack`: others may try after so many seconds; 0 by default.
    #[serde(default)]
    delay_s: Option<u32>,
    /// For `extend`: how long from now, 1 to 600 seconds; 30 by default.
    #[serde(default)]
    ttl_s: Option<u32>,
}

/// A message as it stands.
#[derive(Serialize, ToSchema)]
pub(crate) struct AcknowledgementResultBody {
    message: MessageBody,
    /// After `extend`.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseBody>,
}

async fn acknowledge(
    (app, door): (App, AuthedRequest),
    id: &str,
    body: &RawBody,
    how: impl FnOnce(&AcknowledgementBody) -> Result<Acknowledgement, Problem>,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Reply)?;
    let id = message_id(id)?;
    let body: AcknowledgementBody = body.parse()?;
    let how = how(&body)?;
    let taken = app.engine.conversations.acknowledge_message(&door.caller, id, &body.lease, how).await?;
    let WorkItemBody { message, lease, .. } = WorkItemBody::of(&app, taken);
    let lease = matches!(how, Acknowledgement::Extend { .. }).then_some(lease);
    Ok(Json(AcknowledgementResultBody { message, lease }).into_response())
}

/// Say that you are done with a message, answered or not.
#[utoipa::path(post, path = "/v1/messages/{id}/ack", operation_id = "ack_message", tag = "conversations", params(("id" = String, Path)), request_body = AcknowledgementBody,
    responses((status = 200, description = "The message", body = AcknowledgementResultBody),
        (status = 409, description = "The lease was lost", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn ack(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    acknowledge((app, door), &id, &body, |_| Ok(Acknowledgement::Ack)).await
}

/// Give a message back, so that others may try.
#[utoipa::path(post, path = "/v1/messages/{id}/nack", operation_id = "nack_message", tag = "conversations", params(("id" = String, Path)), request_body = AcknowledgementBody,
    responses((status = 200, description = "The message", body = AcknowledgementResultBody),
        (status = 409, description = "The lease was lost", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn nack(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    let delayed = |body: &AcknowledgementBody| match body.delay_s.unwrap_or(0) {
        seconds if seconds <= MAX_DELAY_S => Ok(Acknowledgement::Nack { delay_ms: i64::from(seconds) * 1000 }),
        _ => Err(invalid_field("delay_s", format!("is at most {MAX_DELAY_S}"))),
    };
    acknowledge((app, door), &id, &body, delayed).await
}

/// Keep a message longer.
#[utoipa::path(post, path = "/v1/messages/{id}/extend", operation_id = "extend_message_lease", tag = "conversations", params(("id" = String, Path)), request_body = AcknowledgementBody,
    responses((status = 200, description = "The message and its lease", body = AcknowledgementResultBody),
        (status = 409, description = "The lease was lost", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn extend(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    acknowledge((app, door), &id, &body, |body| Ok(Acknowledgement::Extend { ttl_ms: lease_duration_ms(body.ttl_s)? }))
        .await
}
