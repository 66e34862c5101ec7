//! The one place that opens connections: names, addresses, TCP, and TLS with rustls.
//!
//! A guard sees every address before it is dialled, and the address it saw is the address that is dialled, so that a
//! name cannot change its meaning in between.

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Addresses of one name that are tried at the most.
pub(crate) const MAX_ADDRESSES: usize = 8;

/// Says whether an address may be dialled.
#[derive(Clone)]
pub struct AddressFilter(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl AddressFilter {
    /// A guard that asks `allows`.
    pub fn new(allows: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(allows))
    }
}

impl fmt::Debug for AddressFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// Why there is no connection. Nothing was said to anybody yet.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error("{host} has no address: {why}")]
    Unresolved {
        /// What was looked up.
        host: String,
        /// What the resolver said.
        why: String,
    },
    /// The guard forbids every address of the name.
    #[error("{0} may not be dialled")]
    Forbidden(String),
    /// Nobody took the connection.
    #[error("{0}: {1}")]
    Refused(SocketAddr, io::Error),
    /// It took too long.
    #[error("{0} did not answer in time")]
    TimedOut(String),
    /// The name cannot be in a certificate.
    #[error("{0} is not a name that TLS can check")]
    ServerName(String),
    /// The TLS handshake failed.
    #[error("TLS with {0}: {1}")]
    Tls(String, io::Error),
}

/// Opens TCP to the first address that answers, without Nagle's delay. `patience` covers the look-up and all addresses.
pub async fn open_tcp(
    host: &str,
    port: u16,
    patience: Duration,
    guard: Option<&AddressFilter>,
) -> Result<TcpStream, DialError> {
    let end = Instant::now() + patience;
    let late = || DialError::TimedOut(format!("{host}:{port}"));
    let found = timeout_at(end, resolve(host, port)).await.map_err(|_elapsed| late())??;
    let allowed: Vec<_> = found.into_iter().filter(|at| guard.is_none_or(|guard| guard.0(at.ip()))).collect();
    if allowed.is_empty() {
        return Err(DialError::Forbidden(host.to_owned()));
    }
    connect_first(&allowed, host, end).await
}

/// Connects to the first of these addresses that answers. `host` is for the words of a failure.
pub(crate) async fn connect_first(found: &[SocketAddr], host: &str, end: Instant) -> Result<TcpStream, DialError> {
    let late = || DialError::TimedOut(host.to_owned());
    let mut failure = late();
    for (tried, at) in found.iter().enumerate() {
        // Each address gets a fair share of what is left, so that a silent one does not use it all up.
        let left = end.saturating_duration_since(Instant::now()) / (found.len() - tried) as u32;
        failure = match timeout_at(Instant::now() + left, connect_tcp(*at)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => DialError::Refused(*at, error),
            Err(_elapsed) => late(),
        };
    }
    Err(failure)
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    let nowhere = |why: String| DialError::Unresolved { host: host.to_owned(), why };
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| nowhere(error.to_string()))?;
    let found: Vec<_> = found.take(MAX_ADDRESSES).collect();
    if found.is_empty() { Err(nowhere("none was found".to_owned())) } else { Ok(found) }
}

async fn connect_tcp(at: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Trust in the usual authorities and in `extra` roots.
pub fn tls_client_config(extra: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, rustls::Error> {
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

/// TLS over an open connection, for the server that is called `host`.
pub async fn open_tls<S>(
    stream: S,
    host: &str,
    trust: &Arc<ClientConfig>,
    patience: Duration,
) -> Result<TlsStream<S>, DialError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(host.to_owned()).map_err(|_invalid| DialError::ServerName(host.to_owned()))?;
    let handshake = TlsConnector::from(trust.clone()).connect(name, stream);
    match timeout_at(Instant::now() + patience, handshake).await {
        Ok(secured) => secured.map_err(|error| DialError::Tls(host.to_owned(), error)),
        Err(_elapsed) => Err(DialError::TimedOut(format!("TLS with {host}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_connection_opens_without_delay() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let stream = open_tcp("127.0.0.1", listener.local_addr().unwrap().port(), PATIENCE, None).await.unwrap();
        assert!(stream.nodelay().unwrap());
    }

    #[tokio::test]
    async fn the_guard_decides_before_anything_is_dialled() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let guard = AddressFilter::new(|ip| !ip.is_loopback());
        let answer = open_tcp("127.0.0.1", port, PATIENCE, Some(&guard)).await;
        assert!(matches!(answer, Err(DialError::Forbidden(_))), "{answer:?}");
        let unheard = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(unheard.is_err(), "the listener was dialled");
        assert!(open_tcp("127.0.0.1", port, PATIENCE, Some(&AddressFilter::new(|_| true))).await.is_ok());
    }

    #[tokio::test]
    async fn nobody_there_is_told_with_the_address() {
        let port = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            listener.local_addr().unwrap().port()
        };
        let answer = open_tcp("127.0.0.1", port, PATIENCE, None).await;
        assert!(matches!(&answer, Err(DialError::Refused(at, _)) if at.port() == port), "{answer:?}");
    }

    #[tokio::test]
    async fn a_handshake_that_never_comes_ends_by_itself() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = open_tcp("127.0.0.1", port, PATIENCE, None).await.unwrap();
        let answer = open_tls(stream, "127.0.0.1", &tls_client_config(&[]).unwrap(), Duration::from_millis(50)).await;
        assert!(matches!(answer, Err(DialError::TimedOut(_))), "{answer:?}");
    }

    #[test]
    fn nobody_else_opens_connections() {
        // `names` asks the machine's own resolvers, which no guard applies to.
        let own = ["dial.rs", "names/mod.rs"];
        let mut found = Vec::new();
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !own.iter().any(|own| path.ends_with(own)) && !path.ends_with("egress/tests.rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    found.extend(text.contains("TcpStream::connect").then_some(path));
                }
            }
        }
        assert!(found.is_empty(), "{found:?}");
    }
}
