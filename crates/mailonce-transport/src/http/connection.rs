//! One request on one connection: connect, TLS, HTTP/1.1, one answer, and the end.
//!
//! There is no pool. A pooled connection may have died while it lay idle, and a request written to a dead connection
//! is an unknown outcome for nothing. There are no redirects and no second tries either: whoever calls decides.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{Request, body::Incoming, client::conn::http1, header::HeaderMap};
use hyper_util::rt::TokioIo;
use mailonce_core::handoff::reply::{AttemptPhase, ReplyMeaning, TransportReply};
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;

use super::{TransportConfigError, base::BaseUrl};
use crate::{
    boot_instant::BootInstant,
    dial::{self, AddressFilter},
    http::age_limited_stream::AgeLimitedStream,
    http_exchange::error_chain,
};

/// Bytes of an answer's status line and headers.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Headers of an answer.
const MAX_HEADERS: usize = 100;
/// Bytes of an answer's body, unless a door is told otherwise.
const DEFAULT_MAX_BODY_BYTES: usize = 256 * 1024;
type RequestBody = Full<Bytes>;

/// Where a provider is reached, and how patiently.
pub(crate) struct ProviderConnector {
    pub(crate) base: BaseUrl,
    pub(crate) address_filter: Option<AddressFilter>,
    /// For connecting in all, and again for the answer.
    pub(crate) timeout: Duration,
    /// How old a connection may be when the request is written.
    pub(crate) max_connection_age: Duration,
    /// Bytes of an answer's body that are read.
    pub(crate) max_body_bytes: usize,
    tls: TlsConnector,
    server: ServerName<'static>,
}

/// A connection on which nothing was said yet.
pub(crate) struct ProviderConnection {
    sender: http1::SendRequest<RequestBody>,
    driver: JoinHandle<()>,
    connected_at: BootInstant,
    timeout: Duration,
    max_age: Duration,
    max_body_bytes: usize,
    /// Whether nothing was written because the connection had grown too old meanwhile.
    too_old: Arc<AtomicBool>,
}

/// What a provider answered.
pub(crate) struct ProviderResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body, or why it could not be read whole.
    pub(crate) body: Result<Bytes, ProviderBodyError>,
}

/// Why a body could not be read whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProviderBodyError {
    /// It is longer than anybody reads.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// It broke off, or did not end in time.
    #[error("{0}")]
    Incomplete(String),
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum ProviderRequestError {
    /// The connection had grown too old. Nothing was written.
    Stale(Duration),
    /// The connection ended before the request was given to it. Nothing was written.
    Unsent(String),
    /// Something may have been read over there.
    NoResponse(String),
}

impl ProviderConnector {
    pub(crate) fn new(
        base: BaseUrl,
        guard: Option<AddressFilter>,
        patience: Duration,
        fresh: Duration,
        extra_roots: &[CertificateDer<'static>],
    ) -> Result<Self, TransportConfigError> {
        let name = base.host.clone();
        let server = ServerName::try_from(name)
            .map_err(|e| TransportConfigError(format!("{} is no host name: {e}", base.host)))?;
        Ok(Self {
            base,
            address_filter: guard,
            timeout: patience,
            max_connection_age: fresh,
            max_body_bytes: DEFAULT_MAX_BODY_BYTES,
            tls: connector(extra_roots)?,
            server,
        })
    }

    /// Connects. Whatever fails here can be taken back, so the transport is at fault and no mail in doubt.
    pub(crate) async fn connect(&self) -> Result<ProviderConnection, TransportReply> {
        let late = Instant::now() + self.timeout;
        let in_time =
            |phase: AttemptPhase| fault(phase, format!("{} did not answer in {:?}", self.base.host, self.timeout));
        let socket = timeout_at(late, self.open_tcp()).await.map_err(|_late| in_time(AttemptPhase::Connect))??;
        if !self.base.is_https {
            return timeout_at(late, self.start_http(socket)).await.map_err(|_late| in_time(AttemptPhase::Greet))?;
        }
        let secured = timeout_at(late, self.tls.connect(self.server.clone(), socket));
        let secured = secured.await.map_err(|_late| in_time(AttemptPhase::Tls))?;
        let secured = secured.map_err(|e| fault(AttemptPhase::Tls, format!("TLS with {}: {e}", self.base.host)))?;
        timeout_at(late, self.start_http(secured)).await.map_err(|_late| in_time(AttemptPhase::Greet))?
    }

    async fn open_tcp(&self) -> Result<TcpStream, TransportReply> {
        let BaseUrl { host, port, .. } = &self.base;
        let opened = dial::open_tcp(host, *port, self.timeout, self.address_filter.as_ref()).await;
        opened.map_err(|error| fault(AttemptPhase::Connect, error.to_string()))
    }

    async fn start_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
    ) -> Result<ProviderConnection, TransportReply> {
        let mut http = http1::Builder::new();
        http.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
        let (fresh, too_old) = AgeLimitedStream::new(stream, self.max_connection_age);
        let made = http.handshake::<_, RequestBody>(TokioIo::new(fresh)).await;
        let (sender, connection) =
            made.map_err(|e| fault(AttemptPhase::Greet, format!("HTTP with {}: {e}", self.base.host)))?;
        // How the connection ends is told to the request that waits on it; without one it concerns nobody.
        let driver = tokio::spawn(async move { drop(connection.await) });
        let Self { timeout: patience, max_connection_age: fresh, max_body_bytes: most, .. } = *self;
        Ok(ProviderConnection {
            sender,
            driver,
            connected_at: BootInstant::now(),
            timeout: patience,
            max_age: fresh,
            max_body_bytes: most,
            too_old,
        })
    }
}

