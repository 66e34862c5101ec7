//! Maintenance: flushes counters, runs the escalation worker, releases email held by budgets, and sweeps expired data.

use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

use crate::Engine;

/// How often suppressed calls are written. Also limits `email.duplicate` events to one per second and key.
const SUPPRESSED_FLUSH_INTERVAL: Duration = Duration::from_secs(1);
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// How often the worker checks for new escalations and for decisions that are not carried out yet.
const ESCALATION_INTERVAL: Duration = Duration::from_secs(5);
/// How often email that waits for room in a budget is looked at.
const BUDGET_INTERVAL: Duration = Duration::from_secs(2);
const KEY_USAGE_FLUSH_INTERVAL: Duration = Duration::from_secs(30);
const SWEEP_BATCH: usize = 500;
/// How often entries of the audit log, bodies, received mail and events are removed whose retention is over.
const RETENTION_INTERVAL: Duration = Duration::from_mins(10);
/// How often the erasures that this node knows of are worked on, and how often it looks for others.
const ERASURE_INTERVAL: Duration = Duration::from_secs(1);
const ERASURE_RETRY_PAUSE: Duration = Duration::from_secs(30);
/// How many steps an erasure makes before others get their turn.
const ERASURE_STEPS: usize = 100;
const ERASURE_SCAN_INTERVAL: Duration = Duration::from_mins(1);

impl Engine {
    /// Flushes counters, reviews escalations and sweeps expired data until `stop` changes, then flushes once more.
    pub async fn run_maintenance(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut suppressed_flushes = tokio::time::interval(SUPPRESSED_FLUSH_INTERVAL);
        let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
        let mut key_usage_flushes = tokio::time::interval(KEY_USAGE_FLUSH_INTERVAL);
        let mut escalation_rounds = tokio::time::interval(ESCALATION_INTERVAL);
        while !*stop.borrow() {
            tokio::select! {
                biased;
                _ = suppressed_flushes.tick() => self.outbound.flush_suppressed_calls().await,
                _ = sweeps.tick() => self.sweep().await,
                _ = key_usage_flushes.tick() => self.access.flush_key_usage().await,
                _ = escalation_rounds.tick() => self.escalations.run_escalation_round().await,
                _ = stop.changed() => {}
            }
        }
        self.outbound.flush_suppressed_calls().await;
        self.access.flush_key_usage().await;
    }

    /// Releases email held by budgets, until `stop` changes. A loop of its own, because a long queue of held email must
    /// not delay the sweep.
    pub async fn run_control_loop(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut budget_rounds = tokio::time::interval(BUDGET_INTERVAL);
        while !*stop.borrow() {
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                _ = budget_rounds.tick() => self.release_held_by_budget().await,
            }
        }
    }

    /// Deletes what teams do not want to keep any longer, until `stop` changes. A loop of its own, because the first
    /// round of a large team takes long and must not delay email that waits for room in a budget.
    pub async fn run_retention_loop(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut rounds = tokio::time::interval(RETENTION_INTERVAL);
        while !*stop.borrow() {
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                _ = rounds.tick() => {
                    self.prune_audit().await;
                    self.apply_retention().await;
                }
            }
        }
    }

    /// Works on erasures until `stop` changes. A loop of its own, because one erasure may read all mail of a team.
    pub async fn run_erasure_loop(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut rounds = tokio::time::interval(ERASURE_INTERVAL);
        let mut scans = tokio::time::interval(ERASURE_SCAN_INTERVAL);
        while !*stop.borrow() {
            let (action, result) = tokio::select! {
                biased;
                _ = stop.changed() => continue,
                _ = scans.tick() => ("find", self.erasures.find_erasures().await),
                _ = rounds.tick() => ("run", self.erasures.run_erasures(ERASURE_STEPS).await),
            };
            if let Err(error) = result {
                tracing::warn!(%error, "cannot {action} erasures; trying again later");
                // The last stage keeps the writer of SQLite busy, which must not be repeated all the time.
                tokio::select! {
                    _ = stop.changed() => {}
                    () = tokio::time::sleep(ERASURE_RETRY_PAUSE) => {}
                }
            }
        }
    }

    async fn release_held_by_budget(&self) {
        if let Err(error) = self.budgets.release_held_by_budget().await {
            tracing::warn!(%error, "cannot release email that waits for room in a budget");
        }
    }

    /// Deletes bodies, received mail and events that teams do not want to keep any longer.
    pub async fn apply_retention(&self) {
        if let Err(error) = self.control.apply_retention().await {
            tracing::warn!(%error, "cannot delete bodies, received mail and events whose retention is over");
        }
    }

    /// Removes entries of the audit log whose retention is over.
    pub async fn prune_audit(&self) {
        if let Err(error) = self.control.audit.prune(&self.access).await {
            tracing::warn!(%error, "cannot remove expired entries of the audit log");
        }
    }

    /// Deletes expired data, in as many commits as it takes.
    pub async fn sweep(&self) {
        crate::failpoint!("before-sweep");
        loop {
            // Nothing expires while the clock is not confirmed.
            let Some(cutoff) = self.ctx.time.expiry_cutoff() else { return };
            match self.ctx.store.sweep(SWEEP_BATCH, cutoff).await {
                Ok(swept) if swept.keys + swept.bodies + swept.tombstones >= SWEEP_BATCH => {}
                Ok(swept) if swept.deliveries.max(swept.notices) >= SWEEP_BATCH => {}
                Ok(_) => break,
                Err(error) => return tracing::warn!(%error, "cannot sweep expired data"),
            }
        }
        crate::failpoint!("after-sweep");
    }
}
