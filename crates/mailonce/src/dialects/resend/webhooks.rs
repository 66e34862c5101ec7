//! The Resend routes for webhooks: endpoints that receive events in Resend's format, and their delivery log.

use axum::{
    extract::State,
    http::{HeaderName, HeaderValue, StatusCode},
    response::Response,
};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::{
        endpoint::{Dialect, Endpoint, EndpointState},
        notice::{Notice, NoticeQuery, NoticeState},
    },
    id::{EndpointId, NoticeId},
    limits,
    problem::{Code, Problem},
};
use mailonce_engine::events::endpoints::{NewEndpoint, ROTATION_OVERLAP_MS};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use uuid::Uuid;

use super::{
    DialectError, DialectPath, DialectQuery, OnePathParam, PageParams, ResendDialect, ResendRequest, ResendRequestBody,
    ResendResult, TwoPathSegments, deleted_response, json, list_response, object_response, parse_id,
};
use crate::{
    dialects::{
        field_problem,
        pagination::{MAX_SHORT_LIST, PageRows},
        rename_field,
        resend::{
            errors::missing_field,
            event_format::{self, NAME},
        },
    },
    http::app::App,
};

#[derive(Serialize)]
struct WebhookBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'static str>,
    id: String,
    created_at: String,
    status: &'static str,
    endpoint: String,
    events: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signing_secret: Option<String>,
}

impl From<&Endpoint> for WebhookBody {
    fn from(endpoint: &Endpoint) -> Self {
        let config = &endpoint.config;
        Self {
            object: None,
            id: endpoint.id.to_string(),
            created_at: endpoint.created_at.to_string(),
            status: if endpoint.state == EndpointState::Enabled { "enabled" } else { "disabled" },
            endpoint: config.url.clone(),
            events: config.dialect.as_ref().map(|dialect| dialect.types.clone()).unwrap_or_default(),
            signing_secret: None,
        }
    }
}

fn missing_webhook() -> Problem {
    Problem::new(Code::NotFound, "Webhook not found")
}

fn uses_resend_format(endpoint: &Endpoint) -> bool {
    endpoint.config.dialect.as_ref().is_some_and(|dialect| dialect.dialect == NAME)
}

/// Finds the webhook of a path. Endpoints with another event format are not visible in this dialect.
async fn find_webhook(app: &App, auth: &ResendRequest, name: &str) -> Result<Endpoint, DialectError<ResendDialect>> {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let endpoint: EndpointId = parse_id(name)?;
    let with_dialect_message =
        |problem: Problem| if problem.code == Code::NotFound { missing_webhook() } else { problem };
    let endpoint = app.engine.events.endpoint(&auth.caller, endpoint).await.map_err(with_dialect_message)?;
    if uses_resend_format(&endpoint) { Ok(endpoint) } else { Err(missing_webhook().into()) }
}

/// The event types that an endpoint subscribes to: as Resend types and as native types.
fn parse_events(types: Vec<String>) -> Result<(Dialect, Vec<String>), Problem> {
    if let Some(unknown) = types.iter().find(|name| !event_format::is_type(name)) {
        return Err(field_problem("events", format!("Invalid `events` field: there is no event `{unknown}`.")));
    }
    let native_types = event_format::native_types(&types);
    if native_types.is_empty() {
        return Err(field_problem("events", "None of these events ever happens here."));
    }
    Ok((Dialect { dialect: NAME.to_owned(), types, ..Dialect::default() }, native_types))
}

#[derive(Deserialize)]
struct NewWebhookBody {
    #[serde(default)]
    endpoint: Option<String>,
    #[serde(default)]
    events: Option<Vec<String>>,
}

#[derive(Serialize)]
struct SecretBody {
    object: &'static str,
    id: String,
    signing_secret: String,
}

/// Resend calls the URL of a webhook `endpoint`.
fn rename_url_field(problem: Problem) -> Problem {
    rename_field(problem, "url", "endpoint")
}

/// `POST /webhooks`.
pub(super) async fn create(State(app): State<App>, auth: ResendRequest, body: ResendRequestBody) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let keyed_call = auth.keyed_call("webhooks", "", &body.canonical()?);
    let NewWebhookBody { endpoint, events } = body.parse()?;
    let url = Some(endpoint.ok_or_else(|| missing_field("endpoint"))?);
    let (dialect, events) = parse_events(events.ok_or_else(|| missing_field("events"))?)?;
    let unsupported = event_format::unsupported_types(&dialect.types);
    let new_endpoint = NewEndpoint { url, events: Some(events), dialect: Some(dialect), ..NewEndpoint::default() };
    let created = app
        .engine
        .events
        .create_endpoint(&auth.caller, new_endpoint, (None, None), keyed_call)
        .await
        .map_err(rename_url_field)?;
    let body = SecretBody { object: "webhook", id: created.endpoint.id.to_string(), signing_secret: created.secret };
    Ok(with_unsupported_types(&unsupported, json(StatusCode::CREATED, &body)))
}

