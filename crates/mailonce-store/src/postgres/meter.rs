//! Metrics of the store.

use mailonce_core::installation::Gauges;
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Counters that all tasks share.
#[derive(Default)]
pub(crate) struct Meter {
    batch_sizes: [AtomicU64; 12],
    commits: AtomicU64,
    verbs: AtomicU64,
    commit_ms: [AtomicU64; 12],
    commit_us: AtomicU64,
    contended: AtomicU64,
    keys: AtomicU64,
}

impl Meter {
    /// Records a commit of this many calls and its duration.
    pub(crate) fn record_commit(&self, verbs: usize, took: Duration) {
        let verbs = verbs as u64;
        self.batch_sizes[bucket_index(verbs)].fetch_add(1, Relaxed);
        self.commits.fetch_add(1, Relaxed);
        self.verbs.fetch_add(verbs, Relaxed);
        self.commit_ms[bucket_index(took.as_micros().div_ceil(1000) as u64)].fetch_add(1, Relaxed);
        self.commit_us.fetch_add(took.as_micros() as u64, Relaxed);
    }

    /// Records accepts that had to wait for another accept of the same key.
    pub(crate) fn record_contended(&self, accepts: usize) {
        self.contended.fetch_add(accepts as u64, Relaxed);
    }

    /// Sets the approximate number of remembered keys.
    pub(crate) fn set_keys(&self, about: u64) {
        self.keys.store(about, Relaxed);
    }

    /// A snapshot of all metrics.
    pub(crate) fn gauges(&self) -> Gauges {
        let all = |counters: &[AtomicU64; 12]| std::array::from_fn(|i| counters[i].load(Relaxed));
        Gauges {
            batch_sizes: all(&self.batch_sizes),
            commits: self.commits.load(Relaxed),
            operations: self.verbs.load(Relaxed),
            commit_ms: all(&self.commit_ms),
            commit_us: self.commit_us.load(Relaxed),
            contended_accepts: self.contended.load(Relaxed),
            keys: self.keys.load(Relaxed),
        }
    }
}

/// The histogram bucket of a value: 1, 2, 4, 8 … 1024, or above.
fn bucket_index(figure: u64) -> usize {
    (figure.max(1).next_power_of_two().trailing_zeros() as usize).min(11)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        for (figure, wanted) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10), (1025, 11), (1 << 40, 11)]
        {
            assert_eq!(bucket_index(figure), wanted, "{figure}");
        }
    }
}
