//! Emails: send, batch, look, move, take back, send again.

use axum::{
    Json,
    body::Body,
    extract::{FromRequestParts, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE, request::Parts},
    response::{IntoResponse, Response},
};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::Address,
    id::{EmailId, TeamId},
    key::{EmailKey, Key},
    limits,
    outbound::{email::EmailState, email_query::EmailQuery, schedule::Schedule},
    problem::{Code, FieldError, Problem},
    time::Time,
};
use mailonce_engine::{Caller, outbound::send_receipt::SendReceipt};
use serde::Deserialize;
use std::{convert::Infallible, time::Duration};
use utoipa::{IntoParams, ToSchema};

use crate::api::{
    ApiResult, App, PathParam,
    door::{AuthedRequest, RawBody, parse},
    outbound::email_detail::EmailDetailBody,
    problem::ApiError,
    wire::{BatchItemError, BatchReceiptBody, EmailBody, EmailPage, SendBody, SendReceiptBody, check_text},
};

/// How long a send may wait for its end, in seconds.
const MAX_WAIT_S: u64 = 60;

/// Bytes that most answers to a send fit in, so that nothing grows while one is written.
const RESPONSE_CAPACITY: usize = 768;

/// An email's id from the path. A text that is no id names nothing here.
pub(crate) fn email_id(text: &str) -> Result<EmailId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no email {text}")))
}

/// `202` for the first, `200` and a header for every repeat.
fn send_response(sent: SendReceipt) -> Response {
    let replayed = !sent.first;
    let mut body = Vec::with_capacity(RESPONSE_CAPACITY);
    if let Err(error) = serde_json::to_writer(&mut body, &SendReceiptBody::from(sent)) {
        return ApiError::from(Problem::new(Code::Internal, error.to_string())).into_response();
    }
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    with_replay_header(replayed, StatusCode::ACCEPTED, response)
}

fn with_replay_header(replayed: bool, first: StatusCode, body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    if !replayed {
        *response.status_mut() = first;
        return response;
    }
    let header = (HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
    response.headers_mut().insert(header.0, header.1);
    response
}

/// Send an email once.
///
/// The same key again answers with the same email, whatever became of it.
#[utoipa::path(post, path = "/v1/emails", operation_id = "send_email", tag = "emails", request_body = SendBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The name of this wish, the same for every retry"),
        ("Mailonce-Call-Id" = Option<String>, Header, description = "What you call this call, percent-encoded; kept for correlation"),
        ("Prefer" = Option<String>, Header, description = "`wait=10`: answer with the settled state, or with the current one after so many seconds (at most 60)")),
    responses((status = 202, description = "Accepted", body = SendReceiptBody), (status = 200, description = "Accepted before", body = SendReceiptBody)))]
pub(crate) async fn send(
    State(app): State<App>,
    door: AuthedRequest,
    PreferredWait(wait): PreferredWait,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Send)?;
    let patience = wait?;
    let request = body.parse::<SendBody>()?.into_request(door.key)?;
    // It lies in the connection's own buffer, which is free for the next read once nobody looks at it.
    drop(body);
    mailonce_core::failpoint!("api-before-send");
    let answer = app.engine.outbound.send(&door.caller, request).await?;
    mailonce_core::failpoint!("api-after-send");
    respond_when_settled(&app, &door.caller, answer, patience).await
}

/// The answer to a send, at once or when it is settled.
pub(crate) async fn respond_when_settled(
    app: &App,
    caller: &Caller,
    mut answer: SendReceipt,
    patience: Option<Duration>,
) -> ApiResult {
    if let Some(patience) = patience
        && let Some(email) = app.engine.handoffs.wait_until_settled(caller, answer.id, patience).await?
    {
        answer.refresh(&email);
    }
    Ok(send_response(answer))
}

/// What a caller prefers, or what is wrong with it. Told only to those who may send.
pub(crate) struct PreferredWait(pub(crate) Result<Option<Duration>, Problem>);

impl FromRequestParts<App> for PreferredWait {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        Ok(Self(preferred_wait(&parts.headers)))
    }
}

/// How long a caller prefers to wait for the end (RFC 7240). Other preferences are not ours to know.
fn preferred_wait(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut waits = values.flat_map(|value| value.split(',')).filter_map(|one| one.trim().strip_prefix("wait="));
    let Some(text) = waits.next() else { return Ok(None) };
    let seconds = text.trim_matches('"').parse::<u64>().ok().filter(|seconds| *seconds <= MAX_WAIT_S);
    let fault = || Problem::for_field(Code::InvalidField, "Prefer", format!("wait is 0 to {MAX_WAIT_S} seconds"));
    seconds.map(Duration::from_secs).map(Some).ok_or_else(fault)
}

