//! Latencies in logarithmic buckets: constant memory, with an error of at most one part in 64.

use std::time::Duration;

/// Buckets per power of two.
const BUCKETS_PER_OCTAVE: u64 = 64;
const BUCKET_BITS: u32 = BUCKETS_PER_OCTAVE.trailing_zeros();
/// Microseconds up to 2^36, about 19 hours.
const BUCKETS: usize = (BUCKETS_PER_OCTAVE * (36 - BUCKET_BITS as u64 + 1)) as usize;

/// A histogram of durations.
#[derive(Debug, Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0, max: Duration::ZERO }
    }
}

impl Histogram {
    /// Adds a duration.
    pub fn record(&mut self, took: Duration) {
        self.buckets[bucket_of(took.as_micros() as u64)] += 1;
        self.count += 1;
        self.max = self.max.max(took);
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest duration.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// The duration that the share `q` (0 to 1) did not exceed, rounded up to its bucket.
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = ((self.count as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_micros(bucket_upper_bound(bucket as u64)).min(self.max);
            }
        }
        self.max
    }
}

fn bucket_of(micros: u64) -> usize {
    if micros < BUCKETS_PER_OCTAVE {
        return micros as usize;
    }
    let shift = micros.ilog2() - BUCKET_BITS;
    let index = BUCKETS_PER_OCTAVE * u64::from(shift) + (micros >> shift);
    (index as usize).min(BUCKETS - 1)
}

fn bucket_upper_bound(bucket: u64) -> u64 {
    if bucket < BUCKETS_PER_OCTAVE {
        return bucket;
    }
    let shift = bucket / BUCKETS_PER_OCTAVE - 1;
    let fine = bucket - BUCKETS_PER_OCTAVE * shift;
    ((fine + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::{Histogram, bucket_of, bucket_upper_bound};
    use std::time::Duration;

    #[test]
    fn every_value_lies_in_its_bucket_and_near_its_top() {
        for micros in (0..20).map(|bit| 1_u64 << bit).flat_map(|power| [power - 1, power, power + power / 3]) {
            let top = bucket_upper_bound(bucket_of(micros) as u64);
            assert!(top >= micros, "{micros} above its bucket's top {top}");
            assert!(top - micros <= micros / 64, "{micros} too far below {top}");
        }
    }

    #[test]
    fn quantiles_of_a_hundred() {
        let mut histogram = Histogram::default();
        for millis in 1..=100 {
            histogram.record(Duration::from_millis(millis));
        }
        let close = |q: f64, millis: f64| (histogram.quantile(q).as_secs_f64() * 1e3 / millis - 1.0).abs() < 0.02;
        assert!(close(0.50, 50.0) && close(0.99, 99.0) && close(1.0, 100.0));
        assert_eq!(histogram.max(), Duration::from_millis(100));
    }

    #[test]
    fn merging_adds() {
        let (mut one, mut two) = (Histogram::default(), Histogram::default());
        one.record(Duration::from_millis(1));
        two.record(Duration::from_hours(48));
        one.merge(&two);
        assert_eq!(one.count(), 2);
        assert_eq!(one.max(), Duration::from_hours(48));
    }
}
