//! The Rust client of [mailonce](../README.md): idempotent email, checked by types.
//!
//! A send takes an intent or an idempotency key ([`Once`]); without one it does not compile. Calls are retried with the same
//! key and the same body until the server answers. Receipts say `first` or `replayed`; errors have `code`, `retry` and `next`.

mod call;
mod claims;
mod connection_pool;
mod double;
mod emails;
mod error;
mod events;
pub mod http;
mod inboxes;
mod key;
mod lease;
mod messages;
mod once;
mod page;
pub mod testing;
mod threads;
mod webhooks;
pub mod wire;

use hyper::Method;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;
use std::{fmt, sync::Arc, time::Duration};

pub use call::Call;
pub use claims::{AfterError, ClaimKey, OnUnknown, OnceCall, OnceRun, UnknownClaim, step_key};
pub use emails::{EmailQuery, Emails};
pub use error::{Error, Fault, Retry};
pub use events::{EventFollower, EventQuery, Events};
pub use inboxes::{Inboxes, MessageQuery, WaitFor, Work, WorkError};
pub use key::{bare_address, derive_key};
pub use lease::HeldLease;
pub use messages::{Artifacts, Download, Messages};
pub use once::{Item, Mails, Once};
pub use page::{Each, PageQuery};
pub use threads::{ThreadQuery, Threads};
pub use webhooks::{NoticeQuery, Verifier, Webhooks, verify_webhook};
pub use wire::{Intent, Mail, Reply};

use call::{BACKOFF, Caller, Parts, RETRIES, Wire, idempotency};
use http::{Answer, ServerUrl};

const DEFAULT_URL: &str = "http://127.0.0.1:6245";

/// A client for one server and one API key, with a field for each resource. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    /// Sends emails and reads their state.
    pub emails: Emails,
    /// Waits for messages, consumes codes and links, leases work.
    pub inboxes: Inboxes,
    /// Reads messages and replies to them.
    pub messages: Messages,
    /// Reads threads and leases them.
    pub threads: Threads,
    /// One-time codes and links found in messages.
    pub artifacts: Artifacts,
    /// Lists and streams events.
    pub events: Events,
    /// Manages webhook endpoints.
    pub webhooks: Webhooks,
    caller: Arc<Caller>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never print the API key.
        f.write_str("Client")
    }
}

impl Client {
    /// A client for this server.
    pub fn new(base_url: impl Into<String>, api_key: impl Into<String>) -> Result<Self, Error> {
        Self::builder().base_url(base_url).api_key(api_key).build()
    }

    /// A client configured by `MAILONCE_URL` and `MAILONCE_API_KEY`.
    pub fn from_env() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Configures a client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn over(caller: Caller) -> Self {
        let caller = Arc::new(caller);
        let messages = Messages::new(&caller);
        Self {
            emails: Emails::new(&caller),
            inboxes: Inboxes::new(&caller, messages.clone()),
            messages,
            threads: Threads::new(&caller),
            artifacts: Artifacts::new(&caller),
            events: Events::new(&caller),
            webhooks: Webhooks::new(&caller),
            caller,
        }
    }

    /// A side effect other than an email, to be run once: `mo.once("invoice-4821").run(async |run| …)`.
    pub fn once(&self, key: impl Into<ClaimKey>) -> OnceCall {
        OnceCall::new(&self.caller, key.into())
    }

    /// Calls any other route of the API, with the same retries and errors. A POST gets a random idempotency key unless its
    /// content identifies it. A send without an intent or a key is tried once.
    pub fn request(&self, method: Method, path: impl Into<String>, body: Option<&Value>) -> Call<Value> {
        Call::reading(&self.caller, Self::parts(method, path.into(), body), read_value)
    }

    /// Like [`request`](Self::request), and returns the HTTP status too.
    pub fn request_with_status(
        &self,
        method: Method,
        path: impl Into<String>,
        body: Option<&Value>,
    ) -> Call<(u16, Value)> {
        let read = |answer: &Answer| Some((answer.status, read_value(answer)?));
        Call::reading(&self.caller, Self::parts(method, path.into(), body), read)
    }

