//! One connection: a session with a socket, patience and a reception.

use bytes::Bytes;
use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::{Duration, Instant, timeout, timeout_at},
};

use super::{
    reply::{self, SmtpReply},
    session::{SessionConfig, SessionStep, SmtpSession},
    settings::SmtpSettings,
    spool::{Spool, SpooledMail},
};
use crate::intake::smtp::{
    mail_receiver::{MailReceiver, ReceivedMail, RecipientStatus},
    metrics::Reason,
    network_limits::ConnectionPermit,
};
use crate::{
    arrival_rate::ArrivalRate,
    byte_budget::{self, ByteBudget, ByteLease},
};

/// Bytes read at once. They are on the stack of the thread while they are read, not in the connection while it waits.
const READ_OCTETS: usize = 16 * 1024;
/// How long and how much is read after the last word, so that a reset does not overtake it.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const LINGER_OCTETS: usize = 1024 * 1024;

/// Anything that carries bytes both ways.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// What all connections share.
pub(super) struct SmtpListenerState {
    pub(super) settings: SmtpSettings,
    rules: Arc<SessionConfig>,
    receiver: Arc<dyn MailReceiver>,
    memory: Arc<Semaphore>,
    disk: Arc<Semaphore>,
    spool: Spool,
}

impl SmtpListenerState {
    pub(super) fn new(settings: SmtpSettings, reception: Arc<dyn MailReceiver>) -> Self {
        let rules = SessionConfig {
            hostname: settings.hostname.clone(),
            max_size: settings.max_size,
            max_recipients: settings.max_recipients,
            tls: settings.tls.is_some(),
        };
        Self {
            rules: Arc::new(rules),
            receiver: reception,
            memory: byte_budget::semaphore_for(settings.max_memory),
            disk: byte_budget::semaphore_for(settings.max_spool),
            spool: Spool::new(Arc::clone(&settings.spool)),
            settings,
        }
    }

    /// What a connection may hold in memory.
    fn memory_lease(&self, visit: &ConnectionPermit) -> ByteLease {
        ByteLease::new(ByteBudget { total: Arc::clone(&self.memory), share: visit.shares().memory.clone() })
    }

    /// What a mail of a connection may hold on disk.
    fn disk_lease(&self, visit: &ConnectionPermit) -> ByteLease {
        ByteLease::new(ByteBudget { total: Arc::clone(&self.disk), share: visit.shares().spool.clone() })
    }
}

/// The conversation is over, one way or another.
struct ConnectionClosed;

impl From<io::Error> for ConnectionClosed {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// A connection that is being served.
pub(super) struct SmtpConnection {
    listener: Arc<SmtpListenerState>,
    stream: Box<dyn ByteStream>,
    session: SmtpSession,
    permit: ConnectionPermit,
    shutdown: watch::Receiver<bool>,
    session_deadline: Instant,
    /// Since when a line is waited for, and how many there were then.
    line_wait: (Instant, u64),
    /// How fast a mail comes in, while one does.
    arrival_rate: Option<ArrivalRate>,
    memory: ByteLease,
    spooled: Option<SpooledMail>,
}

impl SmtpConnection {
    /// Serves a connection to its end.
    pub(super) async fn serve(
        house: Arc<SmtpListenerState>,
        stream: Box<dyn ByteStream>,
        ip: IpAddr,
        visit: ConnectionPermit,
        stop: watch::Receiver<bool>,
    ) {
        let session = SmtpSession::new(Arc::clone(&house.rules), Arc::clone(&house.settings.metrics), ip);
        let now = Instant::now();
        let ends = now + house.settings.timeouts.session;
        let (memory, waiting) = (house.memory_lease(&visit), (now, 0));
        let connection = Self {
            listener: house,
            stream,
            session,
            permit: visit,
            shutdown: stop,
            session_deadline: ends,
            line_wait: waiting,
            arrival_rate: None,
            memory,
            spooled: None,
        };
        mailonce_core::failpoint!("mail-session");
        drop(connection.run().await);
    }

