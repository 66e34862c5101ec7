//! Accepting with search turned off and on, in alternating rounds on fresh ledgers.

use crate::args::Args;
use crate::figures;
use crate::results::FigureSample;
use anyhow::Result;
use mailonce_sim::harness::child_processes::ChildProcesses;
use mailonce_sim::harness::server::ServerSetup;
use std::path::Path;

/// Rows of the table, in the order of the ratio: with search, without it.
pub(crate) const ROWS: [&str; 2] = ["accept-search-on", "accept-search-off"];
/// Pairs of figures in one round. The machine's own speed changes from minute to minute, so a ratio needs several.
pub(crate) const PAIRS: usize = 3;

/// One accept figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcceptSearchBench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) children: &'a ChildProcesses,
    pub(crate) binary: &'a Path,
    pub(crate) work: &'a Path,
    pub(crate) search_enabled: bool,
}

impl AcceptSearchBench<'_> {
    /// Accepts on a ledger that is empty at first.
    pub(crate) fn measure(&self) -> Result<FigureSample> {
        let data = tempfile::Builder::new().prefix("data").tempdir_in(self.work)?;
        let env = [("MAILONCE_SEARCH_ENABLED", self.search_enabled.to_string().into())];
        let setup = ServerSetup { binary: self.binary, data: data.path(), store: None, paused: true, env: &env };
        let server = setup.start(self.children)?;
        let sample = figures::accept(self.args, &server);
        server.terminate()?;
        sample
    }
}

/// In which order a pair is measured: one after the other begins.
pub(crate) fn order(pair: usize) -> [bool; 2] {
    let search_first = pair.is_multiple_of(2);
    [search_first, !search_first]
}

/// The name of the row.
pub(crate) fn row_name(search_enabled: bool) -> &'static str {
    if search_enabled { ROWS[0] } else { ROWS[1] }
}

#[cfg(test)]
mod tests {
    use super::{order, row_name};

    #[test]
    fn pairs_alternate_their_order() {
        let names = |pair| order(pair).map(row_name);
        assert_eq!(names(0), ["accept-search-on", "accept-search-off"]);
        assert_eq!(names(1), ["accept-search-off", "accept-search-on"]);
    }
}
