//! Notices: one event owed to one endpoint, until it was told or given up.
//!
//! Of the open notices of an endpoint about the same subject only the first is ever due; the others stand in line
//! behind it without a time. So a receiver hears of each subject in its order, and a slow subject delays no other.

mod answer;
mod wish;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub use answer::{Answer, Trouble, meaning, next_pause, pause};
pub use wish::{NoticeQuery, NoticeSettle, Owed, Recovering, Recovery, Since, Spread};

use crate::{
    event::{Event, Kind},
    id::{self, EndpointId, EventId, NodeId, NoticeId, TeamId},
    limits,
    time::Time,
    words::words,
};

words! {
    /// How a notice is.
    NoticeState {
        /// Owed.
        Pending = "pending",
        /// The receiver has it.
        Delivered = "delivered",
        /// It was tried for a week and given up. It can be tried again.
        Dead = "dead",
        /// The receiver did not want it.
        Dropped = "dropped",
    }
}

/// One attempt at a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeAttempt {
    /// From 1; given with the lease.
    pub number: u32,
    /// When it began.
    pub at: Time,
    /// The status of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long it took, in milliseconds.
    pub latency_ms: u32,
    /// The first bytes of the answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answer: String,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
}

/// One event owed to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Follows from endpoint and event: the same whenever it is owed.
    pub id: NoticeId,
    /// Whose it is.
    pub team: TeamId,
    /// To whom it is owed.
    pub endpoint: EndpointId,
    /// The number of the event.
    pub seq: u64,
    /// What happened.
    pub kind: Kind,
    /// What the event is about.
    pub about: Uuid,
    /// Grows with each change that a person can see.
    pub rev: u32,
    /// How it is.
    pub state: NoticeState,
    /// Attempts that were begun.
    pub attempts: u32,
    /// Attempts that failed since it was last owed anew.
    pub failures: u32,
    /// All pauses since then, in milliseconds.
    pub waited_ms: i64,
    /// When it is due, or when a process has had it for long enough. `None` while it stands in line behind an earlier
    /// one about the same subject, and once it is settled.
    pub next_at: Option<Time>,
    /// The process that is at it.
    pub holder: Option<NodeId>,
    /// When it was owed first.
    pub owed_at: Time,
    /// When it was delivered, dropped or given up.
    pub settled_at: Option<Time>,
    /// The latest attempts that ended, in order.
    pub log: Vec<NoticeAttempt>,
}

/// The id of the notice that owes an event to an endpoint. Sorted by the time of the event.
pub fn notice_id(endpoint: EndpointId, event: EventId) -> NoticeId {
    let sum = Sha256::new().chain_update(b"notice").chain_update(endpoint.0).chain_update(event.0).finalize();
    let tail = sum.iter().take(8).fold(0_i64, |n, byte| (n << 8) | i64::from(*byte));
    NoticeId(id::from_bits(id::ordered_bits(event.0), tail))
}

impl Notice {
    /// Owes an event to an endpoint. In line behind an earlier one, it has no time yet.
    pub fn new(team: TeamId, endpoint: EndpointId, event: &Event, in_line: bool, now: Time) -> Self {
        Self {
            id: notice_id(endpoint, event.id()),
            team,
            endpoint,
            seq: event.seq,
            kind: event.event.kind,
            about: event.event.about,
            rev: 1,
            state: NoticeState::Pending,
            attempts: 0,
            failures: 0,
            waited_ms: 0,
            next_at: (!in_line).then_some(now),
            holder: None,
            owed_at: now,
            settled_at: None,
            log: Vec::new(),
        }
    }

    /// Whether it is still owed.
    pub fn is_open(&self) -> bool {
        self.state == NoticeState::Pending
    }

    /// Gives it to a process, when it is due. True when it did.
    pub fn lease(&mut self, node: NodeId, now: Time) -> bool {
        if !self.is_open() || self.next_at.is_none_or(|at| at > now) {
            return false;
        }
        self.attempts += 1;
        self.holder = Some(node);
        self.next_at = Some(now.plus(limits::NOTICE_HELD_MS));
        true
    }

    /// Takes it from a process that ended. True when it did.
    pub fn give_back(&mut self, now: Time) -> bool {
        let held = self.is_open() && self.holder.is_some();
        if held {
            self.holder = None;
            self.next_at = Some(now);
        }
        held
    }

