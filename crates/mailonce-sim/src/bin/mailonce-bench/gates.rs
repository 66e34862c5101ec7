//! The limits that figures must meet, and the targets.

use crate::accept_search;
use crate::args::{Args, Figure};
use crate::growth;
use crate::large_ledger;
use crate::results::BenchResults;
use serde::Serialize;

/// The result of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GateVerdict {
    /// It meets the target.
    Goal,
    /// It meets the limit.
    Pass,
    /// It fails the limit.
    Fail,
    /// Not measured in this run.
    Unmeasured,
}

/// One figure with its limits.
#[derive(Debug, Serialize)]
pub(crate) struct BenchGate {
    pub(crate) what: String,
    pub(crate) value: Option<f64>,
    /// `×`, `ms` or `MB`.
    pub(crate) unit: &'static str,
    /// The limit.
    #[serde(rename = "gate")]
    pub(crate) must: f64,
    /// The target.
    pub(crate) goal: f64,
    /// Whether more is better.
    pub(crate) at_least: bool,
    pub(crate) verdict: GateVerdict,
}

impl BenchGate {
    fn ratio(what: &str, value: Option<f64>, must: f64, goal: f64) -> Self {
        let verdict = to_verdict(value, |value| value >= goal, |value| value >= must);
        Self { what: what.to_owned(), value, unit: "×", must, goal, at_least: true, verdict }
    }

    fn limit(what: &str, value: Option<f64>, unit: &'static str, must: f64, goal: f64) -> Self {
        let verdict = to_verdict(value, |value| value <= goal, |value| value <= must);
        Self { what: what.to_owned(), value, unit, must, goal, at_least: false, verdict }
    }
}

fn to_verdict(value: Option<f64>, good: impl Fn(f64) -> bool, enough: impl Fn(f64) -> bool) -> GateVerdict {
    match value {
        None => GateVerdict::Unmeasured,
        Some(value) if good(value) => GateVerdict::Goal,
        Some(value) if enough(value) => GateVerdict::Pass,
        Some(_) => GateVerdict::Fail,
    }
}

/// Checks a run. Each ratio compares figures of the same round, and is the median of the rounds.
pub(crate) fn evaluate_gates(args: &Args, results: &BenchResults) -> Vec<BenchGate> {
    let p99 = |name: &str| results.row(name)?.median(|sample| sample.p99_ms);
    let rss = |name: &str| results.row(name)?.median(|sample| sample.rss_mb);
    let serving = |name: &str| results.row(name)?.median(|sample| sample.serving_ms);
    let restart = format!("restart with {} queued until serving", growth::short_count(args.queued));
    let mut gates = vec![
        BenchGate::ratio("accept / seeds", results.ratio("accept", "seeds"), 6.0, 10.0),
        BenchGate::ratio("accept / echo", results.ratio("accept", "echo"), 0.30, 0.45),
        BenchGate::limit("accept p99", p99("accept"), "ms", 40.0, 25.0),
        BenchGate::ratio("replay / echo", results.ratio("replay", "echo"), 0.65, 0.85),
        BenchGate::ratio("pg-accept / pgbench", results.ratio("pg-accept", "pgbench"), 2.0, 4.0),
        BenchGate::ratio("outbox / pg-accept", results.ratio("outbox", "pg-accept"), 0.25, 0.25),
        BenchGate::ratio("claim / redis", results.ratio("claim", "redis"), 0.05, 0.1),
        BenchGate::ratio("pg-claim / advisory-lock", results.ratio("pg-claim", "advisory-lock"), 0.15, 0.5),
        BenchGate::limit("storm p99", p99("storm"), "ms", 1000.0, 500.0),
        BenchGate::limit("pg-storm p99", p99("pg-storm"), "ms", 1000.0, 500.0),
        BenchGate::ratio("handoff / postfix", results.ratio("handoff", "postfix"), 3.0, 6.0),
        BenchGate::ratio("pg-handoff / postfix", results.ratio("pg-handoff", "postfix"), 1.5, 4.0),
        BenchGate::ratio("smtp-in / postfix-in", results.ratio("smtp-in", "postfix-in"), 2.0, 4.0),
        BenchGate::limit("dot to 250 p99 at 1,000 mails/s", p99("dot"), "ms", 100.0, 50.0),
        BenchGate::limit("mail to waiting call p99", p99("wait"), "ms", 50.0, 20.0),
        BenchGate::limit("10,000 waiting calls", rss("waiters"), "MB", 200.0, 200.0),
        BenchGate::limit("honest sends p99 under attack", p99("attacked"), "ms", 100.0, 50.0),
        BenchGate::limit(&restart, serving("restart"), "ms", 3000.0, 2000.0),
    ];
    let (least, most) = (args.growth.iter().min(), args.growth.iter().max());
    if let (true, Some(least), Some(most)) = (args.wants(Figure::Growth), least, most) {
        let (small, large) = (growth::name(*least), growth::name(*most));
        let what = format!("accept at {} / {} keys", growth::short_count(*most), growth::short_count(*least));
        gates.push(BenchGate::ratio(&what, results.ratio(&large, &small), 0.50, 0.67));
        let memory = results.row(&large).and_then(|row| row.median(|sample| sample.rss_mb));
        let what = format!("resident memory at {} keys", growth::short_count(*most));
        gates.push(BenchGate::limit(&what, memory, "MB", 400.0, 250.0));
    }
    gates.extend(dashboard_gates(args, results));
    gates
}

