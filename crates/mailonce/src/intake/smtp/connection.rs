//! One connection: a session with a socket, patience and a reception.

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
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinHandle,
    time::{Duration, Instant, timeout, timeout_at},
};

use super::{
    gate::Visit,
    reception::{Mail, NotTaken, Reception, Verdict},
    reply,
    session::{Rules, Session, Step},
    settings::Settings,
    tally::Reason,
};

/// Bytes read at once. They are on the stack of the thread while they are read, not in the connection while it waits.
const READ_OCTETS: usize = 16 * 1024;
/// Memory is counted in pieces of so many octets, since a semaphore's numbers are small.
const PIECE: usize = 1024;
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
}

impl House {
    pub(super) fn new(settings: Settings, reception: Arc<dyn Reception>) -> Self {
        let rules = Rules {
            hostname: settings.hostname.clone(),
            max_size: settings.max_size,
            max_recipients: settings.max_recipients,
            tls: settings.tls.is_some(),
        };
        let pieces = (settings.max_memory / PIECE).clamp(1, u32::MAX as usize);
        Self { rules: Arc::new(rules), reception, memory: Arc::new(Semaphore::new(pieces)), settings }
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
    room: Option<OwnedSemaphorePermit>,
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
        let connection = Self { house, stream, session, visit, stop, ends, waiting: (now, 0), room: None };
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
                    let there = self.make_room(octets).await;
                    self.session.room_is(there);
                }
                Step::Take(mail) => {
                    mailonce_core::failpoint!("mail-data");
                    let taking = self.take(mail);
                    // Answers that are still owed do not wait for the commit, and who does not hear them has sent
                    // the mail all the same.
                    let flushed = self.flush().await;
                    let kept = taken(taking, self.house.settings.patience.taking).await;
                    mailonce_core::failpoint!("mail-before-250");
                    self.session.mail_is(kept);
                    flushed?;
                }
                Step::Secure => self = Box::pin(self.secure()).await?,
                Step::Close => {
                    self.flush().await?;
                    return self.linger().await;
                }
            }
            if self.session.room() == 0 {
                self.room = None;
            }
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
            read = fill(stream, session) => match read? {
                0 => return Err(Over),
                _ => return Ok(()),
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
        let step = if in_text { patience.data } else { patience.command };
        (self.waiting.0 + step).min(self.ends)
    }

    /// Room for so many octets more. Who waits for it too long is told to come again.
    async fn make_room(&mut self, octets: usize) -> bool {
        let pieces = u32::try_from(octets.div_ceil(PIECE)).unwrap_or(u32::MAX);
        let asked = Arc::clone(&self.house.memory).acquire_many_owned(pieces);
        match timeout(self.house.settings.patience.room, asked).await {
            Ok(Ok(more)) => {
                match &mut self.room {
                    Some(room) => room.merge(more),
                    None => self.room = Some(more),
                }
                true
            }
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Gives the mail away. From here on it is kept to the end, whatever becomes of the connection.
    fn take(&mut self, mail: Mail) -> JoinHandle<Result<(), NotTaken>> {
        let reception = Arc::clone(&self.house.reception);
        let room = self.room.take();
        tokio::spawn(async move {
            let kept = reception.take(mail).await;
            drop(room);
            kept
        })
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

/// Waits until it is kept.
async fn taken(taking: JoinHandle<Result<(), NotTaken>>, patience: Duration) -> Result<(), NotTaken> {
    match timeout(patience, taking).await {
        Ok(Ok(kept)) => kept,
        Ok(Err(error)) => {
            tracing::error!(%error, "taking a mail");
            Err(NotTaken::Trouble)
        }
        Err(_) => {
            tracing::warn!("a mail is not kept yet; its sender was told to try again");
            Err(NotTaken::Trouble)
        }
    }
}