impl ProviderConnection {
    /// Writes the request, once, and reads the answer.
    pub(crate) async fn send(
        mut self,
        request: Request<RequestBody>,
    ) -> Result<ProviderResponse, ProviderRequestError> {
        let age = self.connected_at.elapsed();
        if age > self.max_age {
            return Err(ProviderRequestError::Stale(age));
        }
        let late = Instant::now() + self.timeout;
        let answer = match timeout_at(late, self.sender.try_send_request(request)).await {
            Err(_late) => return Err(ProviderRequestError::NoResponse(format!("no answer within {:?}", self.timeout))),
            Ok(Ok(answer)) => answer,
            // hyper gives the request back only when it did not begin to write it.
            Ok(Err(mut lost)) => {
                if self.too_old.load(Ordering::Acquire) {
                    return Err(ProviderRequestError::Stale(self.connected_at.elapsed()));
                }
                let unsent = lost.take_message().is_some();
                let why = error_chain(lost.error());
                return Err(if unsent {
                    ProviderRequestError::Unsent(why)
                } else {
                    ProviderRequestError::NoResponse(format!("no answer: {why}"))
                });
            }
        };
        let (head, body) = answer.into_parts();
        Ok(ProviderResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            body: read(body, late, self.max_body_bytes).await,
        })
    }
}

impl Drop for ProviderConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn read(body: Incoming, late: Instant, most: usize) -> Result<Bytes, ProviderBodyError> {
    match timeout_at(late, Limited::new(body, most).collect()).await {
        Err(_late) => Err(ProviderBodyError::Incomplete("the answer's body did not end in time".into())),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(e)) if e.is::<LengthLimitError>() => Err(ProviderBodyError::TooLong(most)),
        Ok(Err(e)) => Err(ProviderBodyError::Incomplete(format!("the answer broke off: {e}"))),
    }
}

fn fault(phase: AttemptPhase, text: String) -> TransportReply {
    TransportReply::new(ReplyMeaning::Fault, phase, None, &text)
}

fn connector(extra_roots: &[CertificateDer<'static>]) -> Result<TlsConnector, TransportConfigError> {
    let trust = dial::tls_client_config(extra_roots)
        .map_err(|e| TransportConfigError(format!("an extra root is no certificate: {e}")))?;
    let mut config = ClientConfig::clone(&trust);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_connection_that_ended_before_the_request_is_known_to_have_carried_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = BaseUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let (second, minute) = (Duration::from_secs(5), Duration::from_mins(1));
        let door = ProviderConnector::new(base, None, second, minute, &[]).unwrap();
        let mut line = door.connect().await.unwrap();
        drop(listener.accept().await.unwrap());
        (&mut line.driver).await.unwrap();
        let lost = line.send(Request::new(RequestBody::default())).await.err();
        assert!(matches!(lost, Some(ProviderRequestError::Unsent(_))), "{lost:?}");
    }
}
