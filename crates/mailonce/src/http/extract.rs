//! Extractors for API requests: they authenticate the caller, then read the idempotency key, then the body.

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, FromRequestParts, Request},
    http::{Extensions, HeaderMap, HeaderValue, header, request::Parts},
};
use http_body_util::LengthLimitError;
use mailonce_core::{
    call_trace::{self, CallTrace},
    exact_json::ExactJson,
    key::{EmailKey, Key},
    limits,
    outbound::{digest, email::Channel},
    problem::{Code, Problem, shorten},
};
use mailonce_engine::{
    Caller, KeyedCall,
    access::{api_keys::CredentialKind, oauth_tokens::is_access_token},
    events::endpoints::WIRE_VERSION,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{net::IpAddr, time::Duration};

use super::{
    app::App,
    json_body::{parse, parse_items},
    problem::ApiError,
    session_cookie::{authenticate_session, session_secret},
};
use crate::{
    client_address::ClientAddress,
    http::oauth_urls::resource,
    server::{
        MAX_FAILURES,
        body_memory::BodyMemoryExhausted,
        checked_body::has_cause,
        min_rate::{TooSlow, require_min_rate},
    },
};

/// How long a client may take to send the body.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// An authenticated caller.
pub(crate) struct AuthedRequest {
    pub(crate) caller: Caller,
    /// The `Idempotency-Key` header, if the request has one.
    pub(crate) key: Option<Key>,
}

impl FromRequestParts<App> for AuthedRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let mut caller = match session_secret(parts).filter(|_| !parts.headers.contains_key(header::AUTHORIZATION)) {
            Some(secret) => authenticate_session(app, parts, secret).await?,
            None => authenticate_program(app, parts).await?,
        };
        check_version(&parts.headers)?;
        caller.call = call_trace(&parts.headers)?;
        let key = idempotency_key(&parts.headers)?;
        Ok(Self { caller, key })
    }
}

impl AuthedRequest {
    /// The idempotency key and digest of a call other than a send; `None` without a key.
    pub(crate) fn keyed_call(&self, operation: &str, path: &str, body: &[u8]) -> Option<KeyedCall> {
        keyed_call(self.key.as_ref(), operation, path, body)
    }
}

async fn authenticate_program(app: &App, parts: &Parts) -> Result<Caller, Problem> {
    let credential = bearer(&parts.headers);
    let caller = authenticate(app, &parts.extensions, credential, channel_of(&parts.headers)).await?;
    caller.ok_or_else(|| Problem::new(Code::Unauthorized, "the Authorization header with a Bearer key is missing"))
}

/// Authenticates the caller; returns `None` when the request has no credential. An address that sent too many invalid
/// API keys is refused without a store look-up, unless the API key is in this process's cache.
pub(crate) async fn authenticate(
    app: &App,
    extensions: &Extensions,
    credential: Option<&str>,
    channel: Channel,
) -> Result<Option<Caller>, Problem> {
    let client = ClientAddress::of(extensions);
    // Access tokens are made for `/mcp` alone.
    let is_token = channel == Channel::Mcp && credential.is_some_and(is_access_token);
    let kind = if is_token { CredentialKind::AccessToken } else { CredentialKind::ApiKey };
    let is_cached = |credential: &str| app.engine.access.is_credential_cached(kind, credential);
    if !credential.is_some_and(is_cached) {
        check_failures(app, client)?;
    }
    let Some(credential) = credential else { return Ok(None) };
    let result = if is_token {
        app.engine.connections.authenticate_access_token(credential, &resource(app)).await
    } else {
        app.engine.access.authenticate(credential, channel).await
    };
    if let (Some(client), Err(problem)) = (client, &result)
        && problem.code == Code::Unauthorized
    {
        app.auth_failures.record(client);
    }
    let caller = result?;
    if !caller.key.may_call_from(client) {
        let from = client.map_or_else(|| "an unknown address".to_owned(), |ip| ip.to_string());
        let detail = format!("this API key may not be used from {from}");
        return Err(Problem::new(Code::IpNotAllowed, detail).with_extension("address", from));
    }
    app.engine.control.audit.set_call_origin(&caller, client);
    Ok(Some(caller))
}

