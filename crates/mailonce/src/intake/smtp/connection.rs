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
    gate::Visit,
    reception::{Mail, Reception, Verdict},
    reply::{self, Reply},
    session::{Rules, Session, Step},
    settings::Settings,
    spool::{Spool, SpooledMail},
    tally::Reason,
};
use crate::{
    arrival_rate::ArrivalRate,
    byte_budget::{self, ByteBudget, ByteLease},
};

/// Bytes read at once. They are on the stack of the thread while they are read, not in the connection while it waits.
const READ_OCTETS: usize = 16 * 1024;
/// How long and how much is read after the last word, so that a reset does not overtake it.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_OCTETS: usize = 1024 * 1024;

/// Anything that carries bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What all connections share.
pub(super) struct House {
    pub(super) settings: Settings,
    rules: Arc<Rules>,
    reception: Arc<dyn Reception>,
    memory: Arc<Semaphore>,
    disk: Arc<Semaphore>,
    spool: Spool,
}

impl House {
    pub(super) fn new(settings: Settings, reception: Arc<dyn Reception>) -> Self {
        let rules = Rules {
            hostname: settings.hostname.clone(),
            max_size: settings.max_size,
            max_recipients: settings.max_recipients,
            tls: settings.tls.is_some(),
        };
        Self {
            rules: Arc::new(rules),
            reception,
            memory: byte_budget::octets(settings.max_memory),
            disk: byte_budget::octets(settings.max_spool),
            spool: Spool::new(Arc::clone(&settings.spool)),
            settings,
        }
    }

    /// What a connection may hold in memory.
    fn memory_of(&self, visit: &Visit) -> ByteLease {
        ByteLease::new(ByteBudget { total: Arc::clone(&self.memory), share: visit.shares().memory.clone() })
    }

    /// What a mail of a connection may hold on disk.
    fn disk_of(&self, visit: &Visit) -> ByteLease {
        ByteLease::new(ByteBudget { total: Arc::clone(&self.disk), share: visit.shares().spool.clone() })
    }
}

/// The conversation is over, one way or another.
struct Over;

impl From<io::Error> for Over {
    fn from(_: io::Error) -> Self {
        Self
    }
}

/// A connection that is being served.
pub(super) struct Connection {
    house: Arc<House>,
    stream: Box<dyn Stream>,
    session: Session,
    visit: Visit,
    stop: watch::Receiver<bool>,
    ends: Instant,
    /// Since when a line is waited for, and how many there were then.
    waiting: (Instant, u64),
    /// How fast a mail comes in, while one does.
    rate: Option<ArrivalRate>,
    memory: ByteLease,
    spooled: Option<SpooledMail>,
}

impl Connection {
    /// Serves a connection to its end.
    pub(super) async fn serve(
        house: Arc<House>,
        stream: Box<dyn Stream>,
        ip: IpAddr,
        visit: Visit,
        stop: watch::Receiver<bool>,
    ) {
        let session = Session::new(Arc::clone(&house.rules), Arc::clone(&house.settings.tally), ip);
        let now = Instant::now();
        let ends = now + house.settings.patience.session;
        let (memory, waiting) = (house.memory_of(&visit), (now, 0));
        let connection = Self { house, stream, session, visit, stop, ends, waiting, rate: None, memory, spooled: None };
        mailonce_core::failpoint!("mail-session");
        drop(connection.converse().await);
    }

    async fn converse(mut self) -> Result<(), Over> {
        loop {
            match self.session.step() {
                Step::Read => {
                    self.flush().await?;
                    self.read().await?;
                }
                Step::Begin => self.session.may_begin(self.visit.may_begin()),
                Step::Ask { sender, address } => {
                    let asked = self.house.reception.recipient(&sender, &address);
                    let verdict = timeout(self.house.settings.patience.verdict, asked).await;
                    self.session.recipient_is(verdict.unwrap_or(Verdict::Trouble));
                }
                Step::Room(octets) => {
                    let began = Instant::now();
                    let grown = self.memory.grow(octets, self.house.settings.patience.room).await;
                    self.session.room_is(grown.map_err(reply::no_memory));
                    self.excuse(began.elapsed());
                }
                Step::Spool(bytes) => {
                    let began = Instant::now();
                    let written = self.spool(bytes).await;
                    self.session.spooled_is(written);
                    self.excuse(began.elapsed());
                }
                Step::Take(mail) => self.keep(mail).await?,
                Step::Secure => self = Box::pin(self.secure()).await?,
                Step::Close => {
                    self.flush().await?;
                    return self.linger().await;
                }
            }
            self.give_back();
        }
    }

