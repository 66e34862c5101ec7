//! The results of a test as a file: `target/proof/NAME.json`.

use crate::report::summary::{RunSummary, TestRun};
use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A summary that grows with each part of a test.
#[derive(Debug)]
pub struct SummaryWriter {
    folder: PathBuf,
    run: TestRun,
    totals: Mutex<SummaryTotals>,
}

#[derive(Debug, Default)]
struct SummaryTotals {
    seeds: BTreeSet<u64>,
    counts: BTreeMap<String, u64>,
    violations: Vec<String>,
}

impl SummaryWriter {
    /// A summary under `target`, made by this command.
    pub fn new(target: &Path, rig: &'static str, command: &str) -> Self {
        Self { folder: target.join("proof"), run: TestRun::start_as(rig, command), totals: Mutex::default() }
    }

    /// Adds the results of a part and rewrites the file.
    pub fn add(&self, seed: u64, counts: &[(&str, u64)], violations: &[String]) -> Result<()> {
        let mut parts = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        parts.seeds.insert(seed);
        for (name, count) in counts {
            *parts.counts.entry((*name).to_owned()).or_default() += count;
        }
        parts.violations.extend_from_slice(violations);
        let summary = RunSummary {
            seeds: parts.seeds.iter().copied().collect(),
            counts: parts.counts.clone(),
            violations: parts.violations.iter().cloned().map(Into::into).collect(),
            ..self.run.summary()
        };
        summary.write(&self.folder).with_context(|| format!("writing into {}", self.folder.display()))
    }
}

/// Prints a line at once, even where the test runner captures output.
pub fn print_line(text: &str) {
    // A closed stderr is no reason to fail.
    let _closed = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::SummaryWriter;

    #[test]
    fn parts_add_up_in_one_file() {
        let target = tempfile::tempdir().unwrap();
        let proof = SummaryWriter::new(target.path(), "tried", "cargo test");
        proof.add(7, &[("kills", 2), ("cuts", 1)], &[]).unwrap();
        proof.add(8, &[("kills", 3)], &["lost".to_owned()]).unwrap();
        let text = std::fs::read(target.path().join("proof/tried.json")).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!((&read["seeds"], &read["counts"]["kills"]), (&serde_json::json!([7, 8]), &5.into()));
        assert_eq!((&read["counts"]["cuts"], &read["violations"][0]), (&1.into(), &"lost".into()));
    }
}
