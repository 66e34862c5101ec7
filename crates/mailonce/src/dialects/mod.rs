//! Dialects: contracts of other services, spoken so that their official SDKs need only another base URL.
//!
//! They translate and never decide: the same verbs, guards and keys as the API. Here is what they share: who calls,
//! bodies as SDKs really send them, and problems in a dialect's own words. Each dialect has a room of its own.

mod agentmail;
mod attachment;
mod pagination;
mod resend;
mod usesend;

use axum::{
    Router,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use mailonce_core::{
    events::formatted_event::{FormattedEvent, NoticeContext},
    key::Key,
    outbound::email::{Channel, EmailState, Guard},
    ports::event_formatter::EventFormatter,
    problem::{Code, Problem},
};
use mailonce_engine::{Caller, KeyedCall, outbound::send_receipt::SendReceipt};
use serde::{Serialize, de::DeserializeOwned};
use std::marker::PhantomData;

use crate::api::{
    App,
    door::{self, RawBody, bearer, call_trace, idempotency_key},
};

/// Every dialect under its own path.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .nest("/compat/resend", resend::routes())
        .nest("/compat/usesend/api/v1", usesend::routes())
        .merge(agentmail::routes())
}

/// The dialects in which endpoints can be told of events.
pub(crate) const EVENT_DIALECTS: [&str; 2] = [resend::event_format::NAME, usesend::event_format::NAME];

/// The words of every dialect, for endpoints that are told in them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DialectEventFormatter;

impl EventFormatter for DialectEventFormatter {
    fn format_event(&self, telling: &NoticeContext<'_>) -> Option<FormattedEvent> {
        match telling.endpoint.config.tongue.as_ref()?.dialect.as_str() {
            resend::event_format::NAME => resend::event_format::format_event(telling),
            usesend::event_format::NAME => usesend::event_format::format_event(telling),
            agentmail::NAME => agentmail::format_event(telling),
            _ => None,
        }
    }
}

/// What a dialect says in its own way, whatever was asked.
pub(crate) trait DialectContract: Send + Sync + 'static {
    /// The door that its callers come through.
    const CHANNEL: Channel;
    /// Where the credential is.
    fn credential(headers: &HeaderMap) -> Option<&str> {
        bearer(headers)
    }
    /// What a caller without a credential is told.
    fn unauthorized() -> Response;
    /// A problem in its words.
    fn error_response(problem: &Problem) -> Response;
}

/// A problem on its way out, in the words of a dialect.
pub(crate) struct DialectError<C>(Box<Response>, PhantomData<fn() -> C>);

impl<C> DialectError<C> {
    /// Words that the dialect has ready.
    pub(crate) fn from_response(response: Response) -> Self {
        Self(Box::new(response), PhantomData)
    }

    /// The status that goes with them.
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

/// What a handler of a dialect gives back.
pub(crate) type DialectResult<C> = Result<Response, DialectError<C>>;

/// An authenticated caller of a dialect.
pub(crate) struct AuthedDialectRequest<C> {
    pub(crate) caller: Caller,
    /// The idempotency key, when there is one.
    pub(crate) key: Option<Key>,
    dialect: PhantomData<fn() -> C>,
}

impl<C: DialectContract> FromRequestParts<App> for AuthedDialectRequest<C> {
    type Rejection = DialectError<C>;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, DialectError<C>> {
        let found = door::authenticate(app, &parts.extensions, C::credential(&parts.headers), C::CHANNEL).await?;
        let Some(mut caller) = found else { return Err(DialectError::from_response(C::unauthorized())) };
        caller.call = call_trace(&parts.headers)?;
        let key = idempotency_key(&parts.headers)?;
        Ok(Self { caller, key, dialect: PhantomData })
    }
}

impl<C> AuthedDialectRequest<C> {
    /// What a call that is not a send asks for, if it brought a key.
    pub(crate) fn keyed_call(&self, operation: &str, path: &str, body: &[u8]) -> Option<KeyedCall> {
        door::keyed_call(self.key.as_ref(), operation, path, body)
    }
}

/// A body as SDKs send them: of any declared type, empty where nothing is to be said.
pub(crate) struct DialectBody<C>(RawBody, PhantomData<fn() -> C>);

impl<C: DialectContract> FromRequest<App> for DialectBody<C> {
    type Rejection = DialectError<C>;

    async fn from_request(request: Request, _: &App) -> Result<Self, DialectError<C>> {
        Ok(Self(RawBody::read(request).await?, PhantomData))
    }
}

impl<C> DialectBody<C> {
    /// Reads an object; an absent one counts as `{}`. Members that a dialect does not know are passed over.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        self.0.parse_or_empty()
    }

    /// The items of a list, not yet understood.
    pub(crate) fn items(&self) -> Result<Vec<&serde_json::value::RawValue>, Problem> {
        self.0.parse_borrowed()
    }

    /// The body in one form for all its spellings.
    pub(crate) fn canonical(&self) -> Result<Vec<u8>, Problem> {
        self.0.canonical()
    }
}

/// The parameters of a path, in order.
pub(crate) struct DialectPath<T, C>(pub(crate) T, PhantomData<fn() -> C>);

impl<T: DeserializeOwned + Send, C: DialectContract> FromRequestParts<App> for DialectPath<T, C> {
    type Rejection = DialectError<C>;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, DialectError<C>> {
        match Path::<T>::from_request_parts(parts, app).await {
            Ok(Path(names)) => Ok(Self(names, PhantomData)),
            Err(rejection) => Err(Problem::new(Code::NotFound, rejection.body_text()).into()),
        }
    }
}

