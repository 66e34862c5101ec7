//! The loops beside the requests: handing over what is due, writing what was counted, forgetting what is due.

use mailonce_core::{
    id::NodeId,
    port::store::{Recovered, StoreError},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

use crate::{Engine, SANDBOX};

/// Envelopes captured in one commit: few, so that accepts do not wait long behind them.
const CAPTURED_AT_ONCE: usize = 64;
/// The longest sleep of the hand-off; wake-ups make it shorter, and a lost one costs no more than this.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// One `email.duplicate` event a second and key at most.
const NOTE_EVERY: Duration = Duration::from_secs(1);
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How often it is looked whether a person must be asked, or what one decided is still to be done.
const ASK_EVERY: Duration = Duration::from_secs(5);
const TOUCH_EVERY: Duration = Duration::from_secs(30);
/// How often a process says that it lives.
const LIVE_EVERY: Duration = Duration::from_secs(3);
const RECOVERED_AT_ONCE: usize = 256;
const SWEPT_AT_ONCE: usize = 500;

impl Engine {
    /// Takes over what processes that ended left behind. Before the first hand-over of this one.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let mut all = Recovered::default();
        let even = self.time.even();
        for name in self.holder.alive() {
            self.say_alive(name.id).await?;
            name.heard(even);
        }
        self.store.publish_transports(self.holder.current().id, &self.ways.accounts(), self.now()).await?;
        crate::failpoint!("heartbeat");
        loop {
            let node = self.holder.current().id;
            let some = self.store.recover(node, RECOVERED_AT_ONCE, self.now()).await?;
            all.queued += some.queued;
            all.unknown += some.unknown;
            all.deliveries += some.deliveries;
            all.notices += some.notices;
            if some == Recovered::default() {
                self.metrics.recovered(&all);
                return Ok(all);
            }
            crate::failpoint!("recovered");
        }
    }

    /// Says that a process of this name lives, and compares the clocks.
    pub(crate) async fn say_alive(&self, node: NodeId) -> Result<(), StoreError> {
        let before = self.time.even();
        let heard = self.store.heartbeat(node, self.now()).await?;
        self.time.heard(heard.latest, heard.database, (before, self.time.even()));
        Ok(())
    }

    /// Hands over what is due, by every way, until `stop` changes.
    pub async fn hand_off(self: Arc<Self>, stop: watch::Receiver<bool>) {
        let mut loops = JoinSet::new();
        loops.spawn(Arc::clone(&self).keep_running("capture", stop.clone(), Self::capture));
        loops.spawn(Arc::clone(&self).keep_running("doubts", stop.clone(), Self::look_after_doubts));
        loops.spawn(Arc::clone(&self).keep_running("heartbeat", stop.clone(), Self::live));
        loops.spawn(Arc::clone(&self).keep_running("orphans", stop.clone(), Self::look_after_orphans));
        for way in self.ways.iter() {
            let way = Arc::clone(way);
            let work = move |engine: Arc<Self>, stop| engine.work(Arc::clone(&way), stop);
            loops.spawn(Arc::clone(&self).keep_running("handoff_loop", stop.clone(), work));
        }
        while let Some(ended) = loops.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a loop of the hand-off ended badly");
            }
        }
    }

    /// Says that this process lives, and takes over from those that do not.
    async fn live(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            match self.recover().await {
                Ok(Recovered { queued: 0, unknown: 0, deliveries: 0, notices: 0 }) => {}
                Ok(Recovered { queued, unknown, deliveries, notices }) => {
                    tracing::warn!(queued, unknown, deliveries, notices, "took over from a process that ended");
                    self.ways.wake();
                    self.doubted.notify_one();
                    self.inbound.waiting.notify_one();
                }
                Err(error) => tracing::warn!(%error, "saying that this process lives"),
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(LIVE_EVERY) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Hands mail to the sandbox, inside our own commit: nothing leaves the machine.
    async fn capture(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            if !self.is_paused() {
                match self.store.capture(SANDBOX, CAPTURED_AT_ONCE, self.time.earlier(), self.now()).await {
                    Ok(count) => {
                        self.metrics.captured(count);
                        if count > 0 {
                            crate::failpoint!("captured");
                        }
                        if count == CAPTURED_AT_ONCE {
                            continue;
                        }
                    }
                    Err(error) => tracing::warn!(%error, "handing over"),
                }
            }
            tokio::select! {
                biased;
                () = self.ways.sandbox.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Writes what was counted and forgets what is due until `stop` changes, then writes once more.
    pub async fn keep_up(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut notes = tokio::time::interval(NOTE_EVERY);
        let mut sweeps = tokio::time::interval(SWEEP_EVERY);
        let mut touches = tokio::time::interval(TOUCH_EVERY);
        let mut questions = tokio::time::interval(ASK_EVERY);
        while !*stop.borrow() {
            tokio::select! {
                biased;
                _ = notes.tick() => self.write_suppressed().await,
                _ = sweeps.tick() => self.sweep().await,
                _ = touches.tick() => self.touch().await,
                _ = questions.tick() => self.tend_questions().await,
                _ = stop.changed() => {}
            }
        }
        self.write_suppressed().await;
        self.touch().await;
    }

    /// Writes the suppressed calls that were counted since the last time.
    pub async fn write_suppressed(&self) {
        let notes = self.suppressions.take();
        if notes.is_empty() {
            return;
        }
        if let Err(error) = self.store.note_suppressed(notes.clone(), self.now()).await {
            tracing::warn!(%error, "writing suppressed calls");
            self.suppressions.put_back(notes);
        }
    }

    /// Forgets what is due, in as many commits as it takes.
    pub async fn sweep(&self) {
        crate::failpoint!("before-sweep");
        loop {
            // Nothing is forgotten by a clock that nobody vouches for.
            let Some(forget_by) = self.time.forget_by() else { return };
            match self.store.sweep(SWEPT_AT_ONCE, forget_by).await {
                Ok(swept) if swept.keys + swept.bodies + swept.tombstones >= SWEPT_AT_ONCE => {}
                Ok(swept) if swept.deliveries.max(swept.notices) >= SWEPT_AT_ONCE => {}
                Ok(_) => break,
                Err(error) => return tracing::warn!(%error, "sweeping"),
            }
        }
        crate::failpoint!("after-sweep");
    }

    async fn touch(&self) {
        let used = self.access.used();
        if used.is_empty() {
            return;
        }
        if let Err(error) = self.store.touch_api_keys(used).await {
            tracing::warn!(%error, "noting which API keys were used");
        }
    }
}