    /// Writes down how an attempt ended and what that means. False for an attempt that is known or was never begun:
    /// then nothing changes. A success always counts; a failure only of the latest attempt, which decides when the next
    /// one is.
    pub fn settle(&mut self, attempt: NoticeAttempt, answer: Answer, chance: u64, now: Time) -> bool {
        let number = attempt.number;
        if number == 0 || number > self.attempts || self.knows(number) {
            return false;
        }
        self.rev += 1;
        self.note(attempt);
        let latest = number == self.attempts;
        match answer {
            Answer::Delivered if self.state != NoticeState::Delivered => self.end(NoticeState::Delivered, now),
            Answer::Dropped if self.is_open() => self.end(NoticeState::Dropped, now),
            Answer::Gone if self.is_open() && latest => self.fail(None, chance, now),
            Answer::Again(asked) if self.is_open() && latest => self.fail(asked, chance, now),
            _ => {}
        }
        true
    }

    /// Whether it is known how an attempt ended. Those too old to be kept are.
    fn knows(&self, number: u32) -> bool {
        let full = self.log.len() >= limits::NOTICE_ATTEMPTS_KEPT;
        self.log.iter().any(|known| known.number == number)
            || self.log.first().is_some_and(|oldest| full && number < oldest.number)
    }

    fn note(&mut self, mut attempt: NoticeAttempt) {
        let cut = attempt.answer.floor_char_boundary(limits::ANSWER_BYTES);
        attempt.answer.truncate(cut);
        self.log.push(attempt);
        self.log.sort_by_key(|attempt| attempt.number);
        let surplus = self.log.len().saturating_sub(limits::NOTICE_ATTEMPTS_KEPT);
        self.log.drain(..surplus);
    }

    fn end(&mut self, state: NoticeState, now: Time) {
        self.state = state;
        self.next_at = None;
        self.holder = None;
        self.settled_at = Some(now);
    }

    fn fail(&mut self, asked: Option<i64>, chance: u64, now: Time) {
        self.holder = None;
        self.failures += 1;
        match next_pause(self.failures, self.waited_ms, asked, chance) {
            Some(pause) => {
                self.waited_ms += pause;
                self.next_at = Some(now.plus(pause));
            }
            None => self.end(NoticeState::Dead, now),
        }
    }

    /// Owes it anew and at once, with every try before it. False when a process is at it: then nothing changes.
    pub fn replay(&mut self, now: Time) -> bool {
        if self.is_open() && self.holder.is_some() {
            return false;
        }
        self.rev += 1;
        self.state = NoticeState::Pending;
        (self.failures, self.waited_ms) = (0, 0);
        self.next_at = Some(now);
        self.settled_at = None;
        true
    }

    /// Whether it failed and waits, or was given up: what is made due again when only failures are.
    pub fn has_failed(&self, now: Time) -> bool {
        let waits = self.is_open() && self.failures > 0 && self.holder.is_none();
        self.state == NoticeState::Dead || (waits && self.next_at.is_some_and(|at| at > now))
    }

    /// When it goes, once it is settled.
    pub fn sweep_at(&self) -> Option<Time> {
        let kept = match self.state {
            NoticeState::Pending => return None,
            NoticeState::Delivered | NoticeState::Dropped => limits::NOTICE_KEPT_MS,
            NoticeState::Dead => limits::NOTICE_DEAD_KEPT_MS,
        };
        self.settled_at.map(|at| at.plus(kept))
    }
}

/// Puts the open notices about one subject in line, after one of them changed: the first has a time, the others none,
/// apart from those a process is at. They come in the order of their numbers. Which changed, by their places.
pub fn line_up(open: &mut [Notice], now: Time) -> Vec<usize> {
    let mut changed = Vec::new();
    for (place, notice) in open.iter_mut().enumerate() {
        let next_at = match (place, notice.holder) {
            (0, _) => Some(notice.next_at.unwrap_or(now)),
            (_, Some(_)) => notice.next_at,
            (_, None) => None,
        };
        if next_at != notice.next_at {
            notice.next_at = next_at;
            changed.push(place);
        }
    }
    changed
}

#[cfg(test)]
mod tests;
