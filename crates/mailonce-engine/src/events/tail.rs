//! The end of a team's events, for those who follow them live.
//!
//! Readers of one team share a short piece of the log in memory, so that a commit costs one look at the ledger however
//! many follow. Whoever is further behind reads the ledger itself. Nothing is kept for a reader: it asks for what it
//! can take, and one that takes nothing costs nothing.

use crate::{
    access::{
        active_keys::KeyRevocation,
        caller::{Caller, InboxRestriction},
        inbox_restriction,
    },
    events::{Events, event_view::EventView},
    runtime::problems::unavailable,
};
use mailonce_core::{
    events::{
        endpoint::EventTypeFilter,
        event::{Event, EventCursor, EventKind},
    },
    id::{EmailId, InboxId, TeamId},
    limits,
    ports::store::{Store, StoreError},
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

/// Events that one look brings.
const PAGE_SIZE: usize = 256;
/// Events that readers share.
const SHARED_CAPACITY: usize = 1_024;
/// How often the ledger is asked where no commit of others is told.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often it is asked in any case, should a hint be lost.
const FALLBACK_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Which events somebody wants.
#[derive(Clone, Debug, Default)]
pub struct EventSelection {
    /// Of these types; all when empty.
    pub types: Vec<EventTypeFilter>,
    /// About this.
    pub about: Option<Uuid>,
    /// That happened at this inbox.
    pub inbox: Option<InboxId>,
}

impl EventSelection {
    /// Whether an event is wanted.
    pub fn matches(&self, kind: EventKind, about: Uuid, inbox: Option<InboxId>) -> bool {
        (self.types.is_empty() || self.types.iter().any(|filter| filter.matches(kind)))
            && self.about.is_none_or(|wanted| wanted == about)
            && self.inbox.is_none_or(|wanted| inbox == Some(wanted))
    }

    /// Whether every event is wanted.
    pub fn matches_all(&self) -> bool {
        self.types.is_empty() && self.about.is_none() && self.inbox.is_none()
    }

    /// Whether an event is wanted.
    pub fn matches_event(&self, event: &Event) -> bool {
        self.matches(event.event.kind, event.event.subject_id, event.event.inbox())
    }
}

/// An event, worded once for all who read it.
#[derive(Debug)]
pub struct EventLine {
    /// Its number.
    pub seq: u64,
    kind: EventKind,
    about: Uuid,
    inbox: Option<InboxId>,
    /// The inbox and the email that it concerns.
    subject: (Option<InboxId>, Option<EmailId>),
    /// As JSON.
    pub json: String,
}

impl EventLine {
    fn of(event: &Event, epoch: u32) -> Arc<Self> {
        Arc::new(Self {
            seq: event.seq,
            kind: event.event.kind,
            about: event.event.subject_id,
            inbox: event.event.inbox(),
            subject: inbox_restriction::event_subject(&event.event),
            json: EventView::new(event, epoch).to_json(),
        })
    }
}

/// The ends of all teams that somebody follows.
#[derive(Default)]
pub(crate) struct EventTails {
    teams: Mutex<HashMap<TeamId, Weak<TeamTail>>>,
    closing: watch::Sender<bool>,
    /// Whether the store tells of every commit.
    pub(crate) has_push_wake_ups: AtomicBool,
}

/// The end of one team's events.
struct TeamTail {
    /// Counts what was told.
    wakeups: watch::Sender<u64>,
    segment: tokio::sync::Mutex<LogSegment>,
}

/// A piece of the log without gaps.
#[derive(Default)]
struct LogSegment {
    lines: VecDeque<Arc<EventLine>>,
    /// The number up to which it goes, once it goes anywhere.
    end: Option<u64>,
    /// How much was told when the ledger was last asked, and when that was.
    last_read: Option<(u64, Instant)>,
    /// The epoch that its numbers belong to.
    epoch: u32,
}

impl EventTails {
    /// How long nobody looks when nobody tells.
    pub(crate) fn poll_interval(&self) -> Duration {
        if self.has_push_wake_ups.load(Ordering::Relaxed) { FALLBACK_POLL_INTERVAL } else { POLL_INTERVAL }
    }

    /// Tells who follows that there may be more: of this team, or of any.
    pub(crate) fn wake(&self, team: Option<TeamId>) {
        let known = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        let wake =
            |tail: &Weak<TeamTail>| tail.upgrade().into_iter().for_each(|tail| tail.wakeups.send_modify(|n| *n += 1));
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
    fn subscribe(&self, team: TeamId) -> Option<Arc<TeamTail>> {
        let mut known = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tail) = known.get(&team).and_then(Weak::upgrade) {
            return (Arc::strong_count(&tail) <= limits::EVENT_STREAMS).then_some(tail);
        }
        known.retain(|_, tail| tail.strong_count() > 0);
        let tail = Arc::new(TeamTail { wakeups: watch::Sender::new(0), segment: tokio::sync::Mutex::default() });
        known.insert(team, Arc::downgrade(&tail));
        Some(tail)
    }
}

impl TeamTail {
    /// Events after a number: from the shared piece where it reaches, else from the ledger.
    async fn read_after(
        &self,
        store: &dyn Store,
        (team, after): (TeamId, u64),
        (epoch, patience): (u32, Duration),
    ) -> Result<Vec<Arc<EventLine>>, StoreError> {
        let mut piece = self.segment.lock().await;
        if piece.epoch != epoch {
            *piece = LogSegment { epoch, ..LogSegment::default() };
        }
        let end = *piece.end.get_or_insert(after);
        let begin = end - piece.lines.len() as u64;
        if (begin..end).contains(&after) {
            return Ok(piece.lines.iter().skip((after - begin) as usize).take(PAGE_SIZE).cloned().collect());
        }
        if after < begin {
            drop(piece);
            let found = store.events(team, after, PAGE_SIZE).await?;
            return Ok(found.iter().map(|event| EventLine::of(event, epoch)).collect());
        }
        let told = *self.wakeups.borrow();
        if after == end && piece.last_read.is_some_and(|(known, at)| known == told && at.elapsed() < patience) {
            return Ok(Vec::new());
        }
        let found = store.events(team, after, PAGE_SIZE).await?;
        if store.epoch().is_some_and(|now| now != epoch) {
            // They may be of another history; whoever asked looks at the epoch.
            return Ok(Vec::new());
        }
        let found: Vec<_> = found.iter().map(|event| EventLine::of(event, epoch)).collect();
        piece.last_read = (found.len() < PAGE_SIZE).then(|| (told, Instant::now()));
        if after > end {
            piece.lines.clear();
        }
        piece.end = Some(found.last().map_or(after, |line| line.seq));
        piece.lines.extend(found.iter().cloned());
        let surplus = piece.lines.len().saturating_sub(SHARED_CAPACITY);
        piece.lines.drain(..surplus);
        Ok(found)
    }
}

/// One who follows a team's events.
pub struct EventFollower {
    events: Arc<Events>,
    tail: Arc<TeamTail>,
    wakeups: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
    team: TeamId,
    inbox_restriction: Option<Arc<InboxRestriction>>,
    key: KeyRevocation,
    selection: EventSelection,
    /// The epoch that the stream began in.
    epoch: u32,
    /// The last event that was looked at, wanted or not.
    pub after: u64,
}

impl EventFollower {
    /// The next wanted events; none when `patience` ran out, `None` when the server closes, the API key no longer counts
    /// or the numbers that the reader has seen are of another history.
    pub async fn next_events(&mut self, patience: Duration) -> Result<Option<Vec<Arc<EventLine>>>, Problem> {
        let deadline = Instant::now() + patience;
        loop {
            if *self.closing.borrow() || self.key.check_valid().is_err() {
                return Ok(None);
            }
            self.wakeups.borrow_and_update();
            let place = (self.team, self.after);
            let how = (self.epoch, self.events.event_tails.poll_interval());
            let found = self.tail.read_after(&*self.events.ctx.store, place, how).await.map_err(unavailable)?;
            if self.events.ctx.epoch() != self.epoch {
                return Ok(None);
            }
            if let Some(last) = found.last() {
                self.after = last.seq;
                let wanted = self.visible_lines(found).await.map_err(unavailable)?;
                if !wanted.is_empty() {
                    return Ok(Some(wanted));
                }
                continue;
            }
            if Instant::now() >= deadline {
                return Ok(Some(Vec::new()));
            }
            let look = deadline.min(Instant::now() + self.events.event_tails.poll_interval());
            tokio::select! {
                // A sender that is gone cannot be: the tail is ours. A deadline is no news either.
                _ = timeout_at(look, self.wakeups.changed()) => {}
                _ = self.closing.changed() => {}
                () = self.key.wait_until_revoked() => {}
            }
        }
    }

    /// Those that the reader asked for and may see.
    async fn visible_lines(&self, mut lines: Vec<Arc<EventLine>>) -> Result<Vec<Arc<EventLine>>, StoreError> {
        lines.retain(|line| self.selection.matches(line.kind, line.about, line.inbox));
        let Some(ties) = &self.inbox_restriction else { return Ok(lines) };
        let mut own = Vec::new();
        for line in lines {
            if self.events.access.is_within_restriction(ties, self.team, line.subject).await? {
                own.push(line);
            }
        }
        Ok(own)
    }

    /// From where another stream goes on.
    pub fn cursor(&self) -> EventCursor {
        EventCursor { epoch: self.epoch, seq: self.after }
    }
}

impl Events {
    /// Follows the caller's events from a cursor; from the end without one.
    pub async fn follow_events(
        self: &Arc<Self>,
        caller: &Caller,
        after: Option<Option<EventCursor>>,
        wish: EventSelection,
    ) -> Result<EventFollower, Problem> {
        let (team, epoch) = (caller.team.id, self.ctx.epoch());
        let after = match after {
            Some(cursor) => {
                let seq = self.ctx.seq_of(cursor)?;
                self.check_event_seq(team, seq).await?;
                seq
            }
            None => self.last_event_seq(team).await?,
        };
        self.ctx.check_epoch(epoch)?;
        let tail = self.event_tails.subscribe(team).ok_or_else(|| {
            Problem::new(Code::RateLimited, format!("{} streams of this team are open", limits::EVENT_STREAMS))
        })?;
        let (woken, closing) = (tail.wakeups.subscribe(), self.event_tails.closing.subscribe());
        let (key, ties) = (self.access.subscribe_key_revocation(caller), caller.inbox_restriction.clone());
        Ok(EventFollower {
            events: Arc::clone(self),
            tail,
            wakeups: woken,
            closing,
            team,
            inbox_restriction: ties,
            key,
            selection: wish,
            epoch,
            after,
        })
    }

    /// Refuses a place that this log never reached.
    pub(crate) async fn check_event_seq(&self, team: TeamId, seq: u64) -> Result<(), Problem> {
        if seq == 0 || !self.ctx.store.events(team, seq - 1, 1).await.map_err(unavailable)?.is_empty() {
            return Ok(());
        }
        Err(Problem::new(Code::CursorReset, "this cursor is beyond the last event: it is not of this installation"))
    }

    /// The number of a team's last event, found by halving: the log has no gaps.
    async fn last_event_seq(&self, team: TeamId) -> Result<u64, Problem> {
        let is_there = async |seq: u64| {
            let found = self.ctx.store.events(team, seq - 1, 1).await.map_err(unavailable)?;
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
        self.event_tails.close();
    }
}