/// The gates of the dashboard's pages, and of what it asks for in a large ledger. Those of long figures are left out
/// unless the figure is selected.
fn dashboard_gates(args: &Args, results: &BenchResults) -> Vec<BenchGate> {
    let mut gates = Vec::new();
    for (figure, must, goal) in [
        (Figure::List1m, 150.0, 50.0),
        (Figure::PgList1m, 150.0, 50.0),
        (Figure::Search1m, 100.0, 50.0),
        (Figure::PgSearch1m, 100.0, 50.0),
    ] {
        if args.wants(figure) {
            let prefix = large_ledger::row_name(figure, args.ledger_emails, "");
            let what = format!("slowest query of {} p95", prefix.trim_end_matches('-'));
            gates.push(BenchGate::limit(
                &what,
                results.largest_median(&prefix, |sample| sample.p95_ms),
                "ms",
                must,
                goal,
            ));
        }
    }
    if args.wants(Figure::AcceptSearch) {
        let [with, without] = accept_search::ROWS;
        gates.push(BenchGate::ratio("accept with / without search", results.ratio(with, without), 0.90, 0.97));
    }
    if args.wants(Figure::Paint) {
        let slowest = results.largest_median("paint-", |sample| sample.p50_ms);
        gates.push(BenchGate::limit("first paint of the slowest page p50", slowest, "ms", 200.0, 100.0));
    }
    gates
}

#[cfg(test)]
mod tests {
    use super::{BenchGate, GateVerdict, evaluate_gates};
    use crate::args::Args;
    use crate::results::{BenchResults, FigureSample};
    use clap::Parser as _;

    #[test]
    fn the_slowest_query_is_judged() {
        let args = Args::try_parse_from(["bench", "--only", "list-1m,accept-search"]).unwrap();
        let mut results = BenchResults::default();
        let sample = |rate, p95_ms| FigureSample { rate, p95_ms, ..FigureSample::default() };
        for (query, ms) in [("first", 4.0), ("recipient", 151.0)] {
            results.push(&format!("list-1m-{query}"), "requests", Ok(sample(None, Some(ms))));
        }
        for (row, rate) in [("on", 92.0), ("off", 100.0)] {
            results.push(&format!("accept-search-{row}"), "emails", Ok(sample(Some(rate), None)));
        }
        let gates = evaluate_gates(&args, &results);
        let verdict = |what: &str| gates.iter().find(|gate| gate.what == what).map(|gate| gate.verdict);
        assert_eq!(verdict("slowest query of list-1m p95"), Some(GateVerdict::Fail));
        assert_eq!(verdict("accept with / without search"), Some(GateVerdict::Pass));
        assert_eq!(verdict("slowest query of pg-list-1m p95"), None);
    }

    #[test]
    fn claims_are_compared_with_what_they_replace() {
        let args = Args::try_parse_from(["bench"]).unwrap();
        let mut results = BenchResults::default();
        for (row, rate) in [("claim", 4.0), ("redis", 100.0), ("pg-claim", 60.0), ("advisory-lock", 100.0)] {
            results.push(row, "claims", Ok(FigureSample { rate: Some(rate), ..FigureSample::default() }));
        }
        let gates = evaluate_gates(&args, &results);
        let verdict = |what: &str| gates.iter().find(|gate| gate.what == what).map(|gate| gate.verdict);
        assert_eq!(verdict("claim / redis"), Some(GateVerdict::Fail));
        assert_eq!(verdict("pg-claim / advisory-lock"), Some(GateVerdict::Goal));
        assert_eq!(verdict("outbox / pg-accept"), Some(GateVerdict::Unmeasured));
    }

    #[test]
    fn verdicts() {
        let ratio = |value| BenchGate::ratio("accept / echo", value, 0.25, 0.40).verdict;
        assert_eq!(ratio(Some(0.24)), GateVerdict::Fail);
        assert_eq!(ratio(Some(0.25)), GateVerdict::Pass);
        assert_eq!(ratio(Some(0.41)), GateVerdict::Goal);
        assert_eq!(ratio(None), GateVerdict::Unmeasured);
        let limit = |value| BenchGate::limit("accept p99", Some(value), "ms", 40.0, 25.0).verdict;
        assert_eq!((limit(41.0), limit(40.0), limit(25.0)), (GateVerdict::Fail, GateVerdict::Pass, GateVerdict::Goal));
    }
}
