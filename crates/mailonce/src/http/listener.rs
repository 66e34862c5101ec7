//! The HTTP listener: accepts connections, serves each on its thread, and ends them when the server stops.
//!
//! With a certificate every connection begins with a TLS handshake, which happens on the connection's thread and never
//! delays the next accept. ALPN chooses HTTP/2 or HTTP/1.1; without TLS there is HTTP/1.1 alone.

use anyhow::Context as _;
use axum::{
    Router,
    response::{IntoResponse as _, Response},
};
use hyper::{
    Request,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{convert::Infallible, io, net::IpAddr, pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};

use super::{
    HttpOptions,
    address_limits::ConnectionLimit,
    body_memory::BodyMemory,
    host_check::{ConnectionInfo, HostCheck},
    large_bodies::LargeBodyThreads,
    secure_headers,
};
use crate::{
    api::problem::ApiError,
    client_address::TrustedProxies,
    config::Config,
    connection_threads::ConnectionThreads,
    mcp,
    tls::Tls,
    write_timeout::{self, WriteTimeout},
};

/// Open connections. The next one waits in the kernel's queue.
const MAX_CONNECTIONS: usize = 20_000;
/// How long a client may take for its first or next request's head.
const HEAD_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests at a time on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// Bytes of all header fields of one HTTP/2 request.
const MAX_HEADER_LIST: u32 = 64 * 1024;
/// Streams that a client opened and reset before they were served. More end the connection: that is rapid reset.
const MAX_PENDING_RESETS: usize = 20;
/// Streams that we reset because of the client's errors. More end the connection.
const MAX_ERROR_RESETS: usize = 128;
/// How often an HTTP/2 client is asked whether it is still there, and how long its answer may take.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// What ALPN offers, the preferred protocol first.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

/// Reads the certificate that the configuration names.
pub(crate) fn read_certificate(options: &HttpOptions) -> anyhow::Result<Option<Arc<Tls>>> {
    let Some((certificate, key)) = &options.tls_files else { return Ok(None) };
    let tls = Tls::with_alpn(certificate, key, &PROTOCOLS).context("http.tls_cert, http.tls_key")?;
    Ok(Some(Arc::new(tls)))
}

/// What all connections share.
struct HttpListenerState {
    router: Router,
    trusted_proxies: TrustedProxies,
    hosts: HostCheck,
    connections: Arc<ConnectionLimit>,
    large_bodies: LargeBodyThreads,
    body_memory: BodyMemory,
    tls: Option<Arc<Tls>>,
}

/// The listener and its open connections.
pub(crate) struct HttpListener {
    shared: Arc<HttpListenerState>,
    permits: Arc<Semaphore>,
    shutdown: watch::Sender<bool>,
}

impl HttpListener {
    /// A listener for the API. `tls` is what [`read_certificate`] returned.
    pub(crate) fn new(router: Router, tls: Option<Arc<Tls>>, config: &Config) -> anyhow::Result<Self> {
        let HttpOptions { hosts, connections_per_address, body_memory, trusted_proxies, .. } =
            config.http_options.clone();
        let shared = HttpListenerState {
            router,
            hosts: HostCheck::new(config.public_url.as_deref(), hosts, config.http.ip()),
            connections: ConnectionLimit::new(connections_per_address, trusted_proxies.clone()),
            body_memory: BodyMemory::new(body_memory, trusted_proxies.clone()),
            trusted_proxies,
            large_bodies: LargeBodyThreads::open().context("starting threads for large bodies")?,
            tls,
        };
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Ok(Self { shared: Arc::new(shared), permits, shutdown: watch::Sender::new(false) })
    }

    /// Accepts connections and follows changes of the certificate. Returns only when it cannot go on.
    pub(crate) async fn run(&self, listener: TcpListener, lanes: &ConnectionThreads) -> anyhow::Error {
        let reload = async {
            match self.shared.tls.clone() {
                Some(tls) => tls.reload_on_change().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = self.accept(listener, lanes) => error,
            () = reload => anyhow::anyhow!("the certificate is no longer followed"),
        }
    }

    async fn accept(&self, listener: TcpListener, lanes: &ConnectionThreads) -> anyhow::Error {
        loop {
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                return anyhow::anyhow!("the listener closed");
            };
            let (stream, peer) = match listener.accept().await {
                Ok((stream, peer)) => (stream, peer.ip()),
                Err(error) => {
                    // Out of descriptors, most likely: those that are open will end.
                    tracing::warn!(%error, "accepting a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Some(counted) = self.shared.connections.enter(peer) else { continue };
            let (shared, closing) = (Arc::clone(&self.shared), self.shutdown.subscribe());
            let served = lanes.serve(stream, move |stream| async move {
                if let Err(error) = serve_connection(stream, peer, shared, closing).await {
                    tracing::debug!(error = format!("{error:#}"), "a connection ended");
                }
                drop((permit, counted));
            });
            if let Err(error) = served {
                tracing::warn!(%error, "giving a connection to its thread");
            }
        }
    }

    /// Lets every connection end after the requests that it is serving, and waits for them. A connection that became a
    /// WebSocket is not among them: it ends with the event streams.
    pub(crate) async fn drain(&self) {
        self.shutdown.send_replace(true);
        drop(self.permits.acquire_many(MAX_CONNECTIONS as u32).await);
    }
}

/// Serves one connection until it ends or the server stops.
async fn serve_connection(
    stream: TcpStream,
    peer: IpAddr,
    shared: Arc<HttpListenerState>,
    closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY");
    }
    let arrived = ConnectionInfo { local: stream.local_addr()?.ip(), tls: shared.tls.is_some() };
    let served = HttpConnection { shared, peer, info: arrived };
    let stream = WriteTimeout::new(stream, write_timeout::WRITE_TIMEOUT);
    match served.shared.tls.clone() {
        None => serve_http1(stream, served, closing).await,
        // On the heap: connections without TLS need no room for it.
        Some(tls) => Box::pin(serve_tls(stream, tls, served, closing)).await,
    }
}

/// The handshake, then the protocol that it agreed on.
async fn serve_tls(
    stream: WriteTimeout<TcpStream>,
    tls: Arc<Tls>,
    served: HttpConnection,
    mut closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let stream = tokio::select! {
        done = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream)) => {
            done.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut)).flatten().context("TLS handshake")?
        }
        () = wait_for_shutdown(&mut closing) => return Ok(()),
    };
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => serve_http2(stream, served, closing).await,
        _ => serve_http1(stream, served, closing).await,
    }
}

