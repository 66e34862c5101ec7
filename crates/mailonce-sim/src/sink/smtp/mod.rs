//! An SMTP server that takes every mail, remembers it, is strict about the protocol, and misbehaves as it is told.

mod letter;
mod script;
mod session;

pub use script::{Act, Step};

use super::{certificate::Certificate, oracle::Oracle};
use anyhow::{Context as _, Result};
use rustls::pki_types::CertificateDer;
use script::{Rule, Script};
use session::Session;
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
const LONGEST: Duration = Duration::from_secs(30);

/// How the sink protects its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    #[default]
    None,
    /// It offers STARTTLS, and takes no mail without.
    Starttls,
    /// From the first byte.
    Tls,
}

/// What the sink is like.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What it offers in EHLO beside STARTTLS and AUTH. Parameters of an extension that is not here are refused.
    pub offers: Vec<String>,
    /// How it protects its connections.
    pub protection: Protection,
    /// The user and password it asks for.
    pub login: Option<(String, String)>,
    /// The mechanisms of AUTH it offers.
    pub mechanisms: Vec<String>,
    /// What it does by itself where it is not told what to do, and where it writes down what it got.
    pub oracle: Option<Arc<Oracle>>,
}

impl Default for Setting {
    fn default() -> Self {
        let all = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        Self {
            offers: all(&["PIPELINING", "8BITMIME", "SMTPUTF8", "DSN", "SIZE 52428800"]),
            protection: Protection::None,
            login: None,
            mechanisms: all(&["PLAIN", "LOGIN"]),
            oracle: None,
        }
    }
}

/// A mail that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
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
    pub secure: bool,
    /// Who had logged in.
    pub login: Option<String>,
}

/// What a session is asked to do by itself, and whom it tells when it is done.
struct Order {
    /// Bytes to say, or none to close.
    say: Option<Vec<u8>>,
    done: oneshot::Sender<()>,
}

#[derive(Default)]
struct Memory {
    mails: Vec<Recorded>,
    dots: usize,
    /// Connection and line, passwords included.
    commands: Vec<(usize, String)>,
    violations: Vec<String>,
    script: Script,
    sessions: Vec<mpsc::UnboundedSender<Order>>,
    connections: usize,
    open: usize,
    most_open: usize,
}

struct Shared {
    setting: Setting,
    certificate: Certificate,
    memory: Mutex<Memory>,
    /// Counts changes of the memory, so that they can be awaited.
    changes: watch::Sender<u64>,
}

impl Shared {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Memory) -> T) -> T {
        let out = change(&mut self.memory());
        self.changes.send_modify(|count| *count += 1);
        out
    }
}

/// A running sink. It ends when it is dropped.
pub struct SmtpSink {
    /// Where it listens.
    pub at: SocketAddr,
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
}

impl Drop for SmtpSink {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl SmtpSink {
    /// Starts a sink on a port that is free.
    pub async fn start(setting: Setting) -> Result<Self> {
        let certificate = Certificate::new()?;
        let acceptor = certificate.acceptor()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let at = listener.local_addr()?;
        let (changes, _) = watch::channel(0);
        let shared = Arc::new(Shared { setting, certificate, memory: Mutex::default(), changes });
        let sessions = shared.clone();
        let listener = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Each answer is a small write of its own, which would wait for the one before it to be acknowledged.
                if stream.set_nodelay(true).is_err() {
                    continue;
                }
                // Sessions outlive the listener: a late accept must come even when nobody waits for it.
                tokio::spawn(Session::run(sessions.clone(), stream, acceptor.clone()));
            }
        });
        Ok(Self { at, shared, listener })
    }

    /// The certificate that clients must trust.
    pub fn root(&self) -> CertificateDer<'static> {
        self.shared.certificate.root()
    }

    /// From now on, at this step, this happens instead of the usual.
    pub fn on(&self, step: Step, act: Act) {
        self.rule(Rule { step, with: None, times: None, act });
    }

    /// The same, once.
    pub fn once(&self, step: Step, act: Act) {
        self.rule(Rule { step, with: None, times: Some(1), act });
    }

    /// The same, where the command's line has `with` in it.
    pub fn on_line(&self, step: Step, with: &str, act: Act) {
        self.rule(Rule { step, with: Some(with.to_owned()), times: None, act });
    }

    fn rule(&self, rule: Rule) {
        self.shared.change(|memory| memory.script.0.push(rule));
    }

    /// How many mails were taken.
    pub fn count(&self) -> usize {
        self.shared.memory().mails.len()
    }

    /// How many final dots were read, whatever came of them.
    pub fn dots(&self) -> usize {
        self.shared.memory().dots
    }

    /// Every mail that was taken.
    pub fn mails(&self) -> Vec<Recorded> {
        self.shared.memory().mails.clone()
    }

    /// Every line that was said to it outside of bodies, by connection.
    pub fn commands(&self) -> Vec<(usize, String)> {
        self.shared.memory().commands.clone()
    }

    /// What was said to it against the protocol.
    pub fn violations(&self) -> Vec<String> {
        self.shared.memory().violations.clone()
    }

    /// Connections that were made so far.
    pub fn connections(&self) -> usize {
        self.shared.memory().connections
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.shared.memory().open
    }

    /// Connections that were open at the same time.
    pub fn most_open(&self) -> usize {
        self.shared.memory().most_open
    }

    /// Says bytes on every connection that waits for a command, and waits until they are said.
    pub async fn shout(&self, bytes: &[u8]) {
        self.order(Some(bytes.to_vec())).await;
    }

    /// Closes every connection that waits for a command, and waits until they are closed.
    pub async fn hang_up(&self) {
        self.order(None).await;
    }

    async fn order(&self, say: Option<Vec<u8>>) {
        let sessions = self.shared.memory().sessions.clone();
        for session in sessions {
            let (done, heard) = oneshot::channel();
            if session.send(Order { say: say.clone(), done }).is_ok() {
                // A session that ends meanwhile answers by dropping its end.
                drop(heard.await);
            }
        }
    }

    /// Waits until this holds of the sink, and fails when it never does.
    pub async fn until(&self, holds: impl Fn(&Self) -> bool) -> Result<()> {
        let mut changes = self.shared.changes.subscribe();
        let wait = async {
            while !holds(self) {
                changes.changed().await?;
            }
            Ok(())
        };
        timeout(LONGEST, wait).await.context("the sink did not come to what was waited for")?
    }
}
