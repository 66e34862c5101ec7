//! `/mcp`: checks the credential, reads one message and answers it as JSON. The listener checks Host and Origin before.

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{Html, IntoResponse, Response},
};
use mailonce_core::{
    email::Channel,
    problem::{Code, Problem},
};
use serde_json::{Value, json};

use super::{
    Desk, answer,
    message::{self, Fault, Incoming, REFUSED},
    revision::{self, Revision},
};
use crate::api::{App, door};

/// Bytes of one message: a mail without its files is far smaller.
pub(super) const MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// A call that was turned away.
struct Turned {
    status: u16,
    id: Value,
    fault: Fault,
    retry_after: Option<i64>,
}

impl Turned {
    fn new(status: u16, why: &str) -> Self {
        Self { status, id: Value::Null, fault: Fault::new(REFUSED, why.to_owned()), retry_after: None }
    }

    fn by(fault: Fault, id: Value) -> Self {
        Self { status: fault.status(), id, fault, retry_after: None }
    }
}

impl From<Problem> for Turned {
    fn from(problem: Problem) -> Self {
        let code = problem.code;
        let data = json!({ "code": code.word(), "next": problem.next(), "retry": code.retry().word() });
        Self {
            status: code.status(),
            id: Value::Null,
            retry_after: problem.more.get("retry_after").and_then(Value::as_i64),
            fault: Fault::new(REFUSED, problem.detail).with(data),
        }
    }
}

impl IntoResponse for Turned {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.fault.told(&self.id))).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("POST"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The answer to a message that the listener refused.
pub(crate) fn refused(problem: Problem) -> Response {
    Turned::from(problem).into_response()
}

/// Answers one message.
pub(crate) async fn serve(State(app): State<App>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // On the heap: thousands of models may wait for mail at a time.
    match Box::pin(handle(&app, &parts, body)).await {
        Ok(response) => response,
        Err(turned) => turned.into_response(),
    }
}

async fn handle(app: &App, parts: &Parts, body: Body) -> Result<Response, Turned> {
    if parts.method != Method::POST {
        return Err(Turned::new(405, "there is nothing to follow here: POST a message and read its answer"));
    }
    let missing = || Problem::new(Code::Unauthorized, "the Authorization header with a Bearer key is missing");
    let credential = door::bearer(&parts.headers);
    let found = door::authenticate(app, &parts.extensions, credential, Channel::Mcp).await?;
    let mut caller = found.ok_or_else(missing)?;
    check_accept(&parts.headers)?;
    door::check_media_type(&parts.headers)?;
    let body = door::read(body, MESSAGE_BYTES).await?;
    let request = match message::read(&body).map_err(|fault| Turned::by(fault, Value::Null))? {
        Incoming::Request(request) => request,
        Incoming::Told => {
            revision::named(&parts.headers).map_err(|fault| Turned::by(fault, Value::Null))?;
            return Ok(StatusCode::ACCEPTED.into_response());
        }
    };
    let revision = revision::of(&request, &parts.headers).map_err(|fault| Turned::by(fault, request.id.clone()))?;
    caller.call = revision::marked(&request.params, door::call_mark(&parts.headers).unwrap_or_default());
    match answer(&Desk { app, caller: &caller }, revision, &request).await {
        Ok(result) => Ok(Json(message::result(&request.id, &result)).into_response()),
        Err(fault) if revision == Revision::Stateless => Err(Turned::by(fault, request.id)),
        Err(fault) => Ok(Json(fault.told(&request.id)).into_response()),
    }
}

fn check_accept(headers: &HeaderMap) -> Result<(), Turned> {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).peekable();
    if accepted.peek().is_none() {
        return Ok(());
    }
    let is_json = |kind: &str| {
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        matches!(kind.as_str(), "application/json" | "application/*" | "*/*")
    };
    if accepted.flat_map(|value| value.split(',')).any(is_json) {
        return Ok(());
    }
    Err(Turned::new(406, "answers are application/json"))
}

/// The page on which a person decides about what an agent may not. It knows nothing by itself: whoever decides brings
/// a credential that may, and agents have none.
pub(crate) async fn approval_page() -> Response {
    let mut page = Html(include_str!("approve.html")).into_response();
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                  frame-ancestors 'none'; form-action 'none'; base-uri 'none'";
    page.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    page.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    page
}
