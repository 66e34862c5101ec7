//! One call: the same bytes under the same key until there is an answer, within limits of time and tries.

use bytes::Bytes;
use hyper::{Method, header};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{future::IntoFuture, pin::Pin, sync::Arc, time::Duration};

use crate::{
    error::Error,
    http::{Answer, Following, Request, Trouble},
    key::check_key,
    wire::{BatchReceipt, SendReceipt},
};

/// The wire format that this SDK was made for.
const WIRE: &str = "2026-11-15";
const CLIENT: &str = concat!("rust/", env!("CARGO_PKG_VERSION"));
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// With the usual backoff that is 32 to 64 seconds of pauses, enough for a restart of the server.
pub(crate) const RETRIES: u32 = 12;
pub(crate) const BACKOFF: Duration = Duration::from_millis(250);
/// A longer Retry-After is for the caller to wait.
const LONGEST_TOLD_PAUSE: Duration = Duration::from_mins(1);
const CALL_ID_CHARS: usize = 256;

pub(crate) type Made<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What carries requests: the network, or a server in memory.
pub(crate) trait Wire: Send + Sync {
    /// Asks once. A `fresh` request must not go out on a connection that may be closing.
    fn ask<'a>(&'a self, request: &'a Request, fresh: bool) -> Made<'a, Result<Answer, Trouble>>;
    /// The base URL of the server.
    fn url(&self) -> &str;
    /// Asks for an answer without an end.
    fn follow<'a>(&'a self, request: &'a Request) -> Made<'a, Result<Opened, Trouble>>;
}

/// What came of asking for a stream.
pub(crate) enum Opened {
    Stream(Following),
    Refused(Answer),
}

/// How calls are made.
pub(crate) struct Caller {
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) api_key: String,
    pub(crate) max_retries: u32,
    pub(crate) timeout: Duration,
    pub(crate) backoff: Duration,
}

/// What names a call when its caller does not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Naming {
    /// A key of its own makes its repeats safe.
    Mint,
    /// It is safe to repeat by nature.
    Nature,
    /// Nothing: a repeat could do it twice, so it is made once.
    Nothing,
}

/// A call as it will stand on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// How long the server may hold it.
    pub(crate) hold: Duration,
    pub(crate) naming: Naming,
    pub(crate) key: Option<String>,
}

impl Parts {
    pub(crate) fn new(method: Method, path: String, naming: Naming) -> Self {
        let (body, headers, hold, key) = (Bytes::new(), Vec::new(), Duration::ZERO, None);
        Self { method, path, body, headers, hold, naming, key }
    }

    pub(crate) fn get(path: String) -> Self {
        Self::new(Method::GET, path, Naming::Nature)
    }

    pub(crate) fn post(path: String, naming: Naming) -> Self {
        Self::new(Method::POST, path, naming)
    }

    pub(crate) fn body(mut self, body: &impl Serialize) -> Result<Self, Error> {
        let written = serde_json::to_vec(body);
        self.body = written.map_err(|error| unwritable("the body", &error))?.into();
        Ok(self)
    }

    pub(crate) fn query(mut self, query: &impl Serialize) -> Result<Self, Error> {
        let value = serde_json::to_value(query).map_err(|error| unwritable("the query", &error))?;
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

fn unwritable(what: &str, error: &serde_json::Error) -> Error {
    Error::here("invalid_field", format!("{what} cannot be written as JSON: {error}"), format!("Mend {what}."))
}

/// A call that is made when it is awaited. Dropping it on the way ends it; it may have arrived all the same, and the same
/// key finds out.
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

    /// The name of this wish. Calls other than sends get one of their own, so that their repeats are safe.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        self.changed(|parts| parts.key = Some(key))
    }

    /// The id that a framework gave this call. Told along for correlation; it decides nothing.
    pub fn call_id(self, id: &str) -> Self {
        let id: String = escaped(id).chars().take(CALL_ID_CHARS).collect();
        self.changed(|parts| parts.headers.push(("mailonce-call-id", id)))
    }

    /// How long one try may take. What the server is asked to hold comes on top.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// How often it is made again when it was not answered.
    pub fn max_retries(self, max_retries: u32) -> Self {
        Self { max_retries: Some(max_retries), ..self }
    }

    fn changed(mut self, change: impl FnOnce(&mut Parts)) -> Self {
        if let Ok(parts) = &mut self.parts {
            change(parts);
        }
        self
    }

    /// How long the server may hold the call before it answers.
    pub(crate) fn hold(self, hold: Duration) -> Self {
        self.changed(|parts| parts.hold = hold)
    }

    async fn made(self) -> Result<T, Error> {
        let parts = self.parts?;
        let once = parts.naming == Naming::Nothing && parts.key.is_none();
        let tries = if once { 1 } else { self.max_retries.unwrap_or(self.caller.max_retries).saturating_add(1) };
        let limit = self.timeout.unwrap_or(self.caller.timeout) + parts.hold;
        // Its bytes are made once, so that every repeat is the same.
        let request = self.caller.request(parts)?;
        let mut tried = 0;
        loop {
            tried += 1;
            let lost = match self.caller.once(&request, limit, once, self.read).await {
                Ok(answer) => return Ok(answer),
                Err(lost) => lost,
            };
            if tried >= tries || !lost.again {
                return Err(lost.error);
            }
            let pause = lost.pause.map_or_else(|| self.caller.pause(tried), Ok)?;
            tokio::time::sleep(pause).await;
        }
    }
}

