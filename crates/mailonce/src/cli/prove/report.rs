//! What held, as a table for people or JSON for machines.

use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::{
    cases::{CaseResult, ProveCase},
    dialect::{DialectPromise, TargetDialect},
};
use crate::cli::printer::Printer;

/// One case with its verdict.
#[derive(Debug)]
pub(super) struct ProveFinding {
    case: ProveCase,
    promise: DialectPromise,
    outcome: CaseResult,
    /// How many mails were to arrive and how many did, once they were counted.
    expected_and_arrived: Option<(u32, u32)>,
}

/// Everything that was found.
pub(super) struct ProveReport {
    pub(super) target: String,
    pub(super) dialect: TargetDialect,
    /// Whether mails were counted.
    pub(super) mails_counted: bool,
    pub(super) findings: Vec<ProveFinding>,
}

impl ProveFinding {
    pub(super) fn of(case: ProveCase, dialect: TargetDialect, outcome: CaseResult) -> Self {
        Self { case, promise: dialect.promise(case), outcome, expected_and_arrived: None }
    }

    /// The mails that must arrive. What is not promised is not waited for.
    pub(super) fn expected_mails(&self) -> Vec<(String, u32)> {
        match self.promise {
            DialectPromise::Made(_) => self.outcome.expected_mails.clone(),
            DialectPromise::NotMade(_) => Vec::new(),
        }
    }

    /// Holds the mails that arrived against those that were to arrive: each marker for itself, so that one too many
    /// does not make up for one too few.
    pub(super) fn count_mails(&mut self, arrived: &BTreeMap<String, u32>) {
        let mails = &self.outcome.expected_mails;
        let found = |marker: &String| arrived.get(marker).copied().unwrap_or(0);
        self.outcome.passed &= mails.iter().all(|(marker, wanted)| found(marker) == *wanted);
        let sum = |each: &dyn Fn(&(String, u32)) -> u32| mails.iter().map(each).sum();
        self.expected_and_arrived = Some((sum(&|(_, wanted)| *wanted), sum(&|(marker, _)| found(marker))));
    }

    fn verdict(&self) -> &'static str {
        match (self.promise, self.outcome.passed) {
            (DialectPromise::NotMade(_), _) => "not promised",
            (DialectPromise::Made(_), true) => "held",
            (DialectPromise::Made(_), false) => "broken",
        }
    }

    fn expected(&self) -> &'static str {
        match self.promise {
            DialectPromise::Made(words) | DialectPromise::NotMade(words) => words,
        }
    }

    fn observed(&self) -> String {
        match self.expected_and_arrived {
            Some((wanted, arrived)) => format!("{}; mails: {arrived} of {wanted}", self.outcome.observed),
            None => self.outcome.observed.clone(),
        }
    }

    fn json(&self) -> Value {
        let mails =
            self.expected_and_arrived.map(|(wanted, arrived)| json!({ "expected": wanted, "arrived": arrived }));
        json!({
            "case": self.case.as_str(),
            "about": self.case.description(),
            "expected": self.expected(),
            "seen": self.outcome.observed,
            "mails": mails,
            "verdict": self.verdict(),
        })
    }
}

impl ProveReport {
    /// Whether everything that is promised held.
    pub(super) fn is_held(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict() != "broken")
    }

    pub(super) fn show(&self, out: &Printer) {
        if out.is_json() {
            out.print_json(&json!({
                "target": self.target,
                "dialect": self.dialect.as_str(),
                "mails_counted": self.mails_counted,
                "held": self.is_held(),
                "cases": self.findings.iter().map(ProveFinding::json).collect::<Vec<_>>(),
            }));
            return;
        }
        let row = |finding: &ProveFinding| {
            let verdict = match finding.verdict() {
                word @ "held" => out.green(word),
                word @ "broken" => out.red(word),
                word => out.dim(word),
            };
            vec![finding.case.as_str().to_owned(), finding.expected().to_owned(), finding.observed(), verdict]
        };
        out.print_table(&["case", "expected", "seen", "verdict"], self.findings.iter().map(row).collect());
        if !self.mails_counted {
            out.print_line("Only the answers were judged. --sink counts the mails too.");
        }
    }
}