/// Send up to 1,000 emails under one key.
///
/// All items are checked before any is accepted; `x-batch-validation: permissive` accepts the good ones.
#[utoipa::path(post, path = "/v1/emails/batch", operation_id = "send_batch", tag = "emails", request_body = Vec<SendBody>,
    params(("Idempotency-Key" = Option<String>, Header, description = "The name of this batch"),
        ("Mailonce-Call-Id" = Option<String>, Header, description = "What you call this call, percent-encoded; kept for correlation"),
        ("x-batch-validation" = Option<String>, Header, description = "`strict` (default) or `permissive`")),
    responses((status = 202, description = "Accepted", body = BatchReceiptBody), (status = 200, description = "Accepted before", body = BatchReceiptBody)))]
pub(crate) async fn batch(State(app): State<App>, door: AuthedRequest, headers: HeaderMap, body: RawBody) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Send)?;
    let strict = is_strict(&headers)?;
    let values: Vec<&serde_json::value::RawValue> = body.parse_borrowed()?;
    if values.is_empty() || values.len() > limits::BATCH_ITEMS {
        let detail = format!("a batch holds 1 to {} emails, this one {}", limits::BATCH_ITEMS, values.len());
        return Err(Problem::new(Code::InvalidField, detail).into());
    }
    let item = |value: &&serde_json::value::RawValue| parse::<SendBody>(value.get().as_bytes())?.into_request(None);
    let items = values.iter().map(item).collect();
    drop(body);
    mailonce_core::failpoint!("api-before-batch");
    let answer = app.engine.outbound.send_batch(&door.caller, door.key, items, strict).await?;
    mailonce_core::failpoint!("api-after-batch");
    let data = answer.items.into_iter().map(|item| item.map(SendReceiptBody::from)).collect();
    let error = |(index, problem): (usize, Problem)| BatchItemError {
        index,
        code: problem.code.as_str(),
        message: problem.detail,
        field: problem.field,
    };
    let errors = answer.errors.into_iter().map(error).collect();
    Ok(with_replay_header(answer.replayed, StatusCode::ACCEPTED, Json(BatchReceiptBody { data, errors })))
}

fn is_strict(headers: &HeaderMap) -> Result<bool, Problem> {
    let Some(value) = headers.get("x-batch-validation") else { return Ok(true) };
    match value.to_str().unwrap_or_default() {
        "strict" => Ok(true),
        "permissive" => Ok(false),
        _ => Err(Problem::for_field(
            Code::InvalidField,
            "x-batch-validation",
            "x-batch-validation is `strict` or `permissive`",
        )),
    }
}

/// Which emails to list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmailListQuery {
    /// Only in this state.
    state: Option<String>,
    /// Only to this address.
    to: Option<String>,
    /// Only under this key.
    key: Option<String>,
    /// Accepted at or after this time.
    since: Option<String>,
    /// Accepted before this time.
    until: Option<String>,
    /// 1 to 100, 20 by default.
    limit: Option<String>,
    /// Where the page before ended.
    cursor: Option<String>,
}

fn invalid_query(field: &str, detail: impl Into<String>) -> Problem {
    Problem::for_field(Code::InvalidQuery, field, detail)
}

/// A page size within bounds.
pub(crate) fn page_limit(text: Option<&str>, most: usize, usual: usize) -> Result<usize, Problem> {
    let Some(text) = text else { return Ok(usual) };
    let limit = text.parse().ok().filter(|limit| (1..=most).contains(limit));
    limit.ok_or_else(|| invalid_query("limit", format!("limit is 1 to {most}")))
}

impl EmailListQuery {
    fn parse(&self, team: TeamId) -> Result<EmailQuery, Problem> {
        let time = |field: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(|text| Time::parse(text).ok_or(()));
            parsed.transpose().map_err(|()| invalid_query(field, format!("{field} is an RFC 3339 time with an offset")))
        };
        let state = self.state.as_deref().map(|word| {
            EmailState::parse(word).ok_or_else(|| {
                let all: Vec<&str> = EmailState::ALL.iter().map(|state| state.as_str()).collect();
                invalid_query("state", format!("state is one of {}", all.join(", ")))
            })
        });
        let to =
            self.to.as_deref().map(|to| Address::parse(to).map_err(|error| invalid_query("to", format!("to {error}"))));
        let key =
            self.key.as_deref().map(|key| Key::parse(key).map_err(|error| invalid_query("key", error.to_string())));
        let before = self.cursor.as_deref().map(|cursor| {
            cursor.parse().map_err(|_not_an_id| invalid_query("cursor", "cursor is the next_cursor of another page"))
        });
        Ok(EmailQuery {
            from: None,
            state: state.transpose()?,
            to: to.transpose()?.map(|address| address.as_str().to_owned()),
            key: key.transpose()?.map(|key| EmailKey::Given(key).hash(team)),
            since: time("since", &self.since)?,
            until: time("until", &self.until)?,
            before: before.transpose()?,
            limit: page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?,
        })
    }
}

