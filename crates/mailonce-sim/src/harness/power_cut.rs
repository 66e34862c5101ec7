//! Simulates a power cut: of the unsynced writes some survive, some are lost, and some are torn.
//!
//! The shim logs every write and sync of the ledger's files in a journal. After a kill the files are rebuilt from their
//! state at the server's start: all writes up to the last sync, and a random part of the rest.

use crate::harness::disk_faults::FaultyDisk;
use crate::harness::rng::SeededRng;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

/// The unit that a disk writes atomically.
const SECTOR: usize = 512;
/// The files that survive a power cut. The WAL index is rebuilt.
const LEDGER_FILES: [&str; 3] = ["ledger.db", "ledger.db-wal", "ledger.db-journal"];
const WAL_INDEX_FILE: &str = "ledger.db-shm";
/// The journal's name for the directory itself.
const DIRECTORY_ENTRY: &str = ".";

/// What a power cut lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PowerLoss {
    /// Synced writes.
    pub synced: u64,
    /// Unsynced writes.
    pub unsynced: u64,
    /// Unsynced writes that were lost.
    pub dropped: u64,
    /// Unsynced writes that were torn.
    pub torn: u64,
}

impl AddAssign for PowerLoss {
    fn add_assign(&mut self, more: Self) {
        self.synced += more.synced;
        self.unsynced += more.unsynced;
        self.dropped += more.dropped;
        self.torn += more.torn;
    }
}

impl fmt::Display for PowerLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { synced, unsynced, dropped, torn } = self;
        write!(f, "{synced} changes synced, {unsynced} not; {dropped} dropped, {torn} torn")
    }
}

/// The power supply of one data directory.
#[derive(Debug)]
pub struct PowerSupply<'a> {
    /// The disk whose writes are logged.
    pub disk: &'a FaultyDisk,
    /// The data directory.
    pub data: &'a Path,
    /// A directory for the journal and the snapshot of the files.
    pub folder: PathBuf,
    /// How many microseconds a sync takes.
    pub sync_micros: u64,
    /// Syncs of files with this suffix do nothing: a mutant that the test must detect.
    pub unsynced_suffix: Option<&'static str>,
    /// Reports what is wrong with the files of a directory.
    pub check_files: fn(&Path) -> Result<Vec<String>>,
}

/// One write to a file.
enum FileChange<'a> {
    Write(usize, &'a [u8]),
    Truncate(usize),
    Removed,
}

/// The writes to one file by their position in the journal, and the position of the last sync.
#[derive(Default)]
struct FileChanges<'a> {
    changes: Vec<(usize, FileChange<'a>)>,
    synced_upto: usize,
    /// Position of the directory's last sync: a file that was removed before it does not reappear.
    directory_synced_upto: usize,
}

impl FileChanges<'_> {
    /// Records a failed sync. The kernel marks dirty pages as clean then, so no later sync saves them.
    fn mark_sync_failed(&mut self, upto: usize) {
        let synced = self.synced_upto;
        self.changes.retain(|(position, _)| *position < synced || *position >= upto);
    }

    fn is_durable(&self, (position, change): &(usize, FileChange<'_>)) -> bool {
        match change {
            FileChange::Removed => *position < self.directory_synced_upto.max(self.synced_upto),
            _ => *position < self.synced_upto,
        }
    }
}

/// How a cut treats unsynced writes.
#[derive(Clone, Copy, Debug)]
enum LossPattern {
    KeepAll,
    DropAll,
    /// Keeps or loses each write.
    SomeChanges,
    /// Keeps or loses each sector.
    SomeSectors,
    /// Keeps the writes before a torn one and loses those after it.
    TornTail(u64),
}

