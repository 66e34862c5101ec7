//! One request per connection: connect, TLS, HTTP/1.1, one response, close.
//!
//! There is no pool. A pooled connection may have died while idle, and a request written to a dead connection would be
//! an avoidable unknown outcome. There are no redirects and no retries either: the caller decides about both.

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
    http_exchange::{error_chain, limited_http},
};

/// Default limit for a response body.
const DEFAULT_MAX_BODY_BYTES: usize = 256 * 1024;
type RequestBody = Full<Bytes>;

/// Opens connections to one provider, with its limits and timeouts.
pub(crate) struct ProviderConnector {
    pub(crate) base: BaseUrl,
    pub(crate) address_filter: Option<AddressFilter>,
    /// The timeout for connecting as a whole, and again for the response.
    pub(crate) timeout: Duration,
    /// How old a connection may be when the request is written.
    pub(crate) max_connection_age: Duration,
    /// Limit for a response body.
    pub(crate) max_body_bytes: usize,
    tls: TlsConnector,
    server: ServerName<'static>,
}

/// An open connection without a request so far.
pub(crate) struct ProviderConnection {
    sender: http1::SendRequest<RequestBody>,
    driver: JoinHandle<()>,
    connected_at: BootInstant,
    timeout: Duration,
    max_age: Duration,
    max_body_bytes: usize,
    /// True if the request was not written because the connection had become too old.
    too_old: Arc<AtomicBool>,
}

/// A provider's response.
pub(crate) struct ProviderResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body, or why it could not be read completely.
    pub(crate) body: Result<Bytes, ProviderBodyError>,
}

/// Why a body could not be read completely.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProviderBodyError {
    /// It exceeds the size limit.
    #[error("the response is longer than {0} bytes")]
    TooLong(usize),
    /// The connection broke, or the timeout passed.
    #[error("{0}")]
    Incomplete(String),
}

/// Why there is no response.
#[derive(Debug)]
pub(crate) enum ProviderRequestError {
    /// The connection was too old. Nothing was written.
    Stale(Duration),
    /// The connection closed before the request was sent. Nothing was written.
    Unsent(String),
    /// The provider may have received the request.
    NoResponse(String),
}

impl ProviderConnector {
    pub(crate) fn new(
        base: BaseUrl,
        address_filter: Option<AddressFilter>,
        timeout: Duration,
        max_connection_age: Duration,
        extra_roots: &[CertificateDer<'static>],
    ) -> Result<Self, TransportConfigError> {
        let name = base.host.clone();
        let server = ServerName::try_from(name)
            .map_err(|e| TransportConfigError(format!("{} is not a valid host name: {e}", base.host)))?;
        Ok(Self {
            base,
            address_filter,
            timeout,
            max_connection_age,
            max_body_bytes: DEFAULT_MAX_BODY_BYTES,
            tls: connector(extra_roots)?,
            server,
        })
    }

    /// Connects. Nothing is sent yet, so a failure is a fault of the transport and the mail's outcome stays certain.
    pub(crate) async fn connect(&self) -> Result<ProviderConnection, TransportReply> {
        let deadline = Instant::now() + self.timeout;
        let timed_out =
            |phase: AttemptPhase| fault(phase, format!("{} did not answer in {:?}", self.base.host, self.timeout));
        let socket =
            timeout_at(deadline, self.open_tcp()).await.map_err(|_late| timed_out(AttemptPhase::Connect))??;
        if !self.base.is_https {
            return timeout_at(deadline, self.start_http(socket))
                .await
                .map_err(|_late| timed_out(AttemptPhase::Greet))?;
        }
        let secured = timeout_at(deadline, self.tls.connect(self.server.clone(), socket));
        let secured = secured.await.map_err(|_late| timed_out(AttemptPhase::Tls))?;
        let secured = secured.map_err(|e| fault(AttemptPhase::Tls, format!("TLS with {}: {e}", self.base.host)))?;
        timeout_at(deadline, self.start_http(secured)).await.map_err(|_late| timed_out(AttemptPhase::Greet))?
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
        let (stream, too_old) = AgeLimitedStream::new(stream, self.max_connection_age);
        let handshake = limited_http().handshake::<_, RequestBody>(TokioIo::new(stream)).await;
        let (sender, connection) =
            handshake.map_err(|e| fault(AttemptPhase::Greet, format!("HTTP with {}: {e}", self.base.host)))?;
        // The pending request receives the connection's error, so it can be dropped here.
        let driver = tokio::spawn(async move { drop(connection.await) });
        let Self { timeout, max_connection_age: max_age, max_body_bytes, .. } = *self;
        Ok(ProviderConnection {
            sender,
            driver,
            connected_at: BootInstant::now(),
            timeout,
            max_age,
            max_body_bytes,
            too_old,
        })
    }
}

impl ProviderConnection {
    /// Writes the request once and reads the response.
    pub(crate) async fn send(
        mut self,
        request: Request<RequestBody>,
    ) -> Result<ProviderResponse, ProviderRequestError> {
        let age = self.connected_at.elapsed();
        if age > self.max_age {
            return Err(ProviderRequestError::Stale(age));
        }
        let deadline = Instant::now() + self.timeout;
        let response = match timeout_at(deadline, self.sender.try_send_request(request)).await {
            Err(_late) => {
                return Err(ProviderRequestError::NoResponse(format!("no response within {:?}", self.timeout)));
            }
            Ok(Ok(response)) => response,
            // hyper returns the request only if it did not start to write it.
            Ok(Err(mut error)) => {
                if self.too_old.load(Ordering::Acquire) {
                    return Err(ProviderRequestError::Stale(self.connected_at.elapsed()));
                }
                let unsent = error.take_message().is_some();
                let why = error_chain(error.error());
                return Err(if unsent {
                    ProviderRequestError::Unsent(why)
                } else {
                    ProviderRequestError::NoResponse(format!("no response: {why}"))
                });
            }
        };
        let (head, body) = response.into_parts();
        Ok(ProviderResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            body: read(body, deadline, self.max_body_bytes).await,
        })
    }
}

impl Drop for ProviderConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn read(body: Incoming, deadline: Instant, max_bytes: usize) -> Result<Bytes, ProviderBodyError> {
    match timeout_at(deadline, Limited::new(body, max_bytes).collect()).await {
        Err(_late) => Err(ProviderBodyError::Incomplete("the response body did not end in time".into())),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(e)) if e.is::<LengthLimitError>() => Err(ProviderBodyError::TooLong(max_bytes)),
        Ok(Err(e)) => Err(ProviderBodyError::Incomplete(format!("the response ended early: {e}"))),
    }
}

fn fault(phase: AttemptPhase, text: String) -> TransportReply {
    TransportReply::new(ReplyMeaning::Fault, phase, None, &text)
}

fn connector(extra_roots: &[CertificateDer<'static>]) -> Result<TlsConnector, TransportConfigError> {
    let base_config = dial::tls_client_config(extra_roots)
        .map_err(|e| TransportConfigError(format!("an extra root is not a valid certificate: {e}")))?;
    let mut config = ClientConfig::clone(&base_config);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_connection_closed_before_the_request_reports_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = BaseUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let (timeout, max_age) = (Duration::from_secs(5), Duration::from_mins(1));
        let connector = ProviderConnector::new(base, None, timeout, max_age, &[]).unwrap();
        let mut connection = connector.connect().await.unwrap();
        drop(listener.accept().await.unwrap());
        (&mut connection.driver).await.unwrap();
        let error = connection.send(Request::new(RequestBody::default())).await.err();
        assert!(matches!(error, Some(ProviderRequestError::Unsent(_))), "{error:?}");
    }
}