/// List emails, newest first.
#[utoipa::path(get, path = "/v1/emails", operation_id = "list_emails", tag = "emails", params(EmailListQuery),
    responses((status = 200, description = "A page", body = EmailPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    door: AuthedRequest,
    query: crate::api::QueryParams<EmailListQuery>,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let page = app.engine.outbound.emails(&door.caller, query.0.parse(door.caller.team.id)?).await?;
    let data = page.rows.iter().map(|email| EmailBody::of(email, app.engine.ctx.message_id(email))).collect();
    Ok(Json(EmailPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one email, with its envelopes, attempts, timeline and suppressed calls.
#[utoipa::path(get, path = "/v1/emails/{id}", operation_id = "read_email", tag = "emails", params(("id" = String, Path)),
    responses((status = 200, description = "The email", body = EmailDetailBody)))]
pub(crate) async fn read(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let view = app.engine.outbound.email_view(&door.caller, email_id(&id)?).await?;
    let message_id = app.engine.ctx.message_id(&view.detail.email);
    Ok(Json(EmailDetailBody::of(&view, message_id)).into_response())
}

/// Another time for a scheduled email.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RescheduleBody {
    /// RFC 3339 with an offset, or `in 5 minutes`.
    scheduled_at: String,
}

/// Move a scheduled email to another time.
#[utoipa::path(patch, path = "/v1/emails/{id}", operation_id = "reschedule_email", tag = "emails", params(("id" = String, Path)), request_body = RescheduleBody,
    responses((status = 200, description = "The email", body = EmailBody), (status = 409, description = "Not scheduled", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn reschedule(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Send)?;
    let id = email_id(&id)?;
    let text = body.parse::<RescheduleBody>()?.scheduled_at;
    let fault = |error: mailonce_core::outbound::schedule::ScheduleError| {
        Problem::from(vec![FieldError::new("scheduled_at", error.to_string())])
    };
    let schedule = Schedule::parse(&text).map_err(fault)?;
    let email = app.engine.outbound.reschedule(&door.caller, id, &schedule).await?;
    Ok(Json(EmailBody::of(&email, app.engine.ctx.message_id(&email))).into_response())
}

/// No words are needed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyBody {}

/// Take an email back, if nothing can have left yet.
#[utoipa::path(post, path = "/v1/emails/{id}/cancel", operation_id = "cancel_email", tag = "emails", params(("id" = String, Path)), request_body = Option<EmptyBody>,
    responses((status = 200, description = "The email", body = EmailBody), (status = 409, description = "Too late", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn cancel(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Send)?;
    let id = email_id(&id)?;
    let EmptyBody {} = body.parse_or_empty()?;
    let asked = door.keyed_call("cancel", &id.to_string(), b"");
    mailonce_core::failpoint!("api-before-change");
    let email = app.engine.outbound.cancel(&door.caller, id, asked).await?;
    mailonce_core::failpoint!("api-after-change");
    let body = Json(EmailBody::of(&email.value, app.engine.ctx.message_id(&email.value)));
    Ok(with_replay_header(!email.is_new, StatusCode::OK, body))
}

/// Why an email is sent again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResendBody {
    /// For whoever reads the timeline.
    #[serde(default)]
    reason: Option<String>,
}

/// Send an email again on purpose: version n+1 of version n, once.
#[utoipa::path(post, path = "/v1/emails/{id}/resend", operation_id = "resend_email", tag = "emails", params(("id" = String, Path)), request_body = Option<ResendBody>,
    responses((status = 202, description = "The next version", body = SendReceiptBody), (status = 200, description = "Made before", body = SendReceiptBody),
        (status = 409, description = "Not now", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn resend(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Send)?;
    let id = email_id(&id)?;
    let reason = body.parse_or_empty::<ResendBody>()?.reason;
    check_text("reason", reason.as_deref().unwrap_or_default())?;
    let asked = door.keyed_call("resend", &id.to_string(), b"");
    mailonce_core::failpoint!("api-before-change");
    let answer = app.engine.outbound.resend(&door.caller, id, reason, asked).await?;
    mailonce_core::failpoint!("api-after-change");
    Ok(send_response(answer))
}