/// Lists the requested event types that mailonce never sends in a response header, which the SDKs ignore.
fn with_unsupported_types(types: &[&str], mut response: Response) -> Response {
    if let (false, Ok(value)) = (types.is_empty(), HeaderValue::from_str(&types.join(", "))) {
        response.headers_mut().insert(HeaderName::from_static("mailonce-never-happens"), value);
    }
    response
}

/// `GET /webhooks`.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let page = query.parse()?;
    let mut all = app.engine.events.endpoints(&auth.caller, None, limits::ENDPOINTS).await?.0;
    all.retain(uses_resend_format);
    Ok(list_response(page.slice_newest_first(all, |endpoint| endpoint.id.0), |endpoint| WebhookBody::from(&endpoint)))
}

/// `GET /webhooks/{id}`.
pub(super) async fn read(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let endpoint = find_webhook(&app, &auth, &name).await?;
    let signing_secret = app.engine.events.endpoint_secret(&auth.caller, endpoint.id).await?;
    let body = WebhookBody { object: Some("webhook"), signing_secret, ..WebhookBody::from(&endpoint) };
    Ok(json(StatusCode::OK, &body))
}

#[derive(Deserialize)]
struct WebhookPatchBody {
    #[serde(default)]
    endpoint: Option<String>,
    #[serde(default)]
    events: Option<Vec<String>>,
    #[serde(default)]
    status: Option<String>,
}

/// `PATCH /webhooks/{id}`.
pub(super) async fn change(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    body: ResendRequestBody,
) -> ResendResult {
    let endpoint = find_webhook(&app, &auth, &name).await?;
    let WebhookPatchBody { endpoint: url, events, status } = body.parse()?;
    let state = match status.as_deref() {
        None => None,
        Some("enabled") => Some(EndpointState::Enabled),
        Some("disabled") => Some(EndpointState::Disabled),
        Some(_) => return Err(field_problem("status", "The `status` must be `enabled` or `disabled`.").into()),
    };
    let (dialect, events) = events.map(parse_events).transpose()?.unzip();
    let unsupported =
        dialect.as_ref().map(|dialect: &Dialect| event_format::unsupported_types(&dialect.types)).unwrap_or_default();
    if url.is_some() || events.is_some() {
        let patch = NewEndpoint { url, events, dialect, ..NewEndpoint::default() };
        app.engine.events.change_endpoint(&auth.caller, endpoint.id, patch, None).await.map_err(rename_url_field)?;
    }
    if let Some(state) = state.filter(|state| *state != endpoint.state) {
        app.engine.events.set_endpoint_state(&auth.caller, endpoint.id, state, None).await?;
    }
    Ok(with_unsupported_types(&unsupported, object_response("webhook", endpoint.id)))
}

/// `DELETE /webhooks/{id}`.
pub(super) async fn remove(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let endpoint = find_webhook(&app, &auth, &name).await?;
    let removed = app.engine.events.remove_endpoint(&auth.caller, endpoint.id).await?;
    Ok(deleted_response("webhook", removed.id))
}

/// `POST /webhooks/{id}/signing-secret/rotate`. The previous secret keeps signing for a day.
pub(super) async fn rotate(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let endpoint = find_webhook(&app, &auth, &name).await?;
    let keyed_call = auth.keyed_call("webhooks/rotate", &name, b"");
    let rotated =
        app.engine.events.rotate_endpoint(&auth.caller, endpoint.id, (None, ROTATION_OVERLAP_MS), keyed_call).await?;
    let body = SecretBody { object: "webhook", id: rotated.endpoint.id.to_string(), signing_secret: rotated.secret };
    Ok(json(StatusCode::OK, &body))
}

/// The delivery status of an event.
fn status(notice: &Notice) -> &'static str {
    match notice.state {
        NoticeState::Pending if notice.holder.is_some() => "attempting",
        NoticeState::Pending => "pending",
        NoticeState::Delivered => "success",
        NoticeState::Dead | NoticeState::Dropped => "failed",
    }
}

/// One event for the webhook.
#[derive(Serialize)]
struct EventBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'static str>,
    id: String,
    #[serde(rename = "type")]
    kind: String,
    created_at: String,
    status: &'static str,
    #[serde(flatten)]
    whole: Option<EventDetailBody>,
}

#[derive(Serialize)]
struct EventDetailBody {
    next_attempt_at: Option<String>,
    payload: Option<Box<RawValue>>,
}

