//! Events, webhook endpoints and notices.

pub mod endpoints;
pub(crate) mod event_format;
pub mod event_view;
pub(crate) mod message_texts;
pub mod notices;
pub mod notifier;
pub mod queries;
pub mod tail;

use mailonce_core::id::TeamId;
use std::sync::{Arc, atomic::Ordering};
use tokio::sync::{Notify, Semaphore};

use crate::{access::Access, runtime::context::Context};

/// How many endpoint tests may run at a time.
const MAX_ENDPOINT_TESTS: usize = 16;

/// Events, webhook endpoints and notices.
pub struct Events {
    ctx: Arc<Context>,
    access: Arc<Access>,
    /// The latest events of the teams that have live streams.
    event_tails: Arc<tail::EventTails>,
    /// Wakes the worker that sends webhooks.
    notice_wakeup: Arc<Notify>,
    /// Permits for endpoint tests.
    endpoint_test_permits: Semaphore,
}

impl Events {
    pub(crate) fn new(ctx: Arc<Context>, access: Arc<Access>, wake_ups: EventWakeUps) -> Self {
        Self {
            ctx,
            access,
            event_tails: wake_ups.event_tails,
            notice_wakeup: wake_ups.notice_wakeup,
            endpoint_test_permits: Semaphore::new(MAX_ENDPOINT_TESTS),
        }
    }
}

/// What the store's hook for events wakes. It exists before the service, because the store gets its hooks first.
#[derive(Clone, Default)]
pub(crate) struct EventWakeUps {
    event_tails: Arc<tail::EventTails>,
    notice_wakeup: Arc<Notify>,
    search_wakeup: Arc<Notify>,
}

impl EventWakeUps {
    /// What wakes the indexer of search.
    pub(crate) fn search_wakeup(&self) -> Arc<Notify> {
        Arc::clone(&self.search_wakeup)
    }

    /// Wakes streams, the notifier and the indexer when the store reports new events, of one team or of any.
    pub(crate) fn on_event(&self, team: Option<TeamId>) {
        self.event_tails.wake(team);
        self.notice_wakeup.notify_one();
        self.search_wakeup.notify_one();
    }

    /// Records whether the store reports all new events, so that streams need not poll.
    pub(crate) fn set_push_wake_ups(&self, is_pushed: bool) {
        self.event_tails.has_push_wake_ups.store(is_pushed, Ordering::Relaxed);
    }
}
