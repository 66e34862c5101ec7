//! HTTP providers. Every handoff has the same two steps: connect first, then send one request.
//!
//! A provider module only builds the payload (`HttpProvider::freeze`), builds the request (`send_request`) and reads
//! the response (`interpret_response`). `connection` handles sockets, limits and timeouts; `interpret` gives a status
//! its default meaning.

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

/// How many requests run at the same time, each on its own connection.
const MAX_CONCURRENT_REQUESTS: usize = 64;
/// Secrets shorter than this are not masked in quoted responses.
const MIN_MASKED_CHARS: usize = 8;

/// The settings that all HTTP providers share.
#[derive(Clone)]
pub struct HttpTransportConfig {
    /// The transport's name in the configuration.
    pub name: String,
    /// The API's base URL (`http://` or `https://`), optionally with a path prefix. Default: the vendor's URL.
    pub base_url: Option<String>,
    /// Identifies the provider account. Default: a hash of kind, name, base URL and other stable public settings, such
    /// as Mailgun's domain. No secret is part of it, so it survives a key rotation. Two accounts behind the same
    /// transport name get the same hash: set this when you move a transport to another account.
    pub account: Option<String>,
    /// The timeout for connecting, and again for the response.
    pub timeout: Duration,
    /// How old a connection may be when the request is written.
    pub max_connection_age: Duration,
    /// Decides whether an address may be dialled.
    pub address_filter: Option<AddressFilter>,
    /// Certificate authorities trusted besides the public ones.
    pub extra_roots: Vec<CertificateDer<'static>>,
}

impl HttpTransportConfig {
    /// The default settings: the vendor's URL, a timeout of 30 s, connections at most 60 s old.
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

/// A credential. Its debug output hides the value.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Wraps a credential.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The API of one provider: payloads and responses, without any I/O.
trait HttpProvider: Send + Sync + 'static {
    const KIND: &'static str;
    fn wire(&self) -> PayloadFormat;
    fn recovery(&self) -> RecoveryMethod;
    fn secrets(&self) -> Vec<&Secret>;
    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail>;
    /// The request with the frozen bytes as its body. Credentials and signatures are added anew for each attempt.
    fn send_request(&self, base: &BaseUrl, envelope: &FrozenEnvelope) -> ProviderRequest;
    fn interpret_response(&self, response: &ProviderResponse) -> TransportReply;
    /// The request that looks up a mail at the provider. `None` if the provider has no lookup.
    fn lookup_request(&self, _wanted: &LookUpRequest) -> Option<ProviderRequest> {
        None
    }
    /// Interprets the response to a lookup.
    fn interpret_lookup(&self, _wanted: &LookUpRequest, response: &ProviderResponse) -> LookUpResult {
        LookUpResult::Unavailable(response.excerpt())
    }
    /// A read-only request that succeeds only with a valid API key. `None` if the provider has none.
    fn probe_request(&self) -> Option<ProviderRequest> {
        None
    }
    /// Whether a refused probe shows that the API key is valid but restricted to sending.
    fn is_send_only_key(&self, _refusal: &str) -> bool {
        false
    }
}

/// A request to a provider, relative to its base URL.
pub(crate) struct ProviderRequest {
    method: Method,
    /// Path and query below the base URL.
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl ProviderRequest {
    pub(crate) fn get(path: String) -> Self {
        Self { method: Method::GET, path, headers: Vec::new(), body: Bytes::new() }
    }

    fn post(path: impl Into<String>, content_type: &str, body: Bytes) -> Self {
        let headers = vec![(header::CONTENT_TYPE.to_string(), content_type.to_owned())];
        Self { method: Method::POST, path: path.into(), headers, body }
    }

    /// A POST with the frozen bytes as a JSON body.
    fn json(path: impl Into<String>, envelope: &FrozenEnvelope) -> Self {
        Self::post(path, "application/json", Bytes::from_owner(Arc::clone(&envelope.bytes)))
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
        // The error text contains no header value, so no credential can leak.
        request.body(Full::new(self.body)).map_err(|e| format!("the request cannot be built: {e}"))
    }
}

/// A transport to one provider.
struct HttpTransport<P> {
    name: String,
    account: String,
    connector: ProviderConnector,
    provider: Arc<P>,
}

/// Builds the transport of a provider. `public_id` is a stable, non-secret part of the account's identity.
fn build_transport<P: HttpProvider>(
    setting: HttpTransportConfig,
    provider: P,
    default_url: &str,
    public_id: &str,
) -> Result<Arc<dyn Transport>, TransportConfigError> {
    if provider.secrets().iter().any(|secret| secret.0.trim().is_empty()) {
        return Err(TransportConfigError(format!("transport {} has an empty credential", setting.name)));
    }
    let base = BaseUrl::parse(setting.base_url.as_deref().unwrap_or(default_url));
    let base = base.map_err(|TransportConfigError(why)| TransportConfigError(format!("base_url {why}")))?;
    let account =
        setting.account.unwrap_or_else(|| account_fingerprint(&[P::KIND, &setting.name, &base.url, public_id]));
    let connector = ProviderConnector::new(
        base,
        setting.address_filter,
        setting.timeout,
        setting.max_connection_age,
        &setting.extra_roots,
    )?;
    Ok(Arc::new(HttpTransport { name: setting.name, account, connector, provider: Arc::new(provider) }))
}

fn account_fingerprint(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    form::hex(&hash.finalize()[..16])
}

/// An open connection and the request that will be sent over it.
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
        let response = connection.send(request).await;
        mailonce_core::failpoint!("http-after-answer");
        match response {
            Ok(response) => {
                let mut reply = provider.interpret_response(&without_secrets(&*provider, response));
                reply.text = mask_secrets(&*provider, reply.text);
                reply
            }
            Err(error) => error.into_reply(),
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
        let timeout_ms = i64::try_from(self.connector.timeout.as_millis()).unwrap_or(i64::MAX);
        let (payload_format, recovery) = (self.provider.wire(), self.provider.recovery());
        TransportCapabilities {
            split: HandoffSplit::PerEmail,
            payload_format,
            recovery,
            timeout_ms,
            max_concurrency: MAX_CONCURRENT_REQUESTS,
        }
    }

