//! One time for all installations, which the test moves, and each node's clock with an offset from it.

use mailonce_core::{
    installation::DatabaseClock,
    ports::{Clock, Entropy},
    time::Time,
};
use mailonce_sim::harness::rng;
use mailonce_store::postgres::ClockSource;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Instant,
};

/// 2026-11-16T00:00:00Z.
const START_MS: i64 = 1_794_787_200_000;

/// The right time. It runs, and the test moves it forward.
pub(crate) struct TrueTime {
    began: Instant,
    moved_ms: AtomicI64,
}

impl TrueTime {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), moved_ms: AtomicI64::new(0) })
    }

    pub(crate) fn advance(&self, ms: i64) {
        self.moved_ms.fetch_add(ms, Ordering::SeqCst);
    }

    pub(crate) fn now_ms(&self) -> i64 {
        START_MS + self.elapsed_ms()
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or_default() + self.moved_ms.load(Ordering::SeqCst)
    }

    /// The clock of a database server that is right.
    pub(crate) fn database_clock(self: &Arc<Self>) -> ClockSource {
        let time = Arc::clone(self);
        Box::new(move || DatabaseClock { now: Time(time.now_ms()), is_on_other_host: true })
    }
}

/// A node's clock.
pub(crate) struct OffsetClock {
    pub(crate) time: Arc<TrueTime>,
    pub(crate) offset_ms: i64,
}

impl Clock for OffsetClock {
    fn now(&self) -> Time {
        Time(self.time.now_ms() + self.offset_ms)
    }

    fn boot_clock_ms(&self) -> i64 {
        self.time.elapsed_ms()
    }
}

/// Randomness that differs for each node of this process.
pub(crate) struct SeededEntropy(Mutex<rng::SeededRng>);

impl SeededEntropy {
    pub(crate) fn new(seed: u64) -> Self {
        static NODES: AtomicU64 = AtomicU64::new(0);
        Self(Mutex::new(rng::SeededRng::derive(seed, &[NODES.fetch_add(1, Ordering::Relaxed)])))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut source = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&source.next().to_be_bytes()[..chunk.len()]);
        }
    }
}
