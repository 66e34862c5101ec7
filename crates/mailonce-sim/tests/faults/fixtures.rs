//! What these rigs share: the binary, a keeper of children, and the proof.

use mailonce_sim::harness::{child_processes::ChildProcesses, server::built_binary, summary_writer::SummaryWriter};
use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};
use tempfile::TempDir;

/// The one keeper of this process, which ends all children when the process is told to end.
pub(crate) fn child_processes() -> &'static ChildProcesses {
    static CHILDREN: OnceLock<ChildProcesses> = OnceLock::new();
    CHILDREN.get_or_init(|| {
        let children = ChildProcesses::default();
        children.kill_children_on_signal(None).unwrap();
        children
    })
}

/// The server's binary.
pub(crate) fn binary() -> PathBuf {
    built_binary().unwrap_or_else(|why| panic!("{why:#}"))
}

/// A directory that goes away.
pub(crate) fn temp_dir() -> TempDir {
    tempfile::Builder::new().prefix("mailonce-rig").tempdir().unwrap()
}

/// The proof of these rigs.
pub(crate) fn summary_writer() -> &'static SummaryWriter {
    static PROOF: OnceLock<SummaryWriter> = OnceLock::new();
    PROOF.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        SummaryWriter::new(target, "faults", "cargo test -p mailonce-sim --test faults")
    })
}
