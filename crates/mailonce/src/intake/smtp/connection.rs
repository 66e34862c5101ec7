//! One connection: runs a session over a socket, with timeouts, and passes mails to the receiver.

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

/// Size of the read buffer. It is on the thread's stack during a read, so that an idle connection needs no buffer.
const READ_OCTETS: usize = 16 * 1024;
/// Time and octets for reading after the last reply, so that a TCP reset does not overtake the reply.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const LINGER_OCTETS: usize = 1024 * 1024;

/// A bidirectional byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// State shared by all connections.
pub(super) struct SmtpListenerState {
    pub(super) settings: SmtpSettings,
    rules: Arc<SessionConfig>,
    receiver: Arc<dyn MailReceiver>,
    memory: Arc<Semaphore>,
    disk: Arc<Semaphore>,
    spool: Spool,
}

impl SmtpListenerState {
    pub(super) fn new(settings: SmtpSettings, receiver: Arc<dyn MailReceiver>) -> Self {
        let session_config = SessionConfig {
            hostname: settings.hostname.clone(),
            max_size: settings.max_size,
            max_recipients: settings.max_recipients,
            tls: settings.tls.is_some(),
        };
        Self {
            rules: Arc::new(session_config),
            receiver,
            memory: byte_budget::semaphore_for(settings.max_memory),
            disk: byte_budget::semaphore_for(settings.max_spool),
            spool: Spool::new(Arc::clone(&settings.spool)),
            settings,
        }
    }

    /// An empty lease on memory for a connection.
    fn memory_lease(&self, permit: &ConnectionPermit) -> ByteLease {
        ByteLease::new(ByteBudget { total: Arc::clone(&self.memory), share: permit.shares().memory.clone() })
    }

    /// An empty lease on disk space for a mail of a connection.
    fn disk_lease(&self, permit: &ConnectionPermit) -> ByteLease {
        ByteLease::new(ByteBudget { total: Arc::clone(&self.disk), share: permit.shares().spool.clone() })
    }
}

/// The connection is closed, for whatever reason.
struct ConnectionClosed;

