//! The results of worlds and mutants, in the format of `docs/proof.md`.

use super::campaign::WorldSummary;
use super::mutants::{MUTANTS, Mutant, MutantDetector, MutantVerdict};
use crate::report::summary::{RunSummary as Report, TestRun};
use serde_json::Value;

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Worlds so far, and their faults.
pub fn worlds_report(run: &TestRun, sum: &WorldSummary) -> serde_json::Result<Report> {
    let mut report = run.summary();
    for (name, figure) in [
        ("worlds", sum.worlds),
        ("emails", sum.emails),
        ("calls", sum.calls),
        ("mails taken", sum.mails),
        ("faults", sum.faults.values().sum()),
        ("worlds played twice and alike", sum.replayed),
    ] {
        report.add_count(name, figure);
    }
    report.seeds = Value::String(format!("from {}, one after the other", sum.seed));
    report.table.push(row(["fault", "times"]));
    report.table.extend(sum.faults.iter().map(|(kind, count)| row([kind, &count.to_string()])));
    report.table.extend(
        sum.conversations.iter().map(|(what, count)| row([&format!("conversation: {what}"), &count.to_string()])),
    );
    report.table.extend(sum.claims.iter().map(|(what, count)| row([&format!("claim: {what}"), &count.to_string()])));
    report.violations = sum.failures.iter().map(|failure| failure.to_string().into()).collect();
    let untold = sum.violations.saturating_sub(sum.failures.len() as u64);
    if untold > 0 {
        report.violations.push(format!("{untold} worlds more").into());
    }
    report.state = serde_json::to_value(sum)?;
    Ok(report)
}

/// Every mutant: what detects it, by which invariant, and after how many seeds.
pub fn mutants_report(run: &TestRun, seed: u64, verdicts: &[MutantVerdict]) -> Report {
    let mut report = run.summary();
    let detected = verdicts.iter().filter(|verdict| verdict.worlds.is_some()).count();
    report.add_count("mutants", detected as u64);
    report.seeds = Value::String(format!("from {seed}, each until it is noticed"));
    report.table.push(row(["mutant", "what is wrong", "rig", "rules", "seeds needed"]));
    for mutant in MUTANTS {
        let verdict = verdicts.iter().find(|verdict| verdict.mutant.name == mutant.name);
        report.table.push(mutant_row(mutant, verdict));
        if verdict.is_some_and(|verdict| verdict.worlds.is_none()) {
            report.violations.push(format!("{} was not detected", mutant.name).into());
        }
    }
    report
}

fn mutant_row(mutant: &Mutant, verdict: Option<&MutantVerdict>) -> Vec<String> {
    let rig = match mutant.detector {
        MutantDetector::Worlds => "worlds".to_owned(),
        MutantDetector::Test(name) => format!("test `{name}`"),
    };
    let rules = verdict.map_or_else(Vec::new, |verdict| verdict.rules.iter().map(ToString::to_string).collect());
    let needed = match verdict {
        None => "in the tests".to_owned(),
        Some(MutantVerdict { worlds: None, .. }) => "survived".to_owned(),
        Some(MutantVerdict { worlds: Some(worlds), .. }) => worlds.to_string(),
    };
    vec![mutant.name.to_owned(), mutant.what.to_owned(), rig, rules.join(", "), needed]
}
