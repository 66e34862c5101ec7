//! TLS for the HTTP and SMTP listeners: a certificate from PEM files, reloaded when they change, or a self-signed one.
//!
//! A new certificate is used for new handshakes; open connections keep theirs. If a new pair cannot be used, the error
//! is logged and the last good pair stays in use.

use anyhow::{Context as _, bail};
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_rustls::TlsAcceptor;

/// How often the files are checked for changes. SIGHUP reloads them at once.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The certificate for the next handshake.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Certificate authorities trusted besides the public ones, from a PEM file.
pub(crate) fn load_ca_file(file: Option<&Path>) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let Some(path) = file else { return Ok(Vec::new()) };
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.with_context(|| format!("reading certificates from {}", path.display()))?;
    if found.is_empty() {
        bail!("{} contains no certificate", path.display());
    }
    Ok(found)
}

/// Identifies a version of a file: modification time, size, device and inode. A symbolic link with a new target is a
/// new version.
type FileVersion = Option<(SystemTime, u64, u64, u64)>;

/// The PEM files of a certificate and its key.
#[derive(Clone, Debug)]
struct PemFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl PemFiles {
    fn versions(&self) -> [FileVersion; 2] {
        [&self.certificate, &self.key].map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len(), metadata.dev(), metadata.ino()))
        })
    }

    fn read(&self) -> anyhow::Result<CertifiedKey> {
        let reading = |path: &Path| format!("reading {}", path.display());
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(&self.certificate).with_context(|| reading(&self.certificate))?.collect();
        let chain = chain.with_context(|| reading(&self.certificate))?;
        if chain.is_empty() {
            bail!("{} contains no certificate", self.certificate.display());
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).with_context(|| reading(&self.key))?;
        let pair = CertifiedKey::from_der(chain, key, &crypto_provider());
        pair.with_context(|| {
            format!("{} and {} do not belong together", self.certificate.display(), self.key.display())
        })
    }
}

/// The TLS settings of one listener.
pub struct Tls {
    acceptor: TlsAcceptor,
    current: Arc<CurrentCertificate>,
    files: Option<(PemFiles, [FileVersion; 2])>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Loads two PEM files: the certificate chain and its key.
    pub fn from_files(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        Self::with_alpn(certificate, key, &[])
    }

    /// The same, with ALPN protocols, preferred one first.
    pub fn with_alpn(certificate: &Path, key: &Path, protocols: &[&str]) -> anyhow::Result<Self> {
        let files = PemFiles { certificate: certificate.to_owned(), key: key.to_owned() };
        // Taken before reading, so that a change during the read is noticed afterwards.
        let versions = files.versions();
        Self::build(files.read()?, Some((files, versions)), protocols)
    }

    /// Creates a self-signed certificate. It protects against eavesdropping, and is meant for trying things out.
    pub fn self_signed(hostname: &str) -> anyhow::Result<Self> {
        let names = [hostname.to_owned(), "localhost".to_owned()];
        let generated = rcgen::generate_simple_self_signed(names).context("creating a self-signed certificate")?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(generated.signing_key.serialize_der()));
        Self::build(CertifiedKey::from_der(vec![generated.cert.der().clone()], key, &crypto_provider())?, None, &[])
    }

    fn build(
        pair: CertifiedKey,
        files: Option<(PemFiles, [FileVersion; 2])>,
        protocols: &[&str],
    ) -> anyhow::Result<Self> {
        let current = Arc::new(CurrentCertificate(RwLock::new(Arc::new(pair))));
        let mut config = ServerConfig::builder_with_provider(Arc::new(crypto_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), current, files })
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Reloads the files whenever they change or SIGHUP arrives. Never returns.
    pub(crate) async fn reload_on_change(self: Arc<Self>) {
        let Some((files, versions)) = self.files.clone() else { return std::future::pending().await };
        let mut reload =
            CertificateReloader { tls: self, files, loaded_versions: versions, reported_versions: versions };
        // Only a server with certificate files handles SIGHUP. Elsewhere it ends the process when a terminal closes.
        let mut hangup = signal(SignalKind::hangup());
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => reload.run(false).await,
                () = wait_for_signal(&mut hangup) => reload.run(true).await,
            }
        }
    }
}

/// Waits for a signal, forever if the process cannot listen for it.
async fn wait_for_signal(signal: &mut io::Result<Signal>) {
    match signal {
        Ok(signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    }
}

/// The state of [`Tls::reload_on_change`].
struct CertificateReloader {
    tls: Arc<Tls>,
    files: PemFiles,
    /// The versions that the current certificate was read from.
    loaded_versions: [FileVersion; 2],
    /// The versions that were last logged, so that a broken pair is logged once.
    reported_versions: [FileVersion; 2],
}

impl CertificateReloader {
    /// Loads a new pair. With `forced`, reads the files even if they look unchanged.
    async fn run(&mut self, forced: bool) {
        let (files, in_use) = (self.files.clone(), self.loaded_versions);
        let reading = tokio::task::spawn_blocking(move || {
            let versions = files.versions();
            (forced || versions != in_use).then(|| (versions, files.read()))
        });
        let Ok(Some((versions, read))) = reading.await else { return };
        match read {
            Ok(pair) => {
                *self.tls.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
                (self.loaded_versions, self.reported_versions) = (versions, versions);
                tracing::info!(certificate = %self.files.certificate.display(), "using a new certificate");
            }
            Err(error) if forced || self.reported_versions != versions => {
                self.reported_versions = versions;
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the new certificate cannot be used; the previous one stays in use"
                );
            }
            Err(_) => {}
        }
    }
}

fn crypto_provider() -> CryptoProvider {
    ring::default_provider()
}
