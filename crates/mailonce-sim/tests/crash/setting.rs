//! The programs that both tests use.

use mailonce_sim::crash::world::Tools;
use mailonce_sim::rig::children::Children;
use mailonce_sim::rig::postgres::Postgres;
use mailonce_sim::rig::server::built_binary;
use std::path::{Path, PathBuf};

/// The second judge.
pub(crate) fn judge() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/prove-history")
}

pub(crate) fn tools(postgres: Option<Postgres>) -> Tools {
    let children = Children::default();
    children.watch_signals(None).unwrap();
    let server = built_binary().unwrap_or_else(|why| panic!("{why:#}"));
    let sink = PathBuf::from(env!("CARGO_BIN_EXE_mailonce-sink"));
    Tools { children, server, sink, judge: Some(judge()), mutant: None, postgres }
}
