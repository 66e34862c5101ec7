//! What held, as a table for people or JSON for machines.

use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::{
    cases::{Case, Outcome},
    dialect::{Dialect, Promise},
};
use crate::cli::out::Out;

/// One case with its verdict.
#[derive(Debug)]
pub(super) struct Finding {
    case: Case,
    promise: Promise,
    outcome: Outcome,
    /// How many mails were to arrive and how many did, once they were counted.
    mails: Option<(u32, u32)>,
}

/// Everything that was found.
pub(super) struct Report {
    pub(super) target: String,
    pub(super) dialect: Dialect,
    /// Whether mails were counted.
    pub(super) counted: bool,
    pub(super) findings: Vec<Finding>,
}

impl Finding {
    pub(super) fn of(case: Case, dialect: Dialect, outcome: Outcome) -> Self {
        Self { case, promise: dialect.promise(case), outcome, mails: None }
    }

    /// The mails that must arrive. What is not promised is not waited for.
    pub(super) fn wanted(&self) -> Vec<(String, u32)> {
        match self.promise {
            Promise::Made(_) => self.outcome.mails.clone(),
            Promise::NotMade(_) => Vec::new(),
        }
    }

    /// Holds the mails that arrived against those that were to arrive: each marker for itself, so that one too many
    /// does not make up for one too few.
    pub(super) fn count(&mut self, arrived: &BTreeMap<String, u32>) {
        let mails = &self.outcome.mails;
        let found = |marker: &String| arrived.get(marker).copied().unwrap_or(0);
        self.outcome.held &= mails.iter().all(|(marker, wanted)| found(marker) == *wanted);
        let sum = |each: &dyn Fn(&(String, u32)) -> u32| mails.iter().map(each).sum();
        self.mails = Some((sum(&|(_, wanted)| *wanted), sum(&|(marker, _)| found(marker))));
    }

    fn verdict(&self) -> &'static str {
        match (self.promise, self.outcome.held) {
            (Promise::NotMade(_), _) => "not promised",
            (Promise::Made(_), true) => "held",
            (Promise::Made(_), false) => "broken",
        }
    }

    fn expected(&self) -> &'static str {
        match self.promise {
            Promise::Made(words) | Promise::NotMade(words) => words,
        }
    }

    fn seen(&self) -> String {
        match self.mails {
            Some((wanted, arrived)) => format!("{}; mails: {arrived} of {wanted}", self.outcome.seen),
            None => self.outcome.seen.clone(),
        }
    }

    fn json(&self) -> Value {
        let mails = self.mails.map(|(wanted, arrived)| json!({ "expected": wanted, "arrived": arrived }));
        json!({
            "case": self.case.word(),
            "about": self.case.about(),
            "expected": self.expected(),
            "seen": self.outcome.seen,
            "mails": mails,
            "verdict": self.verdict(),
        })
    }
}

impl Report {
    /// Whether everything that is promised held.
    pub(super) fn held(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict() != "broken")
    }

    pub(super) fn show(&self, out: &Out) {
        if out.is_json() {
            out.value(&json!({
                "target": self.target,
                "dialect": self.dialect.word(),
                "mails_counted": self.counted,
                "held": self.held(),
                "cases": self.findings.iter().map(Finding::json).collect::<Vec<_>>(),
            }));
            return;
        }
        let row = |finding: &Finding| {
            let verdict = match finding.verdict() {
                word @ "held" => out.good(word),
                word @ "broken" => out.bad(word),
                word => out.dim(word),
            };
            vec![finding.case.word().to_owned(), finding.expected().to_owned(), finding.seen(), verdict]
        };
        out.table(&["case", "expected", "seen", "verdict"], self.findings.iter().map(row).collect());
        if !self.counted {
            out.line("Only the answers were judged. --sink counts the mails too.");
        }
    }
}
