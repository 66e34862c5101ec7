//! The background loops of the hand-off: heartbeats, recovery of dead nodes, sandbox capture, workers.

use crate::handoff::{Handoffs, transport_selector::SANDBOX};
use mailonce_core::{installation::RecoveryCounts, ports::store::StoreError};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

/// Envelopes captured in one commit. Few, so that accepts don't wait long behind them.
const CAPTURE_BATCH: usize = 64;

/// The longest sleep of the capture loop. Wake-ups shorten it; a lost wake-up delays work by no more than this.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How often a process sends heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

const RECOVERY_BATCH: usize = 256;

/// Handoffs that one commit returns to the queue after a stop. Few, so that accepts don't wait long behind them.
const RELEASE_BATCH: usize = 256;
/// How often a process looks for ended stops of other nodes.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);

impl Handoffs {
    /// Sends heartbeats and recovers the work of dead nodes. Must run before the first attempt of this process.
    pub async fn heartbeat_and_recover(&self) -> Result<RecoveryCounts, StoreError> {
        let mut total = RecoveryCounts::default();
        let boot_ms = self.ctx.time.boot_clock_ms();
        for identity in self.ctx.lease_identities.in_use() {
            self.ctx.send_heartbeat(identity.id).await?;
            identity.note_heartbeat(boot_ms);
        }
        self.ctx
            .store
            .publish_transports(self.ctx.lease_identities.current().id, &self.ctx.transports.accounts(), self.ctx.now())
            .await?;
        crate::failpoint!("heartbeat");
        loop {
            let node = self.ctx.lease_identities.current().id;
            let recovered = self.ctx.store.recover_dead_nodes(node, RECOVERY_BATCH, self.ctx.now()).await?;
            total.queued += recovered.queued;
            total.unknown += recovered.unknown;
            total.deliveries += recovered.deliveries;
            total.notices += recovered.notices;
            if recovered == RecoveryCounts::default() {
                self.ctx.metrics.record_recovered(&total);
                return Ok(total);
            }
            crate::failpoint!("recovered");
        }
    }

    /// Runs the hand-off of every transport until `stop` changes.
    pub async fn run_handoff(self: Arc<Self>, stop: watch::Receiver<bool>) {
        let mut loops = JoinSet::new();
        loops.spawn(Arc::clone(&self.ctx).restart_on_panic(
            "capture",
            stop.clone(),
            Arc::clone(&self),
            Self::run_sandbox_capture,
        ));
        loops.spawn(Arc::clone(&self.ctx).restart_on_panic(
            "unknown_outcomes",
            stop.clone(),
            Arc::clone(&self),
            Self::run_unknown_worker,
        ));
        loops.spawn(Arc::clone(&self.ctx).restart_on_panic(
            "heartbeat",
            stop.clone(),
            Arc::clone(&self),
            Self::run_heartbeat,
        ));
        loops.spawn(Arc::clone(&self.ctx).restart_on_panic(
            "orphans",
            stop.clone(),
            Arc::clone(&self),
            Self::run_orphan_worker,
        ));
        loops.spawn(Arc::clone(&self.ctx).restart_on_panic(
            "stop_release",
            stop.clone(),
            Arc::clone(&self),
            Self::run_stop_release,
        ));
        for route in self.ctx.transports.iter() {
            let route = Arc::clone(route);
            let work = move |handoffs: Arc<Self>, stop| handoffs.run_handoff_worker(Arc::clone(&route), stop);
            loops.spawn(Arc::clone(&self.ctx).restart_on_panic("handoff_loop", stop.clone(), Arc::clone(&self), work));
        }
        while let Some(ended) = loops.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a background loop of the hand-off failed");
            }
        }
    }

    /// Sends heartbeats, and recovers the work of dead nodes.
    pub(crate) async fn run_heartbeat(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            match self.heartbeat_and_recover().await {
                Ok(RecoveryCounts { queued: 0, unknown: 0, deliveries: 0, notices: 0 }) => {}
                Ok(RecoveryCounts { queued, unknown, deliveries, notices }) => {
                    tracing::warn!(queued, unknown, deliveries, notices, "took over the work of dead nodes");
                    self.ctx.transports.wake_all();
                    self.ctx.unknown_wakeup.notify_one();
                    self.ctx.inbound.work_available.notify_one();
                }
                Err(error) => tracing::warn!(%error, "cannot send the heartbeat or recover dead nodes"),
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(HEARTBEAT_INTERVAL) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Captures emails for the sandbox in the store's own commit. Nothing leaves the machine.
    pub(crate) async fn run_sandbox_capture(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            if !self.control.stops.is_transport_stopped(SANDBOX).await {
                match self.ctx.store.capture(SANDBOX, CAPTURE_BATCH, self.ctx.time.earlier_time(), self.ctx.now()).await
                {
                    Ok(count) => {
                        self.ctx.metrics.record_captured(count);
                        if count > 0 {
                            crate::failpoint!("captured");
                        }
                        if count == CAPTURE_BATCH {
                            continue;
                        }
                    }
                    Err(error) => tracing::warn!(%error, "cannot capture emails for the sandbox"),
                }
            }
            tokio::select! {
                biased;
                () = self.ctx.transports.sandbox.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Returns the email of ended stops to the queues of its transports, until `stop` changes.
    pub(crate) async fn run_stop_release(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            self.release_stopped().await;
            tokio::select! {
                biased;
                () = self.ctx.transports.release_wakeup.notified() => {}
                () = tokio::time::sleep(RELEASE_INTERVAL) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Returns the email of ended stops to the queues of its transports, in as many commits as it takes.
    pub async fn release_stopped(&self) {
        loop {
            match self.ctx.store.release_stopped(RELEASE_BATCH, self.ctx.now()).await {
                Ok(0) => return,
                Ok(_) => self.ctx.transports.wake_all(),
                Err(error) => return tracing::warn!(%error, "cannot release stopped emails"),
            }
        }
    }
}
