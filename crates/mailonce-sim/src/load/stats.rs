//! The results of a load run.

use super::Histogram;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Statuses above this are not HTTP.
const STATUS_COUNT: usize = 600;

/// Counts and latencies of one run.
#[derive(Debug, Clone)]
pub struct LoadStats {
    statuses: Vec<u64>,
    /// Failed exchanges: refused, reset, cut short or not HTTP.
    pub broken: u64,
    /// The reason of the last failed exchange.
    pub last_error: Option<String>,
    /// Latencies of the completed exchanges.
    pub latency: Histogram,
    /// The duration of the measurement.
    pub elapsed: Duration,
}

impl Default for LoadStats {
    fn default() -> Self {
        let (latency, elapsed) = (Histogram::default(), Duration::ZERO);
        Self { statuses: vec![0; STATUS_COUNT], broken: 0, last_error: None, latency, elapsed }
    }
}

impl LoadStats {
    /// Counts a response.
    pub fn record_response(&mut self, status: u16, took: Duration) {
        self.statuses[usize::from(status).min(STATUS_COUNT - 1)] += 1;
        self.latency.record(took);
    }

    /// Counts a failed exchange.
    pub fn record_error(&mut self, reason: &impl fmt::Display) {
        self.broken += 1;
        self.last_error = Some(reason.to_string());
    }

    /// The sum of parallel runs, over the longest of their durations.
    pub fn sum(tallies: &[Self]) -> Self {
        let mut total = Self::default();
        for tally in tallies {
            total.merge(tally);
        }
        total
    }

    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.statuses.iter_mut().zip(&other.statuses) {
            *mine += theirs;
        }
        self.broken += other.broken;
        self.last_error = self.last_error.take().or_else(|| other.last_error.clone());
        self.latency.merge(&other.latency);
        self.elapsed = self.elapsed.max(other.elapsed);
    }

    /// The number of responses with this status.
    pub fn status_count(&self, status: u16) -> u64 {
        self.statuses.get(usize::from(status)).copied().unwrap_or(0)
    }

    /// The number of responses.
    pub fn total(&self) -> u64 {
        self.latency.count()
    }

    /// The statuses with their counts.
    pub fn statuses(&self) -> BTreeMap<u16, u64> {
        let seen = self.statuses.iter().enumerate().filter(|(_, count)| **count > 0);
        seen.map(|(status, count)| (status as u16, *count)).collect()
    }

    /// Responses per second.
    pub fn responses_per_second(&self) -> f64 {
        self.total() as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }
}

/// `1×202 9999×200`, and the failures.
impl fmt::Display for LoadStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.statuses().iter().map(|(status, count)| format!("{count}×{status}")).collect();
        write!(f, "{}", if parts.is_empty() { "no answers".to_owned() } else { parts.join(" ") })?;
        if self.broken > 0 {
            write!(f, ", {} broken ({})", self.broken, self.last_error.as_deref().unwrap_or("no reason"))?;
        }
        Ok(())
    }
}
