//! What these tests share: the binary, child processes, temporary directories.

use mailonce_sim::harness::child_processes::ChildProcesses;
use mailonce_sim::harness::disk_faults::{FaultyDisk, build_shim};
use mailonce_sim::harness::server::built_binary;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tempfile::TempDir;

/// Owns all child processes of this process and kills them when it is terminated.
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

/// A healthy disk under a test's data directory, which can be broken.
pub(crate) fn faulty_disk(dir: &TestDirectory) -> FaultyDisk {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    let shim = SHIM.get_or_init(|| build_shim(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap());
    FaultyDisk::new(shim.clone(), &dir.data(), dir.root()).unwrap()
}

/// A directory with an empty data directory in it; logs are next to that.
pub(crate) struct TestDirectory {
    root: TempDir,
}

impl TestDirectory {
    pub(crate) fn new() -> Self {
        let root = tempfile::Builder::new().prefix("mailonce-rig").tempdir().unwrap();
        std::fs::create_dir(root.path().join("data")).unwrap();
        Self { root }
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }
}