    fn parts(method: Method, path: String, body: Option<&Value>) -> Result<Parts, Error> {
        let idempotency = idempotency(&method, &path, body.unwrap_or(&Value::Null));
        let parts = Parts::new(method, path, idempotency);
        match body {
            Some(body) => parts.body(body),
            None => Ok(parts),
        }
    }
}

/// An empty response body is `null`.
fn read_value(answer: &Answer) -> Option<Value> {
    if answer.body.is_empty() { Some(Value::Null) } else { serde_json::from_slice(&answer.body).ok() }
}

/// Configuration of a client.
#[derive(Clone, Default)]
#[must_use = "a builder builds a client"]
pub struct Builder {
    base_url: Option<String>,
    api_key: Option<String>,
    server_url: Option<ServerUrl>,
    authorities: Vec<u8>,
    max_retries: Option<u32>,
    timeout: Option<Duration>,
    backoff: Option<Duration>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

impl Builder {
    /// `MAILONCE_URL` by default, else `http://127.0.0.1:6245`.
    pub fn base_url(self, url: impl Into<String>) -> Self {
        Self { base_url: Some(url.into()), ..self }
    }

    /// `MAILONCE_API_KEY` by default.
    pub fn api_key(self, key: impl Into<String>) -> Self {
        Self { api_key: Some(key.into()), ..self }
    }

    /// Uses a parsed server URL instead of `base_url`.
    pub fn server_url(self, server_url: ServerUrl) -> Self {
        Self { server_url: Some(server_url), ..self }
    }

    /// Certificate authorities to trust besides the public ones, as PEM.
    pub fn authorities(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { authorities: pem.into(), ..self }
    }

    /// How often a call is retried when it was not answered; 12 by default. With the default backoff that is 32 to 64
    /// seconds of pauses, enough for a restart of the server.
    pub fn max_retries(self, max_retries: u32) -> Self {
        Self { max_retries: Some(max_retries), ..self }
    }

    /// Timeout of one try; 10 s by default. The time that the server is asked to wait is added.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The pause before the first retry, doubled for each further one up to 8 s, less a random part of up to half;
    /// 250 ms by default.
    pub fn backoff(self, backoff: Duration) -> Self {
        Self { backoff: Some(backoff), ..self }
    }

    /// Builds the client. Fails with `unauthorized` without an API key, and with `invalid_field` for an invalid URL.
    pub fn build(self) -> Result<Client, Error> {
        let server_url = match self.server_url.clone() {
            Some(server_url) => server_url,
            None => self.parse_url()?,
        };
        let api_key = self.api_key.clone().or_else(|| environment("MAILONCE_API_KEY")).ok_or_else(|| {
            Error::local("unauthorized", "there is no API key", "Set MAILONCE_API_KEY or pass an API key.")
        })?;
        Ok(self.over(Arc::new(connection_pool::ConnectionPool::new(server_url)), api_key))
    }

    fn parse_url(&self) -> Result<ServerUrl, Error> {
        let url = self.base_url.clone().or_else(|| environment("MAILONCE_URL"));
        let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.authorities).collect();
        let roots = roots.map_err(|error| Error::invalid("authorities", &format!("is no PEM: {error}")))?;
        let agent = concat!("mailonce-sdk-rust/", env!("CARGO_PKG_VERSION"));
        ServerUrl::new(&url, &roots, agent).map_err(|why| Error::invalid("base_url", &format!("is not usable: {why}")))
    }

    pub(crate) fn over(self, wire: Arc<dyn Wire>, api_key: String) -> Client {
        Client::over(Caller {
            wire,
            api_key,
            max_retries: self.max_retries.unwrap_or(RETRIES),
            timeout: self.timeout.unwrap_or(Duration::from_secs(10)),
            backoff: self.backoff.unwrap_or(BACKOFF),
        })
    }
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
