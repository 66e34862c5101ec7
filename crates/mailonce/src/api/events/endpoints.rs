//! Endpoints: the webhook receivers of a team.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::{
        endpoint::{Dialect, Endpoint, EndpointReason, EndpointState, EventTypePattern},
        event::EventCursor,
    },
    id::EndpointId,
    problem::{Code, Problem},
    time::parse_span,
};
use mailonce_engine::events::endpoints::{EndpointWithSecret, NewEndpoint, ROTATION_OVERLAP_MS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

use crate::{
    api::{
        events::event_log::parse_cursor,
        pagination::{PageQuery, created_response},
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::{check_text, given, parse_choice},
        params::{PathParam, QueryParams},
    },
};

/// A webhook endpoint to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEndpointBody {
    /// Webhook URL: `https://…`. In `dev` mode also `http://` and loopback addresses.
    url: String,
    /// Event types to send: types such as `email.sent`, prefixes such as `email.*`, or `["*"]` for all (default).
    #[serde(default)]
    events: Option<Vec<String>>,
    /// Send only events of these inboxes, by id; all inboxes when absent.
    #[serde(default)]
    inboxes: Option<Vec<String>>,
    /// Description for people.
    #[serde(default)]
    description: Option<String>,
    /// Custom headers of every webhook request. The values are not shown again.
    #[serde(default)]
    headers: Option<BTreeMap<String, String>>,
    /// Rate limit in requests per second; no limit when absent.
    #[serde(default)]
    rate_per_s: Option<u32>,
    /// Whether `message.received` includes the visible text of the message, with codes masked.
    #[serde(default)]
    include_text: Option<bool>,
    /// Signing secret to use: `whsec_` and Base64 of 24 to 64 bytes. Generated when absent.
    #[serde(default)]
    secret: Option<String>,
    /// Where to start: an event cursor, or `0` for all stored events. When absent, with the next event.
    #[serde(default)]
    after: Option<String>,
    /// Payload and signature format: `resend` or `usesend`; mailonce's own format when absent. Events that the dialect
    /// does not have are not sent.
    #[serde(default)]
    dialect: Option<String>,
}

/// Settings of an endpoint to change. Absent fields keep their value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointPatchBody {
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    events: Option<Vec<String>>,
    #[serde(default)]
    inboxes: Option<Vec<String>>,
    #[serde(default)]
    description: Option<String>,
    /// Replaces all custom headers.
    #[serde(default)]
    headers: Option<BTreeMap<String, String>>,
    /// Rate limit in requests per second; `null` removes it.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    rate_per_s: Option<Option<u32>>,
    #[serde(default)]
    include_text: Option<bool>,
    /// The `rev` that you read. If it is set, the call is refused when the endpoint has changed since.
    #[serde(default)]
    rev: Option<u32>,
}

/// Rotation of an endpoint's secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateEndpointBody {
    /// New signing secret: `whsec_…`. Generated when absent.
    #[serde(default)]
    secret: Option<String>,
    /// How long requests are also signed with the previous secrets; `24h` by default, at most `30d`.
    #[serde(default)]
    previous_secret_ttl: Option<String>,
}

/// A webhook endpoint.
#[derive(Serialize, ToSchema)]
pub(crate) struct EndpointBody {
    id: String,
    url: String,
    events: Vec<String>,
    inboxes: Vec<String>,
    description: String,
    /// Names of the custom headers.
    headers: Vec<String>,
    rate_per_s: Option<u32>,
    /// Whether `message.received` includes the text of the message.
    include_text: bool,
    /// `enabled`, `paused` or `disabled`.
    state: &'static str,
    /// Why the endpoint is not enabled: `asked` (by a call), `gone` (it answered 410) or `failing` (for 14 days).
    reason: Option<&'static str>,
    /// When the state last changed.
    state_since: String,
    /// When the first failure since the last success happened; null while requests succeed.
    failing_since: Option<String>,
    /// Cursor of the last event that was processed for this endpoint.
    cursor: String,
    /// Number of secrets that sign requests at the moment.
    secret_count: usize,
    /// API version that the endpoint was created with.
    version: String,
    /// Payload and signature format; null for mailonce's own.
    dialect: Option<String>,
    rev: u32,
    created_at: String,
    /// Signing secret `whsec_…`; only in the response that created or rotated it.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

/// A page of endpoints, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct EndpointPage {
    data: Vec<EndpointBody>,
    next_cursor: Option<String>,
}

/// Result of a test request.
#[derive(Serialize, ToSchema)]
pub(crate) struct EndpointTestBody {
    /// The `webhook-id` of the test request.
    id: String,
    /// Whether the endpoint answered 2xx.
    delivered: bool,
    /// HTTP status of the response, if there was one.
    status: Option<u16>,
    /// Why there was no response: `blocked name connect tls timeout broken`.
    error: Option<&'static str>,
    latency_ms: u32,
    /// Start of the response body, or the error message.
    response: String,
}

