//! Dialects: the HTTP APIs of other email services, so that their official SDKs work with only another base URL.
//!
//! A dialect translates and decides nothing: it uses the same engine verbs, guards and idempotency keys as the native
//! API. This file holds what all dialects share: authentication, request bodies and errors. Each dialect has a module.

mod agentmail;
mod attachment;
mod draft_lock;
mod email_counts;
mod pagination;
mod resend;
mod search_terms;
mod usesend;

use axum::{
    Router,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::formatted_event::{FormattedEvent, NoticeContext},
    key::Key,
    outbound::email::{Channel, EmailState, Guard},
    ports::event_formatter::EventFormatter,
    problem::{Code, Problem},
};
use mailonce_engine::{Caller, KeyedCall, outbound::send_receipt::SendReceipt};
use serde::{Serialize, de::DeserializeOwned};
use std::marker::PhantomData;

use crate::http::{
    app::App,
    extract::{self, RawBody, bearer, call_trace, idempotency_key},
};

/// The routes of all dialects, each below its own path.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .nest("/compat/resend", resend::routes())
        .nest("/compat/usesend/api/v1", usesend::routes())
        .merge(agentmail::routes())
}

/// The dialects that an endpoint of the native API can choose for its events.
pub(crate) const EVENT_DIALECTS: [&str; 2] = [resend::event_format::NAME, usesend::event_format::NAME];
/// All dialects that an endpoint may have. AgentMail's are created through its own API.
pub(crate) const ENDPOINT_DIALECTS: [&str; 3] =
    [resend::event_format::NAME, usesend::event_format::NAME, agentmail::NAME];

/// Formats events in the dialect that an endpoint uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DialectEventFormatter;

impl EventFormatter for DialectEventFormatter {
    fn format_event(&self, context: &NoticeContext<'_>) -> Option<FormattedEvent> {
        match context.endpoint.config.dialect.as_ref()?.dialect.as_str() {
            resend::event_format::NAME => resend::event_format::format_event(context),
            usesend::event_format::NAME => usesend::event_format::format_event(context),
            agentmail::NAME => agentmail::format_event(context),
            _ => None,
        }
    }
}

/// What every route of a dialect shares: the channel, the credential and the error format.
pub(crate) trait DialectContract: Send + Sync + 'static {
    /// The channel that is recorded for its callers.
    const CHANNEL: Channel;
    /// The credential in the request headers.
    fn credential(headers: &HeaderMap) -> Option<&str> {
        bearer(headers)
    }
    /// The response to a request without a credential.
    fn unauthorized() -> Response;
    /// Converts a problem to the error format of the dialect.
    fn error_response(problem: &Problem) -> Response;
}

/// An error response in the format of a dialect.
pub(crate) struct DialectError<C>(Box<Response>, PhantomData<fn() -> C>);

impl<C> DialectError<C> {
    /// Wraps an error response that the dialect has already built.
    pub(crate) fn from_response(response: Response) -> Self {
        Self(Box::new(response), PhantomData)
    }

    /// The HTTP status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }
}

impl<C: DialectContract> From<Problem> for DialectError<C> {
    fn from(problem: Problem) -> Self {
        let mut response = C::error_response(&problem);
        if let Some(seconds) = problem.extensions.get("retry_after").and_then(serde_json::Value::as_i64) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        Self::from_response(response)
    }
}

impl<C> IntoResponse for DialectError<C> {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// What a handler of a dialect returns.
pub(crate) type DialectResult<C> = Result<Response, DialectError<C>>;

/// An authenticated request of a dialect.
pub(crate) struct AuthedDialectRequest<C> {
    pub(crate) caller: Caller,
    /// The idempotency key, if the request has one.
    pub(crate) key: Option<Key>,
    dialect: PhantomData<fn() -> C>,
}

impl<C: DialectContract> FromRequestParts<App> for AuthedDialectRequest<C> {
    type Rejection = DialectError<C>;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, DialectError<C>> {
        let found = extract::authenticate(app, &parts.extensions, C::credential(&parts.headers), C::CHANNEL).await?;
        let Some(mut caller) = found else { return Err(DialectError::from_response(C::unauthorized())) };
        caller.call = call_trace(&parts.headers)?;
        let key = idempotency_key(&parts.headers)?;
        Ok(Self { caller, key, dialect: PhantomData })
    }
}

impl<C> AuthedDialectRequest<C> {
    /// The idempotency key and payload digest of a call other than a send; `None` without a key.
    pub(crate) fn keyed_call(&self, operation: &str, path: &str, body: &[u8]) -> Option<KeyedCall> {
        extract::keyed_call(self.key.as_ref(), operation, path, body)
    }
}

/// A request body as SDKs send it: with any content type, and empty when there are no fields.
pub(crate) struct DialectBody<C>(RawBody, PhantomData<fn() -> C>);

impl<C: DialectContract> FromRequest<App> for DialectBody<C> {
    type Rejection = DialectError<C>;

