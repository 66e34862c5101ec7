//! The report of `prove`, as a table or JSON.

use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::{
    case::ProveCase,
    cases::CaseResult,
    dialect::{DialectPromise, TargetDialect},
};
use crate::cli::printer::Printer;

/// One case with its verdict.
#[derive(Debug)]
pub(super) struct ProveFinding {
    case: ProveCase,
    promise: DialectPromise,
    outcome: CaseResult,
    /// Expected and delivered emails, once they were counted.
    expected_and_arrived: Option<(u32, u32)>,
}

/// The results of all cases.
pub(super) struct ProveReport {
    pub(super) target: String,
    pub(super) dialect: TargetDialect,
    /// Whether a sink counted the delivered emails.
    pub(super) mails_counted: bool,
    pub(super) findings: Vec<ProveFinding>,
}

impl ProveFinding {
    pub(super) fn of(case: ProveCase, dialect: TargetDialect, outcome: CaseResult) -> Self {
        Self { case, promise: dialect.promise(case), outcome, expected_and_arrived: None }
    }

    /// The emails that must arrive. Cases without a promise are not waited for.
    pub(super) fn expected_mails(&self) -> Vec<(String, u32)> {
        match self.promise {
            DialectPromise::Made(_) => self.outcome.expected_mails.clone(),
            DialectPromise::NotMade(_) => Vec::new(),
        }
    }

    /// Compares delivered and expected emails marker by marker, so that a duplicate does not hide a loss.
    pub(super) fn count_mails(&mut self, arrived: &BTreeMap<String, u32>) {
        let mails = &self.outcome.expected_mails;
        let delivered = |marker: &String| arrived.get(marker).copied().unwrap_or(0);
        self.outcome.passed &= mails.iter().all(|(marker, expected)| delivered(marker) == *expected);
        let sum = |each: &dyn Fn(&(String, u32)) -> u32| mails.iter().map(each).sum();
        self.expected_and_arrived = Some((sum(&|(_, expected)| *expected), sum(&|(marker, _)| delivered(marker))));
    }

    fn verdict(&self) -> &'static str {
        match (self.promise, self.outcome.passed) {
            (DialectPromise::NotMade(_), _) => "not promised",
            (DialectPromise::Made(_), true) => "passed",
            (DialectPromise::Made(_), false) => "failed",
        }
    }

    fn expected(&self) -> &'static str {
        match self.promise {
            DialectPromise::Made(text) | DialectPromise::NotMade(text) => text,
        }
    }

    fn observed(&self) -> String {
        match self.expected_and_arrived {
            Some((expected, arrived)) => format!("{}; delivered: {arrived} of {expected}", self.outcome.observed),
            None => self.outcome.observed.clone(),
        }
    }

    fn json(&self) -> Value {
        let mails =
            self.expected_and_arrived.map(|(expected, arrived)| json!({ "expected": expected, "arrived": arrived }));
        json!({
            "case": self.case.as_str(),
            "about": self.case.description(),
            "expected": self.expected(),
            "observed": self.outcome.observed,
            "mails": mails,
            "verdict": self.verdict(),
        })
    }
}

impl ProveReport {
    /// Whether every promised case passed.
    pub(super) fn has_passed(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict() != "failed")
    }

    pub(super) fn show(&self, out: &Printer) {
        if out.is_json() {
            out.print_json(&json!({
                "target": self.target,
                "dialect": self.dialect.as_str(),
                "mails_counted": self.mails_counted,
                "passed": self.has_passed(),
                "cases": self.findings.iter().map(ProveFinding::json).collect::<Vec<_>>(),
            }));
            return;
        }
        let row = |finding: &ProveFinding| {
            let verdict = match finding.verdict() {
                verdict @ "passed" => out.green(verdict),
                verdict @ "failed" => out.red(verdict),
                verdict => out.dim(verdict),
            };
            vec![finding.case.as_str().to_owned(), finding.expected().to_owned(), finding.observed(), verdict]
        };
        out.print_table(&["case", "expected", "observed", "verdict"], self.findings.iter().map(row).collect());
        if !self.mails_counted {
            out.print_line("Only the responses were checked. Pass --sink to count the delivered emails too.");
        }
    }
}
