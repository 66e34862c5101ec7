//! A disk that fails on demand: `shim/fault.c` in the server's process, steered by a file.

use super::postgres::run_for_output;
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is wrong with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// Nothing.
    None,
    /// It is full.
    Full,
    /// Writes to the log of the ledger take so many microseconds more. A commit has many, so that a kill finds one
    /// half written, and an answer that did not wait for its commit is found out.
    Slow(u64),
    /// It cannot sync.
    Sync {
        /// Syncs that still succeed.
        skip: u32,
        /// How many fail after those; `None` for all of them.
        times: Option<u32>,
        /// Only those of files whose name ends so.
        suffix: Option<&'static str>,
    },
}

/// Compiles the shim into `folder`, and gives its name.
pub fn build_shim(folder: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/fault.c");
    let library = folder.join("fault.so");
    // Others may compile or use the same file at this moment, so it is replaced as a whole.
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
    /// A healthy disk under `data`, which must exist. Its own files go to `folder`, which must lie elsewhere.
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

    /// What the server's environment needs.
    pub fn env(&self) -> [(&'static str, OsString); 4] {
        [
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAULT_DIR", self.data.clone().into()),
            ("FAULT_CONTROL", self.control.clone().into()),
            ("FAULT_LOG", self.log.clone().into()),
        ]
    }

    /// Breaks or repairs the disk, from the next call on.
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

    /// The calls that were made to fail, and the first of those that were slow: `eio fdatasync /…/ledger.db-wal`.
    pub fn triggered_faults(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
