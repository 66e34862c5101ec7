//! Emails: send, batch, list, read, download attachments, reschedule, cancel and resend.

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
    outbound::{
        email::{Email, EmailState},
        email_query::EmailQuery,
        schedule::Schedule,
    },
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::{
    Caller,
    control::policy_trace::decided_steps,
    outbound::{email_commands::ResendRequest, send_receipt::SendReceipt},
};
use serde::Deserialize;
use std::{convert::Infallible, time::Duration};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::outbound::{
        email_bodies::{BatchItemError, BatchReceiptBody, EmailBody, EmailPage, SendBody, SendReceiptBody},
        email_detail::EmailDetailBody,
        policy_steps::{PolicyStepBody, policy_body},
    },
    http::{
        app::{ApiResult, App},
        download::attachment_response,
        extract::{AuthedRequest, RawBody},
        json::check_text,
        json_body::parse,
        params::{PathParam, TwoPathParams},
        problem::ApiError,
    },
};

/// Maximum of `Prefer: wait`, in seconds.
const MAX_WAIT_S: u64 = 60;

/// Initial capacity of a send response in bytes. Most responses fit, so the buffer rarely grows.
const RESPONSE_CAPACITY: usize = 768;

/// Parses the email id in a path. A malformed id is answered `404`.
pub(crate) fn email_id(text: &str) -> Result<EmailId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no email {text}")))
}

/// `202` for a new email; `200` with `Idempotent-Replayed: true` for a replay.
fn send_response(receipt: SendReceipt, policy: Option<Vec<PolicyStepBody>>) -> Response {
    let replayed = !receipt.first;
    let mut body = Vec::with_capacity(RESPONSE_CAPACITY);
    if let Err(error) = serde_json::to_writer(&mut body, &SendReceiptBody::from(receipt).with_policy(policy)) {
        return ApiError::from(Problem::new(Code::Internal, error.to_string())).into_response();
    }
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    with_replay_header(replayed, StatusCode::ACCEPTED, response)
}