async fn serve_http1(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    served: HttpConnection,
    mut closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service_fn(move |request| served.clone().respond(request)));
    let mut connection = pin!(connection.with_upgrades());
    tokio::select! {
        ended = connection.as_mut() => ended?,
        () = wait_for_shutdown(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await?;
        }
    }
    Ok(())
}

async fn serve_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    served: HttpConnection,
    mut closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    // The executor spawns on the runtime of this thread, so all streams of a connection stay here.
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .serve_connection(TokioIo::new(stream), service_fn(move |request| served.clone().respond(request)));
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => ended?,
        () = wait_for_shutdown(&mut closing) => {
            connection.as_mut().graceful_shutdown();
            connection.await?;
        }
    }
    Ok(())
}

/// Resolves when the server stops.
async fn wait_for_shutdown(closing: &mut watch::Receiver<bool>) {
    drop(closing.wait_for(|closing| *closing).await);
}

/// A connection as its requests see it.
#[derive(Clone)]
struct HttpConnection {
    shared: Arc<HttpListenerState>,
    peer: IpAddr,
    info: ConnectionInfo,
}

impl HttpConnection {
    /// Answers one request.
    async fn respond(self, mut request: Request<Incoming>) -> Result<Response, Infallible> {
        let Self { shared, peer, info: arrived } = self;
        let client = shared.trusted_proxies.client(peer, request.headers());
        request.extensions_mut().insert(client);
        let checked = shared.hosts.check(request.method(), request.uri(), request.headers(), arrived);
        let (head, body) = request.into_parts();
        let (body, lease) = shared.body_memory.meter(client.0, body);
        let request = Request::from_parts(head, body);
        let mut response = match checked {
            Ok(()) => shared.large_bodies.answer(shared.router.clone(), request).await?,
            Err(problem) if request.uri().path() == "/mcp" => mcp::http::rejection_response(problem),
            Err(problem) => ApiError(problem).into_response(),
        };
        secure_headers::add_secure_headers(response.headers_mut(), arrived.tls);
        drop(lease);
        Ok(response)
    }
}
