//! Providers that accept mail by HTTP, all behind one address, each in its own wire format.
//!
//! A sink validates requests as strictly as the vendor documents, replies in the vendor's format, keeps keys by the
//! vendor's rules, and logs what it accepted. Each [`ScriptedResponse`] injects a fault into one coming request.

mod keyed_vendors;
mod lookup_vendors;
mod oracle_requests;
mod ses;
mod vendor;
#[cfg(feature = "fuzz")]
pub mod vendor_clients;
mod vendor_ledger;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{HeaderMap, Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Notify, watch},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use super::oracle::SinkOracle;
pub use vendor::{Vendor, VendorError};
pub use vendor_ledger::AcceptedMail;
use vendor_ledger::VendorLedger;
pub(super) use vendor_ledger::sha256_hex;

/// The API key of every vendor but SES.
pub const API_KEY: &str = "sink-key-0123456789abcdef";
/// The access key id of SES.
pub const ACCESS_KEY_ID: &str = "AKIDSINK";
/// The secret access key of SES.
pub const SECRET_ACCESS_KEY: &str = "wJalrXUtnFEMI/K7MDENG+sink";
/// The sender domain that is accepted.
pub const DOMAIN: &str = "example.com";

/// Maximum size of a request.
const REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// What happens to one send request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptedResponse {
    /// It is accepted or refused as the vendor would.
    Normal,
    /// It is accepted, and the connection closes without a reply.
    AcceptThenDrop,
    /// It is accepted, and the reply is a 500.
    AcceptThenServerError,
    /// It is accepted, and there is no reply.
    AcceptThenStall,
    /// It is accepted, and the reply is an empty 200.
    AcceptThenEmpty,
    /// It is accepted, and the reply is larger than any client reads.
    AcceptThenHuge,
    /// It is accepted only after a release, and there is no reply.
    AcceptOnRelease,
    /// It is accepted after this time, and there is no reply.
    AcceptAfter(Duration),
    /// It is not accepted, and the connection closes without a reply.
    Drop,
    /// It is not accepted: an unrelated page with status 200.
    CaptivePortal,
    /// It is not accepted: a redirect.
    Redirect,
    /// It is not accepted, with an error in the vendor's format.
    Error(VendorError),
}

impl ScriptedResponse {
    /// Whether the mail is accepted, or may be.
    fn may_accept(self) -> bool {
        !matches!(self, Self::Drop | Self::CaptivePortal | Self::Redirect | Self::Error(_))
    }
}

/// A running sink. It stops when dropped.
pub struct HttpSink {
    shared: Arc<HttpSinkState>,
    url: String,
    _end: watch::Sender<()>,
}

struct HttpSinkState {
    ledger: Mutex<VendorLedger>,
    script: Mutex<VecDeque<ScriptedResponse>>,
    released: Notify,
    late_accepted: Notify,
    /// The oracle that acts when the script is over, and logs requests.
    oracle: Option<Arc<SinkOracle>>,
    connections: AtomicU64,
}

impl HttpSinkState {
    fn ledger(&self) -> MutexGuard<'_, VendorLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_scripted(&self) -> Option<ScriptedResponse> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// A complete request.
struct VendorRequest {
    method: String,
    path: String,
    query: String,
    headers: HeaderMap,
    body: Bytes,
    /// The number of its connection, from 1.
    connection: u64,
}

impl VendorRequest {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A response.
struct VendorResponse {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl VendorResponse {
    fn json(status: u16, body: &serde_json::Value) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status, headers, body: body.to_string().into_bytes() }
    }

    fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl HttpSink {
    /// Starts a sink on a free loopback port.
    pub async fn start() -> io::Result<Self> {
        Self::start_at(None, "http://127.0.0.1", None).await
    }

    /// Starts a sink with an oracle.
    pub async fn start_with_oracle(oracle: Arc<SinkOracle>) -> io::Result<Self> {
        Self::start_at(None, "http://127.0.0.1", Some(oracle)).await
    }

    /// Starts a sink with TLS, named `localhost`.
    pub async fn start_tls(config: Arc<rustls::ServerConfig>) -> io::Result<Self> {
        Self::start_at(Some(config.into()), "https://localhost", None).await
    }

    async fn start_at(tls: Option<TlsAcceptor>, at: &str, oracle: Option<Arc<SinkOracle>>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("{at}:{}", listener.local_addr()?.port());
        let lag = oracle.as_ref().map_or(0, |oracle| oracle.behavior.rates().lag_ms);
        let lag = Duration::from_millis(u64::from(lag));
        let shared = Arc::new(HttpSinkState {
            ledger: Mutex::new(VendorLedger::with_lag(lag)),
            script: Mutex::default(),
            released: Notify::new(),
            late_accepted: Notify::new(),
            oracle,
            connections: AtomicU64::new(0),
        });
        let (end, ended) = watch::channel(());
        tokio::spawn(accept_connections(listener, tls, Arc::clone(&shared), ended));
        Ok(Self { shared, url, _end: end })
    }

    /// The base URL of its API.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Scripts the coming requests, one each. Later requests have no faults.
    pub fn queue_responses(&self, acts: &[ScriptedResponse]) {
        self.shared.script.lock().unwrap_or_else(PoisonError::into_inner).extend(acts);
    }

    /// Removes the remaining script.
    pub fn clear_script(&self) {
        self.shared.script.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Every accepted mail.
    pub fn accepted_mail(&self) -> Vec<AcceptedMail> {
        self.shared.ledger().accepted.clone()
    }

    /// Forgets every key, as if all windows had ended.
    pub fn forget_keys(&self) {
        self.shared.ledger().forget_keys();
    }

    /// Lets a delayed mail be accepted, and waits for it.
    pub async fn release_late_mail(&self) {
        let settled = self.shared.late_accepted.notified();
        self.shared.released.notify_one();
        settled.await;
    }
}

async fn accept_connections(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<HttpSinkState>,
    mut ended: watch::Receiver<()>,
) {
    // The set closes all connections when the sink is dropped.
    let mut open = JoinSet::new();
    loop {
        let socket = tokio::select! {
            _gone = ended.changed() => return,
            Some(_done) = open.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => socket,
                Err(_) => return,
            },
        };
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        open.spawn(async move {
            match tls {
                None => serve_connection(socket, shared).await,
                // A client that does not trust us disconnects, as it should.
                Some(tls) => {
                    if let Ok(secured) = tls.accept(socket).await {
                        serve_connection(secured, shared).await;
                    }
                }
            }
        });
    }
}

async fn serve_connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, shared: Arc<HttpSinkState>) {
    let connection = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { handle_request(shared, connection, request).await }
    });
    // An error is an intended disconnect, or a client that disconnected.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

async fn handle_request(
    shared: Arc<HttpSinkState>,
    connection: u64,
    request: Request<Incoming>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, REQUEST_BYTES).collect().await.map_err(io::Error::other)?.to_bytes();
    let path = head.uri.path().to_owned();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let request =
        VendorRequest { method: head.method.to_string(), path, query, headers: head.headers, body, connection };
    let reply = build_response(&shared, request).await?;
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(reply.body.into())).map_err(io::Error::other)
}

async fn build_response(shared: &Arc<HttpSinkState>, request: VendorRequest) -> io::Result<VendorResponse> {
    let answered = oracle_requests::handle_control(shared, &request);
    if let Some(reply) = answered.or_else(|| oracle_requests::receive_webhook(shared, &request)) {
        return Ok(reply);
    }
    let Some(vendor) = Vendor::from_path(&request) else {
        return Ok(VendorResponse { status: 404, headers: Vec::new(), body: b"404 Not Found".to_vec() });
    };
    if request.method == "GET" {
        return Ok(vendor.respond(&mut shared.ledger(), &request));
    }
    let action = oracle_requests::draw_behavior(shared, vendor, &request);
    let act = shared.next_scripted().unwrap_or_else(|| oracle_requests::to_scripted_response(action));
    let take = |request: &VendorRequest| oracle_requests::accept_and_log(shared, vendor, request, action);
    if !act.may_accept() {
        oracle_requests::log_request(shared, vendor, &request, action, false);
    }
    let dropped = || Err(io::Error::other("the sink ends the connection"));
    match act {
        ScriptedResponse::Normal => Ok(take(&request)),
        ScriptedResponse::AcceptThenDrop => {
            take(&request);
            dropped()
        }
        ScriptedResponse::AcceptThenServerError => {
            take(&request);
            Ok(vendor.error_reply(VendorError::ServerError))
        }
        ScriptedResponse::AcceptThenStall => {
            take(&request);
            std::future::pending().await
        }
        ScriptedResponse::AcceptThenEmpty => {
            take(&request);
            Ok(VendorResponse { status: 200, headers: Vec::new(), body: Vec::new() })
        }
        ScriptedResponse::AcceptThenHuge => {
            take(&request);
            let body = format!("{{\"id\":\"{}\"}}", "x".repeat(1024 * 1024)).into_bytes();
            Ok(VendorResponse { status: 200, headers: vec![("content-type", "application/json".into())], body })
        }
        ScriptedResponse::AcceptOnRelease => {
            // A separate task, since the client disconnects long before.
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                shared.released.notified().await;
                oracle_requests::accept_and_log(&shared, vendor, &request, action);
                shared.late_accepted.notify_one();
            });
            std::future::pending().await
        }
        ScriptedResponse::AcceptAfter(time) => {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                oracle_requests::accept_and_log(&shared, vendor, &request, action);
            });
            std::future::pending().await
        }
        ScriptedResponse::Drop => dropped(),
        ScriptedResponse::CaptivePortal => {
            let body = b"<html><body>Please log in to this network</body></html>".to_vec();
            Ok(VendorResponse { status: 200, headers: vec![("content-type", "text/html".into())], body })
        }
        ScriptedResponse::Redirect => {
            let reply = VendorResponse { status: 302, headers: Vec::new(), body: Vec::new() };
            Ok(reply.with_header("location", "https://elsewhere.test/emails"))
        }
        ScriptedResponse::Error(trouble) => Ok(vendor.error_reply(trouble)),
    }
}
