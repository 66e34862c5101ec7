//! The minimum rate at which a client must send a request body or the data of a mail.
//!
//! Without it, a client could hold a connection and its buffers by sending a byte now and then. The rate is an average,
//! because honest clients pause too: a phone in a tunnel, a busy mail server.

use std::time::Duration;
use tokio::time::Instant;

/// The minimum average rate in bytes per second. Half of what GPRS carries, so the slowest honest link is fast enough.
pub(crate) const MIN_RATE: u64 = 1024;

/// How far a client is ahead of the minimum rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalRate {
    /// Until when the bytes received so far satisfy the minimum rate.
    sufficient_until: Instant,
    /// How far ahead a client can get. Without this bound, a fast start would allow hours of single bytes.
    max_ahead: Duration,
}

impl ArrivalRate {
    /// Starts counting. The client may be silent for `head_start`.
    pub(crate) fn new(head_start: Duration, max_ahead: Duration) -> Self {
        Self { sufficient_until: Instant::now() + head_start, max_ahead }
    }

    /// Counts received bytes.
    pub(crate) fn record(&mut self, bytes: usize) {
        let credit = Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / MIN_RATE);
        self.sufficient_until = (self.sufficient_until + credit).min(Instant::now() + self.max_ahead);
    }

    /// Excludes time during which the server did not read.
    pub(crate) fn exclude(&mut self, waited: Duration) {
        self.sufficient_until += waited;
    }

    /// When the client will be too slow unless more bytes arrive.
    pub(crate) fn deadline(&self) -> Instant {
        self.sufficient_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD_START: Duration = Duration::from_secs(30);
    const MAX_AHEAD: Duration = Duration::from_secs(100);

    fn seconds_left(rate: &ArrivalRate) -> u64 {
        (rate.deadline() - Instant::now()).as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn received_bytes_extend_the_deadline_up_to_a_bound() {
        let mut rate = ArrivalRate::new(HEAD_START, MAX_AHEAD);
        assert_eq!(seconds_left(&rate), 30);
        rate.record(10 * 1024);
        assert_eq!(seconds_left(&rate), 40);
        rate.record(100 * 1024 * 1024);
        assert_eq!(seconds_left(&rate), 100, "not a day");
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(seconds_left(&rate), 40);
        rate.exclude(Duration::from_secs(5));
        assert_eq!(seconds_left(&rate), 45);
    }

    #[tokio::test(start_paused = true)]
    async fn a_steady_client_at_the_minimum_is_never_late() {
        let mut rate = ArrivalRate::new(HEAD_START, MAX_AHEAD);
        for _ in 0..10_000 {
            tokio::time::advance(Duration::from_secs(1)).await;
            rate.record(MIN_RATE as usize);
            assert!(rate.deadline() >= Instant::now());
        }
    }
}