impl EndpointBody {
    fn of(app: &App, endpoint: Endpoint, secret: Option<String>) -> Self {
        let secret_count = endpoint.config.active_secrets(app.engine.ctx.now()).count();
        let config = endpoint.config;
        Self {
            id: endpoint.id.to_string(),
            url: config.url,
            events: config.events.iter().map(EventTypePattern::as_str).map(str::to_owned).collect(),
            inboxes: config.inboxes.iter().map(ToString::to_string).collect(),
            description: config.description,
            headers: config.headers.into_keys().collect(),
            rate_per_s: config.rate_per_s,
            include_text: config.include_text,
            state: endpoint.state.as_str(),
            reason: endpoint.reason.map(EndpointReason::as_str),
            state_since: endpoint.state_since.to_string(),
            failing_since: endpoint.failing_since.map(|at| at.to_string()),
            cursor: app.engine.ctx.cursor(endpoint.cursor).to_string(),
            secret_count,
            version: config.version,
            dialect: config.dialect.map(|tongue| tongue.dialect),
            rev: endpoint.rev,
            created_at: endpoint.created_at.to_string(),
            secret,
        }
    }

    fn with_secret(app: &App, created: EndpointWithSecret) -> Self {
        Self::of(app, created.endpoint, Some(created.secret))
    }
}

/// Parses the endpoint id in a path.
pub(crate) fn endpoint_id(text: &str) -> Result<EndpointId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no endpoint {text}")))
}

/// The id of an endpoint of the caller's team. Checked before the body, so that another team gets `404` for any body.
async fn owned_endpoint_id(app: &App, auth: &AuthedRequest, text: &str) -> Result<EndpointId, Problem> {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let id = endpoint_id(text)?;
    app.engine.events.endpoint(&auth.caller, id).await?;
    Ok(id)
}

/// Create a webhook endpoint.
///
/// The response shows the signing secret once; store it right away.
#[utoipa::path(post, path = "/v1/endpoints", operation_id = "create_endpoint", tag = "endpoints", request_body = NewEndpointBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Created; `secret` is shown only once", body = EndpointBody),
        (status = 200, description = "Created before with this idempotency key", body = EndpointBody),
        (status = 409, description = "The team has reached its maximum number of endpoints", body = crate::http::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "The cursor is from before a restore or database failover, or events after it were deleted", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let NewEndpointBody {
        url,
        events,
        inboxes,
        description,
        headers,
        rate_per_s,
        include_text,
        secret,
        after,
        dialect,
    } = body.parse()?;
    description.as_deref().map_or(Ok(()), |text| check_text("description", text))?;
    let after: Option<Option<EventCursor>> = after.as_deref().map(parse_cursor).transpose()?;
    let rate_per_s = rate_per_s.map(Some);
    let dialect = parse_choice("dialect", dialect.as_deref(), &crate::dialects::EVENT_DIALECTS)
        .map_err(|error| Problem::from(vec![error]))?;
    let dialect = dialect.map(|dialect| Dialect { dialect: dialect.to_owned(), ..Dialect::default() });
    let new_endpoint = NewEndpoint {
        url: Some(url),
        description,
        events,
        inboxes,
        headers,
        rate_per_s,
        bodies: include_text,
        dialect,
    };
    let keyed_call = auth.keyed_call("endpoints", "", &app.engine.access.call_digest(&body.canonical()?));
    let created = app.engine.events.create_endpoint(&auth.caller, new_endpoint, (secret, after), keyed_call).await?;
    Ok(created_response(created.is_new, Json(EndpointBody::with_secret(&app, created))))
}