    /// Releases memory and disk space that the session no longer needs.
    fn give_back(&mut self) {
        self.memory.shrink_to(self.session.room());
        if self.session.spooled() == 0 {
            self.spooled = None;
        }
        if !self.session.in_text() {
            self.rate = None;
        }
    }

    /// The client is not slow while we do not read.
    fn excuse(&mut self, waited: Duration) {
        if let Some(rate) = &mut self.rate {
            rate.excuse(waited);
        }
    }

    /// Writes what is to be said.
    async fn flush(&mut self) -> Result<(), Over> {
        let words = self.session.say_out();
        if words.is_empty() {
            return Ok(());
        }
        let until = Instant::now() + self.house.settings.patience.command;
        let written = async {
            self.stream.write_all(&words).await?;
            self.stream.flush().await
        };
        if let Ok(written) = timeout_at(until, written).await {
            return Ok(written?);
        }
        self.house.settings.tally.refuse(Reason::Timeout);
        Err(Over)
    }

    /// Waits for bytes, for as long as the moment allows.
    async fn read(&mut self) -> Result<(), Over> {
        let in_text = self.session.in_text();
        let until = self.deadline(in_text);
        let (stream, session) = (&mut self.stream, &mut self.session);
        let stopped = async {
            // A mail that is under way may be finished.
            if in_text {
                std::future::pending::<()>().await;
            }
            // An error says that nobody can stop us any more, which is no reason to go on.
            drop(self.stop.wait_for(|stop| *stop).await);
        };
        tokio::select! {
            read = fill(stream, session) => match (read?, &mut self.rate) {
                (0, _) => return Err(Over),
                (octets, Some(rate)) => rate.record(octets),
                (_, None) => {}
            },
            () = tokio::time::sleep_until(until) => self.session.leave(reply::LATE),
            () = stopped => self.session.leave(reply::STOPPING),
        }
        Ok(())
    }

    fn deadline(&mut self, in_text: bool) -> Instant {
        let patience = self.house.settings.patience;
        let now = Instant::now();
        let lines = self.session.lines();
        if in_text || lines != self.waiting.1 {
            self.waiting = (now, lines);
        }
        if !in_text {
            return (self.waiting.0 + patience.command).min(self.ends);
        }
        // The credit of a fast beginning is capped, so that it does not pay for an hour of single bytes.
        let rate = self.rate.get_or_insert_with(|| ArrivalRate::new(patience.slow, patience.data));
        (self.waiting.0 + patience.data).min(rate.deadline()).min(self.ends)
    }

    /// Moves a part of the mail to the spool.
    async fn spool(&mut self, bytes: Vec<u8>) -> Result<(), Reply> {
        let house = Arc::clone(&self.house);
        let mail = match self.spooled.take() {
            Some(mail) => mail,
            None => house.spool.begin(house.disk_of(&self.visit)).await.map_err(disk_failed)?,
        };
        self.spooled = Some(append(&house, mail, bytes.into()).await?);
        Ok(())
    }

    /// Has the mail kept and tells the session. From here on it is kept to the end, whatever becomes of the connection.
    async fn keep(&mut self, mail: Mail) -> Result<(), Over> {
        mailonce_core::failpoint!("mail-data");
        let held = Held { memory: self.take_memory(), spooled: self.spooled.take() };
        let keeping = tokio::spawn(keep(Arc::clone(&self.house), mail, held));
        // Answers that are still owed do not wait for the commit, and who does not hear them has sent the mail all the
        // same.
        let flushed = self.flush().await;
        let kept = until_kept(keeping, self.house.settings.patience.taking).await;
        mailonce_core::failpoint!("mail-before-250");
        self.session.mail_is(kept);
        flushed
    }

