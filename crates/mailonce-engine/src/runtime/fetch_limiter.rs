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

/// How many mails are fetched concurrently. Each may be large.
const MAX_CONCURRENT_FETCHES: usize = 4;

/// How many tasks may wait for providers in addition to the tasks that process mail.
const MAX_EXTRA_TASK_SLOTS: usize = 64;

/// How many sources in backoff are remembered.
const BACKOFF_CAPACITY: usize = 10_000;

/// The fetch limits and the backoff state of this process.
pub(crate) struct FetchLimiter {
    /// One permit for each concurrent fetch.
    pub(crate) permits: Semaphore,
    /// Sources in backoff, with its end by the boot clock. After one failed fetch, the others that wait for the same
    /// source don't have to fail themselves.
    backoff_until: Mutex<HashMap<SourceId, i64>>,
    /// Tasks that wait for a provider. They don't count against the worker's concurrency.
    fetching_tasks: AtomicUsize,
    /// Wakes the poller when sources have changed.
    pub(crate) sources_changed: tokio::sync::Notify,
}

impl Default for FetchLimiter {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(MAX_CONCURRENT_FETCHES),
            backoff_until: Mutex::default(),
            fetching_tasks: AtomicUsize::new(0),
            sources_changed: tokio::sync::Notify::new(),
        }
    }
}

/// Counts a task as waiting for a provider until it is dropped.
pub(crate) struct FetchWaitGuard<'a>(&'a AtomicUsize);

impl Drop for FetchWaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FetchLimiter {
    /// How many tasks wait for a provider now, at most `MAX_EXTRA_TASK_SLOTS`.
    pub(crate) fn extra_task_slots(&self) -> usize {
        self.fetching_tasks.load(Ordering::Relaxed).min(MAX_EXTRA_TASK_SLOTS)
    }

    pub(crate) fn begin_wait(&self) -> FetchWaitGuard<'_> {
        self.fetching_tasks.fetch_add(1, Ordering::Relaxed);
        FetchWaitGuard(&self.fetching_tasks)
    }

    pub(crate) fn backoff_deadline(&self, source: SourceId, boot_ms: i64) -> Option<i64> {
        let deadlines = self.backoff_until.lock().unwrap_or_else(PoisonError::into_inner);
        deadlines.get(&source).copied().filter(|until| *until > boot_ms)
    }

    pub(crate) fn back_off(&self, source: SourceId, until: i64, boot_ms: i64) {
        let mut deadlines = self.backoff_until.lock().unwrap_or_else(PoisonError::into_inner);
        deadlines.retain(|_, until| *until > boot_ms);
        if deadlines.len() < BACKOFF_CAPACITY {
            deadlines.insert(source, until);
        }
    }

    pub(crate) fn clear_backoff(&self, source: SourceId) {
        self.backoff_until.lock().unwrap_or_else(PoisonError::into_inner).remove(&source);
    }
}
