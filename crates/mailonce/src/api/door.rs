//! The door: who calls, under which key, with which body. Checked in that order.

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, FromRequestParts, Request},
    http::{Extensions, HeaderMap, HeaderValue, header, request::Parts},
};
use mailonce_core::{
    call_trace::{self, CallTrace},
    json_limits,
    key::{EmailKey, Key},
    limits,
    outbound::{digest, email::Channel},
    problem::{Code, Problem, nearest_name, shorten},
};
use mailonce_engine::{Caller, KeyedCall, events::endpoints::WIRE_VERSION};
use serde::de::DeserializeOwned;
use std::time::Duration;

use super::{App, problem::ApiError};
use crate::{
    client_address::ClientAddress,
    http::{
        MAX_FAILURES,
        body_memory::BodyMemoryExhausted,
        min_rate::{MinRateBody, TooSlow},
    },
};

/// How long a body may take.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// An authenticated caller.
pub(crate) struct AuthedRequest {
    pub(crate) caller: Caller,
    /// The idempotency key, when there is one.
    pub(crate) key: Option<Key>,
}

impl FromRequestParts<App> for AuthedRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let credential = bearer(&parts.headers);
        let caller = authenticate(app, &parts.extensions, credential, channel_of(&parts.headers)).await?;
        let mut caller = caller
            .ok_or_else(|| Problem::new(Code::Unauthorized, "the Authorization header with a Bearer key is missing"))?;
        check_version(&parts.headers)?;
        caller.call = call_trace(&parts.headers)?;
        let key = idempotency_key(&parts.headers)?;
        Ok(Self { caller, key })
    }
}

impl AuthedRequest {
    /// What a call that is not a send asks for, if it brought a key.
    pub(crate) fn keyed_call(&self, operation: &str, path: &str, body: &[u8]) -> Option<KeyedCall> {
        keyed_call(self.key.as_ref(), operation, path, body)
    }
}

/// Who calls; none without a credential. An address that sent too many invalid API keys is refused without a look-up,
/// unless this process has seen the API key before.
pub(crate) async fn authenticate(
    app: &App,
    extensions: &Extensions,
    credential: Option<&str>,
    channel: Channel,
) -> Result<Option<Caller>, Problem> {
    let client = ClientAddress::of(extensions);
    if let Some((client, seconds)) = client.and_then(|ip| Some((ip, app.auth_failures.retry_after(ip)?)))
        && !credential.is_some_and(|credential| app.engine.access.is_api_key_cached(credential))
    {
        let detail = format!("{MAX_FAILURES} calls with invalid API keys came from {client}; try again in {seconds} s");
        return Err(Problem::new(Code::TooManyFailures, detail).with_extension("retry_after", seconds));
    }
    let Some(credential) = credential else { return Ok(None) };
    let found = app.engine.access.authenticate(credential, channel).await;
    if let (Some(client), Err(problem)) = (client, &found)
        && problem.code == Code::Unauthorized
    {
        app.auth_failures.record(client);
    }
    let caller = found?;
    if !caller.key.may_call_from(client) {
        let from = client.map_or_else(|| "an unknown address".to_owned(), |ip| ip.to_string());
        let detail = format!("this API key may not be used from {from}");
        return Err(Problem::new(Code::IpNotAllowed, detail).with_extension("address", from));
    }
    Ok(Some(caller))
}

/// What a call that is not a send asks for, if it brought a key.
pub(crate) fn keyed_call(key: Option<&Key>, operation: &str, path: &str, body: &[u8]) -> Option<KeyedCall> {
    let name = EmailKey::Given(key?.clone());
    Some(KeyedCall { key: name, digest: digest::operation_digest(operation, path, body) })
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, credential) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(credential.trim()).filter(|credential| !credential.is_empty())
}

/// The command line says who it is; everything else is plain HTTP.
fn channel_of(headers: &HeaderMap) -> Channel {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if agent.starts_with("mailonce-cli/") { Channel::Cli } else { Channel::Http }
}

/// Whoever pins a wire format gets that one or a clear no, never another. There is one so far.
fn check_version(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(asked) = headers.get("mailonce-version") else { return Ok(()) };
    if asked.as_bytes() == WIRE_VERSION.as_bytes() {
        return Ok(());
    }
    let detail = format!("`{}` is not spoken here, only `{WIRE_VERSION}` is", asked.to_str().unwrap_or("?"));
    Err(Problem::for_field(Code::UnknownVersion, "Mailonce-Version", detail))
}

/// A key that breaks the rules is refused, never ignored.
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

/// What the caller calls this call. An id that cannot be kept is refused; a trace parent that breaks its standard is
/// passed over, as the standard wants.
pub(crate) fn call_trace(headers: &HeaderMap) -> Result<Option<CallTrace>, Problem> {
    let id = headers.get("mailonce-call-id").filter(|value| !value.is_empty()).map(call_id).transpose()?;
    let trace =
        headers.get("traceparent").and_then(|value| value.to_str().ok()).and_then(call_trace::parse_traceparent);
    Ok(CallTrace::from_parts(id, trace.map(str::to_owned)))
}

/// Headers are plain letters, so anything else comes percent-encoded.
fn call_id(value: &HeaderValue) -> Result<String, Problem> {
    let plain = |text: &str| String::from_utf8(percent_decode(text)).unwrap_or_else(|_not_utf8| text.to_owned());
    let id = value.to_str().ok().map(plain).filter(|id| call_trace::is_valid_call_id(id));
    id.ok_or_else(|| {
        let most = limits::CALL_ID_CHARS;
        let detail = format!("the Mailonce-Call-Id header is at most {most} characters without control characters");
        Problem::for_field(Code::InvalidField, "Mailonce-Call-Id", detail)
    })
}