/// List endpoints, newest first.
#[utoipa::path(get, path = "/v1/endpoints", operation_id = "list_endpoints", tag = "endpoints", params(PageQuery),
    responses((status = 200, description = "A page of results", body = EndpointPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let (before, limit) = query.0.parse()?;
    let (rows, next) = app.engine.events.endpoints(&auth.caller, before, limit).await?;
    let data = rows.into_iter().map(|endpoint| EndpointBody::of(&app, endpoint, None)).collect();
    Ok(Json(EndpointPage { data, next_cursor: next.map(|id| id.to_string()) }).into_response())
}

/// Read one endpoint.
#[utoipa::path(get, path = "/v1/endpoints/{id}", operation_id = "read_endpoint", tag = "endpoints", params(("id" = String, Path)),
    responses((status = 200, description = "The endpoint", body = EndpointBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let endpoint = app.engine.events.endpoint(&auth.caller, endpoint_id(&id)?).await?;
    Ok(Json(EndpointBody::of(&app, endpoint, None)).into_response())
}

/// Change an endpoint.
#[utoipa::path(patch, path = "/v1/endpoints/{id}", operation_id = "update_endpoint", tag = "endpoints", params(("id" = String, Path)), request_body = EndpointPatchBody,
    responses((status = 200, description = "The updated endpoint", body = EndpointBody),
        (status = 409, description = "The object changed since you read it", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn change(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    let id = owned_endpoint_id(&app, &auth, &id).await?;
    let EndpointPatchBody { url, events, inboxes, description, headers, rate_per_s, include_text, rev } =
        body.parse()?;
    description.as_deref().map_or(Ok(()), |text| check_text("description", text))?;
    let patch =
        NewEndpoint { url, description, events, inboxes, headers, rate_per_s, bodies: include_text, dialect: None };
    let endpoint = app.engine.events.change_endpoint(&auth.caller, id, patch, rev).await?;
    Ok(Json(EndpointBody::of(&app, endpoint, None)).into_response())
}

/// Remove an endpoint and its pending notices.
#[utoipa::path(delete, path = "/v1/endpoints/{id}", operation_id = "delete_endpoint", tag = "endpoints", params(("id" = String, Path)),
    responses((status = 200, description = "The removed object", body = EndpointBody)))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let endpoint = app.engine.events.remove_endpoint(&auth.caller, endpoint_id(&id)?).await?;
    Ok(Json(EndpointBody::of(&app, endpoint, None)).into_response())
}

/// Rotate the signing secret of an endpoint.
///
/// For a while, requests are signed with the previous secrets as well.
#[utoipa::path(post, path = "/v1/endpoints/{id}/rotate", operation_id = "rotate_endpoint_secret", tag = "endpoints", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = RotateEndpointBody,
    responses((status = 200, description = "The endpoint; `secret` is shown only once", body = EndpointBody),
        (status = 409, description = "The object changed during the call; retry", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn rotate(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    const MAX_OVERLAP_MS: i64 = 30 * 86_400_000;
    let id = owned_endpoint_id(&app, &auth, &id).await?;
    let RotateEndpointBody { secret, previous_secret_ttl } = body.parse_or_empty()?;
    let overlap = previous_secret_ttl.as_deref().map(|text| {
        let ms = parse_span(text).filter(|ms| (0..=MAX_OVERLAP_MS).contains(ms));
        ms.ok_or_else(|| {
            Problem::invalid_field("previous_secret_ttl", "must be a duration such as 1h or 7d, at most 30d")
        })
    });
    let overlap = overlap.transpose()?.unwrap_or(ROTATION_OVERLAP_MS);
    let keyed_call =
        auth.keyed_call("endpoints/rotate", &id.to_string(), &app.engine.access.call_digest(&body.canonical()?));
    let rotated = app.engine.events.rotate_endpoint(&auth.caller, id, (secret, overlap), keyed_call).await?;
    Ok(Json(EndpointBody::with_secret(&app, rotated)).into_response())
}

/// Pause an endpoint.
///
/// Events that happen in the meantime are sent when it is resumed.
#[utoipa::path(post, path = "/v1/endpoints/{id}/pause", operation_id = "pause_endpoint", tag = "endpoints", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "The updated endpoint", body = EndpointBody)))]
pub(crate) async fn pause(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    set_state(&app, &auth, &id, EndpointState::Paused).await
}

/// Resume an endpoint that is paused or disabled.
#[utoipa::path(post, path = "/v1/endpoints/{id}/resume", operation_id = "resume_endpoint", tag = "endpoints", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "The updated endpoint", body = EndpointBody)))]
pub(crate) async fn resume(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    set_state(&app, &auth, &id, EndpointState::Enabled).await
}

async fn set_state(app: &App, auth: &AuthedRequest, id: &str, state: EndpointState) -> ApiResult {
    let id = owned_endpoint_id(app, auth, id).await?;
    let keyed_call = auth.keyed_call("endpoints/state", &id.to_string(), state.as_str().as_bytes());
    let endpoint = app.engine.events.set_endpoint_state(&auth.caller, id, state, keyed_call).await?;
    Ok(Json(EndpointBody::of(app, endpoint, None)).into_response())
}

/// Send a test request to an endpoint.
///
/// The request is sent at once, has the type `endpoint.test` and is signed like every notice.
#[utoipa::path(post, path = "/v1/endpoints/{id}/test", operation_id = "test_endpoint", tag = "endpoints", params(("id" = String, Path)),
    responses((status = 200, description = "The result of the test", body = EndpointTestBody)))]
pub(crate) async fn test(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    let (id, result) = app.engine.events.test_endpoint(&auth.caller, endpoint_id(&id)?).await?;
    let (status, error, response) = match result.response {
        Ok(reply) => (Some(reply.status), None, reply.excerpt),
        Err((error, reason)) => (None, Some(error.as_str()), reason),
    };
    let delivered = status.is_some_and(|status| (200..300).contains(&status));
    Ok(Json(EndpointTestBody { id, delivered, status, error, latency_ms: result.latency_ms, response }).into_response())
}
