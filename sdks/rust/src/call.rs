//! One call: retries the same bytes with the same idempotency key until there is a response, up to a number of tries.

use bytes::Bytes;
use hyper::{Method, header};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{future::IntoFuture, pin::Pin, sync::Arc, time::Duration};

use crate::{
    error::Error,
    http::{Answer, Request, RequestError, StreamingResponse},
    key::check_key,
    wire::{BatchReceipt, SendReceipt},
};

/// The API version that this SDK was built for.
const API_VERSION: &str = "2026-11-15";
const CLIENT: &str = concat!("rust/", env!("CARGO_PKG_VERSION"));
const MAX_PAUSE: Duration = Duration::from_secs(8);
/// With the default backoff the pauses add up to 32 to 64 seconds, enough for a restart of the server.
pub(crate) const RETRIES: u32 = 12;
pub(crate) const BACKOFF: Duration = Duration::from_millis(250);
/// A longer Retry-After is returned to the caller as an error.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
const CALL_ID_CHARS: usize = 256;

pub(crate) type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Sends requests: over the network, or to the in-memory server.
pub(crate) trait Wire: Send + Sync {
    /// Sends a request once. A `fresh` one must not use a pooled connection, which may be closing.
    fn call<'a>(&'a self, request: &'a Request, fresh: bool) -> BoxedFuture<'a, Result<Answer, RequestError>>;
    /// The base URL of the server.
    fn url(&self) -> &str;
    /// Sends a request whose response is a stream.
    fn open_stream<'a>(&'a self, request: &'a Request) -> BoxedFuture<'a, Result<StreamOpening, RequestError>>;
}

/// The response to a request for a stream.
pub(crate) enum StreamOpening {
    Stream(StreamingResponse),
    Refused(Answer),
}

/// The server, API key and retry settings of a client.
pub(crate) struct Caller {
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) api_key: String,
    pub(crate) max_retries: u32,
    pub(crate) timeout: Duration,
    pub(crate) backoff: Duration,
}

/// What makes a call idempotent when the caller passes no key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Idempotency {
    /// A random key, so that its retries are safe.
    RandomKey,
    /// The call is idempotent without a key.
    Inherent,
    /// Nothing: a retry could send twice, so it is tried once.
    None,
}

/// The parts of a request.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// How long the server may wait before it responds.
    pub(crate) hold: Duration,
    pub(crate) idempotency: Idempotency,
    pub(crate) key: Option<String>,
}

impl Parts {
    pub(crate) fn new(method: Method, path: String, idempotency: Idempotency) -> Self {
        let (body, headers, hold, key) = (Bytes::new(), Vec::new(), Duration::ZERO, None);
        Self { method, path, body, headers, hold, idempotency, key }
    }

    pub(crate) fn get(path: String) -> Self {
        Self::new(Method::GET, path, Idempotency::Inherent)
    }

    pub(crate) fn post(path: String, idempotency: Idempotency) -> Self {
        Self::new(Method::POST, path, idempotency)
    }

    pub(crate) fn body(mut self, body: &impl Serialize) -> Result<Self, Error> {
        let written = serde_json::to_vec(body);
        self.body = written.map_err(|error| not_serializable("the body", &error))?.into();
        Ok(self)
    }

    pub(crate) fn query(mut self, query: &impl Serialize) -> Result<Self, Error> {
        let value = serde_json::to_value(query).map_err(|error| not_serializable("the query", &error))?;
        let pairs = value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let pairs: Vec<String> = pairs
            .map(|(name, value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!("{name}={}", escaped(&text))
            })
            .collect();
        if !pairs.is_empty() {
            self.path = format!("{}?{}", self.path, pairs.join("&"));
        }
        Ok(self)
    }
}

fn not_serializable(what: &str, error: &serde_json::Error) -> Error {
    Error::local("invalid_field", format!("{what} cannot be written as JSON: {error}"), format!("Mend {what}."))
}

/// A call, made when it is awaited. Dropping it cancels it; the server may have received it, and a retry with the same key
/// tells.
#[must_use = "a call is made when it is awaited"]
pub struct Call<T> {
    caller: Arc<Caller>,
    parts: Result<Parts, Error>,
    read: fn(&Answer) -> Option<T>,
    timeout: Option<Duration>,
    max_retries: Option<u32>,
}

impl<T> std::fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.parts.as_ref().map_or("", |parts| parts.path.as_str());
        f.debug_struct("Call").field("path", &path).finish_non_exhaustive()
    }
}

impl<T> Call<T> {
    pub(crate) fn reading(caller: &Arc<Caller>, parts: Result<Parts, Error>, read: fn(&Answer) -> Option<T>) -> Self {
        Self { caller: Arc::clone(caller), parts, read, timeout: None, max_retries: None }
    }

