//! How long ago something happened, with the time counted during which the machine was suspended.
//!
//! [`Instant`] stands still while Linux is suspended. A limit that keeps a request inside a provider's window, or a final
//! dot close to its marker, must count that time: the ledger, the provider and other nodes do.

use std::time::Duration;
use tokio::time::Instant;

/// A moment of which the age matters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BootInstant {
    at: Instant,
    boot_time: Duration,
    boot_clock: fn() -> Duration,
}

impl BootInstant {
    /// This moment.
    pub(crate) fn now() -> Self {
        Self::with_clock(boot_clock)
    }

    fn with_clock(boot_clock: fn() -> Duration) -> Self {
        Self { at: Instant::now(), boot_time: boot_clock(), boot_clock }
    }

    /// How long ago it was, by whichever clock says more.
    pub(crate) fn elapsed(&self) -> Duration {
        self.at.elapsed().max((self.boot_clock)().saturating_sub(self.boot_time))
    }
}

/// Time since the machine started, suspension included.
fn boot_clock() -> Duration {
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(boot.tv_sec).unwrap_or_default(), u32::try_from(boot.tv_nsec).unwrap_or_default())
}

/// A moment of which nothing but the boot clock says that it was two minutes ago, as after a suspension.
#[cfg(test)]
pub(crate) fn before_suspension() -> BootInstant {
    let since = BootInstant::now();
    BootInstant { boot_time: since.boot_time.saturating_sub(Duration::from_mins(2)), ..since }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whichever_clock_says_more_counts() {
        let since = BootInstant::now();
        assert!(since.elapsed() < Duration::from_secs(1));
        tokio::time::advance(Duration::from_mins(3)).await;
        assert!(since.elapsed() >= Duration::from_mins(3));
        assert!(before_suspension().elapsed() >= Duration::from_mins(2), "the machine was suspended");
        let stopped = BootInstant::with_clock(|| Duration::ZERO);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(stopped.elapsed() >= Duration::from_secs(5), "a boot clock that stands still takes nothing away");
    }
}
