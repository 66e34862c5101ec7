//! Endpoints: receivers that a team wants to be told of its events.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::{
        endpoint::{Dialect, Endpoint, EndpointReason, EndpointState, EventTypeFilter},
        event::EventCursor,
    },
    id::EndpointId,
    problem::{Code, FieldError, Problem},
    time::parse_span,
};
use mailonce_engine::events::endpoints::{EndpointWithSecret, NewEndpoint, ROTATION_OVERLAP_MS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

use crate::api::events::event_log::parse_cursor;
use crate::api::{
    ApiResult, App, PathParam, QueryParams,
    door::{AuthedRequest, RawBody},
    pagination::{PageQuery, created_response},
    wire::{check_text, given, parse_choice},
};

/// An endpoint to make.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEndpointBody {
    /// Where notices go: `https://…`. In `dev` also `http://` and this machine.
    url: String,
    /// Types such as `email.sent`, families such as `email.*`, or `["*"]`, which is what absence means.
    #[serde(default)]
    events: Option<Vec<String>>,
    /// Only what happens at these inboxes, by id.
    #[serde(default)]
    inboxes: Option<Vec<String>>,
    /// For people.
    #[serde(default)]
    description: Option<String>,
    /// Headers that every request carries. Their values are not shown again.
    #[serde(default)]
    headers: Option<BTreeMap<String, String>>,
    /// Requests a second at the most.
    #[serde(default)]
    rate_per_s: Option<u32>,
    /// Whether `message.received` carries the visible text of the message, its codes hidden.
    #[serde(default)]
    include_text: Option<bool>,
    /// A secret that you already have: `whsec_` and base64 of 24 to 64 bytes. Left out, one is made.
    #[serde(default)]
    secret: Option<String>,
    /// Where to begin: a cursor, or `0` for every event there ever was. Left out, with the next event.
    #[serde(default)]
    after: Option<String>,
    /// In whose words it is told and signed: `resend` or `usesend`. Left out, in ours. Events that the dialect has no
    /// word for are not told.
    #[serde(default)]
    dialect: Option<String>,
}

/// What to change. What is left out stays.
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
    /// All of them: what is not named goes.
    #[serde(default)]
    headers: Option<BTreeMap<String, String>>,
    /// `null` for no limit.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>)]
    rate_per_s: Option<Option<u32>>,
    #[serde(default)]
    include_text: Option<bool>,
    /// The rev that was seen, if it must still be that.
    #[serde(default)]
    rev: Option<u32>,
}

/// Another secret.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateEndpointBody {
    /// A secret that you already have. Left out, one is made.
    #[serde(default)]
    secret: Option<String>,
    /// How long the secrets before still sign beside it, `24h` by default, at most `30d`.
    #[serde(default)]
    previous_secret_ttl: Option<String>,
}

/// An endpoint.
#[derive(Serialize, ToSchema)]
pub(crate) struct EndpointBody {
    id: String,
    url: String,
    events: Vec<String>,
    inboxes: Vec<String>,
    description: String,
    /// The names of its custom headers.
    headers: Vec<String>,
    rate_per_s: Option<u32>,
    /// Whether `message.received` carries the text of the message.
    include_text: bool,
    /// `enabled`, `paused` or `disabled`.
    state: &'static str,
    /// Why it is not enabled: `asked`, `gone` (it answered 410) or `failing` (nothing reached it for 14 days).
    reason: Option<&'static str>,
    /// Since when its state is what it is.
    state_since: String,
    /// When it failed first since it last succeeded.
    failing_since: Option<String>,
    /// The last event that was looked at for it.
    cursor: String,
    /// How many secrets sign at the moment.
    secret_count: usize,
    /// The wire format that it was made with.
    version: String,
    /// In whose words it is told, when not in ours.
    dialect: Option<String>,
    rev: u32,
    created_at: String,
    /// `whsec_…`, when it was just made.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

/// Endpoints, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct EndpointPage {
    data: Vec<EndpointBody>,
    next_cursor: Option<String>,
}

/// How a test went.
#[derive(Serialize, ToSchema)]
pub(crate) struct EndpointTestBody {
    /// The `webhook-id` of the test.
    id: String,
    /// Whether the answer was 2xx.
    delivered: bool,
    /// The status of the answer, if there was one.
    status: Option<u16>,
    /// Else why not: `blocked name connect tls timeout broken`.
    error: Option<&'static str>,
    latency_ms: u32,
    /// The beginning of the answer, or what went wrong.
    response: String,
}

