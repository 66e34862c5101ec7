//! What is asked of the ledger about notices, and what it answers.

use uuid::Uuid;

use super::{Notice, NoticeAttempt, NoticeState, WebhookVerdict};
use crate::{
    events::event::{Event, EventKind},
    id::{NoticeId, TeamId},
    time::Time,
};

/// A notice that a process is at, with what it tells of.
#[derive(Clone, Debug, PartialEq)]
pub struct LeasedNotice {
    /// The notice. The number of this attempt is its `attempts`.
    pub notice: Notice,
    /// The event.
    pub event: Event,
}

/// How an attempt at a notice ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeOutcome {
    /// Whose it is.
    pub team: TeamId,
    /// Which notice.
    pub id: NoticeId,
    /// The attempt.
    pub attempt: NoticeAttempt,
    /// What the answer means.
    pub verdict: WebhookVerdict,
    /// Makes the next pause a little longer; uniform over all of `u64`.
    pub jitter_seed: u64,
}

/// Which notices to list.
#[derive(Clone, Debug, Default)]
pub struct NoticeQuery {
    /// In this state.
    pub state: Option<NoticeState>,
    /// Of this type of event.
    pub kind: Option<EventKind>,
    /// About this.
    pub subject_id: Option<Uuid>,
    /// Of events before this number.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: usize,
}

impl NoticeQuery {
    /// Whether a notice belongs on the page, its place apart.
    pub fn matches(&self, notice: &Notice) -> bool {
        self.state.is_none_or(|state| notice.state == state)
            && self.kind.is_none_or(|kind| notice.kind == kind)
            && self.subject_id.is_none_or(|about| notice.subject_id == about)
    }
}

/// What came of looking for new events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FanOutCounts {
    /// Events that were looked at, counted for each endpoint.
    pub events_read: usize,
    /// Notices that are owed now and were not before.
    pub notices_created: usize,
    /// Whether there is more to look at.
    pub has_more: bool,
}

/// From where an endpoint is to be told again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayFrom {
    /// From events at or after this time.
    Time(Time),
    /// From events after this number.
    Event(u64),
}

/// A wish to tell an endpoint again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeRecovery {
    /// From where.
    pub from: ReplayFrom,
    /// Everything, or only what failed.
    pub include_delivered: bool,
}

/// The answer to a wish to tell an endpoint again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeRecoveryResult {
    /// The number of the last event before those that are told again.
    pub after_seq: u64,
    /// Failed notices that are due now. At [`crate::limits::NOTICES_RECOVERED`] there may be more: ask again.
    pub requeued: usize,
}
