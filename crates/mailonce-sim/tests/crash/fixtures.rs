//! The programs that these tests use.

use mailonce_sim::crash::environment::CrashTools;
use mailonce_sim::harness::child_processes::ChildProcesses;
use mailonce_sim::harness::postgres::PostgresServer;
use mailonce_sim::harness::server::built_binary;
use std::path::{Path, PathBuf};

/// The second checker.
pub(crate) fn second_checker() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/prove-history")
}

/// The second checker of claims.
pub(crate) fn second_checker_of_claims() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/prove-claims")
}

pub(crate) fn crash_tools(postgres: Option<PostgresServer>) -> CrashTools {
    let children = ChildProcesses::default();
    children.kill_children_on_signal(None).unwrap();
    let server = built_binary().unwrap_or_else(|why| panic!("{why:#}"));
    let sink = PathBuf::from(env!("CARGO_BIN_EXE_mailonce-sink"));
    CrashTools { children, server, sink, second_checker: Some(second_checker()), mutant: None, postgres }
}
