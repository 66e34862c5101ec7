//! Measures how long ago something happened, including time during which the machine was suspended.
//!
//! [`Instant`] does not advance while Linux is suspended. Two limits must count that time, because the ledger, the
//! provider and other nodes do: a provider's idempotency window, and the delay between the marker and the final dot.

use std::time::Duration;
use tokio::time::Instant;

/// A point in time whose age includes suspension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BootInstant {
    at: Instant,
    boot_time: Duration,
    boot_clock: fn() -> Duration,
}

impl BootInstant {
    /// The current time.
    pub(crate) fn now() -> Self {
        Self::with_clock(boot_clock)
    }

    fn with_clock(boot_clock: fn() -> Duration) -> Self {
        Self { at: Instant::now(), boot_time: boot_clock(), boot_clock }
    }

    /// The time since then: the larger of the monotonic clock's and the boot clock's answer.
    pub(crate) fn elapsed(&self) -> Duration {
        self.at.elapsed().max((self.boot_clock)().saturating_sub(self.boot_time))
    }
}

/// Time since the machine started, suspension included.
fn boot_clock() -> Duration {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(boot.tv_sec).unwrap_or_default(), u32::try_from(boot.tv_nsec).unwrap_or_default())
}

/// A time two minutes ago by the boot clock and just now by the monotonic clock, as after a suspension.
#[cfg(test)]
pub(crate) fn before_suspension() -> BootInstant {
    let since = BootInstant::now();
    BootInstant { boot_time: since.boot_time.saturating_sub(Duration::from_mins(2)), ..since }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn elapsed_uses_the_clock_that_advanced_more() {
        let since = BootInstant::now();
        assert!(since.elapsed() < Duration::from_secs(1));
        tokio::time::advance(Duration::from_mins(3)).await;
        assert!(since.elapsed() >= Duration::from_mins(3));
        assert!(before_suspension().elapsed() >= Duration::from_mins(2), "the machine was suspended");
        let stopped = BootInstant::with_clock(|| Duration::ZERO);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(stopped.elapsed() >= Duration::from_secs(5), "a stopped boot clock does not shorten the age");
    }
}