/// A text without its percent-escapes; broken ones stay as they are.
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

/// A body read within its limits, not yet understood.
pub(crate) struct RawBody(pub(crate) Bytes);

impl FromRequest<App> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &App) -> Result<Self, ApiError> {
        check_media_type(request.headers())?;
        Ok(Self::read(request).await?)
    }
}

/// Reads a body to its end, up to so many bytes.
pub(crate) async fn read_body(body: Body, most: usize) -> Result<Bytes, Problem> {
    let reading = axum::body::to_bytes(Body::new(MinRateBody::new(body)), most);
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await.map_err(|_late| {
        Problem::new(Code::Timeout, format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs()))
    })?;
    read.map_err(|error| body_problem(&error, most, Code::InvalidJson))
}

/// Why a body could not be read. `broken_off` is the code of one that ended too early.
pub(super) fn body_problem(error: &axum::Error, most: usize, broken_off: Code) -> Problem {
    let text = error.to_string();
    if TooSlow::is_cause_of(error) {
        Problem::new(Code::Timeout, text)
    } else if BodyMemoryExhausted::is_cause_of(error) {
        Problem::new(Code::Unavailable, text)
    } else if text.contains("length limit") {
        Problem::new(Code::TooLarge, format!("the body is larger than {most} bytes"))
    } else {
        Problem::new(broken_off, format!("the body broke off: {text}"))
    }
}

/// JSON, or undeclared. A form is a mistake worth naming.
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

    /// Reads the body as JSON of this shape.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        parse(&self.0)
    }

    /// Reads the body as JSON of a shape that borrows from it.
    pub(crate) fn parse_borrowed<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        check_json_limits(&self.0)?;
        serde_json::from_slice(&self.0).map_err(|error| json_problem(String::new(), &error))
    }

    /// The body in one form for all its spellings, for the digest of a call. Only for small bodies.
    pub(crate) fn canonical(&self) -> Result<Vec<u8>, Problem> {
        // Members come out in the order of their names.
        let value: serde_json::Value = self.parse_or_empty()?;
        Ok(value.to_string().into_bytes())
    }

    /// Reads the body as JSON of this shape; an absent one counts as `{}`.
    pub(crate) fn parse_or_empty<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        if self.0.is_empty() { parse(b"{}") } else { self.parse() }
    }
}

/// Refuses JSON that would cost more to read than any call needs, before it is read.
pub(crate) fn check_json_limits(bytes: &[u8]) -> Result<(), Problem> {
    json_limits::check(bytes).map_err(|excess| Problem::new(Code::TooLarge, format!("the body {excess}")))
}

/// Reads JSON of a shape. Only a fault pays for the search of its path.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Derived readers take a list of values for an object; callers mean objects.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Problem::new(Code::InvalidType, "a list where an object is expected"));
    }
    check_json_limits(bytes)?;
    serde_json::from_slice(bytes).map_err(|first| {
        let mut json = serde_json::Deserializer::from_slice(bytes);
        match serde_path_to_error::deserialize::<_, T>(&mut json) {
            Ok(_) => json_problem(String::new(), &first),
            Err(error) => json_problem(error.path().to_string(), error.inner()),
        }
    })
}

/// The problem for JSON that does not fit.
fn json_problem(path: String, error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    if !error.is_data() || text.starts_with("duplicate") {
        return Problem::new(Code::InvalidJson, shorten(&text));
    }
    let path = if path == "." { String::new() } else { path };
    let named = |text: &str| text.split('`').nth(1).map(str::to_owned);
    if text.starts_with("unknown field") {
        let wrong = named(&text).unwrap_or_default();
        let right: Vec<&str> = text.split('`').skip(3).step_by(2).collect();
        let hint = nearest_name(&wrong, right).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        // The path names the unknown member itself, where serde knows it.
        let path = if path.ends_with(&wrong) && !path.is_empty() { path } else { join_path(&path, &wrong) };
        let detail = format!("there is no field `{}`{hint}", shorten(&wrong));
        return Problem::for_field(Code::UnknownField, shorten(&path), detail);
    }
    let path =
        if text.starts_with("missing field") { join_path(&path, &named(&text).unwrap_or_default()) } else { path };
    let place = text.find(" at line").unwrap_or(text.len());
    let detail = describe_json_error(text.get(..place).unwrap_or(&text));
    if path.is_empty() {
        Problem::new(Code::InvalidType, detail)
    } else {
        Problem::for_field(Code::InvalidType, path, detail)
    }
}

/// What is wrong with a value, without the names that types have in here.
fn describe_json_error(text: &str) -> String {
    if text.starts_with("data did not match") {
        return "is of no type that can be read here".to_owned();
    }
    let (found, expected) = text.split_once(", expected ").unwrap_or((text, ""));
    let found = match found {
        "invalid type: map" => "invalid type: an object",
        "invalid type: sequence" => "invalid type: a list",
        other => other,
    };
    let first = expected.split(' ').next().unwrap_or_default();
    let expected = match expected {
        "" => return found.to_owned(),
        "a sequence" => "a list",
        "a map" | "unit" => "an object",
        _ if first == "struct" || expected.starts_with("tuple struct") => "an object",
        "u8" => "a number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "i32" | "i64" => "a whole number",
        other => other,
    };
    format!("{found}, expected {expected}")
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