impl EndpointBody {
    fn of(app: &App, endpoint: Endpoint, secret: Option<String>) -> Self {
        let secret_count = endpoint.config.active_secrets(app.engine.ctx.now()).count();
        let about = endpoint.config;
        Self {
            id: endpoint.id.to_string(),
            url: about.url,
            events: about.events.iter().map(EventTypeFilter::as_str).map(str::to_owned).collect(),
            inboxes: about.inboxes.iter().map(ToString::to_string).collect(),
            description: about.description,
            headers: about.headers.into_keys().collect(),
            rate_per_s: about.rate_per_s,
            include_text: about.bodies,
            state: endpoint.state.as_str(),
            reason: endpoint.reason.map(EndpointReason::as_str),
            state_since: endpoint.state_since.to_string(),
            failing_since: endpoint.failing_since.map(|at| at.to_string()),
            cursor: app.engine.ctx.cursor(endpoint.cursor).to_string(),
            secret_count,
            version: about.version,
            dialect: about.tongue.map(|tongue| tongue.dialect),
            rev: endpoint.rev,
            created_at: endpoint.created_at.to_string(),
            secret,
        }
    }

    fn with_secret(app: &App, shown: EndpointWithSecret) -> Self {
        Self::of(app, shown.endpoint, Some(shown.secret))
    }
}

fn invalid_field(path: &str, message: impl Into<String>) -> Problem {
    Problem::from(vec![FieldError::new(path, message)])
}

/// An endpoint's id from a path.
pub(crate) fn endpoint_id(text: &str) -> Result<EndpointId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no endpoint {text}")))
}

/// The endpoint that a path names. Whose it is comes first: a stranger learns nothing about what a body should be.
async fn owned_endpoint_id(app: &App, door: &AuthedRequest, text: &str) -> Result<EndpointId, Problem> {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let id = endpoint_id(text)?;
    app.engine.events.endpoint(&door.caller, id).await?;
    Ok(id)
}

/// Make an endpoint.
#[utoipa::path(post, path = "/v1/endpoints", operation_id = "create_endpoint", tag = "endpoints", request_body = NewEndpointBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 201, description = "Made; `secret` is shown this once", body = EndpointBody),
        (status = 200, description = "Made before under this key", body = EndpointBody),
        (status = 409, description = "The team has as many as it may", body = crate::api::problem::ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "The cursor is from before a restore", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, door: AuthedRequest, body: RawBody) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
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
        .map_err(|fault| Problem::from(vec![fault]))?;
    let dialect = dialect.map(|dialect| Dialect { dialect: dialect.to_owned(), ..Dialect::default() });
    let wish = NewEndpoint {
        url: Some(url),
        description,
        events,
        inboxes,
        headers,
        rate_per_s,
        bodies: include_text,
        dialect,
    };
    let asked = door.keyed_call("endpoints", "", &app.engine.access.keyed_digest(&body.canonical()?));
    let shown = app.engine.events.create_endpoint(&door.caller, wish, (secret, after), asked).await?;
    Ok(created_response(shown.is_new, Json(EndpointBody::with_secret(&app, shown))))
}

/// List endpoints, newest first.
#[utoipa::path(get, path = "/v1/endpoints", operation_id = "list_endpoints", tag = "endpoints", params(PageQuery),
    responses((status = 200, description = "A page", body = EndpointPage)))]
pub(crate) async fn list(State(app): State<App>, door: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let (before, limit) = query.0.parse()?;
    let (rows, next) = app.engine.events.endpoints(&door.caller, before, limit).await?;
    let data = rows.into_iter().map(|endpoint| EndpointBody::of(&app, endpoint, None)).collect();
    Ok(Json(EndpointPage { data, next_cursor: next.map(|id| id.to_string()) }).into_response())
}

/// Read one endpoint.
#[utoipa::path(get, path = "/v1/endpoints/{id}", operation_id = "read_endpoint", tag = "endpoints", params(("id" = String, Path)),
    responses((status = 200, description = "The endpoint", body = EndpointBody)))]
pub(crate) async fn read(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let endpoint = app.engine.events.endpoint(&door.caller, endpoint_id(&id)?).await?;
    Ok(Json(EndpointBody::of(&app, endpoint, None)).into_response())
}