    /// What the mail holds in memory. The next one begins with nothing.
    fn take_memory(&mut self) -> ByteLease {
        std::mem::replace(&mut self.memory, self.house.memory_of(&self.visit))
    }

    /// Goes on under TLS.
    async fn secure(mut self) -> Result<Self, Over> {
        self.flush().await?;
        let Some(tls) = self.house.settings.tls.clone() else { return Err(Over) };
        let shaken = timeout(self.house.settings.patience.handshake, tls.acceptor().accept(self.stream)).await;
        let Ok(Ok(stream)) = shaken else {
            self.house.settings.tally.refuse(Reason::Tls);
            return Err(Over);
        };
        self.session.secured();
        Ok(Self { stream: Box::new(stream), ..self })
    }

    /// Closes our side and reads a little more: a socket that is closed over unread bytes is reset, and the reset
    /// can overtake our last word.
    async fn linger(mut self) -> Result<(), Over> {
        let until = Instant::now() + LINGER;
        timeout_at(until, self.stream.shutdown()).await.map_err(|_late| Over)??;
        let mut rest = (&mut self.stream).take(LINGER_OCTETS as u64);
        let mut heap = vec![0; 4096];
        while timeout_at(until, rest.read(&mut heap)).await.map_err(|_late| Over)?? > 0 {}
        Ok(())
    }
}

/// Reads once, into the session.
async fn fill(stream: &mut Box<dyn Stream>, session: &mut Session) -> io::Result<usize> {
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
struct Held {
    memory: ByteLease,
    spooled: Option<SpooledMail>,
}

/// Keeps a mail. A large one is read back from the spool first, once there is memory for it.
async fn keep(house: Arc<House>, mut mail: Mail, held: Held) -> Result<(), Reply> {
    let Held { mut memory, spooled } = held;
    if let Some(spooled) = spooled {
        let spooled = append(&house, spooled, std::mem::take(&mut mail.raw)).await?;
        // Released before waiting, so that mails that wait for memory cannot block each other.
        memory.shrink_to(0);
        mail.raw = load(&house, spooled, &mut memory).await?.into();
    }
    let kept = house.reception.take(mail).await.map_err(reply::not_taken);
    drop(memory);
    kept
}

/// Adds a part to a mail in the spool.
async fn append(house: &House, mut mail: SpooledMail, bytes: Bytes) -> Result<SpooledMail, Reply> {
    mail.lease.grow(bytes.len(), house.settings.patience.room).await.map_err(reply::no_disk)?;
    house.spool.append(mail, bytes).await.map_err(disk_failed)
}

/// The bytes of a mail in the spool.
async fn load(house: &House, spooled: SpooledMail, memory: &mut ByteLease) -> Result<Vec<u8>, Reply> {
    memory.grow(spooled.octets(), house.settings.patience.load).await.map_err(reply::no_memory)?;
    house.spool.load(spooled).await.map_err(|error| {
        tracing::error!(%error, "reading a mail from the spool; its sender was told to try again");
        reply::TROUBLE
    })
}

/// The disk is full, most likely.
fn disk_failed(error: io::Error) -> Reply {
    tracing::warn!(%error, "spooling a mail; its sender was told to try again");
    reply::NO_DISK
}

/// Waits until it is kept.
async fn until_kept(keeping: JoinHandle<Result<(), Reply>>, patience: Duration) -> Result<(), Reply> {
    match timeout(patience, keeping).await {
        Ok(Ok(kept)) => kept,
        Ok(Err(error)) => {
            tracing::error!(%error, "taking a mail");
            Err(reply::TROUBLE)
        }
        Err(_) => {
            tracing::warn!("a mail is not kept yet; its sender was told to try again");
            Err(reply::TROUBLE)
        }
    }
}
