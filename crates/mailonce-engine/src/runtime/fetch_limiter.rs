//! Limits on fetching mail from providers: concurrent requests, and back-off per source.

use mailonce_core::id::SourceId;
use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::Semaphore;
/// Mails fetched at a time: each may be large.
const MAX_CONCURRENT_FETCHES: usize = 4;

/// Readers that may wait for providers besides those that read.
const MAX_WAITING_WORKERS: usize = 64;

/// Sources at rest that are remembered.
const BACKOFF_CAPACITY: usize = 10_000;

/// What this process knows about providers that are asked.
pub(crate) struct FetchLimiter {
    /// Room for mails under way.
    pub(crate) permits: Semaphore,
    /// Sources whose provider gives nothing for now, and until when by the even counter: those who wait behind one that
    /// failed need not find out for themselves.
    backoff_until: Mutex<HashMap<SourceId, i64>>,
    /// Readers that wait for a provider: they hold back nobody who has something to read.
    waiting_workers: AtomicUsize,
    /// Wakes whoever asks for lists.
    pub(crate) sources_changed: tokio::sync::Notify,
}

impl Default for FetchLimiter {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(MAX_CONCURRENT_FETCHES),
            backoff_until: Mutex::default(),
            waiting_workers: AtomicUsize::new(0),
            sources_changed: tokio::sync::Notify::new(),
        }
    }
}

/// A reader that waits for a provider, until it is dropped.
pub(crate) struct FetchWaitGuard<'a>(&'a AtomicUsize);

impl Drop for FetchWaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FetchLimiter {
    /// Readers that wait for a provider now, as far as they may be added to those that read.
    pub(crate) fn waiting_workers(&self) -> usize {
        self.waiting_workers.load(Ordering::Relaxed).min(MAX_WAITING_WORKERS)
    }

    pub(crate) fn begin_wait(&self) -> FetchWaitGuard<'_> {
        self.waiting_workers.fetch_add(1, Ordering::Relaxed);
        FetchWaitGuard(&self.waiting_workers)
    }

    pub(crate) fn backoff_deadline(&self, source: SourceId, even: i64) -> Option<i64> {
        let resting = self.backoff_until.lock().unwrap_or_else(PoisonError::into_inner);
        resting.get(&source).copied().filter(|until| *until > even)
    }

    pub(crate) fn back_off(&self, source: SourceId, until: i64, even: i64) {
        let mut resting = self.backoff_until.lock().unwrap_or_else(PoisonError::into_inner);
        resting.retain(|_, until| *until > even);
        if resting.len() < BACKOFF_CAPACITY {
            resting.insert(source, until);
        }
    }

    pub(crate) fn clear_backoff(&self, source: SourceId) {
        self.backoff_until.lock().unwrap_or_else(PoisonError::into_inner).remove(&source);
    }
}
