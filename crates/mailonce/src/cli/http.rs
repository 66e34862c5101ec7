//! One HTTP client for every verb: plain or over TLS, one request on one connection, no redirects, bounded in size and
//! time.

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header::{self, HeaderMap},
};
use hyper_util::rt::TokioIo;
use mailonce_transport::{
    dial::{self, DialError},
    http::base::Base,
};
use rustls::ClientConfig;
use std::{fmt::Write as _, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinHandle,
    time::timeout,
};

use super::Usage;
use crate::outside::authorities;

/// Bytes of an answer's body that are read.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// From the request's first byte to the answer's last.
const ANSWER_TIME: Duration = Duration::from_secs(90);
/// For the look-up and the connection, and again for TLS.
const CONNECT_TIME: Duration = Duration::from_secs(15);
const USER_AGENT: &str = concat!("mailonce-cli/", env!("CARGO_PKG_VERSION"));

/// A server that can be called.
#[derive(Clone)]
pub(crate) struct Place {
    base: Base,
    trust: Arc<ClientConfig>,
}

/// An open connection, plain or secured.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Behind the base URL.
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// JSON, or nothing.
    pub(crate) body: Bytes,
}

/// What came back, whatever the status.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A connection on which nothing was asked yet.
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

/// An answer that is read while it comes.
pub(crate) struct Following {
    pub(crate) status: u16,
    body: Incoming,
    _line: Line,
}

impl Place {
    /// Takes a base URL, and trusts the public authorities and those of a PEM file.
    pub(crate) fn new(url: &str, ca_file: Option<&Path>) -> anyhow::Result<Self> {
        let base = Base::parse(url).map_err(|bad| Usage(format!("the URL {bad}")))?;
        let roots = authorities(ca_file).map_err(|error| Usage(format!("{error:#}")))?;
        Ok(Self { base, trust: dial::trust(&roots).context("setting up TLS")? })
    }

    /// The URL in one spelling.
    pub(crate) fn url(&self) -> &str {
        &self.base.url
    }

    /// Opens a connection and says nothing.
    pub(crate) async fn open(&self) -> Result<Box<dyn Stream>, DialError> {
        let stream = dial::open(&self.base.host, self.base.port, CONNECT_TIME, None).await?;
        if !self.base.https {
            return Ok(Box::new(stream));
        }
        Ok(Box::new(dial::secure(stream, &self.base.host, &self.trust, CONNECT_TIME).await?))
    }

    /// Opens a connection for one request.
    pub(crate) async fn line(&self) -> anyhow::Result<Line> {
        let stream = self.open().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("HTTP does not begin")?;
        // How the connection ends is told to the request that waits on it.
        Ok(Line { sender, driver: tokio::spawn(async move { drop(connection.await) }) })
    }

    /// Asks on a connection of its own.
    pub(crate) async fn ask(&self, call: &Call) -> anyhow::Result<Answer> {
        let line = self.line().await.with_context(|| format!("no answer from {}", self.base.url))?;
        self.ask_on(line, call).await
    }

    /// Asks on a connection that is already open.
    pub(crate) async fn ask_on(&self, mut line: Line, call: &Call) -> anyhow::Result<Answer> {
        let request = self.request(call)?;
        let asking = async {
            let sent = line.sender.send_request(request).await;
            let answer = sent.with_context(|| format!("no answer from {}", self.base.url))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?.to_bytes();
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
        };
        timeout(ANSWER_TIME, asking).await.context("no answer in time")?
    }

    fn request(&self, call: &Call) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(&call.method).uri(format!("{}{}", self.base.prefix, call.path));
        for (name, value) in self.headers(call) {
            request = request.header(name, value);
        }
        request.body(Full::new(call.body.clone())).context("this call cannot be written")
    }

    /// Asks for an answer that has no end.
    pub(crate) async fn follow(&self, call: &Call) -> anyhow::Result<Following> {
        let mut line = self.line().await.with_context(|| format!("no answer from {}", self.base.url))?;
        let asking = line.sender.send_request(self.request(call)?);
        let answer = timeout(ANSWER_TIME, asking).await.context("no answer in time")?;
        let answer = answer.with_context(|| format!("no answer from {}", self.base.url))?;
        let (head, body) = answer.into_parts();
        Ok(Following { status: head.status.as_u16(), body, _line: line })
    }

    /// The head of a call as it stands on the wire, for those who mean to break off.
    pub(crate) fn head(&self, call: &Call) -> String {
        let mut head = format!("{} {}{} HTTP/1.1\r\n", call.method, self.base.prefix, call.path);
        for (name, value) in self.headers(call) {
            write!(head, "{name}: {value}\r\n").ok();
        }
        write!(head, "content-length: {}\r\n\r\n", call.body.len()).ok();
        head
    }

    fn headers(&self, call: &Call) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            (header::HOST.as_str(), self.base.authority.clone()),
            (header::USER_AGENT.as_str(), USER_AGENT.to_owned()),
            (header::CONNECTION.as_str(), "close".to_owned()),
        ];
        if !call.body.is_empty() {
            headers.push((header::CONTENT_TYPE.as_str(), "application/json".to_owned()));
        }
        headers.extend(call.headers.iter().cloned());
        headers
    }
}

impl Following {
    /// The next piece. `None` at the end, or when nothing came for so long that nobody is there any more.
    pub(crate) async fn next(&mut self, patience: Duration) -> Option<Bytes> {
        loop {
            let frame = timeout(patience, self.body.frame()).await.ok()??.ok()?;
            if let Ok(data) = frame.into_data() {
                return Some(data);
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
