//! The figures of one run of a rig, `target/proof/<rig>.json`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs, io,
    path::Path,
    process::Command,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use mailonce_core::time::Time;

/// Every rig that may leave figures.
pub const RIGS: &[&str] = &["kills", "worlds", "mutants", "model", "fuzz"];

/// What one run of a rig found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Which rig.
    pub rig: String,
    /// Of which state of the code, as `git describe` names it.
    pub version: String,
    /// The command that runs it again.
    pub command: String,
    /// When it began.
    pub started: String,
    /// How long it took.
    pub seconds: f64,
    /// The numbers that everything followed from: one, or a list, or a range in words.
    #[serde(default)]
    pub seeds: Value,
    /// What was counted, by name.
    pub counts: BTreeMap<String, u64>,
    /// What did not hold.
    pub violations: Vec<Value>,
    /// More figures: a row of names, then rows of values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<Vec<String>>,
}

/// A run that began.
#[derive(Debug)]
pub struct Run {
    rig: &'static str,
    started: Time,
    clock: Instant,
}

impl Run {
    /// Begins a run.
    pub fn of(rig: &'static str) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { rig, started: Time(wall.as_millis() as i64), clock: Instant::now() }
    }

    /// What it found, without figures yet.
    pub fn over(&self) -> Summary {
        Summary {
            rig: self.rig.to_owned(),
            version: version(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            started: self.started.to_string(),
            seconds: self.clock.elapsed().as_secs_f64(),
            seeds: Value::Null,
            counts: BTreeMap::new(),
            violations: Vec::new(),
            table: Vec::new(),
        }
    }
}

impl Summary {
    /// Writes it into a folder under its rig's name.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join(format!("{}.json", self.rig)), serde_json::to_vec_pretty(self)?)
    }

    /// The summaries in a folder, by rig. One that cannot be read is an error, one that is not there is not.
    pub fn read_all(dir: &Path) -> io::Result<BTreeMap<String, Self>> {
        let mut all = BTreeMap::new();
        for rig in RIGS {
            match fs::read(dir.join(format!("{rig}.json"))) {
                Ok(bytes) => drop(all.insert((*rig).to_owned(), serde_json::from_slice(&bytes)?)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }
}

/// The state of the code.
fn version() -> String {
    let git = Command::new("git").args(["describe", "--always", "--dirty", "--tags"]).output();
    let named = git.ok().filter(|output| output.status.success());
    let named = named.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    named.filter(|name| !name.is_empty()).unwrap_or_else(|| concat!("v", env!("CARGO_PKG_VERSION")).into())
}
