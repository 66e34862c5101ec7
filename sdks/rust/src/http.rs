//! The HTTP client: plain or over TLS, bounded in size. It follows no redirects, because one could change a POST or send the
//! API key to another host. Callers set the timeouts.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    HeaderMap, Method, Uri,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use std::{fmt::Write as _, io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// Most bytes of a response body.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// Timeout for DNS and TCP, and again for the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a request got no response.
#[derive(Debug)]
pub enum RequestError {
    /// There is no connection; nothing was sent.
    Connect(String),
    /// The request was sent, and whether the server received it is unknown.
    Lost(String),
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(why) | Self::Lost(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RequestError {}

/// A parsed base URL, with the TLS roots to tls.
#[derive(Clone, Debug)]
pub struct ServerUrl {
    https: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// The Host header; it has a port only if that is not the scheme's default.
    authority: String,
    /// The base path, without a trailing slash.
    prefix: String,
    url: String,
    agent: String,
    tls: Arc<ClientConfig>,
}

/// An open connection, plain or TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, relative to the base URL.
    pub path: String,
    /// Headers besides `Host`, `User-Agent` and those of the body.
    pub headers: Vec<(&'static str, String)>,
    /// JSON, or empty.
    pub body: Bytes,
}

/// A response, whatever its status.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// An idle HTTP/1.1 connection.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

/// A response whose body is read in pieces as they arrive.
#[derive(Debug)]
pub struct StreamingResponse {
    /// The HTTP status.
    pub status: u16,
    headers: HeaderMap,
    body: Incoming,
    _connection: Connection,
}

/// What to do with the connection after a request.
#[derive(Clone, Copy, PartialEq)]
enum After {
    Keep,
    Close,
}

impl ServerUrl {
    /// Parses a base URL; credentials and queries are refused. Trusts the public authorities and `roots`.
    pub fn new(url: &str, roots: &[CertificateDer<'static>], agent: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("`{url}` cannot be read: {error}"))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(format!("`{url}` does not begin with http:// or https://")),
        };
        let host_and_port = uri.authority().ok_or_else(|| format!("`{url}` names no host"))?;
        if host_and_port.as_str().contains('@') {
            return Err("it holds a user name: credentials have fields of their own".to_owned());
        }
        if uri.query().is_some() {
            return Err(format!("`{url}` has a query"));
        }
        let default_port = if https { 443 } else { 80 };
        let port = host_and_port.port_u16().unwrap_or(default_port);
        let shown = host_and_port.host().to_ascii_lowercase();
        let authority = if port == default_port { shown.clone() } else { format!("{shown}:{port}") };
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let url = format!("{}://{authority}{prefix}", if https { "https" } else { "http" });
        let host = shown.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = tls_config(roots).map_err(|error| format!("TLS cannot be set up: {error}"))?;
        Ok(Self { https, host, port, authority, prefix, url, agent: agent.to_owned(), tls })
    }

    /// The normalized URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Opens a connection without sending anything.
    pub async fn open(&self) -> Result<Box<dyn Stream>, RequestError> {
        let at = &self.authority;
        let late = |_elapsed| RequestError::Connect(format!("{at} did not answer in time"));
        let stream = timeout(CONNECT_TIMEOUT, connect_tcp(&self.host, self.port)).await.map_err(late)?;
        let stream = stream.map_err(|error| RequestError::Connect(format!("{at}: {error}")))?;
        if !self.https {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(self.host.clone())
            .map_err(|error| RequestError::Connect(format!("{at} is not a name that TLS can check: {error}")))?;
        let handshake = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream);
        let secured = timeout(CONNECT_TIMEOUT, handshake).await.map_err(late)?;
        Ok(Box::new(secured.map_err(|error| RequestError::Connect(format!("TLS with {at}: {error}")))?))
    }

    /// Opens a connection for requests.
    pub async fn connect(&self) -> Result<Connection, RequestError> {
        let stream = self.open().await?;
        let begun = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) =
            begun.map_err(|error| RequestError::Connect(format!("HTTP does not begin: {error}")))?;
        // The request that uses the connection gets its error.
        Ok(Connection { sender, driver: tokio::spawn(async move { drop(connection.await) }) })
    }

    /// Sends one request on a new connection.
    pub async fn call(&self, request: &Request) -> Result<Answer, RequestError> {
        self.call_on(self.connect().await?, request).await
    }

    /// Sends one request on an open connection and closes it.
    pub async fn call_on(&self, mut connection: Connection, request: &Request) -> Result<Answer, RequestError> {
        let request = self.build(request, After::Close)?;
        let answer = connection.sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        read(answer).await
    }

    /// Sends a request on a pooled connection. `None` if the connection was closed and nothing was sent.
    pub(crate) async fn try_call_on(
        &self,
        connection: &mut Connection,
        request: &Request,
    ) -> Result<Option<Answer>, RequestError> {
        let request = self.build(request, After::Keep)?;
        if connection.sender.ready().await.is_err() {
            return Ok(None);
        }
        match connection.sender.try_send_request(request).await {
            Ok(answer) => read(answer).await.map(Some),
            // hyper returns the request only if no byte of it was written.
            Err(mut failed) => match failed.take_message() {
                Some(_unsent) => Ok(None),
                None => Err(self.lost(failed.error())),
            },
        }
    }

    /// Sends a request whose response is a stream.
    pub async fn open_stream(&self, request: &Request) -> Result<StreamingResponse, RequestError> {
        let mut connection = self.connect().await?;
        let request = self.build(request, After::Close)?;
        let answer = connection.sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        let (head, body) = answer.into_parts();
        Ok(StreamingResponse { status: head.status.as_u16(), headers: head.headers, body, _connection: connection })
    }

    /// The request head as sent, for tests that disconnect halfway.
    pub fn head(&self, request: &Request) -> String {
        let mut head = format!("{} {}{} HTTP/1.1\r\n", request.method, self.prefix, request.path);
        for (name, value) in self.headers(request, After::Close) {
            write!(head, "{name}: {value}\r\n").ok(); // writing to a String cannot fail
        }
        write!(head, "content-length: {}\r\n\r\n", request.body.len()).ok();
        head
    }

    fn lost(&self, error: &hyper::Error) -> RequestError {
        RequestError::Lost(format!("no answer from {}: {error}", self.url))
    }

    fn build(&self, request: &Request, after: After) -> Result<hyper::Request<Full<Bytes>>, RequestError> {
        let uri = format!("{}{}", self.prefix, request.path);
        let mut made = hyper::Request::builder().method(&request.method).uri(uri);
        for (name, value) in self.headers(request, after) {
            made = made.header(name, value);
        }
        let made = made.body(Full::new(request.body.clone()));
        made.map_err(|error| RequestError::Connect(format!("this call cannot be written: {error}")))
    }

    fn headers(&self, request: &Request, after: After) -> Vec<(&'static str, String)> {
        let mut headers =
            vec![(header::HOST.as_str(), self.authority.clone()), (header::USER_AGENT.as_str(), self.agent.clone())];
        if after == After::Close {
            headers.push((header::CONNECTION.as_str(), "close".to_owned()));
        }
        if !request.body.is_empty() {
            headers.push((header::CONTENT_TYPE.as_str(), "application/json".to_owned()));
        }
        headers.extend(request.headers.iter().cloned());
        headers
    }
}

async fn read(answer: hyper::Response<Incoming>) -> Result<Answer, RequestError> {
    let (head, body) = answer.into_parts();
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: read_body(body).await? })
}

async fn read_body(body: Incoming) -> Result<Bytes, RequestError> {
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await;
    Ok(body.map_err(|error| RequestError::Lost(format!("the answer broke off: {error}")))?.to_bytes())
}

async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// TLS that trusts the public authorities and the `extra` roots.
fn tls_config(extra: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for root in extra {
        roots.add(root.clone())?;
    }
    // Name the provider, so that it does not depend on the features of other crates.
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

impl StreamingResponse {
    /// Reads the read_to_end body, for a response that is not a stream.
    pub async fn read_to_end(self) -> Result<Answer, RequestError> {
        Ok(Answer { status: self.status, headers: self.headers, body: read_body(self.body).await? })
    }

    /// The next piece of the body. `None` at the end, or if nothing arrives within `idle_timeout`.
    pub async fn next(&mut self, idle_timeout: Duration) -> Option<Bytes> {
        loop {
            let frame = timeout(idle_timeout, self.body.frame()).await.ok()??.ok()?;
            if let Ok(data) = frame.into_data() {
                return Some(data);
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
