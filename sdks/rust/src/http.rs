//! HTTP under the client: plain or over TLS, no redirects (one would turn a POST into something else, or show the API key to
//! a stranger), bounded in size. Time is up to whoever asks.

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

/// Bytes of an answer's body that are read.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// For the look-up and the connection, and again for TLS.
const CONNECT_TIME: Duration = Duration::from_secs(15);

/// Why there is no answer.
#[derive(Debug)]
pub enum Trouble {
    /// Nothing was said to anybody: there is no connection.
    Connect(String),
    /// Something was said, and what became of it is not known.
    Lost(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(why) | Self::Lost(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Trouble {}

/// A server that can be called.
#[derive(Clone, Debug)]
pub struct Place {
    https: bool,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// For the Host header: with the port only when it is not the scheme's own.
    authority: String,
    /// Without a slash at its end.
    prefix: String,
    url: String,
    agent: String,
    trust: Arc<ClientConfig>,
}

/// An open connection, plain or secured.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, behind the base URL.
    pub path: String,
    /// What is not the same for every request of a place.
    pub headers: Vec<(&'static str, String)>,
    /// JSON, or nothing.
    pub body: Bytes,
}

/// What came back, whatever the status.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A connection on which nothing is being asked.
#[derive(Debug)]
pub struct Line {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

/// An answer that is read while it comes.
#[derive(Debug)]
pub struct Following {
    /// The HTTP status.
    pub status: u16,
    headers: HeaderMap,
    body: Incoming,
    _line: Line,
}

/// Whether a connection is to be used again.
#[derive(Clone, Copy, PartialEq)]
enum After {
    Keep,
    Close,
}

impl Place {
    /// Takes a base URL apart. Credentials and queries are refused. Trusts the public authorities and `roots`.
    pub fn new(url: &str, roots: &[CertificateDer<'static>], agent: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("`{url}` cannot be read: {error}"))?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(format!("`{url}` does not begin with http:// or https://")),
        };
        let named = uri.authority().ok_or_else(|| format!("`{url}` names no host"))?;
        if named.as_str().contains('@') {
            return Err("it holds a user name: credentials have fields of their own".to_owned());
        }
        if uri.query().is_some() {
            return Err(format!("`{url}` has a query"));
        }
        let usual = if https { 443 } else { 80 };
        let port = named.port_u16().unwrap_or(usual);
        let shown = named.host().to_ascii_lowercase();
        let authority = if port == usual { shown.clone() } else { format!("{shown}:{port}") };
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let url = format!("{}://{authority}{prefix}", if https { "https" } else { "http" });
        let host = shown.trim_start_matches('[').trim_end_matches(']').to_owned();
        let trust = trust(roots).map_err(|error| format!("TLS cannot be set up: {error}"))?;
        Ok(Self { https, host, port, authority, prefix, url, agent: agent.to_owned(), trust })
    }

    /// The URL in one spelling.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Opens a connection and says nothing.
    pub async fn open(&self) -> Result<Box<dyn Stream>, Trouble> {
        let at = &self.authority;
        let late = |_elapsed| Trouble::Connect(format!("{at} did not answer in time"));
        let stream = timeout(CONNECT_TIME, connect(&self.host, self.port)).await.map_err(late)?;
        let stream = stream.map_err(|error| Trouble::Connect(format!("{at}: {error}")))?;
        if !self.https {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(self.host.clone())
            .map_err(|error| Trouble::Connect(format!("{at} is not a name that TLS can check: {error}")))?;
        let handshake = TlsConnector::from(Arc::clone(&self.trust)).connect(name, stream);
        let secured = timeout(CONNECT_TIME, handshake).await.map_err(late)?;
        Ok(Box::new(secured.map_err(|error| Trouble::Connect(format!("TLS with {at}: {error}")))?))
    }

    /// Opens a connection for requests.
    pub async fn line(&self) -> Result<Line, Trouble> {
        let stream = self.open().await?;
        let begun = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = begun.map_err(|error| Trouble::Connect(format!("HTTP does not begin: {error}")))?;
        // How the connection ends is told to the request that waits on it.
        Ok(Line { sender, driver: tokio::spawn(async move { drop(connection.await) }) })
    }

    /// Asks once, on a connection of its own.
    pub async fn ask(&self, request: &Request) -> Result<Answer, Trouble> {
        self.ask_on(self.line().await?, request).await
    }

    /// Asks on a connection that is already open, and closes it.
    pub async fn ask_on(&self, mut line: Line, request: &Request) -> Result<Answer, Trouble> {
        let request = self.written(request, After::Close)?;
        let answer = line.sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        read(answer).await
    }

    /// Asks on a connection that was used before. `None` when it was closed meanwhile and nothing was said on it.
    pub(crate) async fn ask_again_on(&self, line: &mut Line, request: &Request) -> Result<Option<Answer>, Trouble> {
        let request = self.written(request, After::Keep)?;
        if line.sender.ready().await.is_err() {
            return Ok(None);
        }
        match line.sender.try_send_request(request).await {
            Ok(answer) => read(answer).await.map(Some),
            // The request comes back only if not a byte of it was written.
            Err(mut failed) => match failed.take_message() {
                Some(_unsaid) => Ok(None),
                None => Err(self.lost(failed.error())),
            },
        }
    }

    /// Asks for an answer that has no end.
    pub async fn follow(&self, request: &Request) -> Result<Following, Trouble> {
        let mut line = self.line().await?;
        let request = self.written(request, After::Close)?;
        let answer = line.sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        let (head, body) = answer.into_parts();
        Ok(Following { status: head.status.as_u16(), headers: head.headers, body, _line: line })
    }

    /// The head of a request as it stands on the wire, for those who mean to break off.
    pub fn head(&self, request: &Request) -> String {
        let mut head = format!("{} {}{} HTTP/1.1\r\n", request.method, self.prefix, request.path);
        for (name, value) in self.headers(request, After::Close) {
            write!(head, "{name}: {value}\r\n").ok(); // writing to a String cannot fail
        }
        write!(head, "content-length: {}\r\n\r\n", request.body.len()).ok();
        head
    }

    fn lost(&self, error: &hyper::Error) -> Trouble {
        Trouble::Lost(format!("no answer from {}: {error}", self.url))
    }

    fn written(&self, request: &Request, after: After) -> Result<hyper::Request<Full<Bytes>>, Trouble> {
        let uri = format!("{}{}", self.prefix, request.path);
        let mut made = hyper::Request::builder().method(&request.method).uri(uri);
        for (name, value) in self.headers(request, after) {
            made = made.header(name, value);
        }
        let made = made.body(Full::new(request.body.clone()));
        made.map_err(|error| Trouble::Connect(format!("this call cannot be written: {error}")))
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

async fn read(answer: hyper::Response<Incoming>) -> Result<Answer, Trouble> {
    let (head, body) = answer.into_parts();
    Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: collected(body).await? })
}

async fn collected(body: Incoming) -> Result<Bytes, Trouble> {
    let body = Limited::new(body, ANSWER_BYTES).collect().await;
    Ok(body.map_err(|error| Trouble::Lost(format!("the answer broke off: {error}")))?.to_bytes())
}

async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Trust in the usual authorities and in `extra` roots.
fn trust(extra: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for root in extra {
        roots.add(root.clone())?;
    }
    // The provider is named here, so that it never depends on what else is linked.
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

impl Following {
    /// The whole of it, for an answer that turned out to be no stream.
    pub async fn whole(self) -> Result<Answer, Trouble> {
        Ok(Answer { status: self.status, headers: self.headers, body: collected(self.body).await? })
    }

    /// The next piece. `None` at the end, or when nothing came for so long that nobody is there any more.
    pub async fn next(&mut self, patience: Duration) -> Option<Bytes> {
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
