//! The work queue: agents lease messages and acknowledge, return or extend them.

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

use crate::{
    api::inbox::{
        inboxes::inbox_id,
        message_body::{MessageBody, message_id},
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::check_required_text,
        params::PathParam,
    },
};

/// Default duration of a lease, in seconds.
const DEFAULT_LEASE_S: u32 = 30;
/// Maximum of `delay_s`.
const MAX_DELAY_S: u32 = 86_400;

/// A lease of a thread.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeaseBody {
    /// Pass it as `lease` when you reply, acknowledge or extend.
    token: String,
    /// Fencing token: grows with each lease of the thread.
    fence: u64,
    /// Name of the worker that holds the lease.
    holder: String,
    /// When the lease expires unless it is extended.
    expires_at: String,
}

impl From<ThreadLeaseView> for LeaseBody {
    fn from(lease: ThreadLeaseView) -> Self {
        let ThreadLeaseView { token, fence, holder, expires_at } = lease;
        Self { token, fence, holder, expires_at: expires_at.to_string() }
    }
}

/// The duration of a lease in milliseconds, from `ttl_s`.
pub(crate) fn lease_duration_ms(ttl_s: Option<u32>) -> Result<i64, Problem> {
    let ms = i64::from(ttl_s.unwrap_or(DEFAULT_LEASE_S)) * 1000;
    if (1_000..=MAX_LEASE_MS).contains(&ms) { Ok(ms) } else { Err(Problem::invalid_field("ttl_s", "must be 1 to 600")) }
}

/// The name of the lease holder; the name of the API key by default.
pub(crate) fn lease_holder(auth: &AuthedRequest, holder: Option<String>) -> Result<String, Problem> {
    holder.as_deref().map_or(Ok(()), |holder| check_required_text("holder", holder))?;
    Ok(holder.unwrap_or_else(|| auth.caller.key.details.name.clone()))
}

/// A request for messages to work on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NextMessagesBody {
    /// Maximum number of messages, 1 to 10; 1 by default.
    #[serde(default)]
    limit: Option<usize>,
    /// Duration of each lease in seconds, 1 to 600; 30 by default.
    #[serde(default)]
    ttl_s: Option<u32>,
    /// How long to wait for a message in seconds, up to 60; 0 by default.
    #[serde(default)]
    wait: Option<u64>,
    /// Name of the agent, shown to others; the name of the API key by default.
    #[serde(default)]
    holder: Option<String>,
}

/// A message to work on.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkItemBody {
    message: MessageBody,
    lease: LeaseBody,
    /// Ids of newer messages from people in the thread. Read them, and list them in `seen` when you reply.
    newer_messages: Vec<String>,
}

impl WorkItemBody {
    fn of(app: &App, item: WorkItem) -> Self {
        let newer_messages = item.newer_messages.iter().map(ToString::to_string).collect();
        Self { message: MessageBody::of(app, &item.message), lease: LeaseBody::from(item.lease), newer_messages }
    }
}

/// Messages to work on, each with a lease.
#[derive(Serialize, ToSchema)]
pub(crate) struct WorkItemPage {
    data: Vec<WorkItemBody>,
}

/// Lease the next messages of an inbox.
///
/// Returns the oldest unanswered messages whose threads are not leased, each with the lease of its thread.
#[utoipa::path(post, path = "/v1/inboxes/{id}/next", operation_id = "lease_messages", tag = "conversations", request_body = Option<NextMessagesBody>,
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "The messages; an empty list when there are none", body = WorkItemPage)))]
pub(crate) async fn next(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let keyed_call = auth.keyed_call("next", &id, &body.canonical()?);
    let NextMessagesBody { limit, ttl_s, wait, holder } = body.parse_or_empty()?;
    let inbox = if id.contains('@') {
        app.engine.inboxes.inbox_by_address(&auth.caller, &id).await?.id
    } else {
        inbox_id(&id)?
    };
    let limit = limit.unwrap_or(1);
    if !(1..=MAX_MESSAGES_PER_CALL).contains(&limit) {
        return Err(Problem::invalid_field("limit", format!("must be 1 to {MAX_MESSAGES_PER_CALL}")).into());
    }
    let wait = Duration::from_secs(wait.unwrap_or(0).min(limits::MAX_WAIT_MS as u64 / 1000));
    let request = WorkRequest { limit, ttl_ms: lease_duration_ms(ttl_s)?, wait, holder: lease_holder(&auth, holder)? };
    // Boxed: otherwise every connection would reserve the memory of this large future.
    let items = Box::pin(app.engine.conversations.lease_messages(&auth.caller, inbox, request, keyed_call)).await?;
    let data = items.into_iter().map(|item| WorkItemBody::of(&app, item)).collect();
    Ok(Json(WorkItemPage { data }).into_response())
}

