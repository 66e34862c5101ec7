//! A listener with a reception that remembers, and a client that says exactly what it is told to.

use async_trait::async_trait;
use mailonce::intake::smtp::{Mail, NotTaken, Reception, Settings, Smtp, Stream, Tally, Verdict};
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
/// How long a mail or a program may take. They take a second or two.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);
/// A mail up to its text, as one who waits for nothing would say it.
pub(crate) const ENVELOPE: &str = "EHLO out.test\r\nMAIL FROM:<eve@out.test>\r\nRCPT TO:<ada@in.test>\r\nDATA\r\n";

/// Remembers every mail, and misbehaves by the recipient's name.
pub(crate) struct Recorder {
    mails: Mutex<Vec<Mail>>,
    came: Notify,
    /// Mails for `slow@` wait for a permit.
    pub(crate) gate: Semaphore,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { mails: Mutex::default(), came: Notify::new(), gate: Semaphore::new(0) }
    }
}

impl Recorder {
    pub(crate) fn mails(&self) -> Vec<Mail> {
        self.mails.lock().unwrap().clone()
    }

    pub(crate) fn texts(&self) -> Vec<Vec<u8>> {
        self.mails().iter().map(|mail| mail.raw.to_vec()).collect()
    }

    /// Waits until there are so many mails, or fails when they do not come.
    pub(crate) async fn until(&self, count: usize) -> Vec<Mail> {
        let end = Instant::now() + PATIENCE;
        loop {
            let came = self.came.notified();
            let mails = self.mails();
            if mails.len() >= count {
                return mails;
            }
            assert!(timeout_at(end, came).await.is_ok(), "{} of {count} mails came", mails.len());
        }
    }
}

#[async_trait]
impl Reception for Recorder {
    async fn recipient(&self, _: &str, address: &str) -> Verdict {
        match address.split_once('@') {
            Some(("never", _)) => std::future::pending().await,
            Some(("gone", _)) => Verdict::Unknown,
            Some((_, "in.test")) => Verdict::Here,
            _ => Verdict::Elsewhere,
        }
    }

    async fn take(&self, mail: Mail) -> Result<(), NotTaken> {
        let is_for = |name: &str| mail.recipients.iter().any(|to| to.starts_with(name));
        if is_for("slow@") {
            self.gate.acquire().await.map_err(|_closed| NotTaken::Trouble)?.forget();
        }
        assert!(!is_for("panic@"), "a reception that breaks, as it was told to");
        if is_for("ill@") {
            return Err(NotTaken::Trouble);
        }
        self.mails.lock().unwrap().push(mail);
        self.came.notify_waiters();
        Ok(())
    }
}

/// A listener, its reception and the switch that stops it.
pub(crate) struct World {
    pub(crate) smtp: Smtp,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) tally: Arc<Tally>,
    stop: watch::Sender<bool>,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        let recorder = Arc::new(Recorder::default());
        let tally = Arc::clone(&settings.tally);
        let smtp = Smtp::new(Arc::clone(&recorder) as Arc<dyn Reception>, settings);
        Self { smtp, recorder, tally, stop: watch::Sender::new(false) }
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// A connection without a socket, which paused time can pass over.
    pub(crate) fn pipe(&self, octets: usize) -> (Client<DuplexStream>, JoinHandle<()>) {
        self.pipe_from(LOOPBACK, octets)
    }

    /// The same, as if it came from this address.
    pub(crate) fn pipe_from(&self, ip: IpAddr, octets: usize) -> (Client<DuplexStream>, JoinHandle<()>) {
        let (ours, theirs) = duplex(octets);
        let (smtp, stop) = (self.smtp.clone(), self.stop.subscribe());
        let served = tokio::spawn(async move { smtp.converse(theirs, ip, stop).await });
        (Client::new(ours), served)
    }

    /// Listens on a free port of this machine.
    pub(crate) async fn listen(&self) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let (smtp, stop) = (self.smtp.clone(), self.stop.subscribe());
        (at, tokio::spawn(async move { smtp.listen(listener, stop).await }))
    }
}

pub(crate) fn settings() -> Settings {
    Settings::new("mx.in.test")
}

/// A client that knows nothing but lines.
pub(crate) struct Client<S> {
    pub(crate) stream: S,
    unread: Vec<u8>,
}

impl Client<TcpStream> {
    pub(crate) async fn dial(at: SocketAddr) -> Self {
        Self::new(TcpStream::connect(at).await.unwrap())
    }
}

impl<S: Stream> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, unread: Vec::new() }
    }

    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The last line of the next reply; empty when the other side closed.
    pub(crate) async fn hear(&mut self) -> String {
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

    /// So many replies by their codes.
    pub(crate) async fn codes(&mut self, count: usize) -> Vec<String> {
        let mut codes = Vec::new();
        for _ in 0..count {
            codes.push(self.hear().await.chars().take(3).collect());
        }
        codes
    }

    /// Says something, and hears one reply.
    pub(crate) async fn ask(&mut self, bytes: impl AsRef<[u8]>) -> String {
        self.say(bytes).await;
        self.hear().await
    }
}
