//! What a rig found, as a file that others can read: `target/proof/NAME.json`.

use anyhow::{Context as _, Result};
use mailonce_core::time::Time;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A proof that grows with every part of a rig that ends.
#[derive(Debug)]
pub struct Proof {
    file: PathBuf,
    rig: &'static str,
    command: String,
    started: Time,
    began: Instant,
    parts: Mutex<Parts>,
}

#[derive(Debug, Default)]
struct Parts {
    seeds: BTreeSet<u64>,
    counts: BTreeMap<String, u64>,
    violations: Vec<String>,
}

impl Proof {
    /// A proof under `target`, made by this command.
    pub fn new(target: &Path, rig: &'static str, command: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            file: target.join("proof").join(format!("{rig}.json")),
            rig,
            command: command.to_owned(),
            started: Time(now.as_millis() as i64),
            began: Instant::now(),
            parts: Mutex::default(),
        }
    }

    /// Adds what a part came to, and writes the file anew.
    pub fn add(&self, seed: u64, counts: &[(&str, u64)], violations: &[String]) -> Result<()> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.seeds.insert(seed);
        for (name, count) in counts {
            *parts.counts.entry((*name).to_owned()).or_default() += count;
        }
        parts.violations.extend_from_slice(violations);
        let folder = self.file.parent().context("a proof without a folder")?;
        std::fs::create_dir_all(folder)?;
        // A reader finds the old file or the new one, never a half.
        let fresh = self.file.with_extension("fresh");
        std::fs::write(&fresh, format!("{:#}\n", self.value(&parts)))?;
        std::fs::rename(&fresh, &self.file).with_context(|| format!("writing {}", self.file.display()))
    }

    fn value(&self, parts: &Parts) -> Value {
        json!({
            "rig": self.rig,
            "version": env!("CARGO_PKG_VERSION"),
            "command": self.command,
            "started": self.started.to_string(),
            "seconds": self.began.elapsed().as_secs(),
            "seeds": parts.seeds,
            "counts": parts.counts,
            "violations": parts.violations,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Proof;

    #[test]
    fn parts_add_up_in_one_file() {
        let target = tempfile::tempdir().unwrap();
        let proof = Proof::new(target.path(), "tried", "cargo test");
        proof.add(7, &[("kills", 2), ("cuts", 1)], &[]).unwrap();
        proof.add(8, &[("kills", 3)], &["lost".to_owned()]).unwrap();
        let text = std::fs::read(target.path().join("proof/tried.json")).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!((&read["seeds"], &read["counts"]["kills"]), (&serde_json::json!([7, 8]), &5.into()));
        assert_eq!((&read["counts"]["cuts"], &read["violations"][0]), (&1.into(), &"lost".into()));
    }
}
