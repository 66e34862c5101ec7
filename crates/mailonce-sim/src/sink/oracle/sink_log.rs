//! The append-only log of a sink: JSON, one line per mail or request that reached it whole.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A mail or request that reached the sink.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkLogLine {
    /// When, in microseconds since 1970.
    pub at_us: u64,
    /// The channel: `smtp`, `keyed`, `look_up`, `keyless`.
    pub transport: String,
    /// The number of its connection, from 1.
    pub connection: u64,
    /// The email id, if the mail contains it.
    pub email: String,
    /// Its Message-ID, if it has one.
    pub message_id: String,
    /// Its provider key.
    pub key: Option<String>,
    /// Its recipients, without names.
    pub to: Vec<String>,
    /// The SHA-256 of its bytes, in hexadecimal.
    pub body: String,
    /// Whether it became a mail. A recognized repeat did not.
    pub taken: bool,
    /// The sink's action.
    pub action: String,
    /// Whether the sender cannot know the outcome.
    pub ambiguous: bool,
}

/// The current time in microseconds since 1970.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// An append-only log.
#[derive(Debug)]
pub struct SinkLog {
    file: Mutex<File>,
    lines: AtomicU64,
}

impl SinkLog {
    /// Opens the log, and creates it if needed.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file: Mutex::new(file), lines: AtomicU64::new(0) })
    }

    /// Appends a line with the current time. If that fails, the process exits, since a mail without a line would go
    /// unnoticed.
    pub fn write(&self, line: SinkLogLine) {
        self.append(|| SinkLogLine { at_us: now_us(), ..line });
    }

    /// Appends a line of any kind. It is built under the lock, so that lines are ordered by time.
    pub fn append<T: Serialize>(&self, line: impl FnOnce() -> T) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let line = line();
        let written = serde_json::to_vec(&line).map_err(std::io::Error::other).and_then(|mut bytes| {
            bytes.push(b'\n');
            file.write_all(&bytes)
        });
        if let Err(why) = written {
            eprintln!("the log cannot be written: {why}");
            std::process::exit(74);
        }
        self.lines.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of lines.
    pub fn count(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// Reads a log. Its last line may be incomplete.
    pub fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).with_context(|| format!("a bent line: {line}"))).collect()
    }
}
