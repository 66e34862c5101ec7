//! The listener's side of TLS: a certificate from files, read again when they change, or one made on the spot.

use anyhow::{Context as _, bail};
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};
use tokio_rustls::TlsAcceptor;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A certificate that may be replaced while it is in use.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// When a file was last written, and how long it is.
type Stamp = [Option<(SystemTime, u64)>; 2];

/// Two files of PEM.
#[derive(Clone, Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key].map(|path| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.modified().ok()?, about.len()))
        })
    }

    fn read(&self) -> anyhow::Result<CertifiedKey> {
        let said = |path: &Path| format!("reading {}", path.display());
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(&self.certificate).with_context(|| said(&self.certificate))?.collect();
        let chain = chain.with_context(|| said(&self.certificate))?;
        if chain.is_empty() {
            bail!("there is no certificate in {}", self.certificate.display());
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).with_context(|| said(&self.key))?;
        let pair = CertifiedKey::from_der(chain, key, &provider());
        pair.with_context(|| format!("{} and {} do not fit", self.certificate.display(), self.key.display()))
    }
}

/// TLS that is ready to be offered.
pub struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<Current>,
    files: Option<(Files, Stamp)>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// From two files of PEM: the certificate with those that signed it, and its key.
    pub fn from_files(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
        // Taken before the reading, so that what is written meanwhile is read again.
        let stamp = files.stamp();
        Self::with(files.read()?, Some((files, stamp)))
    }

    /// With a certificate that nobody signed. Good against listeners on the wire, and for trying things out.
    pub fn self_made(hostname: &str) -> anyhow::Result<Self> {
        let names = [hostname.to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).context("making a certificate")?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        Self::with(CertifiedKey::from_der(vec![made.cert.der().clone()], key, &provider())?, None)
    }

    fn with(pair: CertifiedKey, files: Option<(Files, Stamp)>) -> anyhow::Result<Self> {
        let current = Arc::new(Current(RwLock::new(Arc::new(pair))));
        let config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), current, files })
    }

    pub(super) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Looks at the files for ever, and reads them again when they changed. While they cannot be used the last ones
    /// that could stay.
    pub(super) async fn keep_fresh(self: Arc<Self>) {
        let Some((files, mut read)) = self.files.clone() else { return std::future::pending().await };
        let mut told = read;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let looked = files.clone();
            let stamp = tokio::task::spawn_blocking(move || looked.stamp()).await.unwrap_or(read);
            if stamp == read {
                continue;
            }
            let looked = files.clone();
            match tokio::task::spawn_blocking(move || looked.read()).await {
                Ok(Ok(pair)) => {
                    *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
                    (read, told) = (stamp, stamp);
                    tracing::info!(certificate = %files.certificate.display(), "a new certificate is in use");
                }
                Ok(Err(error)) if told != stamp => {
                    told = stamp;
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "the new certificate cannot be used, the old one stays"
                    );
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
}

fn provider() -> CryptoProvider {
    ring::default_provider()
}
