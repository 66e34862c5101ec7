//! The HTTP listener: accepts connections, serves each on one thread, and closes them when the server shuts down.
//!
//! If a certificate is configured, every connection begins with a TLS handshake. It runs on the connection's thread and
//! never delays the next accept. ALPN selects HTTP/2 or HTTP/1.1; without TLS only HTTP/1.1 is available.

use anyhow::Context as _;
use axum::{
    Router,
    response::{IntoResponse as _, Response},
};
use hyper::{
    Request, Uri,
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
    cross_origin,
    host_check::{ConnectionInfo, HostCheck},
    large_bodies::LargeBodyThreads,
    secure_headers,
};
use crate::{
    client_address::TrustedProxies,
    config::Config,
    connection_threads::ConnectionThreads,
    http::{paths::is_mcp_path, problem::ApiError, session_cookie::IsHttps},
    mcp,
    tls::Tls,
    write_timeout::{self, WriteTimeout},
};

/// Where the APIs of other providers are.
const DIALECT_PREFIX: &str = "/compat/";
/// Maximum number of open connections. Further ones wait in the kernel's accept queue.
const MAX_CONNECTIONS: usize = 20_000;
/// How long a client may take to send the head of its first or next request.
const HEAD_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// Maximum size of all header fields of one HTTP/2 request, in bytes.
const MAX_HEADER_LIST: u32 = 64 * 1024;
/// Streams that a client may open and reset before they are served. More close the connection (rapid reset attack).
const MAX_PENDING_RESETS: usize = 20;
/// Streams that the server resets because of client errors. More close the connection.
const MAX_ERROR_RESETS: usize = 128;
/// Interval of HTTP/2 keep-alive pings, and the timeout of each.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// The ALPN protocols, preferred one first.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

/// Reads the certificate that the configuration names.
pub(crate) fn read_certificate(options: &HttpOptions) -> anyhow::Result<Option<Arc<Tls>>> {
    let Some((certificate, key)) = &options.tls_files else { return Ok(None) };
    let tls = Tls::with_alpn(certificate, key, &PROTOCOLS).context("http.tls_cert, http.tls_key")?;
    Ok(Some(Arc::new(tls)))
}

/// State shared by all connections.
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
    /// Creates a listener for the API. `tls` comes from [`read_certificate`].
    pub(crate) fn new(router: Router, tls: Option<Arc<Tls>>, config: &Config) -> anyhow::Result<Self> {
        let HttpOptions { hosts, allowed_origins, connections_per_address, body_memory, trusted_proxies, .. } =
            config.http_options.clone();
        let shared = HttpListenerState {
            router,
            hosts: HostCheck::new(config.public_url.as_deref(), hosts, config.http.ip())
                .with_allowed_origins(allowed_origins),
            connections: ConnectionLimit::new(connections_per_address, trusted_proxies.clone()),
            body_memory: BodyMemory::new(body_memory, trusted_proxies.clone()),
            trusted_proxies,
            large_bodies: LargeBodyThreads::open().context("starting threads for large bodies")?,
            tls,
        };
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Ok(Self { shared: Arc::new(shared), permits, shutdown: watch::Sender::new(false) })
    }

    /// Accepts connections and reloads the certificate when it changes. Returns only after a fatal error.
    pub(crate) async fn run(&self, listener: TcpListener, threads: &ConnectionThreads) -> anyhow::Error {
        let reload = async {
            match self.shared.tls.clone() {
                Some(tls) => tls.reload_on_change().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            error = self.accept(listener, threads) => error,
            () = reload => anyhow::anyhow!("certificate reloading stopped"),
        }
    }

    async fn accept(&self, listener: TcpListener, threads: &ConnectionThreads) -> anyhow::Error {
        loop {
            let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
                return anyhow::anyhow!("the listener is closed");
            };
            let (stream, peer) = match listener.accept().await {
                Ok((stream, peer)) => (stream, peer.ip()),
                Err(error) => {
                    // Most likely the process is out of file descriptors, and open connections will close.
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Some(address_permit) = self.shared.connections.enter(peer) else { continue };
            let (shared, closing) = (Arc::clone(&self.shared), self.shutdown.subscribe());
            let served = threads.serve(stream, move |stream| async move {
                if let Err(error) = serve_connection(stream, peer, shared, closing).await {
                    tracing::debug!(error = format!("{error:#}"), "a connection ended with an error");
                }
                drop((permit, address_permit));
            });
            if let Err(error) = served {
                tracing::warn!(%error, "moving a connection to its thread failed");
            }
        }
    }

    /// Closes every connection after its running requests, and waits for them. WebSocket connections are not included:
    /// they end with the event streams.
    pub(crate) async fn drain(&self) {
        self.shutdown.send_replace(true);
        drop(self.permits.acquire_many(MAX_CONNECTIONS as u32).await);
    }
}

/// Serves one connection until it ends or the server shuts down.
async fn serve_connection(
    stream: TcpStream,
    peer: IpAddr,
    shared: Arc<HttpListenerState>,
    closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "setting TCP_NODELAY");
    }
    let info = ConnectionInfo { local: stream.local_addr()?.ip(), tls: shared.tls.is_some() };
    let connection = HttpConnection { shared, peer, info };
    let stream = WriteTimeout::new(stream, write_timeout::WRITE_TIMEOUT);
    match connection.shared.tls.clone() {
        None => serve_http1(stream, connection, closing).await,
        // Boxed, so that connections without TLS do not reserve memory for the handshake.
        Some(tls) => Box::pin(serve_tls(stream, tls, connection, closing)).await,
    }
}