    async fn run(mut self) -> Result<(), ConnectionClosed> {
        loop {
            match self.session.step() {
                SessionStep::Read => {
                    self.flush().await?;
                    self.read().await?;
                }
                SessionStep::CheckMailRate => self.session.on_mail_rate(self.permit.may_begin_mail()),
                SessionStep::CheckRecipient { sender, address } => {
                    let asked = self.listener.receiver.check_recipient(&sender, &address);
                    let verdict = timeout(self.listener.settings.timeouts.recipient_check, asked).await;
                    self.session.on_recipient_status(verdict.unwrap_or(RecipientStatus::TemporaryError));
                }
                SessionStep::ReserveMemory(octets) => {
                    let began = Instant::now();
                    let grown = self.memory.grow(octets, self.listener.settings.timeouts.buffer_space).await;
                    self.session.on_memory_reserved(grown.map_err(reply::for_memory_shortage));
                    self.exclude_wait(began.elapsed());
                }
                SessionStep::Spool(bytes) => {
                    let began = Instant::now();
                    let written = self.spool(bytes).await;
                    self.session.on_spooled(written);
                    self.exclude_wait(began.elapsed());
                }
                SessionStep::CommitMail(mail) => self.commit_mail(mail).await?,
                SessionStep::StartTls => self = Box::pin(self.start_tls()).await?,
                SessionStep::Close => {
                    self.flush().await?;
                    return self.linger().await;
                }
            }
            self.release_unused();
        }
    }

    /// Releases memory and disk space that the session no longer needs.
    fn release_unused(&mut self) {
        self.memory.shrink_to(self.session.memory_octets());
        if self.session.spooled_octets() == 0 {
            self.spooled = None;
        }
        if !self.session.is_reading_data() {
            self.arrival_rate = None;
        }
    }

    /// The client is not slow while we do not read.
    fn exclude_wait(&mut self, waited: Duration) {
        if let Some(rate) = &mut self.arrival_rate {
            rate.exclude(waited);
        }
    }

    /// Writes what is to be said.
    async fn flush(&mut self) -> Result<(), ConnectionClosed> {
        let words = self.session.take_output();
        if words.is_empty() {
            return Ok(());
        }
        let until = Instant::now() + self.listener.settings.timeouts.command;
        let written = async {
            self.stream.write_all(&words).await?;
            self.stream.flush().await
        };
        if let Ok(written) = timeout_at(until, written).await {
            return Ok(written?);
        }
        self.listener.settings.metrics.record_refusal(Reason::Timeout);
        Err(ConnectionClosed)
    }

    /// Waits for bytes, for as long as the moment allows.
    async fn read(&mut self) -> Result<(), ConnectionClosed> {
        let in_text = self.session.is_reading_data();
        let until = self.deadline(in_text);
        let (stream, session) = (&mut self.stream, &mut self.session);
        let stopped = async {
            // A mail that is under way may be finished.
            if in_text {
                std::future::pending::<()>().await;
            }
            // An error says that nobody can stop us any more, which is no reason to go on.
            drop(self.shutdown.wait_for(|stop| *stop).await);
        };
        tokio::select! {
            read = read_into_session(stream, session) => match (read?, &mut self.arrival_rate) {
                (0, _) => return Err(ConnectionClosed),
                (octets, Some(rate)) => rate.record(octets),
                (_, None) => {}
            },
            () = tokio::time::sleep_until(until) => self.session.close_with(reply::TIMED_OUT),
            () = stopped => self.session.close_with(reply::SHUTTING_DOWN),
        }
        Ok(())
    }

    fn deadline(&mut self, in_text: bool) -> Instant {
        let patience = self.listener.settings.timeouts;
        let now = Instant::now();
        let lines = self.session.lines();
        if in_text || lines != self.line_wait.1 {
            self.line_wait = (now, lines);
        }
        if !in_text {
            return (self.line_wait.0 + patience.command).min(self.session_deadline);
        }
        // The credit of a fast beginning is capped, so that it does not pay for an hour of single bytes.
        let rate = self.arrival_rate.get_or_insert_with(|| ArrivalRate::new(patience.slow_grace, patience.data));
        (self.line_wait.0 + patience.data).min(rate.deadline()).min(self.session_deadline)
    }

    /// Moves a part of the mail to the spool.
    async fn spool(&mut self, bytes: Vec<u8>) -> Result<(), SmtpReply> {
        let house = Arc::clone(&self.listener);
        let mail = match self.spooled.take() {
            Some(mail) => mail,
            None => house.spool.create_mail(house.disk_lease(&self.permit)).await.map_err(disk_error_reply)?,
        };
        self.spooled = Some(append_to_spool(&house, mail, bytes.into()).await?);
        Ok(())
    }

    /// Has the mail kept and tells the session. From here on it is kept to the end, whatever becomes of the connection.
    async fn commit_mail(&mut self, mail: ReceivedMail) -> Result<(), ConnectionClosed> {
        mailonce_core::failpoint!("mail-data");
        let held = MailResources { memory: self.take_memory(), spooled: self.spooled.take() };
        let keeping = tokio::spawn(commit_mail(Arc::clone(&self.listener), mail, held));
        // Answers that are still owed do not wait for the commit, and who does not hear them has sent the mail all the
        // same.
        let flushed = self.flush().await;
        let kept = wait_for_commit(keeping, self.listener.settings.timeouts.commit).await;
        mailonce_core::failpoint!("mail-before-250");
        self.session.on_mail_committed(kept);
        flushed
    }

