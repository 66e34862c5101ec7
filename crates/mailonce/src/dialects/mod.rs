//! Dialects: contracts of other services, spoken so that their official SDKs need only another base URL.
//!
//! They translate and never decide: the same verbs, guards and keys as the API. Here is what they share: who calls,
//! bodies as SDKs really send them, and problems in a dialect's own words. Each dialect has a room of its own.

mod agentmail;
mod files;
mod pages;
mod resend;
mod usesend;

use axum::{
    Router,
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use mailonce_core::{
    email::{Channel, EmailState, Guard},
    key::Key,
    port::wording::{Telling, Worded, Wording},
    problem::{Code, Problem},
};
use mailonce_engine::{Asked, Caller, view::Sent};
use serde::{Serialize, de::DeserializeOwned};
use std::marker::PhantomData;

use crate::api::{
    App,
    door::{self, RawBody, bearer, call_mark, idempotency_key},
};

/// Every dialect under its own path.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .nest("/compat/resend", resend::routes())
        .nest("/compat/usesend/api/v1", usesend::routes())
        .merge(agentmail::routes())
}

/// The dialects in which endpoints can be told of events.
pub(crate) const NAMES: [&str; 2] = [resend::word::NAME, usesend::word::NAME];

/// The words of every dialect, for endpoints that are told in them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wordings;

impl Wording for Wordings {
    fn word(&self, telling: &Telling<'_>) -> Option<Worded> {
        match telling.endpoint.about.tongue.as_ref()?.dialect.as_str() {
            resend::word::NAME => resend::word::word(telling),
            usesend::word::NAME => usesend::word::word(telling),
            agentmail::NAME => agentmail::word(telling),
            _ => None,
        }
    }
}

/// What a dialect says in its own way, whatever was asked.
pub(crate) trait Contract: Send + Sync + 'static {
    /// The door that its callers come through.
    const CHANNEL: Channel;
    /// Where the credential is.
    fn credential(headers: &HeaderMap) -> Option<&str> {
        bearer(headers)
    }
    /// What a caller without a credential is told.
    fn nobody() -> Response;
    /// A problem in its words.
    fn refused(problem: &Problem) -> Response;
}

/// A problem on its way out, in the words of a dialect.
pub(crate) struct Refusal<C>(Box<Response>, PhantomData<fn() -> C>);

impl<C> Refusal<C> {
    /// Words that the dialect has ready.
    pub(crate) fn said(response: Response) -> Self {
        Self(Box::new(response), PhantomData)
    }

    /// The status that goes with them.
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }
}

impl<C: Contract> From<Problem> for Refusal<C> {
    fn from(problem: Problem) -> Self {
        let mut response = C::refused(&problem);
        if let Some(seconds) = problem.more.get("retry_after").and_then(serde_json::Value::as_i64) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        Self::said(response)
    }
}

impl<C> IntoResponse for Refusal<C> {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// What a handler of a dialect gives back.
pub(crate) type Spoken<C> = Result<Response, Refusal<C>>;

/// An authenticated caller of a dialect.
pub(crate) struct Visitor<C> {
    pub(crate) caller: Caller,
    /// The idempotency key, when there is one.
    pub(crate) key: Option<Key>,
    of: PhantomData<fn() -> C>,
}

impl<C: Contract> FromRequestParts<App> for Visitor<C> {
    type Rejection = Refusal<C>;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal<C>> {
        let found = door::authenticate(app, &parts.extensions, C::credential(&parts.headers), C::CHANNEL).await?;
        let Some(mut caller) = found else { return Err(Refusal::said(C::nobody())) };
        caller.call = call_mark(&parts.headers)?;
        let key = idempotency_key(&parts.headers)?;
        Ok(Self { caller, key, of: PhantomData })
    }
}

impl<C> Visitor<C> {
    /// What a call that is not a send asks for, if it brought a key.
    pub(crate) fn asked(&self, operation: &str, path: &str, body: &[u8]) -> Option<Asked> {
        door::asked(self.key.as_ref(), operation, path, body)
    }
}

/// A body as SDKs send them: of any declared type, empty where nothing is to be said.
pub(crate) struct Said<C>(RawBody, PhantomData<fn() -> C>);

impl<C: Contract> FromRequest<App> for Said<C> {
    type Rejection = Refusal<C>;

