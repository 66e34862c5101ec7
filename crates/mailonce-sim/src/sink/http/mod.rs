//! Providers that take mail by HTTP, all of them behind one address, each in its own words.
//!
//! A [`Sink`] checks requests as strictly as the vendor documents, answers in the vendor's form, keeps keys by the
//! vendor's rules and remembers what it took. [`Act`]s, one for each coming request, make it misbehave.

mod asked;
#[cfg(feature = "fuzz")]
pub mod client;
mod keyed;
mod ledger;
mod seen;
mod signed;
mod vendor;

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

use super::oracle::Oracle;
use ledger::Ledger;
pub use ledger::Taken;
pub(super) use ledger::hash;
pub use vendor::{Trouble, Vendor};

/// The credential that every vendor but SES knows.
pub const API_KEY: &str = "sink-key-0123456789abcdef";
/// SES knows this pair.
pub const ACCESS_KEY_ID: &str = "AKIDSINK";
/// The secret half of it.
pub const SECRET_ACCESS_KEY: &str = "wJalrXUtnFEMI/K7MDENG+sink";
/// The domain whose mail is taken.
pub const DOMAIN: &str = "example.com";

/// Bytes of a request.
const REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// What happens to one request that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It is taken or refused as the vendor would.
    Honest,
    /// It is taken, and the connection ends without an answer.
    TakeThenDrop,
    /// It is taken, and the answer is a 500.
    TakeThenBreak,
    /// It is taken, and no answer ever comes.
    TakeThenStall,
    /// It is taken, and the answer is an empty 200.
    TakeThenEmpty,
    /// It is taken, and the answer is longer than anybody reads.
    TakeThenHuge,
    /// It is taken only after [`Sink::release`], and no answer ever comes.
    TakeLate,
    /// It is taken after this time, and no answer ever comes.
    TakeAfter(Duration),
    /// It is not taken, and the connection ends without an answer.
    Drop,
    /// It is not taken: somebody else's page, with status 200.
    Portal,
    /// It is not taken: another place is named.
    Redirect,
    /// It is not taken, in the vendor's words.
    Trouble(Trouble),
}

impl Act {
    /// Whether the mail is taken, or may be.
    fn takes(self) -> bool {
        !matches!(self, Self::Drop | Self::Portal | Self::Redirect | Self::Trouble(_))
    }
}

/// A running sink. It ends when it is dropped.
pub struct Sink {
    shared: Arc<Shared>,
    url: String,
    _end: watch::Sender<()>,
}

struct Shared {
    ledger: Mutex<Ledger>,
    script: Mutex<VecDeque<Act>>,
    late: Notify,
    settled: Notify,
    /// What it does by itself when the script is over, and where it writes down what it got.
    oracle: Option<Arc<Oracle>>,
    connections: AtomicU64,
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_act(&self) -> Option<Act> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// A request, read whole.
struct Got {
    method: String,
    path: String,
    query: String,
    headers: HeaderMap,
    body: Bytes,
    /// The connection it came by, from 1.
    connection: u64,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// An answer.
struct Said {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Said {
    fn json(status: u16, body: &serde_json::Value) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status, headers, body: body.to_string().into_bytes() }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Sink {
    /// Opens a sink on a free port of the loopback interface.
    pub async fn open() -> io::Result<Self> {
        Self::start(None, "http://127.0.0.1", None).await
    }

    /// The same with an oracle.
    pub async fn open_with(oracle: Arc<Oracle>) -> io::Result<Self> {
        Self::start(None, "http://127.0.0.1", Some(oracle)).await
    }

    /// The same behind TLS, named `localhost`.
    pub async fn open_tls(config: Arc<rustls::ServerConfig>) -> io::Result<Self> {
        Self::start(Some(config.into()), "https://localhost", None).await
    }

    async fn start(tls: Option<TlsAcceptor>, at: &str, oracle: Option<Arc<Oracle>>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("{at}:{}", listener.local_addr()?.port());
        let lag = oracle.as_ref().map_or(0, |oracle| oracle.mood.rates().lag_ms);
        let lag = Duration::from_millis(u64::from(lag));
        let shared = Arc::new(Shared {
            ledger: Mutex::new(Ledger::with_lag(lag)),
            script: Mutex::default(),
            late: Notify::new(),
            settled: Notify::new(),
            oracle,
            connections: AtomicU64::new(0),
        });
        let (end, ended) = watch::channel(());
        tokio::spawn(listen(listener, tls, Arc::clone(&shared), ended));
        Ok(Self { shared, url, _end: end })
    }

    /// Where its API begins.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What happens to the coming requests, one after the other. Afterwards it is honest again.
    pub fn script(&self, acts: &[Act]) {
        self.shared.script.lock().unwrap_or_else(PoisonError::into_inner).extend(acts);
    }

    /// Becomes honest at once.
    pub fn clear_script(&self) {
        self.shared.script.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Every mail it took.
    pub fn taken(&self) -> Vec<Taken> {
        self.shared.ledger().taken.clone()
    }

    /// Forgets every key, as if all windows had closed.
    pub fn forget_keys(&self) {
        self.shared.ledger().forget_keys();
    }

    /// Lets a late mail be taken, and waits until it is.
    pub async fn release(&self) {
        let settled = self.shared.settled.notified();
        self.shared.late.notify_one();
        settled.await;
    }
}

async fn listen(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>, mut ended: watch::Receiver<()>) {
    // The set ends all connections when the sink is dropped.
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
                None => serve(socket, shared).await,
                // A caller that does not trust us has gone, as it should.
                Some(tls) => {
                    if let Ok(secured) = tls.accept(socket).await {
                        serve(secured, shared).await;
                    }
                }
            }
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, shared: Arc<Shared>) {
    let connection = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { respond(shared, connection, request).await }
    });
    // An error here is a connection that was meant to end, or a caller that hung up.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

async fn respond(
    shared: Arc<Shared>,
    connection: u64,
    request: Request<Incoming>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, REQUEST_BYTES).collect().await.map_err(io::Error::other)?.to_bytes();
    let path = head.uri.path().to_owned();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let got = Got { method: head.method.to_string(), path, query, headers: head.headers, body, connection };
    let said = act(&shared, got).await?;
    let mut response = Response::builder().status(said.status);
    for (name, value) in said.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(said.body.into())).map_err(io::Error::other)
}