    fn freeze(&self, mail: &OutboundMail<'_>) -> Result<Vec<u8>, UnsupportedMail> {
        self.provider.freeze(mail)
    }

    async fn prepare(&self, envelope: FrozenEnvelope) -> Result<Box<dyn PreparedHandoff>, TransportReply> {
        // Build the request first, so that an invalid one does not cost a connection.
        let request = self.provider.send_request(&self.connector.base, &envelope).build(&self.connector.base);
        let request =
            request.map_err(|why| TransportReply::new(ReplyMeaning::Fault, AttemptPhase::Connect, None, &why))?;
        let connection = self.connector.connect().await?;
        mailonce_core::failpoint!("http-connected");
        Ok(Box::new(PreparedHttpHandoff { connection, request, provider: Arc::clone(&self.provider) }))
    }

    async fn look_up(&self, wanted: LookUpRequest) -> LookUpResult {
        let Some(lookup) = self.provider.lookup_request(&wanted) else {
            return LookUpResult::Unavailable(format!("{} has no lookup", P::KIND));
        };
        let request = match lookup.build(&self.connector.base) {
            Ok(request) => request,
            Err(why) => return LookUpResult::Unavailable(why),
        };
        let connection = match self.connector.connect().await {
            Ok(connection) => connection,
            Err(reply) => return LookUpResult::Unavailable(reply.text),
        };
        match connection.send(request).await {
            Ok(response) => self.provider.interpret_lookup(&wanted, &without_secrets(&*self.provider, response)),
            Err(error) => LookUpResult::Unavailable(error.into_reply().text),
        }
    }

    async fn check_connection(&self) -> ConnectionCheck {
        let connection = match self.connector.connect().await {
            Ok(connection) => connection,
            Err(reply) => return ConnectionCheck::Unreachable(reply.text),
        };
        let request = match self.provider.probe_request().map(|call| call.build(&self.connector.base)) {
            Some(Ok(request)) => request,
            Some(Err(why)) => return ConnectionCheck::Unreachable(why),
            None => return ConnectionCheck::Reached,
        };
        match connection.send(request).await {
            Ok(response) if (200..300).contains(&response.status) => ConnectionCheck::LoggedIn,
            Ok(response) if matches!(response.status, 401 | 403) => {
                let refusal = without_secrets(&*self.provider, response).excerpt();
                if self.provider.is_send_only_key(&refusal) {
                    ConnectionCheck::LoggedIn
                } else {
                    ConnectionCheck::LoginRefused(refusal)
                }
            }
            // Any other status says nothing about the API key.
            Ok(_) => ConnectionCheck::Reached,
            Err(error) => ConnectionCheck::Unreachable(error.into_reply().text),
        }
    }
}

/// Masks our credentials in the response, in case the provider quotes them.
fn without_secrets<P: HttpProvider>(provider: &P, mut response: ProviderResponse) -> ProviderResponse {
    response.body = response.body.map(|body| match std::str::from_utf8(&body) {
        Ok(text) if maskable_secrets(provider).any(|secret| text.contains(secret)) => {
            mask_secrets(provider, text.to_owned()).into()
        }
        _ => body,
    });
    response
}

fn mask_secrets<P: HttpProvider>(provider: &P, text: String) -> String {
    maskable_secrets(provider).fold(text, |text, secret| text.replace(secret, "…"))
}

/// The secrets that are long enough to mask. A short header value such as `1` would mask unrelated text.
fn maskable_secrets<P: HttpProvider>(provider: &P) -> impl Iterator<Item = &str> {
    provider.secrets().into_iter().map(|secret| secret.0.as_str()).filter(|secret| secret.len() >= MIN_MASKED_CHARS)
}