fn with_replay_header(replayed: bool, first_status: StatusCode, body: impl IntoResponse) -> Response {
    let mut response = body.into_response();
    if !replayed {
        *response.status_mut() = first_status;
        return response;
    }
    let header = (HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
    response.headers_mut().insert(header.0, header.1);
    response
}

/// Send an email once.
///
/// A retry with the same idempotency key returns the first email with its current state, and sends nothing.
#[utoipa::path(post, path = "/v1/emails", operation_id = "send_email", tag = "emails", request_body = SendBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: identifies this email; use the same value for every retry"),
        ("Mailonce-Call-Id" = Option<String>, Header, description = "Your own id of this call, percent-encoded; stored for correlation"),
        ("Prefer" = Option<String>, Header, description = "`wait=10`: wait up to 10 seconds for the final state before responding (at most 60). `policy-trace`: show in `policy` what each check decided")),
    responses((status = 202, description = "Accepted", body = SendReceiptBody), (status = 200, description = "Replayed: the email was accepted before", body = SendReceiptBody),
        (status = 409, description = "A stop refuses new email (`stopped`)", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn send(
    State(app): State<App>,
    auth: AuthedRequest,
    prefer: SendPreferences,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let wait = prefer.wait()?;
    let mut request = body.parse::<SendBody>()?.into_request(auth.key)?;
    request.wants_policy = prefer.wants_policy;
    // The body borrows the connection's read buffer. Dropping it early frees the buffer for the next read.
    drop(body);
    mailonce_core::failpoint!("api-before-send");
    let receipt = app.engine.outbound.send(&auth.caller, request).await?;
    mailonce_core::failpoint!("api-after-send");
    respond_when_settled(&app, &auth.caller, receipt, wait, prefer.wants_policy).await
}

/// Responds to a send: at once, or with `max_wait` when the email reaches a final state or the time is over.
pub(crate) async fn respond_when_settled(
    app: &App,
    caller: &Caller,
    mut receipt: SendReceipt,
    max_wait: Option<Duration>,
    wants_policy: bool,
) -> ApiResult {
    if let Some(max_wait) = max_wait
        && let Some(email) = app.engine.handoffs.wait_until_settled(caller, receipt.id, max_wait).await?
    {
        receipt.refresh(&email);
    }
    let policy = if wants_policy {
        // The email is accepted already, so a store that does not answer now is no error of the send.
        app.engine.outbound.email(caller, receipt.id).await.ok().map(|email| policy_body(decided_steps(caller, &email)))
    } else {
        None
    };
    Ok(send_response(receipt, policy))
}

/// The preferences of a send (`Prefer`, RFC 7240). Others are ignored.
#[derive(Default)]
pub(crate) struct SendPreferences {
    /// The text after `wait=`: how many seconds the caller waits for the final state.
    wait: Option<String>,
    /// Whether the answer shows what each check decided.
    pub(crate) wants_policy: bool,
}

impl FromRequestParts<App> for SendPreferences {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        let mut preferences = Self::default();
        let values = parts.headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        for preference in values.flat_map(|value| value.split(',')).map(str::trim) {
            if let Some(text) = preference.strip_prefix("wait=") {
                preferences.wait.get_or_insert_with(|| text.trim_matches('"').to_owned());
            }
            preferences.wants_policy |= preference.eq_ignore_ascii_case("policy-trace");
        }
        Ok(preferences)
    }
}

impl SendPreferences {
    /// How long the caller waits. Checked by the handler, after the scope.
    pub(crate) fn wait(&self) -> Result<Option<Duration>, Problem> {
        let Some(text) = &self.wait else { return Ok(None) };
        let seconds = text.parse::<u64>().ok().filter(|seconds| *seconds <= MAX_WAIT_S);
        let fault =
            || Problem::for_field(Code::InvalidField, "Prefer", format!("wait must be 0 to {MAX_WAIT_S} seconds"));
        seconds.map(Duration::from_secs).map(Some).ok_or_else(fault)
    }
}

/// Send up to 1,000 emails with one idempotency key.
///
/// One invalid item refuses the whole batch. With `x-batch-validation: permissive` the valid items are accepted.
#[utoipa::path(post, path = "/v1/emails/batch", operation_id = "send_batch", tag = "emails", request_body = Vec<SendBody>,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key of the batch: use the same value for every retry"),
        ("Mailonce-Call-Id" = Option<String>, Header, description = "Your own id of this call, percent-encoded; stored for correlation"),
        ("Prefer" = Option<String>, Header, description = "`policy-trace`: show in the `policy` of each item, and of each refused item, what each check decided"),
        ("x-batch-validation" = Option<String>, Header, description = "`strict` (default) or `permissive`")),
    responses((status = 202, description = "Accepted", body = BatchReceiptBody), (status = 200, description = "Replayed: the batch was accepted before", body = BatchReceiptBody),
        (status = 409, description = "A stop refuses new email (`stopped`)", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn batch(
    State(app): State<App>,
    auth: AuthedRequest,
    prefer: SendPreferences,
    headers: HeaderMap,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let strict = is_strict(&headers)?;
    let values = body.items()?;
    if values.is_empty() || values.len() > limits::BATCH_ITEMS {
        let detail = format!("a batch must have 1 to {} emails; this one has {}", limits::BATCH_ITEMS, values.len());
        return Err(Problem::new(Code::InvalidField, detail).into());
    }
    let item = |value: &&serde_json::value::RawValue| {
        let mut request = parse::<SendBody>(value.get().as_bytes())?.into_request(None)?;
        request.wants_policy = prefer.wants_policy;
        Ok::<_, Problem>(request)
    };
    let items = values.iter().map(item).collect();
    drop(body);
    mailonce_core::failpoint!("api-before-batch");
    let receipt = app.engine.outbound.send_batch(&auth.caller, auth.key, items, strict).await?;
    mailonce_core::failpoint!("api-after-batch");
    let data = receipt.items.into_iter().map(|item| item.map(SendReceiptBody::from)).collect();
    let error = |(index, mut problem): (usize, Problem)| BatchItemError {
        index,
        code: problem.code.as_str(),
        message: problem.detail,
        field: problem.field,
        policy: problem.extensions.remove("policy"),
    };
    let errors = receipt.errors.into_iter().map(error).collect();
    Ok(with_replay_header(receipt.replayed, StatusCode::ACCEPTED, Json(BatchReceiptBody { data, errors })))
}

fn is_strict(headers: &HeaderMap) -> Result<bool, Problem> {
    let Some(value) = headers.get("x-batch-validation") else { return Ok(true) };
    match value.to_str().unwrap_or_default() {
        "strict" => Ok(true),
        "permissive" => Ok(false),
        _ => Err(Problem::for_field(
            Code::InvalidField,
            "x-batch-validation",
            "x-batch-validation must be `strict` or `permissive`",
        )),
    }
}

/// Filters for the list of emails.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmailListQuery {
    /// Only in this state.
    state: Option<String>,
    /// Only to this address.
    to: Option<String>,
    /// Only with this idempotency key.
    key: Option<String>,
    /// `true`: only emails with duplicate calls, which were answered with them.
    duplicates: Option<String>,
    /// Accepted at or after this time.
    since: Option<String>,
    /// Accepted before this time.
    until: Option<String>,
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Parses the page size; `default` when the parameter is absent.
pub(crate) fn page_limit(text: Option<&str>, max: usize, default: usize) -> Result<usize, Problem> {
    let Some(text) = text else { return Ok(default) };
    let limit = text.parse().ok().filter(|limit| (1..=max).contains(limit));
    limit.ok_or_else(|| Problem::invalid_query("limit", format!("limit must be 1 to {max}")))
}

/// Parses the cursor of a page of emails.
pub(crate) fn email_cursor(text: Option<&str>) -> Result<Option<EmailId>, Problem> {
    let fault = |_not_an_id| Problem::invalid_query("cursor", "cursor must be the next_cursor of a previous page");
    text.map(|cursor| cursor.parse().map_err(fault)).transpose()
}

/// Parses a parameter that is `true` or `false`; false when it is absent.
pub(crate) fn bool_param(name: &'static str, text: Option<&str>) -> Result<bool, Problem> {
    match text {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Problem::invalid_query(name, format!("{name} must be true or false"))),
    }
}

impl EmailListQuery {
    fn parse(&self, team: TeamId) -> Result<EmailQuery, Problem> {
        let time = |field: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(|text| Time::parse(text).ok_or(()));
            parsed
                .transpose()
                .map_err(|()| Problem::invalid_query(field, format!("{field} must be an RFC 3339 time with an offset")))
        };
        let state = self.state.as_deref().map(|word| {
            EmailState::parse(word).ok_or_else(|| {
                let all: Vec<&str> = EmailState::ALL.iter().map(|state| state.as_str()).collect();
                Problem::invalid_query("state", format!("state must be one of {}", all.join(", ")))
            })
        });
        let to = self
            .to
            .as_deref()
            .map(|to| Address::parse(to).map_err(|error| Problem::invalid_query("to", format!("to {error}"))));
        let key = self
            .key
            .as_deref()
            .map(|key| Key::parse(key).map_err(|error| Problem::invalid_query("key", error.to_string())));
        Ok(EmailQuery {
            from: None,
            state: state.transpose()?,
            to: to.transpose()?.map(|address| address.as_str().to_owned()),
            has_duplicates: bool_param("duplicates", self.duplicates.as_deref())?,
            key_prefix: None,
            key: key.transpose()?.map(|key| EmailKey::Given(key).hash(team)),
            since: time("since", &self.since)?,
            until: time("until", &self.until)?,
            before: email_cursor(self.cursor.as_deref())?,
            limit: page_limit(self.limit.as_deref(), limits::PAGE_ROWS, 20)?,
        })
    }
}