impl<T: DeserializeOwned> Call<T> {
    /// A call whose answer is JSON.
    pub(crate) fn new(caller: &Arc<Caller>, parts: Result<Parts, Error>) -> Self {
        Self::reading(caller, parts, |answer| serde_json::from_slice(&answer.body).ok())
    }
}

impl Call<SendReceipt> {
    /// Seconds to wait for the outcome, at most 60. Without it the answer comes once the mail is in the ledger.
    pub fn wait(self, seconds: u32) -> Self {
        let told = self.changed(|parts| parts.headers.push(("prefer", format!("wait={seconds}"))));
        told.hold(Duration::from_secs(seconds.into()))
    }
}

impl Call<BatchReceipt> {
    /// Takes the good mails of a batch and says what is wrong with the others.
    pub fn permissive(self) -> Self {
        self.changed(|parts| parts.headers.push(("x-batch-validation", "permissive".to_owned())))
    }
}

impl<T: Send + 'static> IntoFuture for Call<T> {
    type Output = Result<T, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.made())
    }
}

/// A try that gave no success: whether another may follow, and after which pause.
struct Lost {
    error: Error,
    again: bool,
    pause: Option<Duration>,
}

impl Caller {
    /// The request of a call.
    pub(crate) fn request(&self, parts: Parts) -> Result<Request, Error> {
        let mut headers = vec![
            ("authorization", format!("Bearer {}", self.api_key)),
            ("mailonce-client", CLIENT.to_owned()),
            ("mailonce-version", WIRE.to_owned()),
        ];
        let key = match parts.key {
            Some(key) => Some(key),
            None if parts.naming == Naming::Mint => Some(minted()?),
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

    /// One try. A success that `read` cannot read was cut on its way and is asked for again.
    async fn once<T>(
        &self,
        request: &Request,
        limit: Duration,
        fresh: bool,
        read: fn(&Answer) -> Option<T>,
    ) -> Result<T, Lost> {
        let url = self.wire.url();
        let lost = |error: Error| Lost { error: error.for_call(url, &request.path), again: true, pause: None };
        let asked = tokio::time::timeout(limit, self.wire.ask(request, fresh)).await;
        let asked = asked.map_err(|late| {
            lost(Error::no_answer(format!("no answer within {} ms", limit.as_millis()), Some(late.into())))
        })?;
        let answer =
            asked.map_err(|trouble| lost(Error::no_answer("the connection gave no answer", Some(trouble.into()))))?;
        if !(200..300).contains(&answer.status) {
            return Err(refused(&answer, url, &request.path));
        }
        read(&answer).ok_or_else(|| lost(Error::no_answer("the answer cannot be read", None)))
    }

    /// The pause before try `tried + 1`. Its random part keeps callers that failed together from coming back together.
    pub(crate) fn pause(&self, tried: u32) -> Result<Duration, Error> {
        let most = longest_pause(self.backoff, tried);
        let share = f64::from(u32::from_be_bytes(random()?)) / f64::from(u32::MAX);
        Ok(most.mul_f64(1.0 - share / 2.0))
    }
}

/// The longest pause before try `tried + 1`; the shortest is half of it.
fn longest_pause(backoff: Duration, tried: u32) -> Duration {
    backoff.saturating_mul(1 << tried.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

fn refused(answer: &Answer, url: &str, path: &str) -> Lost {
    let error = Error::refusal(answer.status, &answer.body, url).for_call(url, path);
    let told = answer.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    let pause = told.map(|seconds| Duration::from_secs(seconds.into()));
    // "later" is for the caller to decide, save where the server only asks for a slower pace.
    let again = error.is_passing() && pause.is_none_or(|pause| pause <= LONGEST_TOLD_PAUSE);
    Lost { error, again, pause }
}

/// A part of a path.
pub(crate) fn at(id: &str) -> Result<String, Error> {
    if matches!(id, "" | "." | "..") {
        return Err(Error::here("invalid_field", "an id is missing", "Pass the id of the thing."));
    }
    Ok(escaped(id))
}

/// A path segment or query value, escaped.
pub(crate) fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A name for one call of this process. It makes repeats of that call safe and nothing else, so no send gets one.
pub(crate) fn minted() -> Result<String, Error> {
    Ok(format!("sdk_{:032x}", u128::from_be_bytes(random()?)))
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| {
        Error::here("internal", format!("the system gives no randomness: {error}"), "Look at the system.")
    })?;
    Ok(bytes)
}

/// What names a call that is made by hand.
pub(crate) fn naming(method: &Method, path: &str, body: &Value) -> Naming {
    if method != Method::POST {
        return Naming::Nature;
    }
    let path = path.split('?').next().unwrap_or_default();
    let named = |mail: &Value| !mail["intent"].is_null();
    match path {
        "/v1/emails" if named(body) => Naming::Nature,
        "/v1/emails/batch" if body.as_array().is_some_and(|mails| mails.iter().all(named)) => Naming::Nature,
        "/v1/emails" | "/v1/emails/batch" => Naming::Nothing,
        // The key of this call would be the key of the claim.
        "/v1/claims" => Naming::Nature,
        // The message and the artifact are the names of these wishes.
        _ if ["/reply", "/forward", "/consume", "/applied"].iter().any(|verb| path.ends_with(verb)) => Naming::Nature,
        _ => Naming::Mint,
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
}