impl PowerSupply<'_> {
    fn journal_path(&self) -> PathBuf {
        self.folder.join("journal")
    }

    /// The environment variables of the server.
    pub fn env(&self) -> Vec<(&'static str, OsString)> {
        let mut env = self.disk.env().to_vec();
        env.push(("FAULT_JOURNAL", self.journal_path().into()));
        env.push(("FAULT_SYNC_MICROS", self.sync_micros.to_string().into()));
        env.extend(self.unsynced_suffix.map(|suffix| ("FAULT_NOSYNC", suffix.into())));
        env
    }

    /// Takes a snapshot of the files before a server starts.
    pub fn snapshot_files(&self) -> Result<()> {
        let base = self.folder.join("base");
        if self.folder.exists() {
            std::fs::remove_dir_all(&self.folder)?;
        }
        std::fs::create_dir_all(&base)?;
        copy_files(self.data, &base)
    }

    /// Applies the power cut to the files of a killed server.
    pub fn cut_power(&self, rng: &mut SeededRng) -> Result<PowerLoss> {
        let journal = match std::fs::read(self.journal_path()) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).context("reading the journal"),
        };
        let changes_by_file = parse_journal(&journal)?;
        let mut taken = PowerLoss::default();
        for name in LEDGER_FILES {
            let Some(changes) = changes_by_file.get(name) else { continue };
            let before = std::fs::read(self.folder.join("base").join(name)).ok();
            let path = self.data.join(name);
            match rebuild_file(before, changes, rng, &mut taken) {
                Some(after) => std::fs::write(&path, after)?,
                None if path.exists() => std::fs::remove_file(&path)?,
                None => {}
            }
        }
        if self.data.join(WAL_INDEX_FILE).exists() {
            std::fs::remove_file(self.data.join(WAL_INDEX_FILE))?;
        }
        self.check_copy()?;
        Ok(taken)
    }

    /// Checks a copy, so that the server finds the files as the cut left them.
    fn check_copy(&self) -> Result<()> {
        let copy = self.folder.join("copy");
        std::fs::create_dir_all(&copy)?;
        copy_files(self.data, &copy)?;
        let wrong = (self.check_files)(&copy).context("the ledger does not open after a power cut")?;
        std::fs::remove_dir_all(&copy)?;
        if wrong.is_empty() { Ok(()) } else { bail!("after a power cut: {}", wrong.join("; ")) }
    }
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for name in LEDGER_FILES.iter().filter(|name| from.join(name).exists()) {
        std::fs::copy(from.join(name), to.join(name)).with_context(|| format!("copying {name}"))?;
    }
    Ok(())
}

/// Parses the journal. Its last record may be incomplete, since the server was killed.
fn parse_journal(journal: &[u8]) -> Result<BTreeMap<&str, FileChanges<'_>>> {
    let mut changes_by_file: BTreeMap<&str, FileChanges<'_>> = BTreeMap::new();
    let mut at = 0;
    while let Some(end) = journal[at..].iter().position(|byte| *byte == b'\n') {
        let position = at;
        let line = std::str::from_utf8(&journal[at..at + end]).context("a line that is none")?;
        at += end + 1;
        let mut fields = line.split(' ');
        let (kind, name) = (fields.next().unwrap_or_default(), fields.next().context("a record without a file")?);
        let number = |field: Option<&str>| -> Result<usize> { Ok(field.context("a short record")?.parse()?) };
        let changes = changes_by_file.entry(name).or_default();
        match kind {
            "w" => {
                let (offset, length) = (number(fields.next())?, number(fields.next())?);
                let Some(bytes) = journal.get(at..at + length) else { break };
                at += length;
                changes.changes.push((position, FileChange::Write(offset, bytes)));
            }
            "t" => changes.changes.push((position, FileChange::Truncate(number(fields.next())?))),
            "u" => changes.changes.push((position, FileChange::Removed)),
            "f" => changes.mark_sync_failed(number(fields.next())?),
            "s" => changes.synced_upto = changes.synced_upto.max(number(fields.next())?),
            other => bail!("a record of the kind `{other}`"),
        }
    }
    let removed = changes_by_file.get(DIRECTORY_ENTRY).map_or(0, |directory| directory.synced_upto);
    changes_by_file.values_mut().for_each(|changes| changes.directory_synced_upto = removed);
    Ok(changes_by_file)
}

/// Rebuilds a file after the cut; `None` if it does not exist.
fn rebuild_file(
    mut file: Option<Vec<u8>>,
    changes: &FileChanges<'_>,
    rng: &mut SeededRng,
    taken: &mut PowerLoss,
) -> Option<Vec<u8>> {
    let (safe, open): (Vec<_>, Vec<_>) = changes.changes.iter().partition(|change| changes.is_durable(change));
    for (_, change) in &safe {
        apply_change(&mut file, change, |_| true);
    }
    let manner = match rng.below(8) {
        0 => LossPattern::KeepAll,
        1 => LossPattern::DropAll,
        2 | 3 => LossPattern::SomeChanges,
        4 | 5 => LossPattern::SomeSectors,
        _ => LossPattern::TornTail(rng.below(open.len() as u64)),
    };
    taken.synced += safe.len() as u64;
    taken.unsynced += open.len() as u64;
    for (n, (_, change)) in (0_u64..).zip(&open) {
        let all = rng.below(2) == 0;
        let (mut kept, mut lost) = (0_u64, 0_u64);
        apply_change(&mut file, change, |_| {
            let keep = match manner {
                LossPattern::KeepAll => true,
                LossPattern::DropAll => false,
                LossPattern::SomeChanges => all,
                LossPattern::SomeSectors => rng.below(2) == 0,
                LossPattern::TornTail(at) => n < at || (n == at && rng.below(2) == 0),
            };
            if keep {
                kept += 1
            } else {
                lost += 1
            }
            keep
        });
        taken.dropped += u64::from(kept == 0);
        taken.torn += u64::from(kept > 0 && lost > 0);
    }
    file
}

