//! Workers that panic. What they held is given back, and their loops go on: without that, mail would stay leased or
//! queued for as long as the process lives.

use mailonce_core::{
    dispatch::Act,
    handoff::{Handoff, State},
    id::{EmailId, NodeId, TeamId},
    port::store::{Leased, StoreError},
};
use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::sync::watch;

use crate::{
    Engine,
    ways::{UnderWay, Way},
};

/// The pause before a handoff is queued again whose worker panicked before the marker. It grows fourfold each time.
const QUEUE_AGAIN: Duration = Duration::from_millis(200);
/// The pause before a loop that panicked is started again, and between two looks at a ledger that does not answer.
const START_AGAIN: Duration = Duration::from_secs(1);

/// Runs a worker to its end. The error is what it said when it panicked.
pub(crate) async fn caught<F: Future>(worker: F) -> Result<F::Output, String> {
    let mut worker = pin!(worker);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| worker.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(payload) => Poll::Ready(Err(message(payload.as_ref()))),
    })
    .await
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// A handoff as a worker of this process holds it.
struct Held {
    team: TeamId,
    email: EmailId,
    number: u16,
    fence: Option<u64>,
    holder: NodeId,
}

impl Held {
    fn of(leased: &Leased, holder: NodeId) -> Self {
        let fence = leased.email.handoffs.get(usize::from(leased.number)).map(|handoff| handoff.fence);
        Self { team: leased.email.team, email: leased.email.id, number: leased.number, fence, holder }
    }

    fn is(&self, handoff: &Handoff) -> bool {
        handoff.holder == Some(self.holder) && Some(handoff.fence) == self.fence
    }
}

impl Engine {
    /// One attempt. When the worker panics, its handoff is given back.
    pub(crate) async fn deliver_or_give_back(
        self: Arc<Self>,
        way: Arc<Way>,
        leased: Leased,
        under_way: UnderWay,
        holder: NodeId,
    ) {
        let held = Held::of(&leased, holder);
        let Err(why) = caught(Box::pin(Arc::clone(&self).deliver(way, leased, under_way))).await else { return };
        tracing::error!(why, email = %held.email, handoff = held.number, "a worker panicked");
        self.metrics.panicked("handoff");
        self.give_back_panicked(&held).await;
    }

    /// Before the marker a handoff is queued again and the failure counts; after it the outcome is unknown. What the
    /// worker had settled before it panicked stays as it is.
    async fn give_back_panicked(&self, held: &Held) {
        let handoff = loop {
            match self.store.email(held.team, held.email).await {
                Ok(email) => break email.and_then(|email| email.handoffs.get(usize::from(held.number)).cloned()),
                Err(error) => {
                    tracing::warn!(%error, "looking at the handoff of a worker that panicked");
                    if self.store.stopped().is_some() || matches!(error, StoreError::Corrupt(_)) {
                        return;
                    }
                    tokio::time::sleep(START_AGAIN).await;
                }
            }
        };
        let Some(handoff) = handoff.filter(|handoff| held.is(handoff)) else { return };
        if handoff.state == State::Leased {
            tokio::time::sleep(QUEUE_AGAIN * 4_u32.saturating_pow(handoff.work.lapses.min(5))).await;
        }
        self.insist(held.team, held.email, Act::Crash { number: held.number, holder: held.holder }).await;
        self.ways.wake();
        self.doubted.notify_one();
    }

    /// Runs a loop until it ends by itself. One that panics is started again. What its workers held is left to whoever
    /// takes over from the name under which they leased it.
    pub async fn keep_running<F: Future<Output = ()>>(
        self: Arc<Self>,
        what: &'static str,
        mut stop: watch::Receiver<bool>,
        begin: impl Fn(Arc<Self>, watch::Receiver<bool>) -> F,
    ) {
        while let Err(why) = caught(Box::pin(begin(Arc::clone(&self), stop.clone()))).await {
            tracing::error!(why, what, "a loop panicked and is started again");
            self.metrics.panicked(what);
            self.holder.renew(&self.holder.current(), &*self.chance);
            tokio::select! {
                biased;
                () = tokio::time::sleep(START_AGAIN) => {}
                _ = stop.changed() => {}
            }
        }
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
        assert_eq!(caught(worker).await, Err("as the test wants it".to_owned()));
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(caught(async { 7 }).await, Ok(7));
    }
}
