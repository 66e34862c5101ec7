//! The loops beside the requests: handing over what is due, writing what was counted, forgetting what is due.

use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

use crate::{Engine, SANDBOX};

/// Envelopes captured in one commit: few, so that accepts do not wait long behind them.
const CAPTURED_AT_ONCE: usize = 64;
/// The longest sleep of the hand-off; wake-ups make it shorter, and a lost one costs no more than this.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// One `email.duplicate` event a second and key at most.
const NOTE_EVERY: Duration = Duration::from_secs(1);
const SWEEP_EVERY: Duration = Duration::from_secs(10);
const TOUCH_EVERY: Duration = Duration::from_secs(30);
const SWEPT_AT_ONCE: usize = 500;

impl Engine {
    /// Hands over what is due until `stop` changes. Nothing leaves the machine: the sandbox captures it.
    pub async fn hand_off(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            match self.store.capture(SANDBOX, CAPTURED_AT_ONCE, self.now()).await {
                Ok(count) => {
                    self.metrics.captured(count);
                    if count == CAPTURED_AT_ONCE {
                        continue;
                    }
                }
                Err(error) => tracing::warn!(%error, "handing over"),
            }
            tokio::select! {
                () = self.due.notified() => {}
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
        while !*stop.borrow() {
            tokio::select! {
                _ = notes.tick() => self.write_suppressed().await,
                _ = sweeps.tick() => self.sweep().await,
                _ = touches.tick() => self.touch().await,
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

    async fn sweep(&self) {
        loop {
            match self.store.sweep(SWEPT_AT_ONCE, self.now()).await {
                Ok(swept) if swept.keys + swept.bodies + swept.tombstones >= SWEPT_AT_ONCE => {}
                Ok(_) => return,
                Err(error) => return tracing::warn!(%error, "sweeping"),
            }
        }
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
