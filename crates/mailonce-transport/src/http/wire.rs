//! One request on one connection: connect, TLS, HTTP/1.1, one answer, and the end.
//!
//! There is no pool. A pooled connection may have died while it lay idle, and a request written to a dead connection
//! is an unknown outcome for nothing. There are no redirects and no second tries either: whoever calls decides.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::{Request, body::Incoming, client::conn::http1, header::HeaderMap};
use hyper_util::rt::TokioIo;
use mailonce_core::port::transport::{Meaning, Phase, Reply};
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

use super::{BadSetting, base::Base, fresh::Fresh};
use crate::{
    age::Since,
    dial::{self, Guard},
    exchange::reason,
};

/// Bytes of an answer's status line and headers.
const HEAD_BYTES: usize = 32 * 1024;
/// Headers of an answer.
const HEAD_LINES: usize = 100;
/// Bytes of an answer's body, unless a door is told otherwise.
const ANSWER_BYTES: usize = 256 * 1024;
type Body = Full<Bytes>;

/// Where a provider is reached, and how patiently.
pub(crate) struct Door {
    pub(crate) base: Base,
    pub(crate) guard: Option<Guard>,
    /// For connecting in all, and again for the answer.
    pub(crate) patience: Duration,
    /// How old a connection may be when the request is written.
    pub(crate) fresh: Duration,
    /// Bytes of an answer's body that are read.
    pub(crate) most: usize,
    tls: TlsConnector,
    server: ServerName<'static>,
}

/// A connection on which nothing was said yet.
pub(crate) struct Line {
    sender: http1::SendRequest<Body>,
    driver: JoinHandle<()>,
    made: Since,
    patience: Duration,
    fresh: Duration,
    most: usize,
    /// Whether nothing was written because the connection had grown too old meanwhile.
    too_old: Arc<AtomicBool>,
}

/// What a provider answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body, or why it could not be read whole.
    pub(crate) body: Result<Bytes, Cut>,
}

/// Why a body could not be read whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cut {
    /// It is longer than anybody reads.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// It broke off, or did not end in time.
    #[error("{0}")]
    Short(String),
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Lost {
    /// The connection had grown too old. Nothing was written.
    Stale(Duration),
    /// The connection ended before the request was given to it. Nothing was written.
    Unsent(String),
    /// Something may have been read over there.
    Silent(String),
}

impl Door {
    pub(crate) fn new(
        base: Base,
        guard: Option<Guard>,
        patience: Duration,
        fresh: Duration,
        extra_roots: &[CertificateDer<'static>],
    ) -> Result<Self, BadSetting> {
        let name = base.host.clone();
        let server =
            ServerName::try_from(name).map_err(|e| BadSetting(format!("{} is no host name: {e}", base.host)))?;
        Ok(Self { base, guard, patience, fresh, most: ANSWER_BYTES, tls: connector(extra_roots)?, server })
    }

    /// Connects. Whatever fails here can be taken back, so the transport is at fault and no mail in doubt.
    pub(crate) async fn knock(&self) -> Result<Line, Reply> {
        let late = Instant::now() + self.patience;
        let in_time = |phase: Phase| fault(phase, format!("{} did not answer in {:?}", self.base.host, self.patience));
        let socket = timeout_at(late, self.connect()).await.map_err(|_late| in_time(Phase::Connect))??;
        if !self.base.https {
            return timeout_at(late, self.greet(socket)).await.map_err(|_late| in_time(Phase::Greet))?;
        }
        let secured = timeout_at(late, self.tls.connect(self.server.clone(), socket));
        let secured = secured.await.map_err(|_late| in_time(Phase::Tls))?;
        let secured = secured.map_err(|e| fault(Phase::Tls, format!("TLS with {}: {e}", self.base.host)))?;
        timeout_at(late, self.greet(secured)).await.map_err(|_late| in_time(Phase::Greet))?
    }

    async fn connect(&self) -> Result<TcpStream, Reply> {
        let Base { host, port, .. } = &self.base;
        let opened = dial::open(host, *port, self.patience, self.guard.as_ref()).await;
        opened.map_err(|error| fault(Phase::Connect, error.to_string()))
    }

    async fn greet<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: S) -> Result<Line, Reply> {
        let mut http = http1::Builder::new();
        http.max_buf_size(HEAD_BYTES).max_headers(HEAD_LINES);
        let (fresh, too_old) = Fresh::new(stream, self.fresh);
        let made = http.handshake::<_, Body>(TokioIo::new(fresh)).await;
        let (sender, connection) =
            made.map_err(|e| fault(Phase::Greet, format!("HTTP with {}: {e}", self.base.host)))?;
        // How the connection ends is told to the request that waits on it; without one it concerns nobody.
        let driver = tokio::spawn(async move { drop(connection.await) });
        let Self { patience, fresh, most, .. } = *self;
        Ok(Line { sender, driver, made: Since::now(), patience, fresh, most, too_old })
    }
}

impl Line {
    /// Writes the request, once, and reads the answer.
    pub(crate) async fn ask(mut self, request: Request<Body>) -> Result<Answer, Lost> {
        let age = self.made.elapsed();
        if age > self.fresh {
            return Err(Lost::Stale(age));
        }
        let late = Instant::now() + self.patience;
        let answer = match timeout_at(late, self.sender.try_send_request(request)).await {
            Err(_late) => return Err(Lost::Silent(format!("no answer within {:?}", self.patience))),
            Ok(Ok(answer)) => answer,
            // hyper gives the request back only when it did not begin to write it.
            Ok(Err(mut lost)) => {
                if self.too_old.load(Ordering::Acquire) {
                    return Err(Lost::Stale(self.made.elapsed()));
                }
                let unsent = lost.take_message().is_some();
                let why = reason(lost.error());
                return Err(if unsent { Lost::Unsent(why) } else { Lost::Silent(format!("no answer: {why}")) });
            }
        };
        let (head, body) = answer.into_parts();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: read(body, late, self.most).await })
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn read(body: Incoming, late: Instant, most: usize) -> Result<Bytes, Cut> {
    match timeout_at(late, Limited::new(body, most).collect()).await {
        Err(_late) => Err(Cut::Short("the answer's body did not end in time".into())),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(e)) if e.is::<LengthLimitError>() => Err(Cut::TooLong(most)),
        Ok(Err(e)) => Err(Cut::Short(format!("the answer broke off: {e}"))),
    }
}

fn fault(phase: Phase, text: String) -> Reply {
    Reply::new(Meaning::Fault, phase, None, &text)
}

fn connector(extra_roots: &[CertificateDer<'static>]) -> Result<TlsConnector, BadSetting> {
    let trust = dial::trust(extra_roots).map_err(|e| BadSetting(format!("an extra root is no certificate: {e}")))?;
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
        let base = Base::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let (second, minute) = (Duration::from_secs(5), Duration::from_mins(1));
        let door = Door::new(base, None, second, minute, &[]).unwrap();
        let mut line = door.knock().await.unwrap();
        drop(listener.accept().await.unwrap());
        (&mut line.driver).await.unwrap();
        let lost = line.ask(Request::new(Body::default())).await.err();
        assert!(matches!(lost, Some(Lost::Unsent(_))), "{lost:?}");
    }
}
