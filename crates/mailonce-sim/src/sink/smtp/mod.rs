//! An SMTP server that takes every mail, remembers it, is strict about the protocol, and misbehaves as it is told.

mod script;
mod session;
mod transaction;

pub use script::{SmtpAction, SmtpStep};

use super::{certificate::SinkCertificate, oracle::SinkOracle};
use anyhow::{Context as _, Result};
use rustls::pki_types::CertificateDer;
use script::{ScriptRule, SmtpScript};
use session::SinkSession;
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

/// How long anything is waited for.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// How the sink protects its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SinkTls {
    /// Not at all.
    #[default]
    Plaintext,
    /// It offers STARTTLS, and takes no mail without.
    Starttls,
    /// From the first byte.
    Implicit,
}

/// What the sink is like.
#[derive(Clone, Debug)]
pub struct SmtpSinkConfig {
    /// What it offers in EHLO beside STARTTLS and AUTH. Parameters of an extension that is not here are refused.
    pub extensions: Vec<String>,
    /// How it protects its connections.
    pub protection: SinkTls,
    /// The user and password it asks for.
    pub login: Option<(String, String)>,
    /// The mechanisms of AUTH it offers.
    pub mechanisms: Vec<String>,
    /// What it does by itself where it is not told what to do, and where it writes down what it got.
    pub oracle: Option<Arc<SinkOracle>>,
}

impl Default for SmtpSinkConfig {
    fn default() -> Self {
        let all = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        Self {
            extensions: all(&["PIPELINING", "8BITMIME", "SMTPUTF8", "DSN", "SIZE 52428800"]),
            protection: SinkTls::Plaintext,
            login: None,
            mechanisms: all(&["PLAIN", "LOGIN"]),
            oracle: None,
        }
    }
}

/// A mail that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedSmtpMail {
    /// Without angle brackets.
    pub sender: String,
    /// The parameters of `MAIL`.
    pub sender_parameters: Vec<String>,
    /// Without angle brackets, each with the parameters of its `RCPT`.
    pub recipients: Vec<(String, Vec<String>)>,
    /// The body, as it was before dots were doubled.
    pub bytes: Vec<u8>,
    /// When it was taken.
    pub at: SystemTime,
    /// The connection it came by, from 1.
    pub connection: usize,
    /// Whether that was under TLS.
    pub is_tls: bool,
    /// Who had logged in.
    pub login: Option<String>,
}

/// What a session is asked to do by itself, and whom it tells when it is done.
struct SessionCommand {
    /// Bytes to say, or none to close.
    bytes: Option<Vec<u8>>,
    done: oneshot::Sender<()>,
}

#[derive(Default)]
struct SmtpSinkRecords {
    mails: Vec<AcceptedSmtpMail>,
    final_dots: usize,
    /// Connection and line, passwords included.
    commands: Vec<(usize, String)>,
    violations: Vec<String>,
    script: SmtpScript,
    sessions: Vec<mpsc::UnboundedSender<SessionCommand>>,
    connections: usize,
    open: usize,
    max_open: usize,
}

struct SmtpSinkState {
    config: SmtpSinkConfig,
    certificate: SinkCertificate,
    records: Mutex<SmtpSinkRecords>,
    /// Counts changes of the memory, so that they can be awaited.
    changes: watch::Sender<u64>,
}

impl SmtpSinkState {
    fn lock(&self) -> MutexGuard<'_, SmtpSinkRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update<T>(&self, change: impl FnOnce(&mut SmtpSinkRecords) -> T) -> T {
        let out = change(&mut self.lock());
        self.changes.send_modify(|count| *count += 1);
        out
    }
}

/// A running sink. It ends when it is dropped.
pub struct SmtpSink {
    /// Where it listens.
    pub at: SocketAddr,
    shared: Arc<SmtpSinkState>,
    listener: JoinHandle<()>,
}