/// Performs the TLS handshake, then serves the protocol that ALPN selected.
async fn serve_tls(
    stream: WriteTimeout<TcpStream>,
    tls: Arc<Tls>,
    connection: HttpConnection,
    mut closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let stream = tokio::select! {
        handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.acceptor().accept(stream)) => {
            handshake.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut)).flatten().context("TLS handshake")?
        }
        () = wait_for_shutdown(&mut closing) => return Ok(()),
    };
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => serve_http2(stream, connection, closing).await,
        _ => serve_http1(stream, connection, closing).await,
    }
}

async fn serve_http1(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    handler: HttpConnection,
    mut closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service_fn(move |request| handler.clone().respond(request)));
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
    handler: HttpConnection,
    mut closing: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    // The executor spawns on this thread's runtime, so all streams of a connection stay on one thread.
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .serve_connection(TokioIo::new(stream), service_fn(move |request| handler.clone().respond(request)));
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

/// Resolves when the server shuts down.
async fn wait_for_shutdown(closing: &mut watch::Receiver<bool>) {
    drop(closing.wait_for(|closing| *closing).await);
}

/// What the requests of one connection need.
#[derive(Clone)]
struct HttpConnection {
    shared: Arc<HttpListenerState>,
    peer: IpAddr,
    info: ConnectionInfo,
}

impl HttpConnection {
    /// Handles one request.
    async fn respond(self, mut request: Request<Incoming>) -> Result<Response, Infallible> {
        let Self { shared, peer, info } = self;
        let client = shared.trusted_proxies.client(peer, request.headers());
        let is_https = IsHttps::of(info.tls, shared.trusted_proxies.contains(peer), request.headers());
        request.extensions_mut().insert(client);
        request.extensions_mut().insert(is_https);
        normalize_dialect_path(&mut request);
        let checked = shared.hosts.check(request.method(), request.uri(), request.headers(), info);
        let cors_origin = checked.is_ok().then(|| shared.hosts.cors_origin(request.uri(), request.headers())).flatten();
        let preflight = cors_origin.as_ref().and_then(|_| cross_origin::preflight_response(&request));
        let (head, body) = request.into_parts();
        let (body, lease) = shared.body_memory.meter(client.0, body);
        let request = Request::from_parts(head, body);
        let mut response = match (checked, preflight) {
            (Ok(()), Some(preflight)) => preflight,
            (Ok(()), None) => shared.large_bodies.answer(shared.router.clone(), request).await?,
            (Err(problem), _) if is_mcp_path(request.uri().path()) => mcp::http::rejection_response(problem),
            (Err(problem), _) => ApiError(problem).into_response(),
        };
        if let Some(origin) = cors_origin {
            cross_origin::add_cors_headers(response.headers_mut(), origin);
        }
        secure_headers::add_secure_headers(response.headers_mut(), info.tls);
        drop(lease);
        Ok(response)
    }
}
/// Removes empty segments from the path of a dialect: official SDKs append `/emails` to a base URL that may end with a
/// slash.
fn normalize_dialect_path(request: &mut Request<Incoming>) {
    let path = request.uri().path();
    if !path.starts_with(DIALECT_PREFIX) || !(path.contains("//") || path.ends_with('/')) {
        return;
    }
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = request.uri().clone().into_parts();
    // What remains of a valid path is valid; otherwise the router answers for the path as it is.
    parts.path_and_query = format!("/{}{query}", segments.join("/")).parse().ok();
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
}
