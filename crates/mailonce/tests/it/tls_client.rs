//! A TLS client for tests of the listener: negotiates its protocol by ALPN and returns the server's certificate.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, client::conn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::CertifiedKey;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName},
};
use serde_json::Value;
use std::{net::SocketAddr, path::Path, sync::Arc};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The certificate and key of a test server.
pub(crate) struct TestCertificate(CertifiedKey<rcgen::KeyPair>);

impl TestCertificate {
    pub(crate) fn generate() -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        Self(rcgen::generate_simple_self_signed(names).unwrap())
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.0.cert.der().clone()
    }

    /// Writes `cert.pem` and `key.pem` as `certbot` does: each file is replaced atomically, one after the other.
    pub(crate) fn write_pem_files(&self, folder: &Path) {
        for (name, text) in [("cert.pem", self.0.cert.pem()), ("key.pem", self.0.signing_key.serialize_pem())] {
            let fresh = folder.join(format!("{name}.new"));
            std::fs::write(&fresh, text).unwrap();
            std::fs::rename(fresh, folder.join(name)).unwrap();
        }
    }
}

/// Connects with these ALPN protocols and trusted roots.
pub(crate) async fn tls_connect(
    at: SocketAddr,
    alpn: &[&str],
    trusted: &[CertificateDer<'static>],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add(certificate.clone()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(at).await?).await
}

/// The certificate that the server presented.
pub(crate) fn peer_certificate(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

/// A connection that sends one request after the other.
pub(crate) enum AlpnClient {
    Http1(conn::http1::SendRequest<Full<Bytes>>),
    Http2(conn::http2::SendRequest<Full<Bytes>>),
}

impl AlpnClient {
    pub(crate) async fn handshake(stream: TlsStream<TcpStream>) -> Self {
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let (client, connection) =
                conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            return Self::Http2(client);
        }
        let (client, connection) = conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self::Http1(client)
    }

    pub(crate) async fn request(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::Http1(client) => {
                let (mut parts, body) = request.into_parts();
                let host = parts.uri.authority().unwrap().as_str().parse().unwrap();
                parts.headers.insert("host", host);
                parts.uri = parts.uri.path_and_query().unwrap().as_str().parse().unwrap();
                client.ready().await?;
                client.send_request(Request::from_parts(parts, body)).await
            }
            Self::Http2(client) => {
                client.ready().await?;
                client.send_request(request).await
            }
        }
    }

    /// Requests a path of `localhost`.
    pub(crate) async fn get(&mut self, path: &str) -> hyper::Result<Response<Incoming>> {
        let request = Request::get(format!("https://localhost{path}")).body(Full::default()).unwrap();
        self.request(request).await
    }
}

/// The JSON body of a response.
pub(crate) async fn json_body(response: Response<Incoming>) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