impl Drop for SmtpSink {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl SmtpSink {
    /// Starts a sink on a port that is free.
    pub async fn start(setting: SmtpSinkConfig) -> Result<Self> {
        let certificate = SinkCertificate::new()?;
        let acceptor = certificate.tls_acceptor()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let at = listener.local_addr()?;
        let (changes, _) = watch::channel(0);
        let shared = Arc::new(SmtpSinkState { config: setting, certificate, records: Mutex::default(), changes });
        let sessions = shared.clone();
        let listener = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Each answer is a small write of its own, which would wait for the one before it to be acknowledged.
                if stream.set_nodelay(true).is_err() {
                    continue;
                }
                // Sessions outlive the listener: a late accept must come even when nobody waits for it.
                tokio::spawn(SinkSession::run(sessions.clone(), stream, acceptor.clone()));
            }
        });
        Ok(Self { at, shared, listener })
    }

    /// The certificate that clients must trust.
    pub fn root_certificate(&self) -> CertificateDer<'static> {
        self.shared.certificate.root_certificate()
    }

    /// From now on, at this step, this happens instead of the usual.
    pub fn always_at(&self, step: SmtpStep, act: SmtpAction) {
        self.add_rule(ScriptRule { step, line_contains: None, remaining: None, act });
    }

    /// The same, once.
    pub fn once_at(&self, step: SmtpStep, act: SmtpAction) {
        self.add_rule(ScriptRule { step, line_contains: None, remaining: Some(1), act });
    }

    /// The same, where the command's line has `with` in it.
    pub fn always_at_line(&self, step: SmtpStep, with: &str, act: SmtpAction) {
        self.add_rule(ScriptRule { step, line_contains: Some(with.to_owned()), remaining: None, act });
    }

    fn add_rule(&self, rule: ScriptRule) {
        self.shared.update(|memory| memory.script.0.push(rule));
    }

    /// How many mails were taken.
    pub fn mail_count(&self) -> usize {
        self.shared.lock().mails.len()
    }

    /// How many final dots were read, whatever came of them.
    pub fn final_dots(&self) -> usize {
        self.shared.lock().final_dots
    }

    /// Every mail that was taken.
    pub fn mails(&self) -> Vec<AcceptedSmtpMail> {
        self.shared.lock().mails.clone()
    }

    /// Every line that was said to it outside of bodies, by connection.
    pub fn commands(&self) -> Vec<(usize, String)> {
        self.shared.lock().commands.clone()
    }

    /// What was said to it against the protocol.
    pub fn violations(&self) -> Vec<String> {
        self.shared.lock().violations.clone()
    }

    /// Connections that were made so far.
    pub fn connection_count(&self) -> usize {
        self.shared.lock().connections
    }

    /// Connections that are open.
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open
    }

    /// Connections that were open at the same time.
    pub fn max_open_connections(&self) -> usize {
        self.shared.lock().max_open
    }

    /// Says bytes on every connection that waits for a command, and waits until they are said.
    pub async fn send_to_all(&self, bytes: &[u8]) {
        self.command_sessions(Some(bytes.to_vec())).await;
    }

    /// Closes every connection that waits for a command, and waits until they are closed.
    pub async fn close_all(&self) {
        self.command_sessions(None).await;
    }

    async fn command_sessions(&self, say: Option<Vec<u8>>) {
        let sessions = self.shared.lock().sessions.clone();
        for session in sessions {
            let (done, heard) = oneshot::channel();
            if session.send(SessionCommand { bytes: say.clone(), done }).is_ok() {
                // A session that ends meanwhile answers by dropping its end.
                drop(heard.await);
            }
        }
    }

    /// Waits until this holds of the sink, and fails when it never does.
    pub async fn wait_until(&self, holds: impl Fn(&Self) -> bool) -> Result<()> {
        let mut changes = self.shared.changes.subscribe();
        let wait = async {
            while !holds(self) {
                changes.changed().await?;
            }
            Ok(())
        };
        timeout(WAIT_TIMEOUT, wait).await.context("the sink did not come to what was waited for")?
    }
}