    async fn from_request(request: Request, _: &App) -> Result<Self, DialectError<C>> {
        Ok(Self(RawBody::read(request).await?, PhantomData))
    }
}

impl<C> DialectBody<C> {
    /// Parses a JSON object. An empty body counts as `{}`, and unknown fields are ignored.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        self.0.parse_or_empty()
    }

    /// The items of a JSON array, not parsed yet.
    pub(crate) fn items(&self) -> Result<Vec<&serde_json::value::RawValue>, Problem> {
        self.0.items()
    }

    /// The body as canonical JSON, so that equal bodies have equal bytes.
    pub(crate) fn canonical(&self) -> Result<Vec<u8>, Problem> {
        self.0.canonical()
    }
}

/// The path parameters, in order.
pub(crate) struct DialectPath<T, C>(pub(crate) T, PhantomData<fn() -> C>);

impl<T: DeserializeOwned + Send, C: DialectContract> FromRequestParts<App> for DialectPath<T, C> {
    type Rejection = DialectError<C>;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, DialectError<C>> {
        match Path::<T>::from_request_parts(parts, app).await {
            Ok(Path(params)) => Ok(Self(params, PhantomData)),
            Err(rejection) => Err(Problem::new(Code::NotFound, rejection.body_text()).into()),
        }
    }
}

/// The query parameters. Unknown ones are ignored.
pub(crate) struct DialectQuery<T, C>(pub(crate) T, PhantomData<fn() -> C>);

impl<T: DeserializeOwned, C: DialectContract> FromRequestParts<App> for DialectQuery<T, C> {
    type Rejection = DialectError<C>;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, DialectError<C>> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query, PhantomData)),
            Err(rejection) => Err(Problem::invalid_query("", rejection.body_text()).into()),
        }
    }
}

/// Whether the caller may see the team's domains. A key that is tied to inboxes may not.
pub(crate) fn may_list_domains(caller: &Caller) -> bool {
    caller.key.has_scope(ApiKeyScope::Admin) && caller.require_unrestricted_key().is_ok()
}

/// A JSON response.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    (status, axum::Json(body)).into_response()
}

/// An invalid field, with a message in the words of the dialect.
pub(crate) fn field_problem(field: &str, message: impl Into<String>) -> Problem {
    Problem::for_field(Code::InvalidField, field, message)
}

/// Renames the field of a problem from our name to the name in the dialect.
pub(crate) fn rename_field(mut problem: Problem, ours: &str, theirs: &str) -> Problem {
    if problem.field.as_deref() == Some(ours) {
        if let Some(rest) = problem.detail.strip_prefix(ours) {
            problem.detail = format!("{theirs}{rest}");
        }
        problem.field = Some(theirs.to_owned());
    }
    problem
}

/// Removes the batch index from a field path: `[2].to[0]` becomes `to[0]`.
pub(crate) fn strip_item_index(path: &str) -> &str {
    match path.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, field_path)) => field_path.strip_prefix('.').unwrap_or(field_path),
        None => path,
    }
}

/// Splits the detail of a batch problem into its prefix, such as `item 2: `, and the rest.
pub(crate) fn split_item_prefix(detail: &str) -> (&str, &str) {
    let end = detail.find(": ").filter(|_| detail.starts_with("item ")).map_or(0, |at| at + 2);
    detail.split_at(end)
}

/// What the caller did with a received message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MessageAction {
    Answered,
    Forwarded,
}

