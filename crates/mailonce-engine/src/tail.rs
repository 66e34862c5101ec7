//! The end of a team's events, for those who follow them live.
//!
//! Readers of one team share a short piece of the log in memory, so that a commit costs one look at the ledger however
//! many follow. Whoever is further behind reads the ledger itself. Nothing is kept for a reader: it asks for what it
//! can take, and one that takes nothing costs nothing.

use mailonce_core::{
    endpoint::Filter,
    event::{Cursor, Event, Kind},
    id::{EmailId, InboxId, TeamId},
    limits,
    port::store::{Store, StoreError},
    problem::{Code, Problem},
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use uuid::Uuid;

use crate::{
    Caller, Engine,
    open_keys::KeyWatch,
    ties::{self, Ties},
    told::EventView,
    unavailable,
};

/// Events that one look brings.
const PAGE: usize = 256;
/// Events that readers share.
const KEPT: usize = 1_024;
/// How often the ledger is asked where no commit of others is told.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How often it is asked in any case, should a hint be lost.
const ASK_ANYWAY: Duration = Duration::from_secs(5);

/// Which events somebody wants.
#[derive(Clone, Debug, Default)]
pub struct EventWish {
    /// Of these types; all when empty.
    pub types: Vec<Filter>,
    /// About this.
    pub about: Option<Uuid>,
    /// That happened at this inbox.
    pub inbox: Option<InboxId>,
}

impl EventWish {
    /// Whether an event is wanted.
    pub fn wants(&self, kind: Kind, about: Uuid, inbox: Option<InboxId>) -> bool {
        (self.types.is_empty() || self.types.iter().any(|filter| filter.matches(kind)))
            && self.about.is_none_or(|wanted| wanted == about)
            && self.inbox.is_none_or(|wanted| inbox == Some(wanted))
    }

    /// Whether every event is wanted.
    pub fn is_everything(&self) -> bool {
        self.types.is_empty() && self.about.is_none() && self.inbox.is_none()
    }

    /// Whether an event is wanted.
    pub fn wants_event(&self, event: &Event) -> bool {
        self.wants(event.event.kind, event.event.about, event.event.inbox())
    }
}

/// An event, worded once for all who read it.
#[derive(Debug)]
pub struct Line {
    /// Its number.
    pub seq: u64,
    kind: Kind,
    about: Uuid,
    inbox: Option<InboxId>,
    /// The inbox and the email that it concerns.
    subject: (Option<InboxId>, Option<EmailId>),
    /// As JSON.
    pub json: String,
}

impl Line {
    fn of(event: &Event, epoch: u32) -> Arc<Self> {
        Arc::new(Self {
            seq: event.seq,
            kind: event.event.kind,
            about: event.event.about,
            inbox: event.event.inbox(),
            subject: ties::subject_of(&event.event),
            json: EventView::of(event, epoch).json(),
        })
    }
}

/// The ends of all teams that somebody follows.
#[derive(Default)]
pub(crate) struct Tails {
    known: Mutex<HashMap<TeamId, Weak<Tail>>>,
    closing: watch::Sender<bool>,
    /// Whether the store tells of every commit.
    pub(crate) told: AtomicBool,
}

/// The end of one team's events.
struct Tail {
    /// Counts what was told.
    woken: watch::Sender<u64>,
    piece: tokio::sync::Mutex<Piece>,
}

/// A piece of the log without gaps.
#[derive(Default)]
struct Piece {
    lines: VecDeque<Arc<Line>>,
    /// The number up to which it goes, once it goes anywhere.
    end: Option<u64>,
    /// How much was told when the ledger was last asked, and when that was.
    asked: Option<(u64, Instant)>,
    /// The epoch that its numbers belong to.
    epoch: u32,
}

impl Tails {
    /// How long nobody looks when nobody tells.
    pub(crate) fn patience(&self) -> Duration {
        if self.told.load(Ordering::Relaxed) { ASK_ANYWAY } else { ASK_EVERY }
    }

    /// Tells who follows that there may be more: of this team, or of any.
    pub(crate) fn wake(&self, team: Option<TeamId>) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let wake = |tail: &Weak<Tail>| tail.upgrade().into_iter().for_each(|tail| tail.woken.send_modify(|n| *n += 1));
        match team {
            Some(team) => known.get(&team).into_iter().for_each(wake),
            None => known.values().for_each(wake),
        }
    }

    /// Lets every reader come to its end.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// The tail of a team, kept as long as somebody follows. `None` when too many do.
    fn of(&self, team: TeamId) -> Option<Arc<Tail>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tail) = known.get(&team).and_then(Weak::upgrade) {
            return (Arc::strong_count(&tail) <= limits::STREAMS).then_some(tail);
        }
        known.retain(|_, tail| tail.strong_count() > 0);
        let tail = Arc::new(Tail { woken: watch::Sender::new(0), piece: tokio::sync::Mutex::default() });
        known.insert(team, Arc::downgrade(&tail));
        Some(tail)
    }
}

