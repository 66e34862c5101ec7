//! A disk that fails on demand: the library `shim/fault.c` in the server's process, controlled by a file.

use super::postgres::run_for_output;
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the disk does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// Nothing.
    None,
    /// It is full.
    Full,
    /// Writes to the WAL take this many microseconds longer. A commit has many writes, so that a kill interrupts one,
    /// and a reply that did not wait for its commit is noticed.
    Slow(u64),
    /// Syncs fail.
    Sync {
        /// Syncs that succeed before.
        skip: u32,
        /// How many fail after those; `None` for all.
        times: Option<u32>,
        /// Only syncs of files with this suffix.
        suffix: Option<&'static str>,
    },
}

/// Compiles the shim into `folder` and returns its path.
pub fn build_shim(folder: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/fault.c");
    let library = folder.join("fault.so");
    // Another process may use the same file, so it is replaced by a rename.
    let fresh = folder.join(format!("fault.{}.so", std::process::id()));
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread", "-o"]);
    command.arg(&fresh).arg(&source);
    run_for_output(command).context("compiling shim/fault.c")?;
    std::fs::rename(&fresh, &library)?;
    Ok(library)
}

/// The disk of one data directory.
#[derive(Debug)]
pub struct FaultyDisk {
    library: PathBuf,
    data: PathBuf,
    control: PathBuf,
    log: PathBuf,
}

impl FaultyDisk {
    /// A healthy disk under `data`, which must exist. Its control file and log go to `folder`, outside of `data`.
    pub fn new(library: PathBuf, data: &Path, folder: &Path) -> Result<Self> {
        let disk = Self {
            library,
            data: data.canonicalize()?,
            control: folder.join("fault.control"),
            log: folder.join("fault.log"),
        };
        disk.set(DiskFault::None)?;
        Ok(disk)
    }

    /// The environment variables that load the shim.
    pub fn env(&self) -> [(&'static str, OsString); 4] {
        [
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAULT_DIR", self.data.clone().into()),
            ("FAULT_CONTROL", self.control.clone().into()),
            ("FAULT_LOG", self.log.clone().into()),
        ]
    }

    /// Sets the fault from the next system call on.
    pub fn set(&self, fault: DiskFault) -> Result<()> {
        let line = match fault {
            DiskFault::None => "off\n".to_owned(),
            DiskFault::Full => "enospc 0 0 *\n".to_owned(),
            DiskFault::Slow(micros) => format!("slow {micros} 0 -wal\n"),
            DiskFault::Sync { skip, times, suffix } => {
                format!("eio {skip} {} {}\n", times.unwrap_or(0), suffix.unwrap_or("*"))
            }
        };
        let fresh = self.control.with_extension("fresh");
        std::fs::write(&fresh, line)?;
        Ok(std::fs::rename(&fresh, &self.control)?)
    }

    /// The calls that failed, and the first slow one: `eio fdatasync /…/ledger.db-wal`.
    pub fn triggered_faults(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