/// Acknowledgement of a leased message, for `ack`, `nack` and `extend`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcknowledgementBody {
    /// Token of the lease.
    lease: String,
    /// For `nack`: seconds until the message is offered again, at most 86400; 0 by default.
    #[serde(default)]
    delay_s: Option<u32>,
    /// For `extend`: new duration of the lease from now in seconds, 1 to 600; 30 by default.
    #[serde(default)]
    ttl_s: Option<u32>,
}

/// The message after an acknowledgement.
#[derive(Serialize, ToSchema)]
pub(crate) struct AcknowledgementResultBody {
    message: MessageBody,
    /// The extended lease; only after `extend`.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseBody>,
}

async fn acknowledge(
    app: &App,
    auth: &AuthedRequest,
    id: &str,
    body: &RawBody,
    parse_action: impl FnOnce(&AcknowledgementBody) -> Result<Acknowledgement, Problem>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let id = message_id(id)?;
    let body: AcknowledgementBody = body.parse()?;
    let action = parse_action(&body)?;
    let item = app.engine.conversations.acknowledge_message(&auth.caller, id, &body.lease, action).await?;
    let WorkItemBody { message, lease, .. } = WorkItemBody::of(app, item);
    let lease = matches!(action, Acknowledgement::Extend { .. }).then_some(lease);
    Ok(Json(AcknowledgementResultBody { message, lease }).into_response())
}

/// Acknowledge a message: you are done with it, with or without a reply.
#[utoipa::path(post, path = "/v1/messages/{id}/ack", operation_id = "ack_message", tag = "conversations", params(("id" = String, Path)), request_body = AcknowledgementBody,
    responses((status = 200, description = "The message", body = AcknowledgementResultBody),
        (status = 409, description = "The lease expired or is held by another agent", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn ack(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    acknowledge(&app, &auth, &id, &body, |_| Ok(Acknowledgement::Ack)).await
}

/// Return a message to the queue, so that another agent can take it.
#[utoipa::path(post, path = "/v1/messages/{id}/nack", operation_id = "nack_message", tag = "conversations", params(("id" = String, Path)), request_body = AcknowledgementBody,
    responses((status = 200, description = "The message", body = AcknowledgementResultBody),
        (status = 409, description = "The lease expired or is held by another agent", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn nack(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    let nack = |body: &AcknowledgementBody| match body.delay_s.unwrap_or(0) {
        seconds if seconds <= MAX_DELAY_S => Ok(Acknowledgement::Nack { delay_ms: i64::from(seconds) * 1000 }),
        _ => Err(Problem::invalid_field("delay_s", format!("must be at most {MAX_DELAY_S}"))),
    };
    acknowledge(&app, &auth, &id, &body, nack).await
}

/// Extend the lease of a message.
#[utoipa::path(post, path = "/v1/messages/{id}/extend", operation_id = "extend_message_lease", tag = "conversations", params(("id" = String, Path)), request_body = AcknowledgementBody,
    responses((status = 200, description = "The message and its lease", body = AcknowledgementResultBody),
        (status = 409, description = "The lease expired or is held by another agent", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn extend(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    acknowledge(&app, &auth, &id, &body, |body| Ok(Acknowledgement::Extend { ttl_ms: lease_duration_ms(body.ttl_s)? }))
        .await
}
