//! The machine's own clock and randomness, behind the engine's ports.

use mailonce_core::{
    port::{Chance, Clock},
    time::Time,
};
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock.
#[derive(Debug)]
pub(crate) struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Time {
        // A clock before 1970 is broken; ledger time does not follow it back.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(since.as_millis() as i64)
    }

    fn even(&self) -> i64 {
        let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        boot.tv_sec * 1000 + boot.tv_nsec / 1_000_000
    }
}

/// The operating system's randomness.
#[derive(Debug)]
pub(crate) struct SystemChance;

impl Chance for SystemChance {
    fn fill(&self, bytes: &mut [u8]) {
        if let Err(error) = getrandom::fill(bytes) {
            // Without randomness no id is safe to hand out. There is nothing sensible left to do.
            tracing::error!(%error, "the operating system gives no randomness");
            std::process::abort();
        }
    }
}

/// Thirty-two unpredictable bytes, for the secret of a new installation.
pub(crate) fn fresh_secret() -> [u8; 32] {
    let mut secret = [0; 32];
    SystemChance.fill(&mut secret);
    secret
}
