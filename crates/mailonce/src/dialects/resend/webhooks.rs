//! Webhooks in Resend's words: endpoints that are told as Resend tells, and what they were told.

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
    DialectError, DialectPath, DialectQuery, OnePathParam, PageParams, Resend, ResendRequest, ResendRequestBody,
    ResendResult, TwoPathSegments, deleted_response, json, list_response as listed, object_response, parse_id,
};
use crate::dialects::resend::{
    errors::{missing_field, unsupported_field},
    event_format::{self, NAME},
};
use crate::{
    api::App,
    dialects::{
        pagination::{MAX_SHORT_LIST, PageRows},
        rename_field,
    },
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
        let about = &endpoint.config;
        Self {
            object: None,
            id: endpoint.id.to_string(),
            created_at: endpoint.created_at.to_string(),
            status: if endpoint.state == EndpointState::Enabled { "enabled" } else { "disabled" },
            endpoint: about.url.clone(),
            events: about.tongue.as_ref().map(|tongue| tongue.types.clone()).unwrap_or_default(),
            signing_secret: None,
        }
    }
}

fn missing_webhook() -> Problem {
    Problem::new(Code::NotFound, "Webhook not found")
}

fn uses_resend_format(endpoint: &Endpoint) -> bool {
    endpoint.config.tongue.as_ref().is_some_and(|tongue| tongue.dialect == NAME)
}

/// The webhook of a path. Endpoints that are told in other words are not seen from here.
async fn find_webhook(app: &App, guest: &ResendRequest, name: &str) -> Result<Endpoint, DialectError<Resend>> {
    guest.caller.require_scope(ApiKeyScope::Admin)?;
    let endpoint: EndpointId = parse_id(name)?;
    let in_words = |problem: Problem| if problem.code == Code::NotFound { missing_webhook() } else { problem };
    let endpoint = app.engine.endpoint(&guest.caller, endpoint).await.map_err(in_words)?;
    if uses_resend_format(&endpoint) { Ok(endpoint) } else { Err(missing_webhook().into()) }
}