impl From<io::Error> for ConnectionClosed {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// The wait for the current line.
struct LineWait {
    since: Instant,
    lines_before: u64,
}

/// An open connection.
pub(super) struct SmtpConnection {
    listener: Arc<SmtpListenerState>,
    stream: Box<dyn ByteStream>,
    session: SmtpSession,
    permit: ConnectionPermit,
    shutdown: watch::Receiver<bool>,
    session_deadline: Instant,
    line_wait: LineWait,
    /// The arrival rate of the mail that is being received.
    arrival_rate: Option<ArrivalRate>,
    memory: ByteLease,
    spooled: Option<SpooledMail>,
}

impl SmtpConnection {
    /// Serves a connection to its end.
    pub(super) async fn serve(
        listener: Arc<SmtpListenerState>,
        stream: Box<dyn ByteStream>,
        ip: IpAddr,
        permit: ConnectionPermit,
        shutdown: watch::Receiver<bool>,
    ) {
        let session = SmtpSession::new(Arc::clone(&listener.rules), Arc::clone(&listener.settings.metrics), ip);
        let now = Instant::now();
        let session_deadline = now + listener.settings.timeouts.session;
        let (memory, line_wait) = (listener.memory_lease(&permit), LineWait { since: now, lines_before: 0 });
        let connection = Self {
            listener,
            stream,
            session,
            permit,
            shutdown,
            session_deadline,
            line_wait,
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
                    let check = self.listener.receiver.check_recipient(&sender, &address);
                    let verdict = timeout(self.listener.settings.timeouts.recipient_check, check).await;
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

    /// Time during which the server did not read does not count as slowness of the client.
    fn exclude_wait(&mut self, waited: Duration) {
        if let Some(rate) = &mut self.arrival_rate {
            rate.exclude(waited);
        }
    }

    /// Writes pending replies.
    async fn flush(&mut self) -> Result<(), ConnectionClosed> {
        let output = self.session.take_output();
        if output.is_empty() {
            return Ok(());
        }
        let deadline = Instant::now() + self.listener.settings.timeouts.command;
        let written = async {
            self.stream.write_all(&output).await?;
            self.stream.flush().await
        };
        if let Ok(written) = timeout_at(deadline, written).await {
            return Ok(written?);
        }
        self.listener.settings.metrics.record_refusal(Reason::Timeout);
        Err(ConnectionClosed)
    }

    /// Waits for bytes until the deadline of the current phase.
    async fn read(&mut self) -> Result<(), ConnectionClosed> {
        let in_data = self.session.is_reading_data();
        let deadline = self.deadline(in_data);
        let (stream, session) = (&mut self.stream, &mut self.session);
        let stopped = async {
            // A mail that is being received may be finished.
            if in_data {
                std::future::pending::<()>().await;
            }
            // An error means that the sender was dropped, which also means shutdown.
            drop(self.shutdown.wait_for(|stop| *stop).await);
        };
        tokio::select! {
            read = read_into_session(stream, session) => match (read?, &mut self.arrival_rate) {
                (0, _) => return Err(ConnectionClosed),
                (octets, Some(rate)) => rate.record(octets),
                (_, None) => {}
            },
            () = tokio::time::sleep_until(deadline) => self.session.close_with(reply::TIMED_OUT),
            () = stopped => self.session.close_with(reply::SHUTTING_DOWN),
        }
        Ok(())
    }

    fn deadline(&mut self, in_data: bool) -> Instant {
        let timeouts = self.listener.settings.timeouts;
        let now = Instant::now();
        let lines = self.session.lines();
        if in_data || lines != self.line_wait.lines_before {
            self.line_wait = LineWait { since: now, lines_before: lines };
        }
        if !in_data {
            return (self.line_wait.since + timeouts.command).min(self.session_deadline);
        }
        // The credit for a fast start is capped, so that it does not allow an hour of single bytes.
        let rate = self.arrival_rate.get_or_insert_with(|| ArrivalRate::new(timeouts.slow_grace, timeouts.data));
        (self.line_wait.since + timeouts.data).min(rate.deadline()).min(self.session_deadline)
    }

    /// Moves a part of the mail to the spool.
    async fn spool(&mut self, bytes: Vec<u8>) -> Result<(), SmtpReply> {
        let listener = Arc::clone(&self.listener);
        let mail = match self.spooled.take() {
            Some(mail) => mail,
            None => listener.spool.create_mail(listener.disk_lease(&self.permit)).await.map_err(disk_error_reply)?,
        };
        self.spooled = Some(append_to_spool(&listener, mail, bytes.into()).await?);
        Ok(())
    }

    /// Commits the mail and reports the result to the session. The commit runs in its own task, so it completes even if
    /// the connection breaks.
    async fn commit_mail(&mut self, mail: ReceivedMail) -> Result<(), ConnectionClosed> {
        mailonce_core::failpoint!("mail-data");
        let resources = MailResources { memory: self.take_memory(), spooled: self.spooled.take() };
        let commit = tokio::spawn(commit_mail(Arc::clone(&self.listener), mail, resources));
        // Pending replies do not wait for the commit. If they cannot be written, the mail is committed all the same.
        let flushed = self.flush().await;
        let committed = wait_for_commit(commit, self.listener.settings.timeouts.commit).await;
        mailonce_core::failpoint!("mail-before-250");
        self.session.on_mail_committed(committed);
        flushed
    }

    /// Takes the mail's memory lease. The next mail begins with an empty one.
    fn take_memory(&mut self) -> ByteLease {
        std::mem::replace(&mut self.memory, self.listener.memory_lease(&self.permit))
    }

    /// Performs the TLS handshake and continues the session over TLS.
    async fn start_tls(mut self) -> Result<Self, ConnectionClosed> {
        self.flush().await?;
        let Some(tls) = self.listener.settings.tls.clone() else { return Err(ConnectionClosed) };
        let handshake = timeout(self.listener.settings.timeouts.handshake, tls.acceptor().accept(self.stream)).await;
        let Ok(Ok(stream)) = handshake else {
            self.listener.settings.metrics.record_refusal(Reason::Tls);
            return Err(ConnectionClosed);
        };
        self.session.on_tls_established();
        Ok(Self { stream: Box::new(stream), ..self })
    }

    /// Closes the sending side and reads a little more. Closing a socket with unread bytes sends a reset, which could
    /// overtake the last reply.
    async fn linger(mut self) -> Result<(), ConnectionClosed> {
        let deadline = Instant::now() + LINGER_TIMEOUT;
        timeout_at(deadline, self.stream.shutdown()).await.map_err(|_late| ConnectionClosed)??;
        let mut rest = (&mut self.stream).take(LINGER_OCTETS as u64);
        let mut buffer = vec![0; 4096];
        while timeout_at(deadline, rest.read(&mut buffer)).await.map_err(|_late| ConnectionClosed)?? > 0 {}
        Ok(())
    }
}

/// Reads once and passes the bytes to the session.
async fn read_into_session(stream: &mut Box<dyn ByteStream>, session: &mut SmtpSession) -> io::Result<usize> {
    poll_fn(|cx| {
        let mut bytes = [MaybeUninit::<u8>::uninit(); READ_OCTETS];
        let mut buffer = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
        session.receive(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    })
    .await
}

/// The resources that a mail holds until it is committed.
struct MailResources {
    memory: ByteLease,
    spooled: Option<SpooledMail>,
}

/// Commits a mail. A large mail is first read back from the spool, once there is memory for it.
async fn commit_mail(
    listener: Arc<SmtpListenerState>,
    mut mail: ReceivedMail,
    resources: MailResources,
) -> Result<(), SmtpReply> {
    let MailResources { mut memory, spooled } = resources;
    if let Some(spooled) = spooled {
        let spooled = append_to_spool(&listener, spooled, std::mem::take(&mut mail.raw)).await?;
        // Released before the wait, so that mails that wait for memory cannot block each other.
        memory.shrink_to(0);
        mail.raw = load_from_spool(&listener, spooled, &mut memory).await?.into();
    }
    let committed = listener.receiver.accept(mail).await.map_err(reply::for_not_accepted);
    drop(memory);
    committed
}

/// Appends bytes to a mail in the spool.
async fn append_to_spool(
    listener: &SmtpListenerState,
    mut mail: SpooledMail,
    bytes: Bytes,
) -> Result<SpooledMail, SmtpReply> {
    mail.lease.grow(bytes.len(), listener.settings.timeouts.buffer_space).await.map_err(reply::for_disk_shortage)?;
    listener.spool.append(mail, bytes).await.map_err(disk_error_reply)
}

/// The bytes of a mail in the spool.
async fn load_from_spool(
    listener: &SmtpListenerState,
    spooled: SpooledMail,
    memory: &mut ByteLease,
) -> Result<Vec<u8>, SmtpReply> {
    memory.grow(spooled.octets(), listener.settings.timeouts.spool_load).await.map_err(reply::for_memory_shortage)?;
    listener.spool.load(spooled).await.map_err(|error| {
        tracing::error!(%error, "reading a mail from the spool failed; its sender was told to try again");
        reply::TEMPORARY_FAILURE
    })
}

/// Logs an error of the spool and returns the reply. Most likely the disk is full.
fn disk_error_reply(error: io::Error) -> SmtpReply {
    tracing::warn!(%error, "writing a mail to the spool failed; its sender was told to try again");
    reply::DISK_FULL
}

/// Waits until the mail is committed.
async fn wait_for_commit(commit: JoinHandle<Result<(), SmtpReply>>, limit: Duration) -> Result<(), SmtpReply> {
    match timeout(limit, commit).await {
        Ok(Ok(committed)) => committed,
        Ok(Err(error)) => {
            tracing::error!(%error, "the task that commits a mail failed; its sender was told to try again");
            Err(reply::TEMPORARY_FAILURE)
        }
        Err(_) => {
            tracing::warn!("a mail was not committed within the timeout; its sender was told to try again");
            Err(reply::TEMPORARY_FAILURE)
        }
    }
}
