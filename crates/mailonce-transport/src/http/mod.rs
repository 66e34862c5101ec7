//! Providers reached by HTTP, each behind the same two halves: connect first, let one request go afterwards.
//!
//! A provider only words a mail ([`Provider::freeze`]), dresses the request ([`Provider::call`]) and reads the answer
//! ([`Provider::judge`]). Connecting, limits and patience are [`wire`]'s; what a status means by itself is `judge`'s.

mod age_limited_stream;
pub(crate) mod connection;
mod form;
mod interpret;
mod sigv4;

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
use mailonce_core::{
    handoff::{
        capabilities::{HandoffSplit, PayloadFormat, RecoveryMethod, TransportCapabilities},
        reply::{AttemptPhase, ReplyMeaning, TransportReply},
        transport_request::{
            ConnectionCheck, FrozenEnvelope, LookUpRequest, LookUpResult, OutboundMail, UnsupportedMail,
        },
    },
    ports::transport::{PreparedHandoff, Transport},
};
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use std::{fmt, sync::Arc, time::Duration};

use base::BaseUrl;
use connection::{ProviderConnection, ProviderConnector, ProviderResponse};

pub use crate::dial::AddressFilter;

/// Requests under way at a time, each on a connection of its own.
const MAX_CONCURRENT_REQUESTS: usize = 64;
/// Characters of a secret at least that is masked where it is quoted.
const MIN_MASKED_CHARS: usize = 8;

/// What every provider's setting holds.
#[derive(Clone)]
pub struct HttpTransportConfig {
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
    pub max_connection_age: Duration,
    /// Says whether an address may be dialled.
    pub address_filter: Option<AddressFilter>,
    /// Certificate authorities trusted besides the public ones.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

impl HttpTransportConfig {
    /// The usual setting under a name: the vendor's URL, 30 s of patience, connections not older than 60 s.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            base_url: None,
            account: None,
            timeout: Duration::from_secs(30),
            max_connection_age: Duration::from_mins(1),
            address_filter: None,
            extra_roots: Vec::new(),
        }
    }
}

/// Why a transport cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransportConfigError(pub String);

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
trait HttpProvider: Send + Sync + 'static {
    const KIND: &'static str;
    fn wire(&self) -> PayloadFormat;
    fn recovery(&self) -> RecoveryMethod;
    fn secrets(&self) -> Vec<&Secret>;
    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail>;
    /// The request around the frozen bytes. Credentials and signatures are made anew for each attempt.
    fn send_request(&self, base: &BaseUrl, parcel: &FrozenEnvelope) -> ProviderRequest;
    fn interpret_response(&self, answer: &ProviderResponse) -> TransportReply;
    /// The request that asks about a mail. `None` where nothing can be asked.
    fn lookup_request(&self, _asked: &LookUpRequest) -> Option<ProviderRequest> {
        None
    }
    /// What the answer to that says.
    fn interpret_lookup(&self, _asked: &LookUpRequest, answer: &ProviderResponse) -> LookUpResult {
        LookUpResult::Unavailable(answer.excerpt())
    }
    /// A request that only a good key is answered to, and that changes nothing. `None` where there is none.
    fn probe_request(&self) -> Option<ProviderRequest> {
        None
    }
    /// Whether a refusal of that shows a key that is good for sending alone.
    fn is_send_only_key(&self, _refusal: &str) -> bool {
        false
    }
}

