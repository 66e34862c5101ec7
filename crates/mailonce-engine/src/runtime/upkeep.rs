//! The background loops: hand-off, heartbeats, the flush of counters, and the sweep of expired data.

use mailonce_core::{id::NodeId, installation::RecoveryCounts, ports::store::StoreError};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

use crate::{Engine, SANDBOX};

/// Envelopes captured in one commit. Few, so that accepts don't wait long behind them.
const CAPTURE_BATCH: usize = 64;
/// The longest sleep of the capture loop. Wake-ups shorten it; a lost wake-up delays work by no more than this.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Also limits `email.duplicate` events to one per second and key.
const SUPPRESSED_FLUSH_INTERVAL: Duration = Duration::from_secs(1);
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// How often the worker checks for new escalations and for decisions that are not carried out yet.
const ESCALATION_INTERVAL: Duration = Duration::from_secs(5);
const KEY_USAGE_FLUSH_INTERVAL: Duration = Duration::from_secs(30);
/// How often a process sends heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
const RECOVERY_BATCH: usize = 256;
const SWEEP_BATCH: usize = 500;

impl Engine {
    /// Sends heartbeats and recovers the work of dead nodes. Must run before the first attempt of this process.
    pub async fn heartbeat_and_recover(&self) -> Result<RecoveryCounts, StoreError> {
        let mut all = RecoveryCounts::default();
        let even = self.time.boot_clock_ms();
        for name in self.lease_identities.in_use() {
            self.send_heartbeat(name.id).await?;
            name.note_heartbeat(even);
        }
        self.store
            .publish_transports(self.lease_identities.current().id, &self.transports.accounts(), self.now())
            .await?;
        crate::failpoint!("heartbeat");
        loop {
            let node = self.lease_identities.current().id;
            let some = self.store.recover_dead_nodes(node, RECOVERY_BATCH, self.now()).await?;
            all.queued += some.queued;
            all.unknown += some.unknown;
            all.deliveries += some.deliveries;
            all.notices += some.notices;
            if some == RecoveryCounts::default() {
                self.metrics.record_recovered(&all);
                return Ok(all);
            }
            crate::failpoint!("recovered");
        }
    }

    /// Sends the heartbeat of a node id, and compares the clocks.
    pub(crate) async fn send_heartbeat(&self, node: NodeId) -> Result<(), StoreError> {
        let before = self.time.boot_clock_ms();
        let heard = self.store.heartbeat(node, self.now()).await?;
        self.time.on_heartbeat(heard.latest_time, heard.database_clock, (before, self.time.boot_clock_ms()));
        Ok(())
    }

    /// Runs the hand-off of every transport until `stop` changes.
    pub async fn run_handoff(self: Arc<Self>, stop: watch::Receiver<bool>) {
        let mut loops = JoinSet::new();
        loops.spawn(Arc::clone(&self).restart_on_panic("capture", stop.clone(), Self::run_sandbox_capture));
        loops.spawn(Arc::clone(&self).restart_on_panic("unknown_outcomes", stop.clone(), Self::run_unknown_worker));
        loops.spawn(Arc::clone(&self).restart_on_panic("heartbeat", stop.clone(), Self::run_heartbeat));
        loops.spawn(Arc::clone(&self).restart_on_panic("orphans", stop.clone(), Self::run_orphan_worker));
        for way in self.transports.iter() {
            let way = Arc::clone(way);
            let work = move |engine: Arc<Self>, stop| engine.run_handoff_worker(Arc::clone(&way), stop);
            loops.spawn(Arc::clone(&self).restart_on_panic("handoff_loop", stop.clone(), work));
        }
        while let Some(ended) = loops.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a loop of the hand-off ended badly");
            }
        }
    }

    /// Sends heartbeats, and recovers the work of dead nodes.
    async fn run_heartbeat(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            match self.heartbeat_and_recover().await {
                Ok(RecoveryCounts { queued: 0, unknown: 0, deliveries: 0, notices: 0 }) => {}
                Ok(RecoveryCounts { queued, unknown, deliveries, notices }) => {
                    tracing::warn!(queued, unknown, deliveries, notices, "took over from a process that ended");
                    self.transports.wake_all();
                    self.unknown_wakeup.notify_one();
                    self.inbound.work_available.notify_one();
                }
                Err(error) => tracing::warn!(%error, "saying that this process lives"),
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(HEARTBEAT_INTERVAL) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Captures emails for the sandbox in the store's own commit. Nothing leaves the machine.
    async fn run_sandbox_capture(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            if !self.is_handoff_paused() {
                match self.store.capture(SANDBOX, CAPTURE_BATCH, self.time.earlier_time(), self.now()).await {
                    Ok(count) => {
                        self.metrics.record_captured(count);
                        if count > 0 {
                            crate::failpoint!("captured");
                        }
                        if count == CAPTURE_BATCH {
                            continue;
                        }
                    }
                    Err(error) => tracing::warn!(%error, "handing over"),
                }
            }
            tokio::select! {
                biased;
                () = self.transports.sandbox.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Flushes counters and sweeps expired data until `stop` changes, then flushes once more.
    pub async fn run_maintenance(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut notes = tokio::time::interval(SUPPRESSED_FLUSH_INTERVAL);
        let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
        let mut touches = tokio::time::interval(KEY_USAGE_FLUSH_INTERVAL);
        let mut questions = tokio::time::interval(ESCALATION_INTERVAL);
        while !*stop.borrow() {
            tokio::select! {
                biased;
                _ = notes.tick() => self.flush_suppressed_calls().await,
                _ = sweeps.tick() => self.sweep().await,
                _ = touches.tick() => self.flush_key_usage().await,
                _ = questions.tick() => self.run_escalation_round().await,
                _ = stop.changed() => {}
            }
        }
        self.flush_suppressed_calls().await;
        self.flush_key_usage().await;
    }

    /// Writes the suppressed calls counted since the last flush.
    pub async fn flush_suppressed_calls(&self) {
        let notes = self.suppressed_calls.drain();
        if notes.is_empty() {
            return;
        }
        if let Err(error) = self.store.record_suppressed_calls(notes.clone(), self.now()).await {
            tracing::warn!(%error, "writing suppressed calls");
            self.suppressed_calls.restore(notes);
        }
    }

    /// Deletes expired data, in as many commits as it takes.
    pub async fn sweep(&self) {
        crate::failpoint!("before-sweep");
        loop {
            // Nothing expires while the clock is not confirmed.
            let Some(forget_by) = self.time.expiry_cutoff() else { return };
            match self.store.sweep(SWEEP_BATCH, forget_by).await {
                Ok(swept) if swept.keys + swept.bodies + swept.tombstones >= SWEEP_BATCH => {}
                Ok(swept) if swept.deliveries.max(swept.notices) >= SWEEP_BATCH => {}
                Ok(_) => break,
                Err(error) => return tracing::warn!(%error, "sweeping"),
            }
        }
        crate::failpoint!("after-sweep");
    }

    async fn flush_key_usage(&self) {
        let used = self.credentials.recently_used();
        if used.is_empty() {
            return;
        }
        if let Err(error) = self.store.touch_api_keys(used).await {
            tracing::warn!(%error, "noting which API keys were used");
        }
    }
}