    async fn from_request(request: Request, _: &App) -> Result<Self, Refusal<C>> {
        Ok(Self(RawBody::read(request).await?, PhantomData))
    }
}

impl<C> Said<C> {
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
pub(crate) struct Named<T, C>(pub(crate) T, PhantomData<fn() -> C>);

impl<T: DeserializeOwned + Send, C: Contract> FromRequestParts<App> for Named<T, C> {
    type Rejection = Refusal<C>;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal<C>> {
        match Path::<T>::from_request_parts(parts, app).await {
            Ok(Path(names)) => Ok(Self(names, PhantomData)),
            Err(rejection) => Err(Problem::new(Code::NotFound, rejection.body_text()).into()),
        }
    }
}

/// The query of a call. Parameters that a dialect does not know are passed over.
pub(crate) struct Queried<T, C>(pub(crate) T, PhantomData<fn() -> C>);

impl<T: DeserializeOwned, C: Contract> FromRequestParts<App> for Queried<T, C> {
    type Rejection = Refusal<C>;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Refusal<C>> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(query)) => Ok(Self(query, PhantomData)),
            Err(rejection) => Err(Problem::field(Code::InvalidQuery, "", rejection.body_text()).into()),
        }
    }
}

/// An answer as JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    (status, axum::Json(body)).into_response()
}

/// A problem with a field that the dialect calls otherwise.
pub(crate) fn renamed(mut problem: Problem, (ours, theirs): (&str, &str)) -> Problem {
    if problem.field.as_deref() == Some(ours) {
        if let Some(rest) = problem.detail.strip_prefix(ours) {
            problem.detail = format!("{theirs}{rest}");
        }
        problem.field = Some(theirs.to_owned());
    }
    problem
}

/// A path such as `[2].to[0]` without the number of its item.
pub(crate) fn own_path(path: &str) -> &str {
    match path.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, own)) => own.strip_prefix('.').unwrap_or(own),
        None => path,
    }
}

/// The words about an item of a batch, `item 2: ` apart.
pub(crate) fn own_words(detail: &str) -> (&str, &str) {
    let end = detail.find(": ").filter(|_| detail.starts_with("item ")).map_or(0, |at| at + 2);
    detail.split_at(end)
}

/// What is said about a field that is not what it is to be: `is a number` says what it must be.
pub(crate) fn must(text: &str) -> String {
    let is_wish = ["is a ", "is an "].iter().any(|start| text.starts_with(start));
    match text.strip_prefix("is").filter(|_| is_wish) {
        Some(rest) => format!("must be{rest}"),
        None => text.to_owned(),
    }
}

/// What was done with a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Answered,
    Forwarded,
}

/// A message is answered once, and passed on to the same people once: other words are not sent, and that is said.
pub(crate) fn stands(sent: Sent, deed: Deed) -> Result<Sent, Problem> {
    if sent.guard == Some(Guard::AlreadyAnswered) && sent.payload_differs {
        let done = match deed {
            Deed::Answered => "answered",
            Deed::Forwarded => "forwarded to these recipients",
        };
        let detail = format!("this message was already {done} by {}, with other words", sent.message_id);
        return Err(Problem::new(Code::AlreadyAnswered, detail));
    }
    Ok(sent)
}

/// The member of a problem that says in which state the mail is that was accepted.
pub(crate) const STANDS_AS: &str = "stands_as";

/// Why an answer to a send must not look like a success: the mail does not go, did not, or nobody can tell.
pub(crate) fn no_success(sent: &Sent) -> Option<Problem> {
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
    Some(Problem::new(code, detail).with(STANDS_AS, sent.state.word()))
}

/// The fault of one item as that of its whole batch. Whoever reads it must not send the others again.
pub(crate) fn of_batch((index, problem): (usize, Problem)) -> Problem {
    if !problem.more.contains_key(STANDS_AS) {
        return problem;
    }
    let detail = format!(
        "item {index}: {}. The other items of this batch stand as they were accepted: do not send the batch again under another key",
        problem.detail
    );
    Problem { detail, ..problem }
}

/// The same of every mail of a batch, by its place.
pub(crate) fn no_successes(items: &[Option<Sent>]) -> Vec<(usize, Problem)> {
    let of = |(index, item): (usize, &Option<Sent>)| Some((index, no_success(item.as_ref()?)?));
    items.iter().enumerate().filter_map(of).collect()
}

/// What the caller of a send is told.
pub(crate) fn told<C: Contract>(sent: &Sent, answer: impl FnOnce() -> Response) -> Response {
    with_news([sent], no_success(sent).map_or_else(answer, |problem| C::refused(&problem)))
}

/// An answer to a send, with what the dialect has no place for in headers that its SDK passes over.
pub(crate) fn with_news<'a>(sent: impl IntoIterator<Item = &'a Sent>, mut response: Response) -> Response {
    let sent: Vec<&Sent> = sent.into_iter().collect();
    if sent.is_empty() {
        return response;
    }
    let headers = response.headers_mut();
    if sent.iter().all(|one| !one.first) {
        headers.insert(HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
    }
    let states: Vec<&str> = sent.iter().map(|one| one.state.word()).collect();
    if let Ok(value) = HeaderValue::from_str(&states.join(", ")) {
        headers.insert(HeaderName::from_static("mailonce-state"), value);
    }
    response
}
