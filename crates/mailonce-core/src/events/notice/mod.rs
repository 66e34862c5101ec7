//! Notices: one event owed to one endpoint, until it was told or given up.
//!
//! Of the open notices of an endpoint about the same subject only the first is ever due; the others stand in line
//! behind it without a time. So a receiver hears of each subject in its order, and a slow subject delays no other.

mod requests;
mod response;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub use requests::{
    FanOutCounts, LeasedNotice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult, ReplayFrom,
};
pub use response::{WebhookError, WebhookVerdict, classify_response, next_retry_delay_ms, retry_delay_ms};

use crate::{
    events::event::{Event, EventKind},
    id::{self, EndpointId, EventId, NodeId, NoticeId, TeamId},
    limits,
    string_enum::string_enum,
    time::Time,
};

string_enum! {
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
    pub trouble: Option<WebhookError>,
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
    pub kind: EventKind,
    /// What the event is about.
    pub subject_id: Uuid,
    /// Grows with each change that a person can see.
    pub rev: u32,
    /// How it is.
    pub state: NoticeState,
    /// Attempts that were begun.
    pub attempts: u32,
    /// Attempts that failed since it was last owed anew.
    pub failures: u32,
    /// All pauses since then, in milliseconds.
    pub total_pause_ms: i64,
    /// When it is due, or when a process has had it for long enough. `None` while it stands in line behind an earlier
    /// one about the same subject, and once it is settled.
    pub due_at: Option<Time>,
    /// The process that is at it.
    pub holder: Option<NodeId>,
    /// When it was owed first.
    pub created_at: Time,
    /// When it was delivered, dropped or given up.
    pub settled_at: Option<Time>,
    /// The latest attempts that ended, in order.
    pub attempt_log: Vec<NoticeAttempt>,
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
            subject_id: event.event.subject_id,
            rev: 1,
            state: NoticeState::Pending,
            attempts: 0,
            failures: 0,
            total_pause_ms: 0,
            due_at: (!in_line).then_some(now),
            holder: None,
            created_at: now,
            settled_at: None,
            attempt_log: Vec::new(),
        }
    }

    /// Whether it is still owed.
    pub fn is_open(&self) -> bool {
        self.state == NoticeState::Pending
    }

    /// Gives it to a process, when it is due. True when it did.
    pub fn lease(&mut self, node: NodeId, now: Time) -> bool {
        if !self.is_open() || self.due_at.is_none_or(|at| at > now) {
            return false;
        }
        self.attempts += 1;
        self.holder = Some(node);
        self.due_at = Some(now.plus(limits::NOTICE_LEASE_MS));
        true
    }

    /// Takes it from a process that ended. True when it did.
    pub fn reclaim_lease(&mut self, now: Time) -> bool {
        let held = self.is_open() && self.holder.is_some();
        if held {
            self.holder = None;
            self.due_at = Some(now);
        }
        held
    }

    /// Writes down how an attempt ended and what that means. False for an attempt that is known or was never begun:
    /// then nothing changes. A success always counts; a failure only of the latest attempt, which decides when the next
    /// one is.
    pub fn record_outcome(&mut self, attempt: NoticeAttempt, answer: WebhookVerdict, chance: u64, now: Time) -> bool {
        let number = attempt.number;
        if number == 0 || number > self.attempts || self.has_recorded(number) {
            return false;
        }
        self.rev += 1;
        self.log_attempt(attempt);
        let latest = number == self.attempts;
        match answer {
            WebhookVerdict::Delivered if self.state != NoticeState::Delivered => {
                self.close(NoticeState::Delivered, now)
            }
            WebhookVerdict::Dropped if self.is_open() => self.close(NoticeState::Dropped, now),
            WebhookVerdict::Gone if self.is_open() && latest => self.record_failure(None, chance, now),
            WebhookVerdict::Retry(asked) if self.is_open() && latest => self.record_failure(asked, chance, now),
            _ => {}
        }
        true
    }

    /// Whether it is known how an attempt ended. Those too old to be kept are.
    fn has_recorded(&self, number: u32) -> bool {
        let full = self.attempt_log.len() >= limits::NOTICE_ATTEMPTS_KEPT;
        self.attempt_log.iter().any(|known| known.number == number)
            || self.attempt_log.first().is_some_and(|oldest| full && number < oldest.number)
    }

    fn log_attempt(&mut self, mut attempt: NoticeAttempt) {
        let cut = attempt.answer.floor_char_boundary(limits::WEBHOOK_RESPONSE_BYTES);
        attempt.answer.truncate(cut);
        self.attempt_log.push(attempt);
        self.attempt_log.sort_by_key(|attempt| attempt.number);
        let surplus = self.attempt_log.len().saturating_sub(limits::NOTICE_ATTEMPTS_KEPT);
        self.attempt_log.drain(..surplus);
    }

    fn close(&mut self, state: NoticeState, now: Time) {
        self.state = state;
        self.due_at = None;
        self.holder = None;
        self.settled_at = Some(now);
    }

    fn record_failure(&mut self, asked: Option<i64>, chance: u64, now: Time) {
        self.holder = None;
        self.failures += 1;
        match next_retry_delay_ms(self.failures, self.total_pause_ms, asked, chance) {
            Some(pause) => {
                self.total_pause_ms += pause;
                self.due_at = Some(now.plus(pause));
            }
            None => self.close(NoticeState::Dead, now),
        }
    }

    /// Owes it anew and at once, with every try before it. False when a process is at it: then nothing changes.
    pub fn replay(&mut self, now: Time) -> bool {
        if self.is_open() && self.holder.is_some() {
            return false;
        }
        self.rev += 1;
        self.state = NoticeState::Pending;
        (self.failures, self.total_pause_ms) = (0, 0);
        self.due_at = Some(now);
        self.settled_at = None;
        true
    }

    /// Whether it failed and waits, or was given up: what is made due again when only failures are.
    pub fn has_failed(&self, now: Time) -> bool {
        let waits = self.is_open() && self.failures > 0 && self.holder.is_none();
        self.state == NoticeState::Dead || (waits && self.due_at.is_some_and(|at| at > now))
    }

    /// When it goes, once it is settled.
    pub fn sweep_at(&self) -> Option<Time> {
        let kept = match self.state {
            NoticeState::Pending => return None,
            NoticeState::Delivered | NoticeState::Dropped => limits::NOTICE_RETENTION_MS,
            NoticeState::Dead => limits::DEAD_NOTICE_RETENTION_MS,
        };
        self.settled_at.map(|at| at.plus(kept))
    }
}

/// Puts the open notices about one subject in line, after one of them changed: the first has a time, the others none,
/// apart from those a process is at. They come in the order of their numbers. Which changed, by their places.
pub fn schedule_in_order(open: &mut [Notice], now: Time) -> Vec<usize> {
    let mut changed = Vec::new();
    for (place, notice) in open.iter_mut().enumerate() {
        let next_at = match (place, notice.holder) {
            (0, _) => Some(notice.due_at.unwrap_or(now)),
            (_, Some(_)) => notice.due_at,
            (_, None) => None,
        };
        if next_at != notice.due_at {
            notice.due_at = next_at;
            changed.push(place);
        }
    }
    changed
}

#[cfg(test)]
mod tests;
