//! The door at `/mcp`: Host and Origin first, then the credential, then one message and its answer as JSON.

use axum::{
    Json,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, request::Parts},
    response::{Html, IntoResponse, Response},
};
use mailonce_core::{
    email::Channel,
    problem::{Code, Problem},
};
use serde_json::{Value, json};
use std::net::IpAddr;

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
    check_place(&parts.headers, &app.url)?;
    if parts.method != Method::POST {
        return Err(Turned::new(405, "there is nothing to follow here: POST a message and read its answer"));
    }
    let missing = || Problem::new(Code::Unauthorized, "the Authorization header with a Bearer key is missing");
    let credential = door::bearer(&parts.headers).ok_or_else(missing)?;
    let mut caller = app.engine.authenticate(credential, Channel::Mcp).await?;
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

/// A browser that was led here under another name is turned away, and so is a page of another site.
fn check_place(headers: &HeaderMap, url: &str) -> Result<(), Turned> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let public = url.parse::<Uri>().ok();
    let own = public.as_ref().and_then(Uri::host);
    let host = text(header::HOST).and_then(|host| format!("http://{host}").parse::<Uri>().ok());
    let host = host.as_ref().and_then(Uri::host);
    if !host.is_some_and(|host| is_address(host) || is_local(host) || own.is_some_and(|own| same(own, host))) {
        let why = "the Host header names neither this machine nor the host of http.public_url";
        return Err(Turned::new(403, why));
    }
    if headers.get(header::ORIGIN).is_none() {
        return Ok(());
    }
    let origin = text(header::ORIGIN).and_then(|origin| origin.parse::<Uri>().ok());
    let at_home = |origin: &Uri| {
        let public = public
            .as_ref()
            .is_some_and(|public| public.scheme() == origin.scheme() && public.authority() == origin.authority());
        public || (host.is_some_and(is_local) && origin.host().is_some_and(is_local))
    };
    if origin.as_ref().is_some_and(at_home) {
        return Ok(());
    }
    Err(Turned::new(403, "the Origin header names another site"))
}

/// An address says where it leads; only names can be bent.
fn is_address(host: &str) -> bool {
    host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

fn is_local(host: &str) -> bool {
    same(host, "localhost")
        || host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn status(url: &str, host: &str, origin: Option<&str>) -> u16 {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap_or(HeaderValue::from_static("")));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap_or(HeaderValue::from_static("")));
        }
        check_place(&headers, url).map_or_else(|turned| turned.status, |()| 200)
    }

    #[test]
    fn other_names_and_other_sites_are_turned_away() {
        let (here, there) = ("http://127.0.0.1:6245", "https://mail.example.com");
        for (url, host, origin, expected) in [
            (here, "127.0.0.1:6245", None, 200),
            (here, "localhost:6245", Some("http://localhost:6274"), 200),
            (here, "[::1]:6245", Some("http://127.0.0.1:3000"), 200),
            (here, "192.168.1.7:6245", None, 200),
            (here, "192.168.1.7:6245", Some("http://localhost:6274"), 403),
            (here, "evil.example.com", None, 403),
            (here, "localhost.evil.example.com:6245", None, 403),
            (here, "localhost:6245", Some("http://evil.example.com"), 403),
            (here, "localhost:6245", Some("null"), 403),
            (here, "", None, 403),
            (there, "mail.example.com", None, 200),
            (there, "MAIL.example.com", Some("https://mail.example.com"), 200),
            (there, "mail.example.com", Some("http://mail.example.com"), 403),
            (there, "mail.example.com", Some("http://localhost:6274"), 403),
            (there, "mail.example.com.evil.test", None, 403),
        ] {
            assert_eq!(status(url, host, origin), expected, "{host} {origin:?} at {url}");
        }
    }
}
