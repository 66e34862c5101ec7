//! Accepting when many keys are remembered already.

use crate::args::Args;
use crate::figures::accept_as;
use crate::results::FigureSample;
use anyhow::{Context as _, Result};
use mailonce_sim::harness::child_processes::ChildProcesses;
use mailonce_sim::harness::server::{ServerSetup, mailonce_command};
use std::path::{Path, PathBuf};

/// Stores up to this size are filled anew each round, because a round's own sends would outgrow them.
const REFILL_BELOW_KEYS: u64 = 100_000;

/// One accept figure on a store that remembers `keys`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GrowthBench<'a> {
    pub(crate) args: &'a Args,
    pub(crate) children: &'a ChildProcesses,
    pub(crate) binary: &'a Path,
    pub(crate) work: &'a Path,
    pub(crate) keys: u64,
}

impl GrowthBench<'_> {
    /// Fills the store where that is still to be done, and measures.
    pub(crate) fn measure(&self, round: usize) -> Result<FigureSample> {
        let data = self.fill_store()?;
        let setup = ServerSetup { binary: self.binary, data: &data, store: None, paused: true, env: &[] };
        let server = setup.start(self.children)?;
        let sample = accept_as(&format!("round{round}"), self.args, &server);
        server.terminate()?;
        if self.keys <= REFILL_BELOW_KEYS || round == self.args.rounds() {
            std::fs::remove_dir_all(&data)?;
        }
        sample
    }

    fn fill_store(&self) -> Result<PathBuf> {
        let data = self.work.join(format!("growth-{}", self.keys));
        if data.exists() {
            return Ok(data);
        }
        std::fs::create_dir(&data)?;
        let mut command = mailonce_command(self.binary);
        command.arg("bench-fill").arg("--data").arg(&data).args(["--keys", &self.keys.to_string()]);
        let filling = self.children.spawn(command, &data.with_extension("fill.log"))?;
        filling.wait_for_success().with_context(|| format!("filling {} keys", self.keys))?;
        // What is still to be written of the filling must not be written during the figure.
        rustix::fs::sync();
        Ok(data)
    }
}

/// The figure's name: `growth-10k`, `growth-1m`.
pub(crate) fn name(keys: u64) -> String {
    format!("growth-{}", short_count(keys))
}

/// A number of keys in few letters.
pub(crate) fn short_count(keys: u64) -> String {
    match keys {
        million if million >= 1_000_000 && million.is_multiple_of(1_000_000) => {
            format!("{}m", million / 1_000_000)
        }
        thousand if thousand >= 1000 && thousand.is_multiple_of(1000) => format!("{}k", thousand / 1000),
        other => other.to_string(),
    }
}
