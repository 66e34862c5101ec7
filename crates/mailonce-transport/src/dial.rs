//! Opens every connection of this crate except DNS queries: name resolution, TCP, and TLS with rustls.
//!
//! Where a filter is given, it checks every resolved address, and only addresses that passed are dialled. This prevents
//! DNS rebinding: a name cannot resolve to something else between check and connect.

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

/// How many addresses of one name are tried at most.
pub(crate) const MAX_ADDRESSES: usize = 8;

/// Decides whether an address may be dialled.
#[derive(Clone)]
pub struct AddressFilter(Arc<dyn Fn(IpAddr) -> bool + Send + Sync>);

impl AddressFilter {
    /// A filter that permits the addresses for which `allows` returns true.
    pub fn new(allows: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(allows))
    }
}

impl fmt::Debug for AddressFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressFilter")
    }
}

/// Why no connection was opened. No request was sent.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error("{host} has no address: {why}")]
    Unresolved {
        /// The host name that was resolved.
        host: String,
        /// The resolver's error.
        why: String,
    },
    /// The filter rejects every address of the name.
    #[error("connections to {0} are not allowed")]
    Forbidden(String),
    /// The connection was refused, or the network reported another error.
    #[error("{0}: {1}")]
    Refused(SocketAddr, io::Error),
    /// It took too long.
    #[error("{0} did not answer in time")]
    TimedOut(String),
    /// The host is not valid as a TLS server name.
    #[error("{0} is not a valid TLS server name")]
    ServerName(String),
    /// The TLS handshake failed.
    #[error("TLS with {0}: {1}")]
    Tls(String, io::Error),
}

/// Opens TCP to the first address that answers, with `TCP_NODELAY`. `timeout` covers resolution and all addresses.
pub async fn open_tcp(
    host: &str,
    port: u16,
    timeout: Duration,
    filter: Option<&AddressFilter>,
) -> Result<TcpStream, DialError> {
    let deadline = Instant::now() + timeout;
    let timed_out = || DialError::TimedOut(format!("{host}:{port}"));
    let found = timeout_at(deadline, resolve(host, port)).await.map_err(|_elapsed| timed_out())??;
    let allowed: Vec<_> = found.into_iter().filter(|at| filter.is_none_or(|filter| filter.0(at.ip()))).collect();
    if allowed.is_empty() {
        return Err(DialError::Forbidden(host.to_owned()));
    }
    connect_first(&allowed, host, deadline).await
}

/// Connects to the first of these addresses that answers. `host` is used in the error text only.
pub(crate) async fn connect_first(
    addresses: &[SocketAddr],
    host: &str,
    deadline: Instant,
) -> Result<TcpStream, DialError> {
    let timed_out = || DialError::TimedOut(host.to_owned());
    let mut last_error = timed_out();
    for (tried, address) in addresses.iter().enumerate() {
        // Each address gets an equal share of the remaining time, so that one silent address cannot use it up.
        let share = deadline.saturating_duration_since(Instant::now()) / (addresses.len() - tried) as u32;
        last_error = match timeout_at(Instant::now() + share, connect_tcp(*address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => DialError::Refused(*address, error),
            Err(_elapsed) => timed_out(),
        };
    }
    Err(last_error)
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    let unresolved = |why: String| DialError::Unresolved { host: host.to_owned(), why };
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| unresolved(error.to_string()))?;
    let found: Vec<_> = found.take(MAX_ADDRESSES).collect();
    if found.is_empty() { Err(unresolved("the lookup returned none".to_owned())) } else { Ok(found) }
}

async fn connect_tcp(at: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A TLS configuration that trusts the public certificate authorities and the `extra` roots.
pub fn tls_client_config(extra_roots: &[CertificateDer<'static>]) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for root in extra_roots {
        roots.add(root.clone())?;
    }
    // The crypto provider is chosen explicitly, so that it does not depend on which other crates are linked.
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Performs the TLS handshake over an open connection, with `host` as the server name.
pub async fn open_tls<S>(
    stream: S,
    host: &str,
    trust: &Arc<ClientConfig>,
    timeout: Duration,
) -> Result<TlsStream<S>, DialError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(host.to_owned()).map_err(|_invalid| DialError::ServerName(host.to_owned()))?;
    let handshake = TlsConnector::from(trust.clone()).connect(name, stream);
    match timeout_at(Instant::now() + timeout, handshake).await {
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
    async fn the_filter_decides_before_anything_is_dialled() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let filter = AddressFilter::new(|ip| !ip.is_loopback());
        let result = open_tcp("127.0.0.1", port, PATIENCE, Some(&filter)).await;
        assert!(matches!(result, Err(DialError::Forbidden(_))), "{result:?}");
        let accepted = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(accepted.is_err(), "the listener was dialled");
        assert!(open_tcp("127.0.0.1", port, PATIENCE, Some(&AddressFilter::new(|_| true))).await.is_ok());
    }

    #[tokio::test]
    async fn a_refused_connection_is_reported_with_the_address() {
        let port = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            listener.local_addr().unwrap().port()
        };
        let answer = open_tcp("127.0.0.1", port, PATIENCE, None).await;
        assert!(matches!(&answer, Err(DialError::Refused(at, _)) if at.port() == port), "{answer:?}");
    }

    #[tokio::test]
    async fn a_handshake_that_never_completes_times_out() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = open_tcp("127.0.0.1", port, PATIENCE, None).await.unwrap();
        let answer = open_tls(stream, "127.0.0.1", &tls_client_config(&[]).unwrap(), Duration::from_millis(50)).await;
        assert!(matches!(answer, Err(DialError::TimedOut(_))), "{answer:?}");
    }

    #[test]
    fn no_other_module_opens_connections() {
        // `dns` queries the machine's configured resolvers, to which the filter does not apply.
        let own = ["dial.rs", "dns/mod.rs"];
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
