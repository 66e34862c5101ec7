//! The Rust client of [mailonce](../README.md): mail that happens once, safe by type.
//!
//! A send names what it is about ([`Once`]), so one without a name does not compile. Calls are repeated with the same key and
//! the same bytes until there is an answer; answers say `first` or `replayed`; errors carry `code`, `retry` and `next`.

mod call;
mod claims;
mod double;
mod emails;
mod error;
mod events;
pub mod http;
mod inboxes;
mod key;
mod lease;
mod line;
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

use call::{BACKOFF, Caller, Parts, RETRIES, Wire, naming};
use http::{Answer, Place};

const USUAL_URL: &str = "http://127.0.0.1:6245";

/// A server and the credential for it: one object, one member for each kind of thing. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    /// Sending, and what became of it.
    pub emails: Emails,
    /// Waiting for mail, taking codes and links, taking work.
    pub inboxes: Inboxes,
    /// Reading and answering.
    pub messages: Messages,
    /// Conversations, and the right to be the one who works on them.
    pub threads: Threads,
    /// Codes and links.
    pub artifacts: Artifacts,
    /// What happened, as a list and as a stream.
    pub events: Events,
    /// Receivers of events.
    pub webhooks: Webhooks,
    caller: Arc<Caller>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The API key is nobody's business.
        f.write_str("Client")
    }
}

impl Client {
    /// A client of this server.
    pub fn new(base_url: impl Into<String>, api_key: impl Into<String>) -> Result<Self, Error> {
        Self::builder().base_url(base_url).api_key(api_key).build()
    }

    /// A client of the server that `MAILONCE_URL` and `MAILONCE_API_KEY` name.
    pub fn from_env() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// A client with settings of its own.
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

    /// Any other call of the API, with the same repeats and errors. A POST gets a key of its own unless what it says names it
    /// already; a mail without a name is tried once.
    pub fn request(&self, method: Method, path: impl Into<String>, body: Option<&Value>) -> Call<Value> {
        Call::reading(&self.caller, Self::parts(method, path.into(), body), read_value)
    }

    /// The same, with the status of the answer.
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
        let naming = naming(&method, &path, body.unwrap_or(&Value::Null));
        let parts = Parts::new(method, path, naming);
        match body {
            Some(body) => parts.body(body),
            None => Ok(parts),
        }
    }
}

/// An answer without a body says nothing, which is `null`.
fn read_value(answer: &Answer) -> Option<Value> {
    if answer.body.is_empty() { Some(Value::Null) } else { serde_json::from_slice(&answer.body).ok() }
}

/// How a client behaves.
#[derive(Clone, Default)]
#[must_use = "a builder builds a client"]
pub struct Builder {
    base_url: Option<String>,
    api_key: Option<String>,
    place: Option<Place>,
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

    /// A server that was made out before, in the place of a URL.
    pub fn place(self, place: Place) -> Self {
        Self { place: Some(place), ..self }
    }

    /// Certificate authorities to trust besides the public ones, as PEM.
    pub fn authorities(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { authorities: pem.into(), ..self }
    }

    /// How often a call is made again when it was not answered; 12 by default. With the usual backoff that is 32 to 64
    /// seconds of pauses, enough for a restart of the server.
    pub fn max_retries(self, max_retries: u32) -> Self {
        Self { max_retries: Some(max_retries), ..self }
    }

    /// How long one try may take; 10 s by default. What the server is asked to hold comes on top.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The pause before the first repeat, doubled for each further one up to 8 s, less a random part of up to half;
    /// 250 ms by default.
    pub fn backoff(self, backoff: Duration) -> Self {
        Self { backoff: Some(backoff), ..self }
    }

    /// The client. `unauthorized` without an API key, `invalid_field` for a URL that is none.
    pub fn build(self) -> Result<Client, Error> {
        let place = match self.place.clone() {
            Some(place) => place,
            None => self.find()?,
        };
        let api_key = self.api_key.clone().or_else(|| environment("MAILONCE_API_KEY")).ok_or_else(|| {
            Error::here("unauthorized", "there is no API key", "Set MAILONCE_API_KEY or pass an API key.")
        })?;
        Ok(self.over(Arc::new(line::Lines::new(place)), api_key))
    }

    fn find(&self) -> Result<Place, Error> {
        let url = self.base_url.clone().or_else(|| environment("MAILONCE_URL"));
        let url = url.unwrap_or_else(|| USUAL_URL.to_owned());
        let roots: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.authorities).collect();
        let roots = roots.map_err(|error| Error::invalid("authorities", &format!("is no PEM: {error}")))?;
        let agent = concat!("mailonce-sdk-rust/", env!("CARGO_PKG_VERSION"));
        Place::new(&url, &roots, agent).map_err(|why| Error::invalid("base_url", &format!("is not usable: {why}")))
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
