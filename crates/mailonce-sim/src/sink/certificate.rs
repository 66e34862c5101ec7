//! A self-signed certificate for servers on this machine.

use anyhow::{Context as _, Result};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// A certificate for `localhost` and 127.0.0.1 that no client trusts by default.
#[derive(Debug)]
pub struct SinkCertificate {
    der: CertificateDer<'static>,
    key: Vec<u8>,
    /// The certificate as PEM.
    pub pem: String,
    /// Its key as PEM.
    pub key_pem: String,
}

impl SinkCertificate {
    /// Creates a certificate.
    pub fn new() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
            .context("could not make a certificate")?;
        Ok(Self {
            der: made.cert.der().clone(),
            key: made.signing_key.serialize_der(),
            pem: made.cert.pem(),
            key_pem: made.signing_key.serialize_pem(),
        })
    }

    /// The root certificate for clients.
    pub fn root_certificate(&self) -> CertificateDer<'static> {
        self.der.clone()
    }

    /// The TLS configuration of a server.
    pub fn tls_acceptor(&self) -> Result<TlsAcceptor> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.clone()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![self.der.clone()], key)?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
