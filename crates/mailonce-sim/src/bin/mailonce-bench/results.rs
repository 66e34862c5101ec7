//! Figures by name and round, and what is made of several rounds.

use mailonce_sim::load::Histogram;
use serde::Serialize;
use std::time::Duration;

/// What one round of one figure measured. What a tool does not tell is absent.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct FigureSample {
    /// Requests, items or transactions a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p95_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_ms: Option<f64>,
    /// The server's resident memory at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rss_mb: Option<f64>,
    /// From the start of the server's process to its first accepted send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serving_ms: Option<f64>,
}

impl FigureSample {
    /// Latencies, and perhaps a rate.
    pub(crate) fn from_latency(latency: &Histogram, rate: Option<f64>) -> Self {
        Self {
            rate,
            p50_ms: Some(millis(latency.quantile(0.5))),
            p95_ms: Some(millis(latency.quantile(0.95))),
            p99_ms: Some(millis(latency.quantile(0.99))),
            max_ms: Some(millis(latency.max())),
            ..Self::default()
        }
    }
}

/// The rows of a figure that has several, each with its name or with why it could not be measured.
pub(crate) type NamedSamples = Vec<(String, anyhow::Result<FigureSample>)>;

/// One line of the table.
#[derive(Debug)]
pub(crate) struct FigureRow {
    pub(crate) name: String,
    /// What the rate counts.
    pub(crate) unit: &'static str,
    /// One entry per round; a round that failed says why.
    pub(crate) rounds: Vec<Result<FigureSample, String>>,
    /// Why it was not measured at all, when it could not be here.
    pub(crate) skipped: Option<String>,
}

/// Everything that was measured, in the order in which it first was.
#[derive(Debug, Default)]
pub(crate) struct BenchResults {
    pub(crate) rows: Vec<FigureRow>,
}

impl BenchResults {
    /// Notes a round of a figure.
    pub(crate) fn push(&mut self, name: &str, unit: &'static str, outcome: Result<FigureSample, String>) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.name == name) {
            row.rounds.push(outcome);
        } else {
            self.rows.push(FigureRow { name: name.to_owned(), unit, rounds: vec![outcome], skipped: None });
        }
    }

    /// Notes that a figure cannot be measured here, which is no failure of what is measured.
    pub(crate) fn skip(&mut self, name: &str, unit: &'static str, why: &str) {
        if self.row(name).is_none() {
            self.rows.push(FigureRow {
                name: name.to_owned(),
                unit,
                rounds: Vec::new(),
                skipped: Some(why.to_owned()),
            });
        }
    }

    /// What was skipped: figure and reason.
    pub(crate) fn skips(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rows.iter().filter_map(|row| Some((row.name.as_str(), row.skipped.as_deref()?)))
    }

    pub(crate) fn row(&self, name: &str) -> Option<&FigureRow> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// Why rounds failed: figure and reason.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rows.iter().flat_map(|row| {
            row.rounds.iter().filter_map(|round| Some((row.name.as_str(), round.as_ref().err()?.as_str())))
        })
    }

    /// The largest of the medians of the rows whose names begin with `prefix`. `None` if a row has none, so that a query
    /// that failed is not left out.
    pub(crate) fn largest_median(&self, prefix: &str, pick: impl Fn(&FigureSample) -> Option<f64>) -> Option<f64> {
        let rows = self.rows.iter().filter(|row| row.name.starts_with(prefix));
        rows.map(|row| row.median(&pick)).reduce(|one, other| Some(one?.max(other?)))?
    }

    /// The median over the rounds of `one`'s value against `other`'s in the same round.
    pub(crate) fn ratio(&self, one: &str, other: &str) -> Option<f64> {
        let (one, other) = (self.row(one)?, self.row(other)?);
        let rounds = one.rounds.iter().zip(&other.rounds);
        median(rounds.filter_map(|(one, other)| Some(one.as_ref().ok()?.rate? / other.as_ref().ok()?.rate?)))
    }
}

impl FigureRow {
    /// The median over the rounds of one of the sample's numbers.
    pub(crate) fn median(&self, pick: impl Fn(&FigureSample) -> Option<f64>) -> Option<f64> {
        median(self.rounds.iter().filter_map(|round| pick(round.as_ref().ok()?)))
    }

    /// The medians of all numbers.
    pub(crate) fn medians(&self) -> FigureSample {
        FigureSample {
            rate: self.median(|sample| sample.rate),
            p50_ms: self.median(|sample| sample.p50_ms),
            p95_ms: self.median(|sample| sample.p95_ms),
            p99_ms: self.median(|sample| sample.p99_ms),
            max_ms: self.median(|sample| sample.max_ms),
            rss_mb: self.median(|sample| sample.rss_mb),
            serving_ms: self.median(|sample| sample.serving_ms),
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// A time in milliseconds, to the microsecond.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::{BenchResults, FigureSample};

    fn rate(rate: f64) -> FigureSample {
        let rate = Some(rate);
        FigureSample { rate, ..FigureSample::default() }
    }

    #[test]
    fn ratios_compare_within_a_round() {
        let mut results = BenchResults::default();
        for (accept, echo) in [(10.0, 20.0), (30.0, 50.0), (5.0, 20.0)] {
            results.push("accept", "/s", Ok(rate(accept)));
            results.push("echo", "/s", Ok(rate(echo)));
        }
        assert_eq!(results.ratio("accept", "echo"), Some(0.5));
        assert_eq!(results.ratio("accept", "seeds"), None);
    }

    #[test]
    fn the_largest_median_needs_every_row() {
        let mut results = BenchResults::default();
        let p95 = |ms| FigureSample { p95_ms: Some(ms), ..FigureSample::default() };
        results.push("list-1m-first", "requests", Ok(p95(3.0)));
        results.push("list-1m-deep", "requests", Ok(p95(7.0)));
        results.push("pg-list-1m-first", "requests", Ok(p95(9.0)));
        assert_eq!(results.largest_median("list-1m-", |sample| sample.p95_ms), Some(7.0));
        assert_eq!(results.largest_median("search-1m-", |sample| sample.p95_ms), None);
        results.push("list-1m-state", "requests", Err("422".to_owned()));
        assert_eq!(results.largest_median("list-1m-", |sample| sample.p95_ms), None);
    }

    #[test]
    fn a_failed_round_is_left_out_and_named() {
        let mut results = BenchResults::default();
        results.push("accept", "/s", Err("12×503".to_owned()));
        results.push("accept", "/s", Ok(rate(10.0)));
        results.push("accept", "/s", Ok(rate(20.0)));
        let row = results.row("accept").unwrap();
        assert_eq!(row.median(|sample| sample.rate), Some(15.0));
        assert_eq!(results.failures().collect::<Vec<_>>(), [("accept", "12×503")]);
    }

    #[test]
    fn what_is_skipped_is_named_once_and_compares_with_nothing() {
        let mut results = BenchResults::default();
        for _round in 0..2 {
            results.push("handoff", "emails", Ok(rate(10.0)));
            results.skip("postfix", "emails", "not root");
        }
        assert_eq!(results.skips().collect::<Vec<_>>(), [("postfix", "not root")]);
        assert_eq!(results.failures().count(), 0);
        assert_eq!(results.ratio("handoff", "postfix"), None);
    }
}
