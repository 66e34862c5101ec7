//! Live streams of a team's events.
//!
//! All followers of a team share the latest events in memory, so that a commit costs one query, however many follow.
//! A follower that is further behind reads from the store. Nothing is buffered per follower: it pulls events when it
//! has room, so a slow follower costs no memory.

use crate::{
    access::{
        active_keys::KeyRevocation,
        caller::{Caller, InboxRestriction},
        inbox_restriction,
    },
    events::{Events, event_view::EventView, queries::check_no_gap},
    runtime::problems::unavailable,
};
use mailonce_core::{
    events::{
        endpoint::EventTypePattern,
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

/// How many events one query reads.
const PAGE_SIZE: usize = 256;
/// How many events of a team are shared in memory.
const SHARED_CAPACITY: usize = 1_024;
/// How often the store is queried when it pushes no wake-ups.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often the store is queried when it pushes wake-ups, in case one is lost.
const FALLBACK_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// A filter for events.
#[derive(Clone, Debug, Default)]
pub struct EventSelection {
    /// The event types; all when empty.
    pub types: Vec<EventTypePattern>,
    /// The id of the resource that the events are about.
    pub about: Option<Uuid>,
    /// The inbox that the events belong to.
    pub inbox: Option<InboxId>,
}

impl EventSelection {
    /// Whether an event with these properties matches.
    pub fn matches(&self, kind: EventKind, about: Uuid, inbox: Option<InboxId>) -> bool {
        (self.types.is_empty() || self.types.iter().any(|filter| filter.matches(kind)))
            && self.about.is_none_or(|wanted| wanted == about)
            && self.inbox.is_none_or(|wanted| inbox == Some(wanted))
    }

    /// Whether every event matches.
    pub fn matches_all(&self) -> bool {
        self.types.is_empty() && self.about.is_none() && self.inbox.is_none()
    }

    /// Whether an event matches.
    pub fn matches_event(&self, event: &Event) -> bool {
        self.matches(event.event.kind, event.event.subject_id, event.event.inbox())
    }
}

/// An event, serialized once for all followers.
#[derive(Debug)]
pub struct EventLine {
    /// Its sequence number.
    pub seq: u64,
    kind: EventKind,
    about: Uuid,
    inbox: Option<InboxId>,
    /// The inbox and the email that it concerns.
    subject: (Option<InboxId>, Option<EmailId>),
    /// The event as JSON.
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

/// The event tails of all teams that have followers.
#[derive(Default)]
pub(crate) struct EventTails {
    teams: Mutex<HashMap<TeamId, Weak<TeamTail>>>,
    closing: watch::Sender<bool>,
    /// Whether the store pushes a wake-up for every commit.
    pub(crate) has_push_wake_ups: AtomicBool,
}

/// The latest events of one team, and the wake-ups of its followers.
struct TeamTail {
    /// Counts the wake-ups.
    wakeups: watch::Sender<u64>,
    segment: tokio::sync::Mutex<LogSegment>,
}

/// A part of the event log without gaps.
#[derive(Default)]
struct LogSegment {
    lines: VecDeque<Arc<EventLine>>,
    /// The sequence number of the last event read, also when it is not in `lines`. `None` before the first read.
    end: Option<u64>,
    /// The wake-up count at the last read that reached the end of the log, and the time of that read.
    last_read: Option<(u64, Instant)>,
    /// The epoch that the sequence numbers belong to.
    epoch: u32,
}

impl EventTails {
    /// How often followers query the store without a wake-up.
    pub(crate) fn poll_interval(&self) -> Duration {
        if self.has_push_wake_ups.load(Ordering::Relaxed) { FALLBACK_POLL_INTERVAL } else { POLL_INTERVAL }
    }

    /// Wakes the followers of one team, or of all.
    pub(crate) fn wake(&self, team: Option<TeamId>) {
        let known = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        let wake =
            |tail: &Weak<TeamTail>| tail.upgrade().into_iter().for_each(|tail| tail.wakeups.send_modify(|n| *n += 1));
        match team {
            Some(team) => known.get(&team).into_iter().for_each(wake),
            None => known.values().for_each(wake),
        }
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// The tail of a team, which lives as long as it has followers. `None` when the team has too many.
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
    /// Events after a sequence number, from the shared segment if it reaches that far, otherwise from the store.
    async fn read_after(
        &self,
        store: &dyn Store,
        (team, after): (TeamId, u64),
        (epoch, poll_interval): (u32, Duration),
    ) -> Result<Vec<Arc<EventLine>>, StoreError> {
        let mut segment = self.segment.lock().await;
        if segment.epoch != epoch {
            *segment = LogSegment { epoch, ..LogSegment::default() };
        }
        let end = *segment.end.get_or_insert(after);
        let begin = end - segment.lines.len() as u64;
        if (begin..end).contains(&after) {
            return Ok(segment.lines.iter().skip((after - begin) as usize).take(PAGE_SIZE).cloned().collect());
        }
        if after < begin {
            drop(segment);
            let found = store.events(team, after, PAGE_SIZE).await?;
            return Ok(found.iter().map(|event| EventLine::of(event, epoch)).collect());
        }
        let wakeup_count = *self.wakeups.borrow();
        if after == end
            && segment.last_read.is_some_and(|(known, at)| known == wakeup_count && at.elapsed() < poll_interval)
        {
            return Ok(Vec::new());
        }
        let found = store.events(team, after, PAGE_SIZE).await?;
        if store.epoch().is_some_and(|now| now != epoch) {
            // The events may belong to a new epoch. The caller checks the epoch afterwards.
            return Ok(Vec::new());
        }
        let found: Vec<_> = found.iter().map(|event| EventLine::of(event, epoch)).collect();
        segment.last_read = (found.len() < PAGE_SIZE).then(|| (wakeup_count, Instant::now()));
        // Events that were deleted leave a gap before the first one.
        if after > end || found.first().is_some_and(|line| line.seq > after + 1) {
            segment.lines.clear();
        }
        segment.end = Some(found.last().map_or(after, |line| line.seq));
        segment.lines.extend(found.iter().cloned());
        let surplus = segment.lines.len().saturating_sub(SHARED_CAPACITY);
        segment.lines.drain(..surplus);
        Ok(found)
    }
}

/// One live stream of a team's events.
pub struct EventFollower {
    events: Arc<Events>,
    tail: Arc<TeamTail>,
    wakeups: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
    team: TeamId,
    inbox_restriction: Option<Arc<InboxRestriction>>,
    key: KeyRevocation,
    selection: EventSelection,
    /// The epoch that the stream started in.
    epoch: u32,
    /// The sequence number of the last event read, whether it matched or not.
    pub after: u64,
}

impl EventFollower {
    /// The next matching events. The list is empty when `timeout` passes without any. `None` ends the stream: the
    /// server shuts down, the API key was revoked, the epoch changed, or events were deleted that it had not read yet.
    pub async fn next_events(&mut self, timeout: Duration) -> Result<Option<Vec<Arc<EventLine>>>, Problem> {
        let deadline = Instant::now() + timeout;
        loop {
            if *self.closing.borrow() || self.key.check_valid().is_err() {
                return Ok(None);
            }
            self.wakeups.borrow_and_update();
            let position = (self.team, self.after);
            let freshness = (self.epoch, self.events.event_tails.poll_interval());
            let found =
                self.tail.read_after(&*self.events.ctx.store, position, freshness).await.map_err(unavailable)?;
            if self.events.ctx.epoch() != self.epoch {
                return Ok(None);
            }
            if found.first().is_some_and(|line| line.seq > self.after + 1) {
                return Ok(None);
            }
            if let Some(last) = found.last() {
                self.after = last.seq;
                let visible = self.visible_lines(found).await.map_err(unavailable)?;
                if !visible.is_empty() {
                    return Ok(Some(visible));
                }
                continue;
            }
            if Instant::now() >= deadline {
                return Ok(Some(Vec::new()));
            }
            let wake_at = deadline.min(Instant::now() + self.events.event_tails.poll_interval());
            tokio::select! {
                // Neither result matters: we hold the tail, so its sender is alive, and after a timeout we query again.
                _ = timeout_at(wake_at, self.wakeups.changed()) => {}
                _ = self.closing.changed() => {}
                () = self.key.wait_until_revoked() => {}
            }
        }
    }

    /// The events that match the selection and that the caller may see.
    async fn visible_lines(&self, mut lines: Vec<Arc<EventLine>>) -> Result<Vec<Arc<EventLine>>, StoreError> {
        lines.retain(|line| self.selection.matches(line.kind, line.about, line.inbox));
        let Some(restriction) = &self.inbox_restriction else { return Ok(lines) };
        let mut visible = Vec::new();
        for line in lines {
            if self.events.access.is_within_restriction(restriction, self.team, line.subject).await? {
                visible.push(line);
            }
        }
        Ok(visible)
    }

    /// The cursor to resume from.
    pub fn cursor(&self) -> EventCursor {
        EventCursor { epoch: self.epoch, seq: self.after }
    }
}

impl Events {
    /// Follows the events of the caller's team after a cursor, or from the end without one.
    pub async fn follow_events(
        self: &Arc<Self>,
        caller: &Caller,
        after: Option<Option<EventCursor>>,
        selection: EventSelection,
    ) -> Result<EventFollower, Problem> {
        let (team, epoch) = (caller.team.id, self.ctx.epoch());
        let after = match after {
            Some(None) => self.seq_before_oldest(team).await?,
            Some(cursor) => {
                let seq = self.ctx.seq_of(cursor)?;
                self.check_kept_after(team, seq).await?;
                self.check_event_seq(team, seq).await?;
                seq
            }
            None => self.last_event_seq(team).await?,
        };
        self.ctx.check_epoch(epoch)?;
        let tail = self.event_tails.subscribe(team).ok_or_else(|| {
            Problem::new(
                Code::RateLimited,
                format!("this team already has {} open streams, the most allowed", limits::EVENT_STREAMS),
            )
        })?;
        let (wakeups, closing) = (tail.wakeups.subscribe(), self.event_tails.closing.subscribe());
        let (key, restriction) = (self.access.subscribe_key_revocation(caller), caller.inbox_restriction.clone());
        Ok(EventFollower {
            events: Arc::clone(self),
            tail,
            wakeups,
            closing,
            team,
            inbox_restriction: restriction,
            key,
            selection,
            epoch,
            after,
        })
    }

    /// Refuses a sequence number after which events were deleted.
    pub(crate) async fn check_kept_after(&self, team: TeamId, seq: u64) -> Result<(), Problem> {
        check_no_gap(seq, &self.ctx.store.events(team, seq, 1).await.map_err(unavailable)?)
    }

    /// The sequence number before the oldest event that is kept.
    async fn seq_before_oldest(&self, team: TeamId) -> Result<u64, Problem> {
        let oldest = self.ctx.store.events(team, 0, 1).await.map_err(unavailable)?;
        Ok(oldest.first().map_or(0, |event| event.seq - 1))
    }

    /// Refuses a sequence number beyond the last event.
    pub(crate) async fn check_event_seq(&self, team: TeamId, seq: u64) -> Result<(), Problem> {
        if seq == 0 || !self.ctx.store.events(team, seq - 1, 1).await.map_err(unavailable)?.is_empty() {
            return Ok(());
        }
        Err(Problem::new(
            Code::CursorReset,
            "this cursor is beyond the last event, so it belongs to another installation",
        ))
    }

    /// The sequence number of a team's last event, found by binary search: numbers have no gaps, and the latest event is
    /// never deleted.
    async fn last_event_seq(&self, team: TeamId) -> Result<u64, Problem> {
        let exists = async |seq: u64| {
            let found = self.ctx.store.events(team, seq - 1, 1).await.map_err(unavailable)?;
            Ok::<_, Problem>(!found.is_empty())
        };
        let mut beyond = 1;
        while exists(beyond).await? {
            beyond *= 2;
        }
        let mut last = beyond / 2;
        while last + 1 < beyond {
            let middle = last.midpoint(beyond);
            if exists(middle).await? {
                last = middle;
            } else {
                beyond = middle;
            }
        }
        Ok(last)
    }

    /// Ends every stream, so that open streams don't delay the shutdown.
    pub fn end_streams(&self) {
        self.event_tails.close();
    }
}
