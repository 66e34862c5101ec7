//! Providers reached by HTTP, each behind the same two halves: connect first, let one request go afterwards.
//!
//! A provider only words a mail ([`Provider::freeze`]), dresses the request ([`Provider::call`]) and reads the answer
//! ([`Provider::judge`]). Connecting, limits and patience are [`wire`]'s; what a status means by itself is `judge`'s.

mod form;
mod fresh;
mod judge;
mod sigv4;
pub(crate) mod wire;

pub mod base;
pub mod brevo;
pub mod mailgun;
pub mod postmark;
pub mod resend;
pub mod sendgrid;
pub mod ses;
pub mod template;
pub mod usesend;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, header};
use mailonce_core::port::transport::{
    Asked, Capability, Found, Mail, Meaning, Parcel, Phase, Ready, Recovery, Reply, Shape, Transport, Unfit, Visit,
    Wire,
};
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use std::{fmt, sync::Arc, time::Duration};

use base::Base;
use wire::{Answer, Door, Line};

pub use crate::dial::Guard;

/// Requests under way at a time, each on a connection of its own.
const AT_ONCE: usize = 64;
/// Characters of a secret at least that is masked where it is quoted.
const SECRET_CHARS: usize = 8;

/// What every provider's setting holds.
#[derive(Clone)]
pub struct Setting {
    /// The transport's name in the configuration.
    pub name: String,
    /// Where the API begins, `http://` or `https://`, with a path prefix if need be. The vendor's own when absent.
    pub base_url: Option<String>,
    /// Names the account behind the credentials. When absent it is a hash of kind, name, base URL and what else is
    /// public and stable (Mailgun's domain, say), never of a secret, so that it survives a new key. Two accounts
    /// used under one name look the same that way: who moves a transport to another account must set this.
    pub account: Option<String>,
    /// How long connecting may take, and again the answer.
    pub timeout: Duration,
    /// How old a connection may be when the request is written.
    pub fresh: Duration,
    /// Says whether an address may be dialled.
    pub guard: Option<Guard>,
    /// Certificate authorities trusted besides the public ones.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

impl Setting {
    /// The usual setting under a name: the vendor's URL, 30 s of patience, connections not older than 60 s.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            base_url: None,
            account: None,
            timeout: Duration::from_secs(30),
            fresh: Duration::from_mins(1),
            guard: None,
            extra_roots: Vec::new(),
        }
    }
}

/// Why a transport cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSetting(pub String);

/// A credential, which no log and no error shows.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Keeps a credential.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What one provider knows: its words, nothing of sockets.
trait Provider: Send + Sync + 'static {
    const KIND: &'static str;
    fn wire(&self) -> Wire;
    fn recovery(&self) -> Recovery;
    fn secrets(&self) -> Vec<&Secret>;
    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit>;
    /// The request around the frozen bytes. Credentials and signatures are made anew for each attempt.
    fn call(&self, base: &Base, parcel: &Parcel) -> Call;
    fn judge(&self, answer: &Answer) -> Reply;
    /// The request that asks about a mail. `None` where nothing can be asked.
    fn question(&self, _asked: &Asked) -> Option<Call> {
        None
    }
    /// What the answer to that says.
    fn found(&self, _asked: &Asked, answer: &Answer) -> Found {
        Found::Silent(answer.excerpt())
    }
    /// A request that only a good key is answered to, and that changes nothing. `None` where there is none.
    fn visit(&self) -> Option<Call> {
        None
    }
    /// Whether a refusal of that shows a key that is good for sending alone.
    fn sends_only(&self, _refusal: &str) -> bool {
        false
    }
}