/// List emails, newest first.
#[utoipa::path(get, path = "/v1/emails", operation_id = "list_emails", tag = "emails", params(EmailListQuery),
    responses((status = 200, description = "A page of results", body = EmailPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    auth: AuthedRequest,
    query: crate::http::params::QueryParams<EmailListQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let page = app.engine.outbound.emails(&auth.caller, query.0.parse(auth.caller.team.id)?).await?;
    let stops = app.engine.control.stops.stops_affecting(auth.caller.team.id).await?;
    let body = |email: &Email| EmailBody::of(email, app.engine.ctx.message_id(email)).with_stop(stops.stopping(email));
    let data = page.rows.iter().map(body).collect();
    Ok(Json(EmailPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one email, with its handoffs, attempts, evidence, timeline and suppressed calls.
#[utoipa::path(get, path = "/v1/emails/{id}", operation_id = "read_email", tag = "emails", params(("id" = String, Path)),
    responses((status = 200, description = "The email", body = EmailDetailBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let view = app.engine.outbound.email_view(&auth.caller, email_id(&id)?).await?;
    let message_id = app.engine.ctx.message_id(&view.detail.email);
    let stops = app.engine.control.stops.stops_affecting(auth.caller.team.id).await?;
    let stop = stops.stopping(&view.detail.email);
    Ok(Json(EmailDetailBody::of(&auth.caller, &view, message_id, stop)).into_response())
}

/// Read the bytes of an attachment of an email. The first one is number 0.
#[utoipa::path(get, path = "/v1/emails/{id}/attachments/{n}", operation_id = "read_email_attachment", tag = "emails", params(("id" = String, Path), ("n" = usize, Path)),
    responses((status = 200, description = "The bytes", content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn attachment(
    State(app): State<App>,
    auth: AuthedRequest,
    TwoPathParams(id, n): TwoPathParams,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let id = email_id(&id)?;
    let missing = |_not_a_number| Problem::new(Code::NotFound, format!("email {id} has no attachment {n}"));
    let attachment = app.engine.outbound.attachment(&auth.caller, id, n.parse().map_err(missing)?).await?;
    Ok(attachment_response(attachment.bytes, attachment.filename.as_deref()))
}

/// New time of a scheduled email.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RescheduleBody {
    /// RFC 3339 time with an offset, or a relative time such as `in 5 minutes`.
    scheduled_at: String,
}

/// Reschedule an email.
#[utoipa::path(patch, path = "/v1/emails/{id}", operation_id = "reschedule_email", tag = "emails", params(("id" = String, Path)), request_body = RescheduleBody,
    responses((status = 200, description = "The email", body = EmailBody), (status = 409, description = "The email is not scheduled", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn reschedule(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let id = email_id(&id)?;
    let text = body.parse::<RescheduleBody>()?.scheduled_at;
    let fault = |error: mailonce_core::outbound::schedule::ScheduleError| {
        Problem::invalid_field("scheduled_at", error.to_string())
    };
    let schedule = Schedule::parse(&text).map_err(fault)?;
    let email = app.engine.outbound.reschedule(&auth.caller, id, &schedule).await?;
    Ok(Json(EmailBody::of(&email, app.engine.ctx.message_id(&email))).into_response())
}

/// An empty object; the body may be left out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyBody {}

/// Cancel an email.
///
/// Works only while no part of it was sent or may have been sent.
#[utoipa::path(post, path = "/v1/emails/{id}/cancel", operation_id = "cancel_email", tag = "emails", params(("id" = String, Path)), request_body = Option<EmptyBody>,
    responses((status = 200, description = "The email", body = EmailBody), (status = 409, description = "The email was sent, or may have been", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn cancel(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let id = email_id(&id)?;
    let EmptyBody {} = body.parse_or_empty()?;
    let keyed_call = auth.keyed_call("cancel", &id.to_string(), b"");
    mailonce_core::failpoint!("api-before-change");
    let email = app.engine.outbound.cancel(&auth.caller, id, keyed_call).await?;
    mailonce_core::failpoint!("api-after-change");
    let body = Json(EmailBody::of(&email.value, app.engine.ctx.message_id(&email.value)));
    Ok(with_replay_header(!email.is_new, StatusCode::OK, body))
}

/// Why an email is resent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResendBody {
    /// Reason, for people who read the timeline later.
    #[serde(default)]
    reason: Option<String>,
}

/// Resend an email on purpose.
///
/// Creates the next version of the email, once: repeating the call returns that version.
#[utoipa::path(post, path = "/v1/emails/{id}/resend", operation_id = "resend_email", tag = "emails",
    params(("id" = String, Path), ("Prefer" = Option<String>, Header, description = "`policy-trace`: show in `policy` what each check decided")), request_body = Option<ResendBody>,
    responses((status = 202, description = "The next version", body = SendReceiptBody), (status = 200, description = "Replayed: this version was created before", body = SendReceiptBody),
        (status = 409, description = "The email is not in a final state, its outcome is unknown, or the resend budget is used up", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn resend(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    prefer: SendPreferences,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Send)?;
    let id = email_id(&id)?;
    let reason = body.parse_or_empty::<ResendBody>()?.reason;
    check_text("reason", reason.as_deref().unwrap_or_default())?;
    let request = ResendRequest { reason, wants_policy: prefer.wants_policy };
    let keyed_call = auth.keyed_call("resend", &id.to_string(), b"");
    mailonce_core::failpoint!("api-before-change");
    let receipt = app.engine.outbound.resend(&auth.caller, id, request, keyed_call).await?;
    mailonce_core::failpoint!("api-after-change");
    respond_when_settled(&app, &auth.caller, receipt, None, prefer.wants_policy).await
}