async fn act(shared: &Arc<Shared>, got: Got) -> io::Result<Said> {
    if let Some(said) = seen::control(shared, &got).or_else(|| seen::webhook(shared, &got)) {
        return Ok(said);
    }
    let Some(vendor) = Vendor::at(&got) else {
        return Ok(Said { status: 404, headers: Vec::new(), body: b"404 Not Found".to_vec() });
    };
    if got.method == "GET" {
        return Ok(vendor.answer(&mut shared.ledger(), &got));
    }
    let whim = seen::whim(shared, vendor, &got);
    let act = shared.next_act().unwrap_or_else(|| seen::act(whim));
    let take = |got: &Got| seen::take(shared, vendor, got, whim);
    if !act.takes() {
        seen::note(shared, vendor, &got, whim, false);
    }
    let dropped = || Err(io::Error::other("the sink ends the connection"));
    match act {
        Act::Honest => Ok(take(&got)),
        Act::TakeThenDrop => {
            take(&got);
            dropped()
        }
        Act::TakeThenBreak => {
            take(&got);
            Ok(vendor.trouble(Trouble::Broken))
        }
        Act::TakeThenStall => {
            take(&got);
            std::future::pending().await
        }
        Act::TakeThenEmpty => {
            take(&got);
            Ok(Said { status: 200, headers: Vec::new(), body: Vec::new() })
        }
        Act::TakeThenHuge => {
            take(&got);
            let body = format!("{{\"id\":\"{}\"}}", "x".repeat(1024 * 1024)).into_bytes();
            Ok(Said { status: 200, headers: vec![("content-type", "application/json".into())], body })
        }
        Act::TakeLate => {
            // A task of its own: the caller hangs up long before.
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                shared.late.notified().await;
                seen::take(&shared, vendor, &got, whim);
                shared.settled.notify_one();
            });
            std::future::pending().await
        }
        Act::TakeAfter(time) => {
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                seen::take(&shared, vendor, &got, whim);
            });
            std::future::pending().await
        }
        Act::Drop => dropped(),
        Act::Portal => {
            let body = b"<html><body>Please log in to this network</body></html>".to_vec();
            Ok(Said { status: 200, headers: vec![("content-type", "text/html".into())], body })
        }
        Act::Redirect => {
            let said = Said { status: 302, headers: Vec::new(), body: Vec::new() };
            Ok(said.with("location", "https://elsewhere.test/emails"))
        }
        Act::Trouble(trouble) => Ok(vendor.trouble(trouble)),
    }
}
