//! The SMTP fixture: a listener with a recording receiver, and a client that sends exactly the given bytes.

use async_trait::async_trait;
use mailonce::intake::smtp::{
    ByteStream, MailReceiver, NotAccepted, ReceivedMail, RecipientStatus, SmtpListener, SmtpMetrics, SmtpSettings,
};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
    sync::{Notify, Semaphore, watch},
    task::JoinHandle,
    time::{Duration, Instant, timeout_at},
};

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// How long a mail or a program may take. Usually it takes a second or two.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);
/// The commands of a mail up to its text, pipelined without waiting for replies.
pub(crate) const ENVELOPE_COMMANDS: &str =
    "EHLO out.test\r\nMAIL FROM:<eve@out.test>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n";

/// Records every mail, and misbehaves for some recipient names.
pub(crate) struct RecordingReceiver {
    mails: Mutex<Vec<ReceivedMail>>,
    mail_added: Notify,
    /// Mails for `slow@` wait for a permit.
    pub(crate) gate: Semaphore,
}

impl Default for RecordingReceiver {
    fn default() -> Self {
        Self { mails: Mutex::default(), mail_added: Notify::new(), gate: Semaphore::new(0) }
    }
}

impl RecordingReceiver {
    pub(crate) fn mails(&self) -> Vec<ReceivedMail> {
        self.mails.lock().unwrap().clone()
    }

    pub(crate) fn raw_mails(&self) -> Vec<Vec<u8>> {
        self.mails().iter().map(|mail| mail.raw.to_vec()).collect()
    }

    /// Waits until there are `count` mails, or fails after a timeout.
    pub(crate) async fn wait_for_mails(&self, count: usize) -> Vec<ReceivedMail> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let mail_added = self.mail_added.notified();
            let mails = self.mails();
            if mails.len() >= count {
                return mails;
            }
            assert!(timeout_at(end, mail_added).await.is_ok(), "{} of {count} mails arrived", mails.len());
        }
    }
}

#[async_trait]
impl MailReceiver for RecordingReceiver {
    async fn check_recipient(&self, _: &str, address: &str) -> RecipientStatus {
        match address.split_once('@') {
            Some(("never", _)) => std::future::pending().await,
            Some(("gone", _)) => RecipientStatus::Unknown,
            Some((_, "in.test")) => RecipientStatus::Accepted,
            _ => RecipientStatus::NotLocal,
        }
    }

    async fn accept(&self, mail: ReceivedMail) -> Result<(), NotAccepted> {
        let is_for = |name: &str| mail.recipients.iter().any(|to| to.starts_with(name));
        if is_for("slow@") {
            self.gate.acquire().await.map_err(|_closed| NotAccepted::TemporaryError)?.forget();
        }
        assert!(!is_for("panic@"), "a scripted panic of the receiver");
        if is_for("ill@") {
            return Err(NotAccepted::TemporaryError);
        }
        self.mails.lock().unwrap().push(mail);
        self.mail_added.notify_waiters();
        Ok(())
    }
}

/// A listener, its receiver and the switch that stops it.
pub(crate) struct SmtpFixture {
    pub(crate) listener: SmtpListener,
    pub(crate) receiver: Arc<RecordingReceiver>,
    pub(crate) metrics: Arc<SmtpMetrics>,
    stop: watch::Sender<bool>,
}

impl SmtpFixture {
    pub(crate) fn new(settings: SmtpSettings) -> Self {
        let receiver = Arc::new(RecordingReceiver::default());
        let metrics = Arc::clone(&settings.metrics);
        let listener = SmtpListener::new(Arc::clone(&receiver) as Arc<dyn MailReceiver>, settings);
        Self { listener, receiver, metrics, stop: watch::Sender::new(false) }
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Connects without a socket, so that paused time can advance.
    pub(crate) fn connect_pipe(&self, octets: usize) -> (LineClient<DuplexStream>, JoinHandle<()>) {
        self.connect_pipe_from(LOOPBACK, octets)
    }

    /// Connects without a socket, as if from this address.
    pub(crate) fn connect_pipe_from(&self, ip: IpAddr, octets: usize) -> (LineClient<DuplexStream>, JoinHandle<()>) {
        let (client_end, server_end) = duplex(octets);
        let (smtp, stop) = (self.listener.clone(), self.stop.subscribe());
        let served = tokio::spawn(async move { smtp.serve_stream(server_end, ip, stop).await });
        (LineClient::new(client_end), served)
    }

    /// Listens on a free port of this machine.
    pub(crate) async fn listen(&self) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let (smtp, stop) = (self.listener.clone(), self.stop.subscribe());
        (at, tokio::spawn(async move { smtp.serve(listener, stop).await }))
    }
}

pub(crate) fn test_settings() -> SmtpSettings {
    SmtpSettings::new("mx.in.test")
}

/// A client that sends raw bytes and reads reply lines.
pub(crate) struct LineClient<S> {
    pub(crate) stream: S,
    unread: Vec<u8>,
}

impl LineClient<TcpStream> {
    pub(crate) async fn connect(at: SocketAddr) -> Self {
        Self::new(TcpStream::connect(at).await.unwrap())
    }
}

impl<S: ByteStream> LineClient<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, unread: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The last line of the next reply, or empty when the connection is closed.
    pub(crate) async fn read_reply(&mut self) -> String {
        loop {
            while let Some(end) = self.unread.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..end + 2).collect();
                if line.get(3) == Some(&b' ') {
                    return String::from_utf8(line).unwrap().trim_end().to_owned();
                }
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes).await {
                Ok(read) if read > 0 => self.unread.extend_from_slice(&bytes[..read]),
                _ => return String::new(),
            }
        }
    }

    /// Reads this many replies and returns their codes.
    pub(crate) async fn read_codes(&mut self, count: usize) -> Vec<String> {
        let mut codes = Vec::new();
        for _ in 0..count {
            codes.push(self.read_reply().await.chars().take(3).collect());
        }
        codes
    }

    /// Sends bytes and reads one reply.
    pub(crate) async fn command(&mut self, bytes: impl AsRef<[u8]>) -> String {
        self.send(bytes).await;
        self.read_reply().await
    }
}