/// The query of a call. Parameters that a dialect does not know are passed over.
pub(crate) struct DialectQuery<T, C>(pub(crate) T, PhantomData<fn() -> C>);

impl<T: DeserializeOwned, C: DialectContract> FromRequestParts<App> for DialectQuery<T, C> {
    type Rejection = DialectError<C>;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, DialectError<C>> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query, PhantomData)),
            Err(rejection) => Err(Problem::for_field(Code::InvalidQuery, "", rejection.body_text()).into()),
        }
    }
}

/// An answer as JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    (status, axum::Json(body)).into_response()
}

/// A problem with a field that the dialect calls otherwise.
pub(crate) fn rename_field(mut problem: Problem, (ours, theirs): (&str, &str)) -> Problem {
    if problem.field.as_deref() == Some(ours) {
        if let Some(rest) = problem.detail.strip_prefix(ours) {
            problem.detail = format!("{theirs}{rest}");
        }
        problem.field = Some(theirs.to_owned());
    }
    problem
}

/// A path such as `[2].to[0]` without the number of its item.
pub(crate) fn strip_item_index(path: &str) -> &str {
    match path.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, own)) => own.strip_prefix('.').unwrap_or(own),
        None => path,
    }
}

/// The words about an item of a batch, `item 2: ` apart.
pub(crate) fn split_item_prefix(detail: &str) -> (&str, &str) {
    let end = detail.find(": ").filter(|_| detail.starts_with("item ")).map_or(0, |at| at + 2);
    detail.split_at(end)
}

/// What is said about a field that is not what it is to be: `is a number` says what it must be.
pub(crate) fn to_requirement(text: &str) -> String {
    let is_wish = ["is a ", "is an "].iter().any(|start| text.starts_with(start));
    match text.strip_prefix("is").filter(|_| is_wish) {
        Some(rest) => format!("must be{rest}"),
        None => text.to_owned(),
    }
}

/// What was done with a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MessageAction {
    Answered,
    Forwarded,
}

/// A message is answered once, and passed on to the same people once: other words are not sent, and that is said.
pub(crate) fn reject_different_payload(sent: SendReceipt, deed: MessageAction) -> Result<SendReceipt, Problem> {
    if sent.guard == Some(Guard::AlreadyAnswered) && sent.payload_differs {
        let done = match deed {
            MessageAction::Answered => "answered",
            MessageAction::Forwarded => "forwarded to these recipients",
        };
        let detail = format!("this message was already {done} by {}, with other words", sent.message_id);
        return Err(Problem::new(Code::AlreadyAnswered, detail));
    }
    Ok(sent)
}

/// The member of a problem that says in which state the mail is that was accepted.
pub(crate) const ACCEPTED_STATE: &str = "stands_as";

/// Why an answer to a send must not look like a success: the mail does not go, did not, or nobody can tell.
pub(crate) fn send_failure(sent: &SendReceipt) -> Option<Problem> {
    let known = if sent.first { "accepted" } else { "accepted before" };
    let (code, what) = match sent.state {
        EmailState::Unknown => (
            Code::UseResolve,
            "and nobody can tell whether it arrived; do not send it again, read it until its state is known",
        ),
        EmailState::Held => (
            // Without a key there is nothing to ask for again: another call would be another mail.
            if sent.key.is_some() { Code::NotTerminal } else { Code::TooLate },
            "and is held until a person decides; do not send it again, read it to see what became of it",
        ),
        EmailState::Failed => (
            Code::TooLate,
            "and the next hop refused it, so nothing was sent; find out why, then use another idempotency key",
        ),
        EmailState::Cancelled => (
            Code::TooLate,
            "and then canceled, so nothing was sent; if it is to go after all, use another idempotency key",
        ),
        EmailState::Abandoned => {
            (Code::TooLate, "and then given up by a person; ask before you send it again under another idempotency key")
        }
        _ => return None,
    };
    let detail = format!("this email was {known} as {}, {what}", sent.id);
    Some(Problem::new(code, detail).with_extension(ACCEPTED_STATE, sent.state.as_str()))
}

/// The fault of one item as that of its whole batch. Whoever reads it must not send the others again.
pub(crate) fn batch_failure((index, problem): (usize, Problem)) -> Problem {
    if !problem.extensions.contains_key(ACCEPTED_STATE) {
        return problem;
    }
    let detail = format!(
        "item {index}: {}. The other items of this batch stand as they were accepted: do not send the batch again under another key",
        problem.detail
    );
    Problem { detail, ..problem }
}

/// The same of every mail of a batch, by its place.
pub(crate) fn send_failures(items: &[Option<SendReceipt>]) -> Vec<(usize, Problem)> {
    let of = |(index, item): (usize, &Option<SendReceipt>)| Some((index, send_failure(item.as_ref()?)?));
    items.iter().enumerate().filter_map(of).collect()
}

/// What the caller of a send is told.
pub(crate) fn respond_to_send<C: DialectContract>(sent: &SendReceipt, answer: impl FnOnce() -> Response) -> Response {
    with_state_headers([sent], send_failure(sent).map_or_else(answer, |problem| C::error_response(&problem)))
}

/// An answer to a send, with what the dialect has no place for in headers that its SDK passes over.
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
    let states: Vec<&str> = sent.iter().map(|one| one.state.as_str()).collect();
    if let Ok(value) = HeaderValue::from_str(&states.join(", ")) {
        headers.insert(HeaderName::from_static("mailonce-state"), value);
    }
    response
}