/// A request as a provider dresses it.
pub(crate) struct ProviderRequest {
    method: Method,
    /// Below the base, with the query.
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl ProviderRequest {
    pub(crate) fn get(path: String) -> Self {
        Self { method: Method::GET, path, headers: Vec::new(), body: Bytes::new() }
    }

    fn post(path: impl Into<String>, kind: &str, body: Bytes) -> Self {
        let headers = vec![(header::CONTENT_TYPE.to_string(), kind.to_owned())];
        Self { method: Method::POST, path: path.into(), headers, body }
    }

    /// The frozen bytes as JSON.
    fn json(path: impl Into<String>, parcel: &FrozenEnvelope) -> Self {
        Self::post(path, "application/json", Bytes::from_owner(Arc::clone(&parcel.bytes)))
    }

    pub(crate) fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn with_bearer(self, secret: &Secret) -> Self {
        self.with_header(header::AUTHORIZATION.as_str(), format!("Bearer {}", secret.0))
    }

    pub(crate) fn build(self, base: &BaseUrl) -> Result<Request<Full<Bytes>>, String> {
        let path = format!("{}{}", base.path_prefix, self.path);
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
struct HttpTransport<P> {
    name: String,
    account: String,
    connector: ProviderConnector,
    provider: Arc<P>,
}

/// Makes a transport of a provider. `public` is what is stable and no secret about the account.
fn build_transport<P: HttpProvider>(
    setting: HttpTransportConfig,
    provider: P,
    usual_url: &str,
    public: &str,
) -> Result<Arc<dyn Transport>, TransportConfigError> {
    if provider.secrets().iter().any(|secret| secret.0.trim().is_empty()) {
        return Err(TransportConfigError(format!("transport {} has an empty credential", setting.name)));
    }
    let base = BaseUrl::parse(setting.base_url.as_deref().unwrap_or(usual_url));
    let base = base.map_err(|TransportConfigError(why)| TransportConfigError(format!("base_url {why}")))?;
    let account = setting.account.unwrap_or_else(|| account_fingerprint(&[P::KIND, &setting.name, &base.url, public]));
    let door = ProviderConnector::new(
        base,
        setting.address_filter,
        setting.timeout,
        setting.max_connection_age,
        &setting.extra_roots,
    )?;
    Ok(Arc::new(HttpTransport { name: setting.name, account, connector: door, provider: Arc::new(provider) }))
}

fn account_fingerprint(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    form::hex(&hash.finalize()[..16])
}

/// A connection with the request that will go over it.
struct PreparedHttpHandoff<P> {
    connection: ProviderConnection,
    request: Request<Full<Bytes>>,
    provider: Arc<P>,
}

#[async_trait]
impl<P: HttpProvider> PreparedHandoff for PreparedHttpHandoff<P> {
    async fn hand_over(self: Box<Self>) -> TransportReply {
        let Self { connection, request, provider } = *self;
        mailonce_core::failpoint!("http-before-request");
        let answer = connection.send(request).await;
        mailonce_core::failpoint!("http-after-answer");
        match answer {
            Ok(answer) => {
                let mut reply = provider.interpret_response(&without_secrets(&*provider, answer));
                reply.text = mask_secrets(&*provider, reply.text);
                reply
            }
            Err(lost) => lost.into_reply(),
        }
    }
}

#[async_trait]
impl<P: HttpProvider> Transport for HttpTransport<P> {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        P::KIND
    }

    fn account(&self) -> &str {
        &self.account
    }

    fn capabilities(&self) -> TransportCapabilities {
        let patience_ms = i64::try_from(self.connector.timeout.as_millis()).unwrap_or(i64::MAX);
        let (wire, recovery) = (self.provider.wire(), self.provider.recovery());
        TransportCapabilities {
            split: HandoffSplit::PerEmail,
            payload_format: wire,
            recovery,
            timeout_ms: patience_ms,
            max_concurrency: MAX_CONCURRENT_REQUESTS,
        }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        self.provider.freeze(mail)
    }

    async fn prepare(&self, parcel: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        // Written before anything is dialled: a request that cannot be written costs nobody a connection.
        let request = self.provider.send_request(&self.connector.base, &parcel).build(&self.connector.base);
        let request =
            request.map_err(|why| TransportReply::new(ReplyMeaning::Fault, AttemptPhase::Connect, None, &why))?;
        let line = self.connector.connect().await?;
        mailonce_core::failpoint!("http-connected");
        Ok(Box::new(PreparedHttpHandoff { connection: line, request, provider: Arc::clone(&self.provider) }))
    }

    async fn look_up(&self, asked: LookUpRequest) -> LookUpResult {
        let Some(question) = self.provider.lookup_request(&asked) else {
            return LookUpResult::Unavailable(format!("{} cannot be asked", P::KIND));
        };
        let request = match question.build(&self.connector.base) {
            Ok(request) => request,
            Err(why) => return LookUpResult::Unavailable(why),
        };
        let line = match self.connector.connect().await {
            Ok(line) => line,
            Err(reply) => return LookUpResult::Unavailable(reply.text),
        };
        match line.send(request).await {
            Ok(answer) => self.provider.interpret_lookup(&asked, &without_secrets(&*self.provider, answer)),
            Err(lost) => LookUpResult::Unavailable(lost.into_reply().text),
        }
    }

    async fn check_connection(&self) -> ConnectionCheck {
        let line = match self.connector.connect().await {
            Ok(line) => line,
            Err(reply) => return ConnectionCheck::Unreachable(reply.text),
        };
        let request = match self.provider.probe_request().map(|call| call.build(&self.connector.base)) {
            Some(Ok(request)) => request,
            Some(Err(why)) => return ConnectionCheck::Unreachable(why),
            None => return ConnectionCheck::Reached,
        };
        match line.send(request).await {
            Ok(answer) if (200..300).contains(&answer.status) => ConnectionCheck::LoggedIn,
            Ok(answer) if matches!(answer.status, 401 | 403) => {
                let said = without_secrets(&*self.provider, answer).excerpt();
                if self.provider.is_send_only_key(&said) {
                    ConnectionCheck::LoggedIn
                } else {
                    ConnectionCheck::LoginRefused(said)
                }
            }
            // Another answer says nothing about the key.
            Ok(_) => ConnectionCheck::Reached,
            Err(lost) => ConnectionCheck::Unreachable(lost.into_reply().text),
        }
    }
}

/// The answer without our own credentials, should the provider quote them.
fn without_secrets<P: HttpProvider>(provider: &P, mut answer: ProviderResponse) -> ProviderResponse {
    answer.body = answer.body.map(|body| match std::str::from_utf8(&body) {
        Ok(text) if maskable_secrets(provider).any(|secret| text.contains(secret)) => {
            mask_secrets(provider, text.to_owned()).into()
        }
        _ => body,
    });
    answer
}

fn mask_secrets<P: HttpProvider>(provider: &P, text: String) -> String {
    maskable_secrets(provider).fold(text, |text, secret| text.replace(secret, "…"))
}

/// The secrets that are long enough to be one. A short header value such as `1` would blot out half an answer.
fn maskable_secrets<P: HttpProvider>(provider: &P) -> impl Iterator<Item = &str> {
    provider.secrets().into_iter().map(|secret| secret.0.as_str()).filter(|secret| secret.len() >= MIN_MASKED_CHARS)
}
