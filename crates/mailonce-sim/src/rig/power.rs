//! A power cut: of what was written and not synced, some is there afterwards, some is not, and some is torn.
//!
//! The shim notes every change of the ledger's files and every sync in a journal. After the server was killed the files
//! are made anew from what they were at its start: everything up to the last sync, and of the rest what chance leaves.

use super::chance::Chance;
use super::fault::Disk;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

/// What a disk writes as a whole.
const SECTOR: usize = 512;
/// The files of a ledger that survive a power cut. The index of the log is made anew.
const FILES: [&str; 3] = ["ledger.db", "ledger.db-wal", "ledger.db-journal"];
const INDEX: &str = "ledger.db-shm";
/// What the journal calls the directory itself.
const DIRECTORY: &str = ".";

/// What a cut took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Changes that a sync had made safe.
    pub synced: u64,
    /// Changes that it had not.
    pub unsynced: u64,
    /// Of those, how many are gone.
    pub dropped: u64,
    /// Of those, how many are there in part.
    pub torn: u64,
}

impl AddAssign for Taken {
    fn add_assign(&mut self, more: Self) {
        self.synced += more.synced;
        self.unsynced += more.unsynced;
        self.dropped += more.dropped;
        self.torn += more.torn;
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { synced, unsynced, dropped, torn } = self;
        write!(f, "{synced} changes synced, {unsynced} not; {dropped} dropped, {torn} torn")
    }
}

/// The power of one data directory.
#[derive(Debug)]
pub struct Power<'a> {
    /// The disk whose writes are noted.
    pub disk: &'a Disk,
    /// The data directory.
    pub data: &'a Path,
    /// A directory for the journal and for the files as they were.
    pub folder: PathBuf,
    /// How many microseconds a sync takes.
    pub sync_micros: u64,
    /// Syncs of files whose name ends so do nothing: the mutant that the rig must convict.
    pub forgets: Option<&'static str>,
    /// Says what is wrong with the files in a directory.
    pub look: fn(&Path) -> Result<Vec<String>>,
}

/// One change of a file.
enum Change<'a> {
    Write(usize, &'a [u8]),
    Length(usize),
    Removed,
}

/// What happened to one file: changes by their place in the journal, and up to where they were synced.
#[derive(Default)]
struct Story<'a> {
    changes: Vec<(usize, Change<'a>)>,
    synced: usize,
    /// Up to where the directory was: a file that was removed before does not come back.
    removed: usize,
}

impl Story<'_> {
    /// A sync failed. The kernel counts what was dirty as written, so that no later sync makes it safe.
    fn forsake(&mut self, upto: usize) {
        let synced = self.synced;
        self.changes.retain(|(place, _)| *place < synced || *place >= upto);
    }

    fn is_safe(&self, (place, change): &(usize, Change<'_>)) -> bool {
        match change {
            Change::Removed => *place < self.removed.max(self.synced),
            _ => *place < self.synced,
        }
    }
}

/// How a cut treats what was not synced.
#[derive(Clone, Copy, Debug)]
enum Manner {
    KeepAll,
    DropAll,
    /// Each change by itself.
    Some,
    /// Each sector by itself.
    Sectors,
    /// All up to one that is torn, and nothing behind it.
    Tail(u64),
}

impl Power<'_> {
    fn journal(&self) -> PathBuf {
        self.folder.join("journal")
    }

    /// What the server's environment needs.
    pub fn env(&self) -> Vec<(&'static str, OsString)> {
        let mut env = self.disk.env().to_vec();
        env.push(("FAULT_JOURNAL", self.journal().into()));
        env.push(("FAULT_SYNC_MICROS", self.sync_micros.to_string().into()));
        env.extend(self.forgets.map(|suffix| ("FAULT_NOSYNC", suffix.into())));
        env
    }

    /// Keeps the files as they are, before a server starts on them.
    pub fn begin(&self) -> Result<()> {
        let base = self.folder.join("base");
        if self.folder.exists() {
            std::fs::remove_dir_all(&self.folder)?;
        }
        std::fs::create_dir_all(&base)?;
        copy_files(self.data, &base)
    }

    /// Cuts the power of a server that was killed. The files are afterwards as a disk might show them.
    pub fn cut(&self, chance: &mut Chance) -> Result<Taken> {
        let journal = match std::fs::read(self.journal()) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).context("reading the journal"),
        };
        let stories = read(&journal)?;
        let mut taken = Taken::default();
        for name in FILES {
            let Some(story) = stories.get(name) else { continue };
            let before = std::fs::read(self.folder.join("base").join(name)).ok();
            let path = self.data.join(name);
            match remake(before, story, chance, &mut taken) {
                Some(after) => std::fs::write(&path, after)?,
                None if path.exists() => std::fs::remove_file(&path)?,
                None => {}
            }
        }
        if self.data.join(INDEX).exists() {
            std::fs::remove_file(self.data.join(INDEX))?;
        }
        self.examine()?;
        Ok(taken)
    }

    /// Looks at a copy, so that the server finds the files as the cut left them.
    fn examine(&self) -> Result<()> {
        let copy = self.folder.join("copy");
        std::fs::create_dir_all(&copy)?;
        copy_files(self.data, &copy)?;
        let wrong = (self.look)(&copy).context("the ledger does not open after a power cut")?;
        std::fs::remove_dir_all(&copy)?;
        if wrong.is_empty() { Ok(()) } else { bail!("after a power cut: {}", wrong.join("; ")) }
    }
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for name in FILES.iter().filter(|name| from.join(name).exists()) {
        std::fs::copy(from.join(name), to.join(name)).with_context(|| format!("copying {name}"))?;
    }
    Ok(())
}

