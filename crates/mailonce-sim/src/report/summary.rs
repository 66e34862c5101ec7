//! The results of one test run, `target/proof/<rig>.json`. A long run saves them repeatedly, and an interrupted one
//! continues from them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use mailonce_core::time::Time;

/// Every test that may save results.
pub const RIGS: &[&str] =
    &["kills", "judge", "worlds", "mutants", "faults", "failovers", "clocks", "differential", "model", "fuzz"];

/// The results of one test run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunSummary {
    /// The name of the test.
    pub rig: String,
    /// The version of the code, from `git describe`.
    pub version: String,
    /// The command that repeats it.
    pub command: String,
    /// Its start.
    pub started: String,
    /// Its duration.
    pub seconds: f64,
    /// The seeds: one, a list, or a range as text.
    #[serde(default)]
    pub seeds: Value,
    /// Counts by name.
    pub counts: BTreeMap<String, u64>,
    /// Broken invariants.
    pub violations: Vec<Value>,
    /// More figures: a header row, then rows of values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<Vec<String>>,
    /// The state from which an interrupted run continues.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub state: Value,
}

/// A run in progress.
#[derive(Debug)]
pub struct TestRun {
    rig: &'static str,
    started: String,
    started_at: Instant,
    /// Duration of the interrupted runs that it continues.
    earlier_seconds: f64,
    /// The command, if it is not this program.
    command: Option<String>,
}

impl TestRun {
    /// Starts a run.
    pub fn start(rig: &'static str) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = Time(wall.as_millis() as i64).to_string();
        Self { rig, started, started_at: Instant::now(), earlier_seconds: 0.0, command: None }
    }

    /// Starts a run under another command's name.
    pub fn start_as(rig: &'static str, command: &str) -> Self {
        Self { command: Some(command.to_owned()), ..Self::start(rig) }
    }

    /// Continues a run of the same code from its results in a folder, if there are any. Returns its saved state.
    pub fn resume(rig: &'static str, dir: &Path) -> io::Result<(Self, Value)> {
        let run = Self::start(rig);
        match RunSummary::read(dir, rig)?.filter(|left| left.version == code_version()) {
            None => Ok((run, Value::Null)),
            Some(RunSummary { started, seconds, state, .. }) => {
                Ok((Self { started, earlier_seconds: seconds, ..run }, state))
            }
        }
    }

    /// Its summary, without counts yet.
    pub fn summary(&self) -> RunSummary {
        RunSummary {
            rig: self.rig.to_owned(),
            version: code_version(),
            command: self.command.clone().unwrap_or_else(current_command),
            started: self.started.clone(),
            seconds: self.earlier_seconds + self.started_at.elapsed().as_secs_f64(),
            seeds: Value::Null,
            counts: BTreeMap::new(),
            violations: Vec::new(),
            table: Vec::new(),
            state: Value::Null,
        }
    }
}

impl RunSummary {
    /// Writes the summary to a folder. The file is replaced atomically.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let fresh = dir.join(format!("{}.fresh", self.rig));
        fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&fresh, summary_path(dir, &self.rig))
    }

    /// Reads the summary of a test from a folder, if it exists.
    pub fn read(dir: &Path, rig: &str) -> io::Result<Option<Self>> {
        match fs::read(summary_path(dir, rig)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets a count.
    pub fn add_count(&mut self, name: &str, figure: u64) {
        self.counts.insert(name.to_owned(), figure);
    }

    /// The summaries in a folder by test. A missing one is skipped; an unreadable one is an error.
    pub fn read_all(dir: &Path) -> io::Result<BTreeMap<String, Self>> {
        let mut all = BTreeMap::new();
        for rig in RIGS {
            all.extend(Self::read(dir, rig)?.map(|summary| ((*rig).to_owned(), summary)));
        }
        Ok(all)
    }
}

fn summary_path(dir: &Path, rig: &str) -> PathBuf {
    dir.join(format!("{rig}.json"))
}

/// This command, without the folder of the program.
fn current_command() -> String {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut() {
        *program = Path::new(&*program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    }
    words.join(" ")
}

/// The version of the code.
fn code_version() -> String {
    let git = Command::new("git").args(["describe", "--always", "--dirty", "--tags"]).output();
    let named = git.ok().filter(|output| output.status.success());
    let named = named.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| concat!("v", env!("CARGO_PKG_VERSION")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_where_one_of_the_same_code_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let (run, state) = TestRun::resume("worlds", dir.path()).unwrap();
        assert_eq!(state, Value::Null);
        let mut cut = run.summary();
        (cut.state, cut.seconds) = (7.into(), 1_000.0);
        cut.write(dir.path()).unwrap();
        let (run, state) = TestRun::resume("worlds", dir.path()).unwrap();
        assert_eq!((state, run.summary().started), (7.into(), cut.started.clone()));
        assert!(run.summary().seconds >= 1_000.0);
        cut.version = "another".into();
        cut.write(dir.path()).unwrap();
        assert_eq!(TestRun::resume("worlds", dir.path()).unwrap().1, Value::Null);
    }
}
