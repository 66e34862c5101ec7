//! An SMTP server that accepts and logs every mail, is strict about the protocol, and injects faults on command.

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

/// The timeout of all waits.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The transport security of the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SinkTls {
    /// Plain text.
    #[default]
    Plaintext,
    /// It offers STARTTLS and requires it for mail.
    Starttls,
    /// TLS from the first byte.
    Implicit,
}

/// The settings of a sink.
#[derive(Clone, Debug)]
pub struct SmtpSinkConfig {
    /// The extensions in EHLO besides STARTTLS and AUTH. Parameters of other extensions are refused.
    pub extensions: Vec<String>,
    /// Its transport security.
    pub protection: SinkTls,
    /// The required user and password.
    pub login: Option<(String, String)>,
    /// The offered AUTH mechanisms.
    pub mechanisms: Vec<String>,
    /// The oracle that acts where the script has no instruction, and logs mails.
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

/// An accepted mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedSmtpMail {
    /// Without angle brackets.
    pub sender: String,
    /// The parameters of `MAIL`.
    pub sender_parameters: Vec<String>,
    /// Without angle brackets, each with the parameters of its `RCPT`.
    pub recipients: Vec<(String, Vec<String>)>,
    /// The body without dot-stuffing.
    pub bytes: Vec<u8>,
    /// When it was accepted.
    pub at: SystemTime,
    /// The number of its connection, from 1.
    pub connection: usize,
    /// Whether it came over TLS.
    pub is_tls: bool,
    /// The authenticated user.
    pub login: Option<String>,
}

/// An order to an idle session, and the channel that confirms it.
struct SessionCommand {
    /// Bytes to send; none closes the connection.
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
    /// Counts changes, so that tests can wait for them.
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

/// A running sink. It stops when dropped.
pub struct SmtpSink {
    /// Its address.
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
    /// Starts a sink on a free port.
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
                // Each reply is a small write, which Nagle's algorithm would delay.
                if stream.set_nodelay(true).is_err() {
                    continue;
                }
                // Sessions outlive the listener: a delayed acceptance must happen even if no client waits for it.
                tokio::spawn(SinkSession::run(sessions.clone(), stream, acceptor.clone()));
            }
        });
        Ok(Self { at, shared, listener })
    }

    /// The certificate that clients must trust.
    pub fn root_certificate(&self) -> CertificateDer<'static> {
        self.shared.certificate.root_certificate()
    }

    /// From now on, this action replaces the default at this step.
    pub fn always_at(&self, step: SmtpStep, act: SmtpAction) {
        self.add_rule(ScriptRule { step, line_contains: None, remaining: None, act });
    }

    /// The same, once.
    pub fn once_at(&self, step: SmtpStep, act: SmtpAction) {
        self.add_rule(ScriptRule { step, line_contains: None, remaining: Some(1), act });
    }

    /// The same, if the command line contains `with`.
    pub fn always_at_line(&self, step: SmtpStep, with: &str, act: SmtpAction) {
        self.add_rule(ScriptRule { step, line_contains: Some(with.to_owned()), remaining: None, act });
    }

    fn add_rule(&self, rule: ScriptRule) {
        self.shared.update(|memory| memory.script.0.push(rule));
    }

    /// The number of accepted mails.
    pub fn mail_count(&self) -> usize {
        self.shared.lock().mails.len()
    }

    /// The number of final dots, whatever happened next.
    pub fn final_dots(&self) -> usize {
        self.shared.lock().final_dots
    }

    /// Every accepted mail.
    pub fn mails(&self) -> Vec<AcceptedSmtpMail> {
        self.shared.lock().mails.clone()
    }

    /// Every line outside of bodies, by connection.
    pub fn commands(&self) -> Vec<(usize, String)> {
        self.shared.lock().commands.clone()
    }

    /// Protocol violations of clients.
    pub fn violations(&self) -> Vec<String> {
        self.shared.lock().violations.clone()
    }

    /// The number of connections so far.
    pub fn connection_count(&self) -> usize {
        self.shared.lock().connections
    }

    /// The number of open connections.
    pub fn open_connections(&self) -> usize {
        self.shared.lock().open
    }

    /// The maximum number of concurrent connections.
    pub fn max_open_connections(&self) -> usize {
        self.shared.lock().max_open
    }

    /// Sends bytes on every idle connection, and waits until they are sent.
    pub async fn send_to_all(&self, bytes: &[u8]) {
        self.command_sessions(Some(bytes.to_vec())).await;
    }

    /// Closes every idle connection, and waits until they are closed.
    pub async fn close_all(&self) {
        self.command_sessions(None).await;
    }

    async fn command_sessions(&self, say: Option<Vec<u8>>) {
        let sessions = self.shared.lock().sessions.clone();
        for session in sessions {
            let (done, heard) = oneshot::channel();
            if session.send(SessionCommand { bytes: say.clone(), done }).is_ok() {
                // A session that ends meanwhile drops its channel.
                drop(heard.await);
            }
        }
    }

    /// Waits until the condition holds, and panics on timeout.
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