/// An event and its payload; `None` if Resend has no type for the event, which is then never sent.
async fn event_body(
    app: &App,
    auth: &ResendRequest,
    notice: &Notice,
) -> Result<Option<(EventBody, Box<RawValue>)>, Problem> {
    let Some(text) = app.engine.events.notice_body(&auth.caller, notice).await? else { return Ok(None) };
    let invalid_payload = |error: serde_json::Error| Problem::new(Code::Internal, error.to_string());
    let payload = RawValue::from_string(text).map_err(invalid_payload)?;
    let parsed = serde_json::from_str::<Value>(payload.get()).map_err(invalid_payload)?;
    let body = EventBody {
        object: None,
        id: notice.id.to_string(),
        kind: parsed["type"].as_str().unwrap_or_default().to_owned(),
        created_at: notice.created_at.to_string(),
        status: status(notice),
        whole: None,
    };
    Ok(Some((body, payload)))
}

/// `GET /webhooks/{id}/events`, newest first.
pub(super) async fn events(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let endpoint = find_webhook(&app, &auth, &name).await?;
    let page = query.parse()?;
    let (mut all, mut before) = (Vec::new(), None);
    while all.len() < MAX_SHORT_LIST {
        let query = NoticeQuery { state: None, kind: None, subject_id: None, before, limit: limits::PAGE_ROWS };
        let (rows, next) = app.engine.events.notices(&auth.caller, endpoint.id, query).await?;
        // Events without a Resend type were dropped and never sent.
        all.extend(rows.into_iter().filter(|notice| notice.state != NoticeState::Dropped));
        before = next;
        if before.is_none() {
            break;
        }
    }
    let PageRows { rows, has_more: more } = page.slice_in_order(all, |notice| notice.id.0);
    let mut bodies = Vec::with_capacity(rows.len());
    for notice in &rows {
        bodies.extend(event_body(&app, &auth, notice).await?.map(|(body, _)| body));
    }
    Ok(list_response(PageRows { rows: bodies, has_more: more }, |body| body))
}

/// Finds one event of a webhook.
async fn find_event(
    app: &App,
    auth: &ResendRequest,
    webhook: &str,
    event: &str,
) -> Result<Notice, DialectError<ResendDialect>> {
    let endpoint = find_webhook(app, auth, webhook).await?;
    let event: NoticeId = parse_id(event)?;
    let missing = || Problem::new(Code::NotFound, "Webhook event not found");
    let with_dialect_message = |problem: Problem| if problem.code == Code::NotFound { missing() } else { problem };
    let notice = app.engine.events.notice(&auth.caller, event).await.map_err(with_dialect_message)?;
    if notice.endpoint == endpoint.id { Ok(notice) } else { Err(missing().into()) }
}

/// `GET /webhooks/{id}/events/{event}`.
pub(super) async fn event(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((webhook, event), ..): TwoPathSegments,
) -> ResendResult {
    let notice = find_event(&app, &auth, &webhook, &event).await?;
    let found = event_body(&app, &auth, &notice).await?;
    let (body, payload) = found.ok_or_else(|| Problem::new(Code::NotFound, "Webhook event not found"))?;
    let next_attempt_at = notice.due_at.map(|at| at.to_string());
    let whole = Some(EventDetailBody { next_attempt_at, payload: Some(payload) });
    Ok(json(StatusCode::OK, &EventBody { object: Some("webhook_event"), whole, ..body }))
}

/// `POST /webhooks/{id}/events/{event}/replay`.
pub(super) async fn replay(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((webhook, event), ..): TwoPathSegments,
) -> ResendResult {
    let notice = find_event(&app, &auth, &webhook, &event).await?;
    let keyed_call = auth.keyed_call("webhooks/replay", &event, b"");
    let replayed = app.engine.events.replay_notice(&auth.caller, notice.id, keyed_call).await?;
    Ok(object_response("webhook_event", replayed.id))
}

#[derive(Serialize)]
struct AttemptBody {
    id: String,
    http_status_code: u16,
    response: String,
    sent_at: String,
}

/// `GET /webhooks/{id}/events/{event}/attempts`, newest first. The status is 0 if the endpoint did not respond.
pub(super) async fn attempts(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((webhook, event), ..): TwoPathSegments,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let notice = find_event(&app, &auth, &webhook, &event).await?;
    let attempt_id = |number: u32| super::attachments::file_id(notice.id.0, number as usize);
    let rows: Vec<(Uuid, AttemptBody)> = notice
        .attempt_log
        .iter()
        .rev()
        .map(|attempt| {
            let body = AttemptBody {
                id: attempt_id(attempt.number).to_string(),
                http_status_code: attempt.status.unwrap_or_default(),
                response: attempt.response.clone(),
                sent_at: attempt.at.to_string(),
            };
            (attempt_id(attempt.number), body)
        })
        .collect();
    Ok(list_response(query.parse()?.slice_in_order(rows, |row| row.0), |row| row.1))
}