/// Refuses an address that sent too many invalid API keys, sessions or sign-in links.
pub(crate) fn check_failures(app: &App, client: Option<IpAddr>) -> Result<(), Problem> {
    let Some((client, seconds)) = client.and_then(|ip| Some((ip, app.auth_failures.retry_after(ip)?))) else {
        return Ok(());
    };
    let detail = format!("{MAX_FAILURES} calls with invalid API keys came from {client}; try again in {seconds} s");
    Err(Problem::new(Code::TooManyFailures, detail).with_extension("retry_after", seconds))
}

/// The idempotency key and digest of a call other than a send; `None` without a key.
pub(crate) fn keyed_call(key: Option<&Key>, operation: &str, path: &str, body: &[u8]) -> Option<KeyedCall> {
    let key = EmailKey::Given(key?.clone());
    Some(KeyedCall { key, digest: digest::operation_digest(operation, path, body) })
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credential) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(credential.trim()).filter(|credential| !credential.is_empty())
}

/// The CLI identifies itself in `User-Agent`; every other client counts as plain HTTP.
fn channel_of(headers: &HeaderMap) -> Channel {
    let user_agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if user_agent.starts_with("mailonce-cli/") { Channel::Cli } else { Channel::Http }
}

/// Refuses a request that pins an API version this server does not support. There is only one version so far.
fn check_version(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(version) = headers.get("mailonce-version") else { return Ok(()) };
    if version.as_bytes() == WIRE_VERSION.as_bytes() {
        return Ok(());
    }
    let detail = format!("version `{}` is not supported; use `{WIRE_VERSION}`", version.to_str().unwrap_or("?"));
    Err(Problem::for_field(Code::UnknownVersion, "Mailonce-Version", detail))
}

/// The idempotency key of a request. An invalid key is an error: if it were ignored, a retry would send twice.
pub(crate) fn idempotency_key(headers: &HeaderMap) -> Result<Option<Key>, Problem> {
    let invalid = |detail: &str| Problem::for_field(Code::InvalidKey, "Idempotency-Key", detail);
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(invalid("the Idempotency-Key header is given more than once"));
    }
    let text = value.to_str().map_err(|_bytes| invalid("the key contains characters outside printable ASCII"))?;
    Key::parse(text).map(Some).map_err(|error| invalid(&error.to_string()))
}

/// The caller's own ids of this call, for correlation. An invalid `Mailonce-Call-Id` is an error. An invalid
/// `traceparent` is ignored, as W3C Trace Context requires.
pub(crate) fn call_trace(headers: &HeaderMap) -> Result<Option<CallTrace>, Problem> {
    let id = headers.get("mailonce-call-id").filter(|value| !value.is_empty()).map(call_id).transpose()?;
    let trace =
        headers.get("traceparent").and_then(|value| value.to_str().ok()).and_then(call_trace::parse_traceparent);
    Ok(CallTrace::from_parts(id, trace.map(str::to_owned)))
}

/// A call id from its header. Headers are ASCII, so other characters are percent-encoded.
fn call_id(value: &HeaderValue) -> Result<String, Problem> {
    let decode = |text: &str| String::from_utf8(percent_decode(text)).unwrap_or_else(|_not_utf8| text.to_owned());
    let id = value.to_str().ok().map(decode).filter(|id| call_trace::is_valid_call_id(id));
    id.ok_or_else(|| {
        let max = limits::CALL_ID_CHARS;
        let detail = format!("Mailonce-Call-Id must be at most {max} characters without control characters");
        Problem::for_field(Code::InvalidField, "Mailonce-Call-Id", detail)
    })
}