    /// What the mail holds in memory. The next one begins with nothing.
    fn take_memory(&mut self) -> ByteLease {
        std::mem::replace(&mut self.memory, self.listener.memory_lease(&self.permit))
    }

    /// Goes on under TLS.
    async fn start_tls(mut self) -> Result<Self, ConnectionClosed> {
        self.flush().await?;
        let Some(tls) = self.listener.settings.tls.clone() else { return Err(ConnectionClosed) };
        let shaken = timeout(self.listener.settings.timeouts.handshake, tls.acceptor().accept(self.stream)).await;
        let Ok(Ok(stream)) = shaken else {
            self.listener.settings.metrics.record_refusal(Reason::Tls);
            return Err(ConnectionClosed);
        };
        self.session.on_tls_established();
        Ok(Self { stream: Box::new(stream), ..self })
    }

    /// Closes our side and reads a little more: a socket that is closed over unread bytes is reset, and the reset
    /// can overtake our last word.
    async fn linger(mut self) -> Result<(), ConnectionClosed> {
        let until = Instant::now() + LINGER_TIMEOUT;
        timeout_at(until, self.stream.shutdown()).await.map_err(|_late| ConnectionClosed)??;
        let mut rest = (&mut self.stream).take(LINGER_OCTETS as u64);
        let mut heap = vec![0; 4096];
        while timeout_at(until, rest.read(&mut heap)).await.map_err(|_late| ConnectionClosed)?? > 0 {}
        Ok(())
    }
}

/// Reads once, into the session.
async fn read_into_session(stream: &mut Box<dyn ByteStream>, session: &mut SmtpSession) -> io::Result<usize> {
    poll_fn(|cx| {
        let mut space = [MaybeUninit::<u8>::uninit(); READ_OCTETS];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
        session.receive(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    })
    .await
}

/// What a mail holds until it is kept.
struct MailResources {
    memory: ByteLease,
    spooled: Option<SpooledMail>,
}

/// Keeps a mail. A large one is read back from the spool first, once there is memory for it.
async fn commit_mail(
    house: Arc<SmtpListenerState>,
    mut mail: ReceivedMail,
    held: MailResources,
) -> Result<(), SmtpReply> {
    let MailResources { mut memory, spooled } = held;
    if let Some(spooled) = spooled {
        let spooled = append_to_spool(&house, spooled, std::mem::take(&mut mail.raw)).await?;
        // Released before waiting, so that mails that wait for memory cannot block each other.
        memory.shrink_to(0);
        mail.raw = load_from_spool(&house, spooled, &mut memory).await?.into();
    }
    let kept = house.receiver.accept(mail).await.map_err(reply::for_not_accepted);
    drop(memory);
    kept
}

/// Adds a part to a mail in the spool.
async fn append_to_spool(
    house: &SmtpListenerState,
    mut mail: SpooledMail,
    bytes: Bytes,
) -> Result<SpooledMail, SmtpReply> {
    mail.lease.grow(bytes.len(), house.settings.timeouts.buffer_space).await.map_err(reply::for_disk_shortage)?;
    house.spool.append(mail, bytes).await.map_err(disk_error_reply)
}

/// The bytes of a mail in the spool.
async fn load_from_spool(
    house: &SmtpListenerState,
    spooled: SpooledMail,
    memory: &mut ByteLease,
) -> Result<Vec<u8>, SmtpReply> {
    memory.grow(spooled.octets(), house.settings.timeouts.spool_load).await.map_err(reply::for_memory_shortage)?;
    house.spool.load(spooled).await.map_err(|error| {
        tracing::error!(%error, "reading a mail from the spool; its sender was told to try again");
        reply::TEMPORARY_FAILURE
    })
}

/// The disk is full, most likely.
fn disk_error_reply(error: io::Error) -> SmtpReply {
    tracing::warn!(%error, "spooling a mail; its sender was told to try again");
    reply::DISK_FULL
}

/// Waits until it is kept.
async fn wait_for_commit(keeping: JoinHandle<Result<(), SmtpReply>>, patience: Duration) -> Result<(), SmtpReply> {
    match timeout(patience, keeping).await {
        Ok(Ok(kept)) => kept,
        Ok(Err(error)) => {
            tracing::error!(%error, "taking a mail");
            Err(reply::TEMPORARY_FAILURE)
        }
        Err(_) => {
            tracing::warn!("a mail is not kept yet; its sender was told to try again");
            Err(reply::TEMPORARY_FAILURE)
        }
    }
}