/// Change an endpoint.
#[utoipa::path(patch, path = "/v1/endpoints/{id}", operation_id = "update_endpoint", tag = "endpoints", params(("id" = String, Path)), request_body = EndpointPatchBody,
    responses((status = 200, description = "The endpoint as it is now", body = EndpointBody),
        (status = 409, description = "It changed since it was looked at", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn change(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    let id = owned_endpoint_id(&app, &door, &id).await?;
    let EndpointPatchBody { url, events, inboxes, description, headers, rate_per_s, include_text, rev } =
        body.parse()?;
    description.as_deref().map_or(Ok(()), |text| check_text("description", text))?;
    let wish =
        NewEndpoint { url, description, events, inboxes, headers, rate_per_s, bodies: include_text, dialect: None };
    let endpoint = app.engine.events.change_endpoint(&door.caller, id, wish, rev).await?;
    Ok(Json(EndpointBody::of(&app, endpoint, None)).into_response())
}

/// Remove an endpoint and everything that is owed to it.
#[utoipa::path(delete, path = "/v1/endpoints/{id}", operation_id = "delete_endpoint", tag = "endpoints", params(("id" = String, Path)),
    responses((status = 200, description = "What it was", body = EndpointBody)))]
pub(crate) async fn remove(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let endpoint = app.engine.events.remove_endpoint(&door.caller, endpoint_id(&id)?).await?;
    Ok(Json(EndpointBody::of(&app, endpoint, None)).into_response())
}

/// Give an endpoint another secret. Those before sign beside it for a while.
#[utoipa::path(post, path = "/v1/endpoints/{id}/rotate", operation_id = "rotate_endpoint_secret", tag = "endpoints", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")), request_body = RotateEndpointBody,
    responses((status = 200, description = "The endpoint; `secret` is shown this once", body = EndpointBody),
        (status = 409, description = "It changed meanwhile", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn rotate(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    const LONGEST_MS: i64 = 30 * 86_400_000;
    let id = owned_endpoint_id(&app, &door, &id).await?;
    let RotateEndpointBody { secret, previous_secret_ttl } = body.parse_or_empty()?;
    let overlap = previous_secret_ttl.as_deref().map(|text| {
        let ms = parse_span(text).filter(|ms| (0..=LONGEST_MS).contains(ms));
        ms.ok_or_else(|| invalid_field("previous_secret_ttl", "is a time such as 1h or 7d, at most 30d"))
    });
    let overlap = overlap.transpose()?.unwrap_or(ROTATION_OVERLAP_MS);
    let asked =
        door.keyed_call("endpoints/rotate", &id.to_string(), &app.engine.access.keyed_digest(&body.canonical()?));
    let shown = app.engine.events.rotate_endpoint(&door.caller, id, (secret, overlap), asked).await?;
    Ok(Json(EndpointBody::with_secret(&app, shown)).into_response())
}

/// Let an endpoint rest. What happens meanwhile is told when it goes on.
#[utoipa::path(post, path = "/v1/endpoints/{id}/pause", operation_id = "pause_endpoint", tag = "endpoints", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 200, description = "The endpoint as it is now", body = EndpointBody)))]
pub(crate) async fn pause(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    set_state(&app, &door, &id, EndpointState::Paused).await
}

/// Let an endpoint go on, whether it was paused or disabled.
#[utoipa::path(post, path = "/v1/endpoints/{id}/resume", operation_id = "resume_endpoint", tag = "endpoints", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 200, description = "The endpoint as it is now", body = EndpointBody)))]
pub(crate) async fn resume(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    set_state(&app, &door, &id, EndpointState::Enabled).await
}

async fn set_state(app: &App, door: &AuthedRequest, id: &str, state: EndpointState) -> ApiResult {
    let id = owned_endpoint_id(app, door, id).await?;
    let asked = door.keyed_call("endpoints/state", &id.to_string(), state.as_str().as_bytes());
    let endpoint = app.engine.events.set_endpoint_state(&door.caller, id, state, asked).await?;
    Ok(Json(EndpointBody::of(app, endpoint, None)).into_response())
}

/// Send a test to an endpoint, now. It is signed like every notice and of the type `endpoint.test`.
#[utoipa::path(post, path = "/v1/endpoints/{id}/test", operation_id = "test_endpoint", tag = "endpoints", params(("id" = String, Path)),
    responses((status = 200, description = "How it went", body = EndpointTestBody)))]
pub(crate) async fn test(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    let (name, told) = app.engine.events.test_endpoint(&door.caller, endpoint_id(&id)?).await?;
    let (status, error, response) = match told.response {
        Ok(reply) => (Some(reply.status), None, reply.excerpt),
        Err((error, reason)) => (None, Some(error.as_str()), reason),
    };
    let delivered = status.is_some_and(|status| (200..300).contains(&status));
    Ok(Json(EndpointTestBody { id: name, delivered, status, error, latency_ms: told.latency_ms, response })
        .into_response())
}