    /// The idempotency key of this call. Calls other than sends get a random one by default, so that their retries are safe.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        self.with_parts(|parts| parts.key = Some(key))
    }

    /// The id that a framework gave this call. Only for correlation; it is not an idempotency key.
    pub fn call_id(self, id: &str) -> Self {
        let id: String = escaped(id).chars().take(CALL_ID_CHARS).collect();
        self.with_parts(|parts| parts.headers.push(("mailonce-call-id", id)))
    }

    /// Timeout of one try. The time that the server is asked to wait is added.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// How often the call is retried when it was not answered.
    pub fn max_retries(self, max_retries: u32) -> Self {
        Self { max_retries: Some(max_retries), ..self }
    }

    fn with_parts(mut self, change: impl FnOnce(&mut Parts)) -> Self {
        if let Ok(parts) = &mut self.parts {
            change(parts);
        }
        self
    }

    /// How long the server may wait before it responds.
    pub(crate) fn hold(self, hold: Duration) -> Self {
        self.with_parts(|parts| parts.hold = hold)
    }

    async fn run(self) -> Result<T, Error> {
        let parts = self.parts?;
        let once = parts.idempotency == Idempotency::None && parts.key.is_none();
        let tries = if once { 1 } else { self.max_retries.unwrap_or(self.caller.max_retries).saturating_add(1) };
        let limit = self.timeout.unwrap_or(self.caller.timeout) + parts.hold;
        // Serialized once, so that every retry has the same bytes.
        let request = self.caller.request(parts)?;
        let mut tried = 0;
        loop {
            tried += 1;
            let failed = match self.caller.once(&request, limit, once, self.read).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if tried >= tries || !failed.may_retry {
                return Err(failed.error);
            }
            tokio::time::sleep(failed.retry_after.max(self.caller.pause(tried)?)).await;
        }
    }
}

impl<T: DeserializeOwned> Call<T> {
    /// A call whose response is JSON.
    pub(crate) fn new(caller: &Arc<Caller>, parts: Result<Parts, Error>) -> Self {
        Self::reading(caller, parts, |answer| serde_json::from_slice(&answer.body).ok())
    }
}

impl Call<SendReceipt> {
    /// Seconds to wait for the outcome, at most 60. Without it the server responds as soon as the email is stored.
    pub fn wait(self, seconds: u32) -> Self {
        let call = self.with_parts(|parts| parts.headers.push(("prefer", format!("wait={seconds}"))));
        call.hold(Duration::from_secs(seconds.into()))
    }
}

impl Call<BatchReceipt> {
    /// Accepts the valid emails of a batch and reports errors for the others.
    pub fn permissive(self) -> Self {
        self.with_parts(|parts| parts.headers.push(("x-batch-validation", "permissive".to_owned())))
    }
}

impl<T: Send + 'static> IntoFuture for Call<T> {
    type Output = Result<T, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

/// A failed try: whether the call may be retried, and the shortest pause that the server accepts.
struct FailedTry {
    error: Error,
    may_retry: bool,
    retry_after: Duration,
}

impl Caller {
    /// The request of a call.
    pub(crate) fn request(&self, parts: Parts) -> Result<Request, Error> {
        let mut headers = vec![
            ("authorization", format!("Bearer {}", self.api_key)),
            ("mailonce-client", CLIENT.to_owned()),
            ("mailonce-version", API_VERSION.to_owned()),
        ];
        let key = match parts.key {
            Some(key) => Some(key),
            None if parts.idempotency == Idempotency::RandomKey => Some(random_key()?),
            None => None,
        };
        if let Some(key) = key {
            check_key(&key)?;
            headers.push(("idempotency-key", key));
        }
        headers.extend(parts.headers);
        if !headers.iter().any(|(name, _)| *name == header::ACCEPT.as_str()) {
            headers.push((header::ACCEPT.as_str(), "application/json".to_owned()));
        }
        Ok(Request { method: parts.method, path: parts.path, headers, body: parts.body })
    }

    /// One try. A success response that `read` cannot parse was cut off, and the call is retried.
    async fn once<T>(
        &self,
        request: &Request,
        limit: Duration,
        fresh: bool,
        read: fn(&Answer) -> Option<T>,
    ) -> Result<T, FailedTry> {
        let url = self.wire.url();
        let lost = |error: Error| FailedTry {
            error: error.for_call(url, &request.path),
            may_retry: true,
            retry_after: Duration::ZERO,
        };
        let response = tokio::time::timeout(limit, self.wire.call(request, fresh)).await;
        let response = response.map_err(|late| {
            lost(Error::no_answer(format!("no answer within {} ms", limit.as_millis()), Some(late.into())))
        })?;
        let answer =
            response.map_err(|error| lost(Error::no_answer("the connection gave no answer", Some(error.into()))))?;
        if !(200..300).contains(&answer.status) {
            return Err(refused(&answer, url, &request.path));
        }
        read(&answer).ok_or_else(|| lost(Error::no_answer("the answer cannot be read", None)))
    }