/// Applies a write to the sectors for which `keep` returns true. A write creates the file.
fn apply_change(contents: &mut Option<Vec<u8>>, change: &FileChange<'_>, mut keep: impl FnMut(usize) -> bool) {
    match change {
        FileChange::Removed => {
            if keep(0) {
                *contents = None;
            }
        }
        FileChange::Truncate(length) => {
            if keep(0) {
                contents.get_or_insert_default().resize(*length, 0);
            }
        }
        FileChange::Write(offset, bytes) => {
            let (mut at, end) = (*offset, offset + bytes.len());
            while at < end {
                let next = (at / SECTOR + 1) * SECTOR;
                let stop = next.min(end);
                if keep(at) {
                    let file = contents.get_or_insert_default();
                    if file.len() < stop {
                        file.resize(stop, 0);
                    }
                    file[at..stop].copy_from_slice(&bytes[at - offset..stop - offset]);
                }
                at = stop;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FileChange, FileChanges, PowerLoss, SECTOR, SeededRng, parse_journal, rebuild_file};

    #[test]
    fn synced_bytes_survive_every_power_cut() {
        let bytes = vec![7; 3 * SECTOR];
        for seed in 0..200 {
            let changes = FileChanges {
                changes: vec![(0, FileChange::Write(10, &bytes)), (90, FileChange::Write(0, &[1; 20]))],
                synced_upto: 80,
                directory_synced_upto: 0,
            };
            let mut taken = PowerLoss::default();
            let file = rebuild_file(None, &changes, &mut SeededRng::derive(seed, &[]), &mut taken).unwrap();
            assert_eq!(file.len(), 10 + bytes.len());
            assert!(file[20..].iter().all(|byte| *byte == 7));
            assert!(file[..10].iter().all(|byte| *byte == 0) || file[..20].iter().all(|byte| *byte == 1));
            assert_eq!((taken.synced, taken.unsynced), (1, 1));
        }
    }

    #[test]
    fn what_was_not_synced_is_kept_dropped_and_torn() {
        let bytes = vec![7; 8 * SECTOR];
        let (mut whole, mut none, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let changes = FileChanges {
                changes: vec![(0, FileChange::Write(0, &bytes))],
                synced_upto: 0,
                directory_synced_upto: 0,
            };
            let mut taken = PowerLoss::default();
            let file =
                rebuild_file(Some(vec![0; bytes.len()]), &changes, &mut SeededRng::derive(seed, &[]), &mut taken)
                    .unwrap();
            match file.chunks(SECTOR).filter(|sector| sector[0] == 7).count() {
                0 => none += 1,
                8 => whole += 1,
                _ => torn += 1,
            }
            assert_eq!(taken.torn, u64::from(taken.dropped == 0 && file != bytes));
        }
        assert!(whole > 10 && none > 10 && torn > 10, "{whole} {none} {torn}");
    }

    #[test]
    fn a_file_that_was_removed_stays_away_once_its_directory_was_synced() {
        let mut back = 0;
        for seed in 0..100 {
            let mut rng = SeededRng::derive(seed, &[]);
            let gone = b"u a\ns . 4\n";
            assert_eq!(
                rebuild_file(Some(vec![1]), &parse_journal(gone).unwrap()["a"], &mut rng, &mut PowerLoss::default()),
                None
            );
            let maybe = rebuild_file(
                Some(vec![1]),
                &parse_journal(b"u a\n").unwrap()["a"],
                &mut rng,
                &mut PowerLoss::default(),
            );
            back += usize::from(maybe.is_some());
        }
        assert!((1..100).contains(&back), "{back}");
    }

    #[test]
    fn what_a_failed_sync_left_is_gone_unless_it_is_written_again() {
        for (again, wanted) in [("", None), ("w a 0 1\nx", Some(vec![b'x']))] {
            let mut journal = b"w a 0 1\nxf a 9\n".to_vec();
            journal.extend_from_slice(again.as_bytes());
            let upto = journal.len();
            journal.extend_from_slice(format!("s a {upto}\n").as_bytes());
            let file = rebuild_file(
                None,
                &parse_journal(&journal).unwrap()["a"],
                &mut SeededRng::derive(1, &[]),
                &mut PowerLoss::default(),
            );
            assert_eq!(file, wanted);
        }
    }

    #[test]
    fn a_sync_covers_what_stood_before_it_began_in_its_own_file() {
        let journal = b"w a 0 2\nxxw b 0 1\ny" as &[u8];
        let position = journal.len();
        let text = [journal, format!("s a {position}\nw a 2 1\nzw a 3 9\nshort").as_bytes()].concat();
        let changes_by_file = parse_journal(&text).unwrap();
        let a = &changes_by_file["a"];
        assert_eq!((a.synced_upto, changes_by_file["b"].synced_upto), (position, 0));
        let safe = a.changes.iter().filter(|(position, _)| *position < a.synced_upto).count();
        assert_eq!((safe, a.changes.len()), (1, 2));
    }
}
