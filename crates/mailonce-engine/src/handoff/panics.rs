//! Recovery from panics in workers. The handoff of a panicked worker is requeued and its loop restarts. Otherwise
//! emails would stay leased or queued until the process ends.

use crate::{
    handoff::{
        Handoffs,
        transport_selector::{InFlightGuard, OutboundRoute},
    },
    runtime::panics::catch_panic,
};
use mailonce_core::{
    handoff::{Handoff, HandoffState, action::HandoffAction, lease::LeasedHandoff},
    id::{EmailId, NodeId, TeamId},
    ports::store::StoreError,
};
use std::{sync::Arc, time::Duration};

/// The delay before a handoff is queued again after its worker panicked before the marker. It quadruples each time.
const REQUEUE_BASE_DELAY: Duration = Duration::from_millis(200);
/// The delay before a panicked loop restarts, and between two reads from a store that fails.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// A handoff that a worker of this process has leased.
struct HeldHandoff {
    team: TeamId,
    email: EmailId,
    number: u16,
    fence: Option<u64>,
    holder: NodeId,
}

impl HeldHandoff {
    fn of(leased: &LeasedHandoff, holder: NodeId) -> Self {
        let fence = leased.email.handoffs.get(usize::from(leased.handoff)).map(|handoff| handoff.fence);
        Self { team: leased.email.team, email: leased.email.id, number: leased.handoff, fence, holder }
    }

    fn is_still_held(&self, handoff: &Handoff) -> bool {
        handoff.holder == Some(self.holder) && Some(handoff.fence) == self.fence
    }
}

impl Handoffs {
    /// Makes one attempt. If the worker panics, its handoff is requeued.
    pub(crate) async fn attempt_or_requeue(
        self: Arc<Self>,
        route: Arc<OutboundRoute>,
        leased: LeasedHandoff,
        in_flight: InFlightGuard,
        holder: NodeId,
    ) {
        let held = HeldHandoff::of(&leased, holder);
        let Err(why) = catch_panic(Box::pin(Arc::clone(&self).attempt_handoff(route, leased, in_flight))).await else {
            return;
        };
        tracing::error!(why, email = %held.email, handoff = held.number, "the worker of a handoff panicked");
        self.ctx.metrics.record_panic("handoff");
        self.requeue_after_panic(&held).await;
    }

    /// Releases the handoff of a panicked worker. Before the marker it is queued again and the failure counts. After
    /// the marker its outcome is unknown. An outcome that the worker had already recorded stays.
    async fn requeue_after_panic(&self, held: &HeldHandoff) {
        let handoff = loop {
            match self.ctx.store.email(held.team, held.email).await {
                Ok(email) => break email.and_then(|email| email.handoffs.get(usize::from(held.number)).cloned()),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the handoff of a worker that panicked");
                    if self.ctx.store.fatal_error().is_some() || matches!(error, StoreError::Corrupt(_)) {
                        return;
                    }
                    tokio::time::sleep(RESTART_DELAY).await;
                }
            }
        };
        let Some(handoff) = handoff.filter(|handoff| held.is_still_held(handoff)) else { return };
        if handoff.state == HandoffState::Leased {
            tokio::time::sleep(REQUEUE_BASE_DELAY * 4_u32.saturating_pow(handoff.progress.lost_leases.min(5))).await;
        }
        self.call_until_final(held.team, held.email, HandoffAction::Crash { number: held.number, holder: held.holder })
            .await;
        self.ctx.transports.wake_all();
        self.ctx.unknown_wakeup.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer_and_what_it_held_is_dropped() {
        let held = Arc::new(());
        let own = Arc::clone(&held);
        let worker = async move {
            tokio::task::yield_now().await;
            assert!(Arc::strong_count(&own) == 1, "as the test wants it");
        };
        assert_eq!(catch_panic(worker).await, Err("as the test wants it".to_owned()));
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(catch_panic(async { 7 }).await, Ok(7));
    }
}