/// What an endpoint wants, in the dialect's words and in ours.
fn parse_events(types: Vec<String>) -> Result<(Dialect, Vec<String>), Problem> {
    if let Some(unknown) = types.iter().find(|name| !event_format::is_type(name)) {
        return Err(unsupported_field("events", format!("Invalid `events` field: there is no event `{unknown}`.")));
    }
    let own = event_format::native_types(&types);
    if own.is_empty() {
        return Err(unsupported_field("events", "None of these events ever happens here."));
    }
    Ok((Dialect { dialect: NAME.to_owned(), types, ..Dialect::default() }, own))
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

/// The dialect calls the address of a webhook `endpoint`.
fn rename_url_field(problem: Problem) -> Problem {
    rename_field(problem, ("url", "endpoint"))
}

/// `POST /webhooks`.
pub(super) async fn create(State(app): State<App>, guest: ResendRequest, body: ResendRequestBody) -> ResendResult {
    guest.caller.require_scope(ApiKeyScope::Admin)?;
    let asked = guest.keyed_call("webhooks", "", &body.canonical()?);
    let NewWebhookBody { endpoint, events } = body.parse()?;
    let url = Some(endpoint.ok_or_else(|| missing_field("endpoint"))?);
    let (tongue, events) = parse_events(events.ok_or_else(|| missing_field("events"))?)?;
    let never = event_format::unsupported_types(&tongue.types);
    let wish = NewEndpoint { url, events: Some(events), dialect: Some(tongue), ..NewEndpoint::default() };
    let shown = app.engine.create_endpoint(&guest.caller, wish, (None, None), asked).await.map_err(rename_url_field)?;
    let body = SecretBody { object: "webhook", id: shown.endpoint.id.to_string(), signing_secret: shown.secret };
    Ok(with_unsupported_types(&never, json(StatusCode::CREATED, &body)))
}

/// An answer that names the types which were asked for and never happen here, in a header that SDKs pass over.
fn with_unsupported_types(types: &[&str], mut response: Response) -> Response {
    if let (false, Ok(value)) = (types.is_empty(), HeaderValue::from_str(&types.join(", "))) {
        response.headers_mut().insert(HeaderName::from_static("mailonce-never-happens"), value);
    }
    response
}

/// `GET /webhooks`.
pub(super) async fn list(
    State(app): State<App>,
    guest: ResendRequest,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    guest.caller.require_scope(ApiKeyScope::Admin)?;
    let wish = query.parse()?;
    let mut all = app.engine.endpoints(&guest.caller, None, limits::ENDPOINTS).await?.0;
    all.retain(uses_resend_format);
    Ok(listed(wish.slice_newest_first(all, |endpoint| endpoint.id.0), |endpoint| WebhookBody::from(&endpoint)))
}

/// `GET /webhooks/{id}`.
pub(super) async fn read(
    State(app): State<App>,
    guest: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let endpoint = find_webhook(&app, &guest, &name).await?;
    let signing_secret = app.engine.endpoint_secret(&guest.caller, endpoint.id).await?;
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
    guest: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    body: ResendRequestBody,
) -> ResendResult {
    let endpoint = find_webhook(&app, &guest, &name).await?;
    let WebhookPatchBody { endpoint: url, events, status } = body.parse()?;
    let state = match status.as_deref() {
        None => None,
        Some("enabled") => Some(EndpointState::Enabled),
        Some("disabled") => Some(EndpointState::Disabled),
        Some(_) => return Err(unsupported_field("status", "The `status` must be `enabled` or `disabled`.").into()),
    };
    let (tongue, events) = events.map(parse_events).transpose()?.unzip();
    let never =
        tongue.as_ref().map(|tongue: &Dialect| event_format::unsupported_types(&tongue.types)).unwrap_or_default();
    if url.is_some() || events.is_some() {
        let wish = NewEndpoint { url, events, dialect: tongue, ..NewEndpoint::default() };
        app.engine.change_endpoint(&guest.caller, endpoint.id, wish, None).await.map_err(rename_url_field)?;
    }
    if let Some(state) = state.filter(|state| *state != endpoint.state) {
        app.engine.set_endpoint_state(&guest.caller, endpoint.id, state, None).await?;
    }
    Ok(with_unsupported_types(&never, object_response("webhook", endpoint.id)))
}

/// `DELETE /webhooks/{id}`.
pub(super) async fn remove(
    State(app): State<App>,
    guest: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let endpoint = find_webhook(&app, &guest, &name).await?;
    let removed = app.engine.remove_endpoint(&guest.caller, endpoint.id).await?;
    Ok(deleted_response("webhook", removed.id))
}

/// `POST /webhooks/{id}/signing-secret/rotate`. The secret before still signs for a day.
pub(super) async fn rotate(
    State(app): State<App>,
    guest: ResendRequest,
    DialectPath(name, ..): OnePathParam,
) -> ResendResult {
    let endpoint = find_webhook(&app, &guest, &name).await?;
    let asked = guest.keyed_call("webhooks/rotate", &name, b"");
    let shown = app.engine.rotate_endpoint(&guest.caller, endpoint.id, (None, ROTATION_OVERLAP_MS), asked).await?;
    let body = SecretBody { object: "webhook", id: shown.endpoint.id.to_string(), signing_secret: shown.secret };
    Ok(json(StatusCode::OK, &body))
}

/// How it stands with telling of an event.
fn status(notice: &Notice) -> &'static str {
    match notice.state {
        NoticeState::Pending if notice.holder.is_some() => "attempting",
        NoticeState::Pending => "pending",
        NoticeState::Delivered => "success",
        NoticeState::Dead | NoticeState::Dropped => "failed",
    }
}

/// One event that the webhook was owed.
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

/// An event and its payload. `None` for one that the dialect has no word for: the webhook is never told of it.
async fn event_body(
    app: &App,
    guest: &ResendRequest,
    notice: &Notice,
) -> Result<Option<(EventBody, Box<RawValue>)>, Problem> {
    let Some(text) = app.engine.notice_body(&guest.caller, notice).await? else { return Ok(None) };
    let broken = |error: serde_json::Error| Problem::new(Code::Internal, error.to_string());
    let payload = RawValue::from_string(text).map_err(broken)?;
    let kind = serde_json::from_str::<Value>(payload.get()).map_err(broken)?;
    let body = EventBody {
        object: None,
        id: notice.id.to_string(),
        kind: kind["type"].as_str().unwrap_or_default().to_owned(),
        created_at: notice.created_at.to_string(),
        status: status(notice),
        whole: None,
    };
    Ok(Some((body, payload)))
}