/// Reads the journal. Its last record may be cut off: the server died while it wrote it.
fn read(journal: &[u8]) -> Result<BTreeMap<&str, Story<'_>>> {
    let mut stories: BTreeMap<&str, Story<'_>> = BTreeMap::new();
    let mut at = 0;
    while let Some(end) = journal[at..].iter().position(|byte| *byte == b'\n') {
        let place = at;
        let line = std::str::from_utf8(&journal[at..at + end]).context("a line that is none")?;
        at += end + 1;
        let mut words = line.split(' ');
        let (kind, name) = (words.next().unwrap_or_default(), words.next().context("a record without a file")?);
        let number = |word: Option<&str>| -> Result<usize> { Ok(word.context("a short record")?.parse()?) };
        let story = stories.entry(name).or_default();
        match kind {
            "w" => {
                let (offset, length) = (number(words.next())?, number(words.next())?);
                let Some(bytes) = journal.get(at..at + length) else { break };
                at += length;
                story.changes.push((place, Change::Write(offset, bytes)));
            }
            "t" => story.changes.push((place, Change::Length(number(words.next())?))),
            "u" => story.changes.push((place, Change::Removed)),
            "f" => story.forsake(number(words.next())?),
            "s" => story.synced = story.synced.max(number(words.next())?),
            other => bail!("a record of the kind `{other}`"),
        }
    }
    let removed = stories.get(DIRECTORY).map_or(0, |directory| directory.synced);
    stories.values_mut().for_each(|story| story.removed = removed);
    Ok(stories)
}

/// A file after the cut, if there is one.
fn remake(mut file: Option<Vec<u8>>, story: &Story<'_>, chance: &mut Chance, taken: &mut Taken) -> Option<Vec<u8>> {
    let (safe, open): (Vec<_>, Vec<_>) = story.changes.iter().partition(|change| story.is_safe(change));
    for (_, change) in &safe {
        apply(&mut file, change, |_| true);
    }
    let manner = match chance.below(8) {
        0 => Manner::KeepAll,
        1 => Manner::DropAll,
        2 | 3 => Manner::Some,
        4 | 5 => Manner::Sectors,
        _ => Manner::Tail(chance.below(open.len() as u64)),
    };
    taken.synced += safe.len() as u64;
    taken.unsynced += open.len() as u64;
    for (n, (_, change)) in (0_u64..).zip(&open) {
        let all = chance.below(2) == 0;
        let (mut kept, mut lost) = (0_u64, 0_u64);
        apply(&mut file, change, |_| {
            let keep = match manner {
                Manner::KeepAll => true,
                Manner::DropAll => false,
                Manner::Some => all,
                Manner::Sectors => chance.below(2) == 0,
                Manner::Tail(at) => n < at || (n == at && chance.below(2) == 0),
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

/// Makes a change, sector by sector as far as `keep` says so. What is written to makes a file.
fn apply(place: &mut Option<Vec<u8>>, change: &Change<'_>, mut keep: impl FnMut(usize) -> bool) {
    match change {
        Change::Removed => {
            if keep(0) {
                *place = None;
            }
        }
        Change::Length(length) => {
            if keep(0) {
                place.get_or_insert_default().resize(*length, 0);
            }
        }
        Change::Write(offset, bytes) => {
            let (mut at, end) = (*offset, offset + bytes.len());
            while at < end {
                let next = (at / SECTOR + 1) * SECTOR;
                let stop = next.min(end);
                if keep(at) {
                    let file = place.get_or_insert_default();
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
    use super::{Chance, Change, SECTOR, Story, Taken, read, remake};

    #[test]
    fn what_was_synced_is_there_whatever_chance_says() {
        let bytes = vec![7; 3 * SECTOR];
        for seed in 0..200 {
            let story = Story {
                changes: vec![(0, Change::Write(10, &bytes)), (90, Change::Write(0, &[1; 20]))],
                synced: 80,
                removed: 0,
            };
            let mut taken = Taken::default();
            let file = remake(None, &story, &mut Chance::at(seed, &[]), &mut taken).unwrap();
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
            let story = Story { changes: vec![(0, Change::Write(0, &bytes))], synced: 0, removed: 0 };
            let mut taken = Taken::default();
            let file = remake(Some(vec![0; bytes.len()]), &story, &mut Chance::at(seed, &[]), &mut taken).unwrap();
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
            let mut chance = Chance::at(seed, &[]);
            let gone = b"u a\ns . 4\n";
            assert_eq!(remake(Some(vec![1]), &read(gone).unwrap()["a"], &mut chance, &mut Taken::default()), None);
            let maybe = remake(Some(vec![1]), &read(b"u a\n").unwrap()["a"], &mut chance, &mut Taken::default());
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
            let file = remake(None, &read(&journal).unwrap()["a"], &mut Chance::at(1, &[]), &mut Taken::default());
            assert_eq!(file, wanted);
        }
    }

    #[test]
    fn a_sync_covers_what_stood_before_it_began_in_its_own_file() {
        let journal = b"w a 0 2\nxxw b 0 1\ny" as &[u8];
        let place = journal.len();
        let text = [journal, format!("s a {place}\nw a 2 1\nzw a 3 9\nshort").as_bytes()].concat();
        let stories = read(&text).unwrap();
        let a = &stories["a"];
        assert_eq!((a.synced, stories["b"].synced), (place, 0));
        let safe = a.changes.iter().filter(|(place, _)| *place < a.synced).count();
        assert_eq!((safe, a.changes.len()), (1, 2));
    }
}