impl Tail {
    /// Events after a number: from the shared piece where it reaches, else from the ledger.
    async fn after(
        &self,
        store: &dyn Store,
        (team, after): (TeamId, u64),
        (epoch, patience): (u32, Duration),
    ) -> Result<Vec<Arc<Line>>, StoreError> {
        let mut piece = self.piece.lock().await;
        if piece.epoch != epoch {
            *piece = Piece { epoch, ..Piece::default() };
        }
        let end = *piece.end.get_or_insert(after);
        let begin = end - piece.lines.len() as u64;
        if (begin..end).contains(&after) {
            return Ok(piece.lines.iter().skip((after - begin) as usize).take(PAGE).cloned().collect());
        }
        if after < begin {
            drop(piece);
            let found = store.events(team, after, PAGE).await?;
            return Ok(found.iter().map(|event| Line::of(event, epoch)).collect());
        }
        let told = *self.woken.borrow();
        if after == end && piece.asked.is_some_and(|(known, at)| known == told && at.elapsed() < patience) {
            return Ok(Vec::new());
        }
        let found = store.events(team, after, PAGE).await?;
        if store.epoch().is_some_and(|now| now != epoch) {
            // They may be of another history; whoever asked looks at the epoch.
            return Ok(Vec::new());
        }
        let found: Vec<_> = found.iter().map(|event| Line::of(event, epoch)).collect();
        piece.asked = (found.len() < PAGE).then(|| (told, Instant::now()));
        if after > end {
            piece.lines.clear();
        }
        piece.end = Some(found.last().map_or(after, |line| line.seq));
        piece.lines.extend(found.iter().cloned());
        let surplus = piece.lines.len().saturating_sub(KEPT);
        piece.lines.drain(..surplus);
        Ok(found)
    }
}

/// One who follows a team's events.
pub struct Reader {
    engine: Arc<Engine>,
    tail: Arc<Tail>,
    woken: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
    team: TeamId,
    ties: Option<Arc<Ties>>,
    key: KeyWatch,
    wish: EventWish,
    /// The epoch that the stream began in.
    epoch: u32,
    /// The last event that was looked at, wanted or not.
    pub after: u64,
}

impl Reader {
    /// The next wanted events; none when `patience` ran out, `None` when the server closes, the API key no longer counts
    /// or the numbers that the reader has seen are of another history.
    pub async fn next(&mut self, patience: Duration) -> Result<Option<Vec<Arc<Line>>>, Problem> {
        let deadline = Instant::now() + patience;
        loop {
            if *self.closing.borrow() || self.key.check().is_err() {
                return Ok(None);
            }
            self.woken.borrow_and_update();
            let place = (self.team, self.after);
            let how = (self.epoch, self.engine.tails.patience());
            let found = self.tail.after(&*self.engine.store, place, how).await.map_err(unavailable)?;
            if self.engine.epoch() != self.epoch {
                return Ok(None);
            }
            if let Some(last) = found.last() {
                self.after = last.seq;
                let wanted = self.wanted(found).await.map_err(unavailable)?;
                if !wanted.is_empty() {
                    return Ok(Some(wanted));
                }
                continue;
            }
            if Instant::now() >= deadline {
                return Ok(Some(Vec::new()));
            }
            let look = deadline.min(Instant::now() + self.engine.tails.patience());
            tokio::select! {
                // A sender that is gone cannot be: the tail is ours. A deadline is no news either.
                _ = timeout_at(look, self.woken.changed()) => {}
                _ = self.closing.changed() => {}
                () = self.key.over() => {}
            }
        }
    }

    /// Those that the reader asked for and may see.
    async fn wanted(&self, mut lines: Vec<Arc<Line>>) -> Result<Vec<Arc<Line>>, StoreError> {
        lines.retain(|line| self.wish.wants(line.kind, line.about, line.inbox));
        let Some(ties) = &self.ties else { return Ok(lines) };
        let mut own = Vec::new();
        for line in lines {
            if self.engine.concerns(ties, self.team, line.subject).await? {
                own.push(line);
            }
        }
        Ok(own)
    }

    /// From where another stream goes on.
    pub fn cursor(&self) -> Cursor {
        Cursor { epoch: self.epoch, seq: self.after }
    }
}

impl Engine {
    /// Follows the caller's events from a cursor; from the end without one.
    pub async fn follow(
        self: &Arc<Self>,
        caller: &Caller,
        after: Option<Option<Cursor>>,
        wish: EventWish,
    ) -> Result<Reader, Problem> {
        let (team, epoch) = (caller.team.id, self.epoch());
        let after = match after {
            Some(cursor) => {
                let seq = self.seq_of(cursor)?;
                self.check_place(team, seq).await?;
                seq
            }
            None => self.last_event(team).await?,
        };
        self.check_epoch(epoch)?;
        let tail = self.tails.of(team).ok_or_else(|| {
            Problem::new(Code::RateLimited, format!("{} streams of this team are open", limits::STREAMS))
        })?;
        let (woken, closing) = (tail.woken.subscribe(), self.tails.closing.subscribe());
        let (key, ties) = (self.watch_key(caller), caller.ties.clone());
        Ok(Reader { engine: Arc::clone(self), tail, woken, closing, team, ties, key, wish, epoch, after })
    }

    /// Refuses a place that this log never reached.
    pub(crate) async fn check_place(&self, team: TeamId, seq: u64) -> Result<(), Problem> {
        if seq == 0 || !self.store.events(team, seq - 1, 1).await.map_err(unavailable)?.is_empty() {
            return Ok(());
        }
        Err(Problem::new(Code::CursorReset, "this cursor is beyond the last event: it is not of this installation"))
    }

    /// The number of a team's last event, found by halving: the log has no gaps.
    async fn last_event(&self, team: TeamId) -> Result<u64, Problem> {
        let is_there = async |seq: u64| {
            let found = self.store.events(team, seq - 1, 1).await.map_err(unavailable)?;
            Ok::<_, Problem>(!found.is_empty())
        };
        let mut beyond = 1;
        while is_there(beyond).await? {
            beyond *= 2;
        }
        let mut last = beyond / 2;
        while last + 1 < beyond {
            let middle = last.midpoint(beyond);
            if is_there(middle).await? {
                last = middle;
            } else {
                beyond = middle;
            }
        }
        Ok(last)
    }

    /// Ends every stream, so that nobody waits for them when the server stops.
    pub fn end_streams(&self) {
        self.tails.close();
    }
}