/// `GET /webhooks/{id}/events`, those of the latest events first.
pub(super) async fn events(
    State(app): State<App>,
    guest: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let endpoint = find_webhook(&app, &guest, &name).await?;
    let wish = query.parse()?;
    let (mut all, mut before) = (Vec::new(), None);
    while all.len() < MAX_SHORT_LIST {
        let query = NoticeQuery { state: None, kind: None, subject_id: None, before, limit: limits::PAGE_ROWS };
        let (rows, next) = app.engine.notices(&guest.caller, endpoint.id, query).await?;
        // What the dialect has no word for was never told.
        all.extend(rows.into_iter().filter(|notice| notice.state != NoticeState::Dropped));
        before = next;
        if before.is_none() {
            break;
        }
    }
    let PageRows { rows, has_more: more } = wish.slice_in_order(all, |notice| notice.id.0);
    let mut bodies = Vec::with_capacity(rows.len());
    for notice in &rows {
        bodies.extend(event_body(&app, &guest, notice).await?.map(|(body, _)| body));
    }
    Ok(listed(PageRows { rows: bodies, has_more: more }, |body| body))
}

/// One event of a webhook of the caller's.
async fn find_event(
    app: &App,
    guest: &ResendRequest,
    (webhook, event): (&str, &str),
) -> Result<Notice, DialectError<Resend>> {
    let endpoint = find_webhook(app, guest, webhook).await?;
    let event: NoticeId = parse_id(event)?;
    let missing = || Problem::new(Code::NotFound, "Webhook event not found");
    let in_words = |problem: Problem| if problem.code == Code::NotFound { missing() } else { problem };
    let notice = app.engine.notice(&guest.caller, event).await.map_err(in_words)?;
    if notice.endpoint == endpoint.id { Ok(notice) } else { Err(missing().into()) }
}

/// `GET /webhooks/{id}/events/{event}`.
pub(super) async fn event(
    State(app): State<App>,
    guest: ResendRequest,
    DialectPath((webhook, event), ..): TwoPathSegments,
) -> ResendResult {
    let notice = find_event(&app, &guest, (&webhook, &event)).await?;
    let found = event_body(&app, &guest, &notice).await?;
    let (body, payload) = found.ok_or_else(|| Problem::new(Code::NotFound, "Webhook event not found"))?;
    let next_attempt_at = notice.due_at.map(|at| at.to_string());
    let whole = Some(EventDetailBody { next_attempt_at, payload: Some(payload) });
    Ok(json(StatusCode::OK, &EventBody { object: Some("webhook_event"), whole, ..body }))
}

/// `POST /webhooks/{id}/events/{event}/replay`.
pub(super) async fn replay(
    State(app): State<App>,
    guest: ResendRequest,
    DialectPath((webhook, event), ..): TwoPathSegments,
) -> ResendResult {
    let notice = find_event(&app, &guest, (&webhook, &event)).await?;
    let asked = guest.keyed_call("webhooks/replay", &event, b"");
    let replayed = app.engine.replay_notice(&guest.caller, notice.id, asked).await?;
    Ok(object_response("webhook_event", replayed.id))
}

#[derive(Serialize)]
struct AttemptBody {
    id: String,
    http_status_code: u16,
    response: String,
    sent_at: String,
}

/// `GET /webhooks/{id}/events/{event}/attempts`, the latest first. Without an answer the status is 0.
pub(super) async fn attempts(
    State(app): State<App>,
    guest: ResendRequest,
    DialectPath((webhook, event), ..): TwoPathSegments,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let notice = find_event(&app, &guest, (&webhook, &event)).await?;
    let name = |number: u32| super::attachments::file_id(notice.id.0, number as usize);
    let rows: Vec<(Uuid, AttemptBody)> = notice
        .attempt_log
        .iter()
        .rev()
        .map(|attempt| {
            let body = AttemptBody {
                id: name(attempt.number).to_string(),
                http_status_code: attempt.status.unwrap_or_default(),
                response: attempt.answer.clone(),
                sent_at: attempt.at.to_string(),
            };
            (name(attempt.number), body)
        })
        .collect();
    Ok(listed(query.parse()?.slice_in_order(rows, |row| row.0), |row| row.1))
}