/// A request as a provider dresses it.
pub(crate) struct Call {
    method: Method,
    /// Below the base, with the query.
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Call {
    pub(crate) fn get(path: String) -> Self {
        Self { method: Method::GET, path, headers: Vec::new(), body: Bytes::new() }
    }

    fn post(path: impl Into<String>, kind: &str, body: Bytes) -> Self {
        let headers = vec![(header::CONTENT_TYPE.to_string(), kind.to_owned())];
        Self { method: Method::POST, path: path.into(), headers, body }
    }

    /// The frozen bytes as JSON.
    fn json(path: impl Into<String>, parcel: &Parcel) -> Self {
        Self::post(path, "application/json", Bytes::from_owner(Arc::clone(&parcel.bytes)))
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn bearer(self, secret: &Secret) -> Self {
        self.with(header::AUTHORIZATION.as_str(), format!("Bearer {}", secret.0))
    }

    pub(crate) fn request(self, base: &Base) -> Result<Request<Full<Bytes>>, String> {
        let path = format!("{}{}", base.prefix, self.path);
        let mut request = Request::builder()
            .method(self.method)
            .uri(if path.is_empty() { "/".to_owned() } else { path })
            .header(header::HOST, &base.authority)
            .header(header::USER_AGENT, concat!("mailonce/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "application/json")
            .header(header::CONNECTION, "close");
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        // The error names no value, so no credential can leak into it.
        request.body(Full::new(self.body)).map_err(|e| format!("the request cannot be written: {e}"))
    }
}

/// A provider with the way to it.
struct Carrier<P> {
    name: String,
    account: String,
    door: Door,
    provider: Arc<P>,
}

/// Makes a transport of a provider. `public` is what is stable and no secret about the account.
fn carrier<P: Provider>(
    setting: Setting,
    provider: P,
    usual_url: &str,
    public: &str,
) -> Result<Arc<dyn Transport>, BadSetting> {
    if provider.secrets().iter().any(|secret| secret.0.trim().is_empty()) {
        return Err(BadSetting(format!("transport {} has an empty credential", setting.name)));
    }
    let base = Base::parse(setting.base_url.as_deref().unwrap_or(usual_url));
    let base = base.map_err(|BadSetting(why)| BadSetting(format!("base_url {why}")))?;
    let account = setting.account.unwrap_or_else(|| fingerprint(&[P::KIND, &setting.name, &base.url, public]));
    let door = Door::new(base, setting.guard, setting.timeout, setting.fresh, &setting.extra_roots)?;
    Ok(Arc::new(Carrier { name: setting.name, account, door, provider: Arc::new(provider) }))
}

fn fingerprint(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    form::hex(&hash.finalize()[..16])
}

/// A connection with the request that will go over it.
struct AtTheDoor<P> {
    line: Line,
    request: Request<Full<Bytes>>,
    provider: Arc<P>,
}

#[async_trait]
impl<P: Provider> Ready for AtTheDoor<P> {
    async fn hand_over(self: Box<Self>) -> Reply {
        let Self { line, request, provider } = *self;
        mailonce_core::failpoint!("http-before-request");
        let answer = line.ask(request).await;
        mailonce_core::failpoint!("http-after-answer");
        match answer {
            Ok(answer) => {
                let mut reply = provider.judge(&cleaned(&*provider, answer));
                reply.text = masked(&*provider, reply.text);
                reply
            }
            Err(lost) => lost.reply(),
        }
    }
}

#[async_trait]
impl<P: Provider> Transport for Carrier<P> {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        P::KIND
    }

    fn account(&self) -> &str {
        &self.account
    }

    fn capability(&self) -> Capability {
        let patience_ms = i64::try_from(self.door.patience.as_millis()).unwrap_or(i64::MAX);
        let (wire, recovery) = (self.provider.wire(), self.provider.recovery());
        Capability { shape: Shape::PerEmail, wire, recovery, patience_ms, at_once: AT_ONCE }
    }

    fn freeze(&self, mail: &Mail<'_>) -> Result<Vec<u8>, Unfit> {
        self.provider.freeze(mail)
    }

    async fn approach(&self, parcel: Parcel) -> Result<Box<dyn Ready>, Reply> {
        // Written before anything is dialled: a request that cannot be written costs nobody a connection.
        let request = self.provider.call(&self.door.base, &parcel).request(&self.door.base);
        let request = request.map_err(|why| Reply::new(Meaning::Fault, Phase::Connect, None, &why))?;
        let line = self.door.knock().await?;
        mailonce_core::failpoint!("http-connected");
        Ok(Box::new(AtTheDoor { line, request, provider: Arc::clone(&self.provider) }))
    }

    async fn look_up(&self, asked: Asked) -> Found {
        let Some(question) = self.provider.question(&asked) else {
            return Found::Silent(format!("{} cannot be asked", P::KIND));
        };
        let request = match question.request(&self.door.base) {
            Ok(request) => request,
            Err(why) => return Found::Silent(why),
        };
        let line = match self.door.knock().await {
            Ok(line) => line,
            Err(reply) => return Found::Silent(reply.text),
        };
        match line.ask(request).await {
            Ok(answer) => self.provider.found(&asked, &cleaned(&*self.provider, answer)),
            Err(lost) => Found::Silent(lost.reply().text),
        }
    }

    async fn visit(&self) -> Visit {
        let line = match self.door.knock().await {
            Ok(line) => line,
            Err(reply) => return Visit::Unreachable(reply.text),
        };
        let request = match self.provider.visit().map(|call| call.request(&self.door.base)) {
            Some(Ok(request)) => request,
            Some(Err(why)) => return Visit::Unreachable(why),
            None => return Visit::Reached,
        };
        match line.ask(request).await {
            Ok(answer) if (200..300).contains(&answer.status) => Visit::LoggedIn,
            Ok(answer) if matches!(answer.status, 401 | 403) => {
                let said = cleaned(&*self.provider, answer).excerpt();
                if self.provider.sends_only(&said) { Visit::LoggedIn } else { Visit::Refused(said) }
            }
            // Another answer says nothing about the key.
            Ok(_) => Visit::Reached,
            Err(lost) => Visit::Unreachable(lost.reply().text),
        }
    }
}

/// The answer without our own credentials, should the provider quote them.
fn cleaned<P: Provider>(provider: &P, mut answer: Answer) -> Answer {
    answer.body = answer.body.map(|body| match std::str::from_utf8(&body) {
        Ok(text) if telling(provider).any(|secret| text.contains(secret)) => masked(provider, text.to_owned()).into(),
        _ => body,
    });
    answer
}

fn masked<P: Provider>(provider: &P, text: String) -> String {
    telling(provider).fold(text, |text, secret| text.replace(secret, "…"))
}

/// The secrets that are long enough to be one. A short header value such as `1` would blot out half an answer.
fn telling<P: Provider>(provider: &P) -> impl Iterator<Item = &str> {
    provider.secrets().into_iter().map(|secret| secret.0.as_str()).filter(|secret| secret.len() >= SECRET_CHARS)
}