    /// The pause before try `tried + 1`, with a random part so that callers that failed together do not retry together.
    pub(crate) fn pause(&self, tried: u32) -> Result<Duration, Error> {
        let most = longest_pause(self.backoff, tried);
        let share = f64::from(u32::from_be_bytes(random()?)) / f64::from(u32::MAX);
        Ok(most.mul_f64(1.0 - share / 2.0))
    }
}

/// The longest pause before try `tried + 1`; the shortest is half of it.
fn longest_pause(backoff: Duration, tried: u32) -> Duration {
    backoff.saturating_mul(1 << tried.saturating_sub(1).min(16)).min(MAX_PAUSE)
}

fn refused(answer: &Answer, url: &str, path: &str) -> FailedTry {
    let error = Error::refusal(answer.status, &answer.body, url).for_call(url, path);
    let retry_after =
        answer.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    let retry_after = Duration::from_secs(retry_after.unwrap_or_default().into());
    // `later` is for the caller to decide, except for a rate limit.
    let may_retry = error.is_passing() && retry_after <= MAX_RETRY_AFTER;
    FailedTry { error, may_retry, retry_after }
}

/// Percent-encodes an id for a path.
pub(crate) fn at(id: &str) -> Result<String, Error> {
    if matches!(id, "" | "." | "..") {
        return Err(Error::local("invalid_field", "an id is missing", "Pass the id of the thing."));
    }
    Ok(escaped(id))
}

/// Percent-encodes a path segment or query value.
pub(crate) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A random key for one call. It makes only the retries of that call safe, so no send gets one.
pub(crate) fn random_key() -> Result<String, Error> {
    Ok(format!("sdk_{:032x}", u128::from_be_bytes(random()?)))
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| {
        Error::local("internal", format!("the system gives no randomness: {error}"), "Look at the system.")
    })?;
    Ok(bytes)
}

/// What makes a call of [`Client::request`](crate::Client::request) idempotent.
pub(crate) fn idempotency(method: &Method, path: &str, body: &Value) -> Idempotency {
    if method != Method::POST {
        return Idempotency::Inherent;
    }
    let path = path.split('?').next().unwrap_or_default();
    let named = |mail: &Value| !mail["intent"].is_null();
    match path {
        "/v1/emails" if named(body) => Idempotency::Inherent,
        "/v1/emails/batch" if body.as_array().is_some_and(|mails| mails.iter().all(named)) => Idempotency::Inherent,
        "/v1/emails" | "/v1/emails/batch" => Idempotency::None,
        // An idempotency key of this call would become the key of the claim.
        "/v1/claims" => Idempotency::Inherent,
        // The message or the artifact identifies these calls.
        _ if ["/reply", "/forward", "/consume", "/applied"].iter().any(|verb| path.ends_with(verb)) => {
            Idempotency::Inherent
        }
        _ => Idempotency::RandomKey,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_pauses_outlast_a_restart_of_thirty_seconds() {
        let longest: Duration = (1..=RETRIES).map(|tried| longest_pause(BACKOFF, tried)).sum();
        assert!(longest / 2 >= Duration::from_secs(30), "{longest:?}");
        assert!(longest <= Duration::from_secs(70), "{longest:?}");
    }

    /// Answers every request with 503 and this Retry-After.
    struct Unavailable(&'static str);

    impl Wire for Unavailable {
        fn call<'a>(&'a self, _: &'a Request, _: bool) -> BoxedFuture<'a, Result<Answer, RequestError>> {
            let headers = [(header::RETRY_AFTER, header::HeaderValue::from_static(self.0))].into_iter().collect();
            Box::pin(async { Ok(Answer { status: 503, headers, body: Bytes::from_static(b"{}") }) })
        }

        fn url(&self) -> &'static str {
            "http://127.0.0.1:9"
        }

        fn open_stream<'a>(&'a self, _: &'a Request) -> BoxedFuture<'a, Result<StreamOpening, RequestError>> {
            Box::pin(async { Err(RequestError::Connect("refused".to_owned())) })
        }
    }

    /// How long a call takes that always gets this Retry-After.
    async fn time_of(retry_after: &'static str, builder: crate::Builder) -> Duration {
        let client = builder.over(Arc::new(Unavailable(retry_after)), "k".to_owned());
        let start = std::time::Instant::now();
        assert_eq!(client.emails.get("e-1").await.unwrap_err().status, 503);
        start.elapsed()
    }

    #[tokio::test]
    async fn a_pause_is_as_long_as_the_backoff_and_as_retry_after() {
        let growing = crate::Client::builder().backoff(Duration::from_millis(20)).max_retries(4);
        let backoff: Duration = (1..=4).map(|tried| longest_pause(Duration::from_millis(20), tried) / 2).sum();
        assert!(time_of("0", growing).await >= backoff);
        let short = crate::Client::builder().backoff(Duration::ZERO).max_retries(1);
        assert!(time_of("1", short).await >= Duration::from_secs(1));
    }
}