/// Decodes percent-escapes; malformed ones stay as they are.
pub(crate) fn percent_decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let raw = text.as_bytes();
    let hex = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut at = 0;
    while let Some(byte) = raw.get(at) {
        let escaped = match raw.get(at + 1..at + 3) {
            Some([high, low]) if *byte == b'%' => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    bytes
}

/// The body of a request, read within the size and time limits but not parsed.
pub(crate) struct RawBody(pub(crate) Bytes);

impl FromRequest<App> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &App) -> Result<Self, ApiError> {
        check_media_type(request.headers())?;
        Ok(Self::read(request).await?)
    }
}

/// Reads a body of at most `max_bytes`.
pub(crate) async fn read_body(body: Body, max_bytes: usize) -> Result<Bytes, Problem> {
    let reading = axum::body::to_bytes(require_min_rate(body), max_bytes);
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await.map_err(|_late| {
        Problem::new(Code::Timeout, format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()))
    })?;
    read.map_err(|error| body_problem(&error, max_bytes, Code::InvalidJson))
}

/// The problem for a body that could not be read. `truncated` is the code for a body that ended too early.
pub(crate) fn body_problem(error: &axum::Error, max_bytes: usize, truncated: Code) -> Problem {
    let text = error.to_string();
    if has_cause::<TooSlow>(error) {
        Problem::new(Code::Timeout, text)
    } else if has_cause::<BodyMemoryExhausted>(error) {
        Problem::new(Code::Unavailable, text)
    } else if has_cause::<LengthLimitError>(error) {
        Problem::new(Code::TooLarge, format!("the body is larger than {max_bytes} bytes"))
    } else {
        Problem::new(truncated, format!("the body broke off: {text}"))
    }
}

/// Accepts JSON, or a missing `Content-Type`. Other types are refused, because `curl -d` sends a form by mistake.
pub(crate) fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = value.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let essence = essence.to_ascii_lowercase();
    if essence.starts_with("application/") && essence.ends_with("+json") {
        return Ok(());
    }
    Err(Problem::new(Code::UnsupportedMediaType, format!("the body is declared as `{text}`")))
}

impl RawBody {
    /// Reads a body of any declared type.
    pub(crate) async fn read(request: Request) -> Result<Self, Problem> {
        read_body(request.into_body(), limits::BODY_BYTES).await.map(Self)
    }

    /// Parses the body as JSON.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        parse(&self.0)
    }

    /// The items of the body, a JSON array, not parsed yet.
    pub(crate) fn items(&self) -> Result<Vec<&RawValue>, Problem> {
        parse_items(&self.0)
    }

    /// The body as canonical JSON, for the digest of a call. Only for small bodies.
    pub(crate) fn canonical(&self) -> Result<Vec<u8>, Problem> {
        // `serde_json::Value` writes object members sorted by name.
        let value: serde_json::Value = self.parse_or_empty()?;
        Ok(value.to_string().into_bytes())
    }

    /// The field `result` with every digit of its numbers. `parsed` is the field as the parser of the body read it, which
    /// rounds them, and names the field of an error.
    pub(crate) fn exact_result(&self, parsed: Option<&serde_json::Value>) -> Result<Option<ExactJson>, Problem> {
        #[derive(Deserialize)]
        struct ResultField<'a> {
            #[serde(borrow, default)]
            result: Option<&'a RawValue>,
        }
        if parsed.is_none() {
            return Ok(None);
        }
        let invalid = |error: serde_json::Error| Problem::new(Code::InvalidJson, shorten(&error.to_string()));
        let ResultField { result } = serde_json::from_slice(&self.0).map_err(invalid)?;
        result.map(|result| ExactJson::parse(result.get()).map_err(invalid)).transpose()
    }

    /// Parses the body as JSON; an empty body counts as `{}`.
    pub(crate) fn parse_or_empty<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        if self.0.is_empty() { parse(b"{}") } else { self.parse() }
    }
}
