//! Requests to the store about notices, and their results.

use uuid::Uuid;

use super::{Notice, NoticeAttempt, NoticeState, WebhookVerdict};
use crate::{
    events::event::{Event, EventKind},
    id::{NoticeId, TeamId},
    time::Time,
};

/// A notice leased to a process, with its event.
#[derive(Clone, Debug, PartialEq)]
pub struct LeasedNotice {
    /// The notice. Its `attempts` is the number of this attempt.
    pub notice: Notice,
    /// The event.
    pub event: Event,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeOutcome {
    /// The team.
    pub team: TeamId,
    /// The notice.
    pub id: NoticeId,
    /// The attempt.
    pub attempt: NoticeAttempt,
    /// What the response means.
    pub verdict: WebhookVerdict,
    /// The jitter that lengthens the next pause; uniformly random over all of `u64`.
    pub jitter_seed: u64,
}

/// A filter for a list of notices.
#[derive(Clone, Debug, Default)]
pub struct NoticeQuery {
    /// In this state.
    pub state: Option<NoticeState>,
    /// Of this type of event.
    pub kind: Option<EventKind>,
    /// About this subject.
    pub subject_id: Option<Uuid>,
    /// Of events before this number.
    pub before: Option<u64>,
    /// The maximum number of notices.
    pub limit: usize,
}

impl NoticeQuery {
    /// Whether a notice passes the filter. The page position is not checked.
    pub fn matches(&self, notice: &Notice) -> bool {
        self.state.is_none_or(|state| notice.state == state)
            && self.kind.is_none_or(|kind| notice.kind == kind)
            && self.subject_id.is_none_or(|about| notice.subject_id == about)
    }
}

/// The result of a fan-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FanOutCounts {
    /// The number of events read, counted per endpoint.
    pub events_read: usize,
    /// The number of new pending notices.
    pub notices_created: usize,
    /// Whether there are more events to read.
    pub has_more: bool,
}

/// Where a replay to an endpoint begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayFrom {
    /// From events at or after this time.
    Time(Time),
    /// From events after this number.
    Event(u64),
}

/// A request to repeat notices of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeRecovery {
    /// Where to begin.
    pub from: ReplayFrom,
    /// Whether delivered notices are repeated too, or only failed ones.
    pub include_delivered: bool,
}

/// The result of a request to repeat notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoticeRecoveryResult {
    /// The number of the last event before the repeated ones.
    pub after_seq: u64,
    /// The number of failed notices that are due now. At [`crate::limits::NOTICES_RECOVERED`] there may be more: call
    /// again.
    pub requeued: usize,
}
