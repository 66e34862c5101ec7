//! Notices: the delivery of one event to one endpoint, until it succeeds or is given up.
//!
//! Of the open notices of an endpoint about the same subject only the first is due. The others queue behind it and have
//! no due time. So a receiver gets the events of each subject in order, and a slow subject delays no other.

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
    /// The state of a notice.
    NoticeState {
        /// To be delivered.
        Pending = "pending",
        /// The receiver accepted it.
        Delivered = "delivered",
        /// A dead letter: given up after a week of retries. It can be replayed.
        Dead = "dead",
        /// The receiver did not want it.
        Dropped = "dropped",
    }
}

/// One attempt at a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeAttempt {
    /// The number, from 1, assigned with the lease.
    pub number: u32,
    /// When it began.
    pub at: Time,
    /// The status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long it took, in milliseconds.
    pub latency_ms: u32,
    /// The first bytes of the response body.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub response: String,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WebhookError>,
}

/// The delivery of one event to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Its id, derived from endpoint and event, so that every repeat has the same one.
    pub id: NoticeId,
    /// Its team.
    pub team: TeamId,
    /// The receiving endpoint.
    pub endpoint: EndpointId,
    /// The number of the event.
    pub seq: u64,
    /// The type of the event.
    pub kind: EventKind,
    /// The subject of the event.
    pub subject_id: Uuid,
    /// The revision. Each change that a person can see increases it.
    pub rev: u32,
    /// Its state.
    pub state: NoticeState,
    /// The number of attempts begun.
    pub attempts: u32,
    /// The number of failed attempts since it was created or replayed.
    pub failures: u32,
    /// The sum of all pauses since then, in milliseconds.
    pub total_pause_ms: i64,
    /// When it is due or, while it is leased, when the lease expires. `None` while it queues behind an earlier one
    /// about the same subject, and once it is settled.
    pub due_at: Option<Time>,
    /// The process that holds its lease.
    pub holder: Option<NodeId>,
    /// When it was created.
    pub created_at: Time,
    /// When it was delivered, dropped or given up.
    pub settled_at: Option<Time>,
    /// The latest finished attempts, in order.
    pub attempt_log: Vec<NoticeAttempt>,
}

/// The id of the notice for an event and an endpoint. Ids sort by the time of the event.
pub fn notice_id(endpoint: EndpointId, event: EventId) -> NoticeId {
    let sum = Sha256::new().chain_update(b"notice").chain_update(endpoint.0).chain_update(event.0).finalize();
    let tail = sum.iter().take(8).fold(0_i64, |n, byte| (n << 8) | i64::from(*byte));
    NoticeId(id::from_bits(id::ordered_bits(event.0), tail))
}

impl Notice {
    /// A new notice. `in_line`: it queues behind an earlier one and has no due time yet.
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

    /// Whether it is still pending.
    pub fn is_open(&self) -> bool {
        self.state == NoticeState::Pending
    }

    /// Leases it to a process, if it is due. Returns whether it did.
    pub fn lease(&mut self, node: NodeId, now: Time) -> bool {
        if !self.is_open() || self.due_at.is_none_or(|at| at > now) {
            return false;
        }
        self.attempts += 1;
        self.holder = Some(node);
        self.due_at = Some(now.plus(limits::NOTICE_LEASE_MS));
        true
    }

    /// Reclaims it from a dead process. Returns whether it did.
    pub fn reclaim_lease(&mut self, now: Time) -> bool {
        let held = self.is_open() && self.holder.is_some();
        if held {
            self.holder = None;
            self.due_at = Some(now);
        }
        held
    }

    /// Records the outcome of an attempt and applies it. Returns false, without a change, for an attempt that was
    /// recorded before or never began. A success always counts. A failure counts only for the latest attempt, because
    /// that one decides when the next is due.
    pub fn record_outcome(
        &mut self,
        attempt: NoticeAttempt,
        answer: WebhookVerdict,
        jitter_seed: u64,
        now: Time,
    ) -> bool {
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
            WebhookVerdict::Gone if self.is_open() && latest => self.record_failure(None, jitter_seed, now),
            WebhookVerdict::Retry(asked) if self.is_open() && latest => self.record_failure(asked, jitter_seed, now),
            _ => {}
        }
        true
    }

    /// Whether the outcome of an attempt was recorded. Attempts too old to be kept count as recorded.
    fn has_recorded(&self, number: u32) -> bool {
        let full = self.attempt_log.len() >= limits::NOTICE_ATTEMPTS_KEPT;
        self.attempt_log.iter().any(|known| known.number == number)
            || self.attempt_log.first().is_some_and(|oldest| full && number < oldest.number)
    }

    fn log_attempt(&mut self, mut attempt: NoticeAttempt) {
        let cut = attempt.response.floor_char_boundary(limits::WEBHOOK_RESPONSE_BYTES);
        attempt.response.truncate(cut);
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

    fn record_failure(&mut self, asked: Option<i64>, jitter_seed: u64, now: Time) {
        self.holder = None;
        self.failures += 1;
        match next_retry_delay_ms(self.failures, self.total_pause_ms, asked, jitter_seed) {
            Some(pause) => {
                self.total_pause_ms += pause;
                self.due_at = Some(now.plus(pause));
            }
            None => self.close(NoticeState::Dead, now),
        }
    }

    /// Makes it due again at once, with all its retries. Returns false, without a change, while a process holds it.
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

    /// Whether it failed and waits for a retry, or was given up. A replay of failures makes these due again.
    pub fn has_failed(&self, now: Time) -> bool {
        let waits = self.is_open() && self.failures > 0 && self.holder.is_none();
        self.state == NoticeState::Dead || (waits && self.due_at.is_some_and(|at| at > now))
    }

    /// When it is deleted, once it is settled.
    pub fn sweep_at(&self) -> Option<Time> {
        let kept = match self.state {
            NoticeState::Pending => return None,
            NoticeState::Delivered | NoticeState::Dropped => limits::NOTICE_RETENTION_MS,
            NoticeState::Dead => limits::DEAD_NOTICE_RETENTION_MS,
        };
        self.settled_at.map(|at| at.plus(kept))
    }
}

/// Orders the open notices about one subject after one of them changed: the first gets a due time, the others none,
/// except those that are leased. `open` is sorted by event number. Returns the indexes of the changed ones.
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
