//! The journal of erasures: a file in the data directory that outlives the ledger. After a restore from an older backup
//! the next start erases the same people again. The file names people by their aliases only.

use anyhow::Context as _;
use mailonce_engine::{Engine, control::erasures::JournalEntry};
use std::{
    collections::BTreeMap,
    fs::File,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;

use crate::private_file;

/// The name of the file.
pub(crate) const JOURNAL_FILE: &str = "erasures.json";
/// How often the journal is compared with the number of requests, and after how many of these times it is written
/// anyway, because another node may have got a request.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const CHECKS_PER_WRITE: u64 = 60;

/// Reads a journal. Empty when there is no such file.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<JournalEntry>> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is not a journal", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// Adds entries to the journal of a data directory. Nothing is ever removed from it: a ledger that was restored from a
/// backup knows less than the journal.
pub(crate) fn add(data: &Path, entries: Vec<JournalEntry>) -> anyhow::Result<()> {
    let path = data.join(JOURNAL_FILE);
    let known = read(&path)?;
    let mut merged: BTreeMap<_, JournalEntry> = BTreeMap::new();
    for entry in known.iter().cloned().chain(entries) {
        let latest = merged.entry((entry.team, entry.alias.clone())).or_insert_with(|| entry.clone());
        latest.requested_at = latest.requested_at.max(entry.requested_at);
    }
    let merged: Vec<JournalEntry> = merged.into_values().collect();
    if merged == known {
        return Ok(());
    }
    // A node on PostgreSQL may have had nothing to keep until now.
    private_file::create_dir(data).with_context(|| format!("creating {}", data.display()))?;
    let fresh = data.join(format!("{JOURNAL_FILE}.new"));
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&serde_json::to_vec(&merged)?)?;
    file.sync_all()?;
    std::fs::rename(&fresh, &path).with_context(|| format!("writing {}", path.display()))?;
    Ok(File::open(data)?.sync_all()?)
}

/// Requests the erasures that the journal has and the ledger does not know.
pub(crate) async fn apply(engine: &Engine, data: &Path) -> anyhow::Result<()> {
    let applied = engine.erasures.apply_erasure_journal(read(&data.join(JOURNAL_FILE))?).await?;
    if applied > 0 {
        tracing::warn!(applied, "people who were erased are erased again, because the ledger is from before");
    }
    Ok(())
}

/// Updates the journal until `stop` changes.
pub(crate) async fn run_updates(engine: Arc<Engine>, data: PathBuf, mut stop: watch::Receiver<bool>) {
    let mut checks = tokio::time::interval(CHECK_INTERVAL);
    let (mut written, mut count, mut has_failed) = (None, 0, false);
    while !*stop.borrow() {
        tokio::select! {
            _ = stop.changed() => continue,
            _ = checks.tick() => count += 1,
        }
        let requests = engine.erasures.erasure_requests();
        if written == Some(requests) && count % CHECKS_PER_WRITE != 0 {
            continue;
        }
        let entries = engine.erasures.erasure_journal().await.map_err(anyhow::Error::from);
        match entries.and_then(|entries| add(&data, entries)) {
            Ok(()) => (written, has_failed) = (Some(requests), false),
            Err(error) => {
                if !has_failed || count % CHECKS_PER_WRITE == 0 {
                    let data = data.display();
                    tracing::warn!("cannot write the journal of erasures into the data directory {data}: {error:#}");
                }
                has_failed = true;
            }
        }
    }
}