/// Refuses a second reply, or a second forward to the same recipients, whose content differs from the first.
pub(crate) fn reject_different_payload(sent: SendReceipt, action: MessageAction) -> Result<SendReceipt, Problem> {
    if sent.guard == Some(Guard::AlreadyAnswered) && sent.payload_differs {
        let done = match action {
            MessageAction::Answered => "answered",
            MessageAction::Forwarded => "forwarded to these recipients",
        };
        let detail = format!("this message was already {done} by {}, with different content", sent.message_id);
        return Err(Problem::new(Code::AlreadyAnswered, detail));
    }
    Ok(sent)
}

/// The problem extension that holds the state of the email that was accepted.
pub(crate) const ACCEPTED_STATE: &str = "stands_as";

/// The error for a send whose email was not sent, is held, or has an unknown outcome: none may look like a success.
pub(crate) fn send_failure(sent: &SendReceipt) -> Option<Problem> {
    let accepted = if sent.first { "accepted" } else { "accepted before" };
    let (code, advice) = match sent.state {
        EmailState::Unknown => (
            Code::UseResolve,
            "but it is unknown whether it was delivered; do not send it again, read it until its state is known",
        ),
        EmailState::Held => (
            // Without a key a retry is not safe: it would be accepted as another email.
            if sent.key.is_some() { Code::NotTerminal } else { Code::TooLate },
            "and is held until a person decides; do not send it again, read it to see its state",
        ),
        EmailState::Failed => (
            Code::TooLate,
            "but the next hop refused it, so nothing was sent; find out why, then use another idempotency key",
        ),
        EmailState::Cancelled => {
            (Code::TooLate, "and then canceled, so nothing was sent; to send it after all, use another idempotency key")
        }
        EmailState::Abandoned => (
            Code::TooLate,
            "and then abandoned by a person; ask before you send it again under another idempotency key",
        ),
        _ => return None,
    };
    let detail = format!("this email was {accepted} as {}, {advice}", sent.id);
    Some(Problem::new(code, detail).with_extension(ACCEPTED_STATE, sent.state.as_str()))
}

/// The error of one item as the error of its whole batch. It warns the caller not to send the other items again.
pub(crate) fn batch_failure(index: usize, problem: Problem) -> Problem {
    if !problem.extensions.contains_key(ACCEPTED_STATE) {
        return problem;
    }
    let detail = format!(
        "item {index}: {}. The other items of this batch remain accepted: do not send the batch again under another key",
        problem.detail
    );
    Problem { detail, ..problem }
}

/// `send_failure` of every email of a batch, with its index.
pub(crate) fn send_failures(items: &[Option<SendReceipt>]) -> Vec<(usize, Problem)> {
    let failure = |(index, item): (usize, &Option<SendReceipt>)| Some((index, send_failure(item.as_ref()?)?));
    items.iter().enumerate().filter_map(failure).collect()
}

/// The response to a send: an error if the email failed, is held or has an unknown outcome, else `success`.
pub(crate) fn respond_to_send<C: DialectContract>(sent: &SendReceipt, success: impl FnOnce() -> Response) -> Response {
    with_state_headers([sent], send_failure(sent).map_or_else(success, |problem| C::error_response(&problem)))
}

/// Adds the state of the emails, and whether and why they are replayed, as headers: the SDKs ignore unknown headers.
pub(crate) fn with_state_headers<'a>(
    sent: impl IntoIterator<Item = &'a SendReceipt>,
    mut response: Response,
) -> Response {
    let sent: Vec<&SendReceipt> = sent.into_iter().collect();
    if sent.is_empty() {
        return response;
    }
    let headers = response.headers_mut();
    if sent.iter().all(|one| !one.first) {
        headers.insert(HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
    }
    if sent.iter().any(|one| one.is_identical_repeat) {
        headers.insert(HeaderName::from_static("mailonce-replay-reason"), HeaderValue::from_static("identical"));
    }
    let states: Vec<&str> = sent.iter().map(|one| one.state.as_str()).collect();
    if let Ok(value) = HeaderValue::from_str(&states.join(", ")) {
        headers.insert(HeaderName::from_static("mailonce-state"), value);
    }
    response
}
