//! The campaign: runs rounds in parallel until it has injected enough crashes.
//!
//! A round crashes the server either at its failpoints ([`CrashRound`]) or at random moments under heavy load
//! ([`LoadRound`]).

use super::round::CrashRound;
use crate::crash::coverage::CoverageBoard;
use crate::crash::environment::CrashTools;
use crate::crash::failpoints::{HopClass, StoreKind};
use crate::crash::kills_under_load::LoadRound;
use crate::crash::schedule::plan_steps;
use crate::crash::verdict::RoundVerdict;
use crate::harness::rng::SeededRng;
use anyhow::{Context as _, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a campaign runs.
#[derive(Debug, Clone)]
pub struct CampaignPlan {
    /// The stores.
    pub stores: Vec<StoreKind>,
    /// The classes of next hop. Rounds under load use the sandbox only.
    pub classes: Vec<HopClass>,
    /// Minimum number of cycles. Each combination of store and class gets a round while cycles are left.
    pub cycles: usize,
    /// The source of all randomness.
    pub seed: u64,
    /// Rounds that run in parallel.
    pub jobs: usize,
    /// Whether only the failpoints of the short form are used.
    pub short: bool,
    /// Whether the server is killed at random moments under heavy load, in place of at its failpoints.
    pub under_load: bool,
    /// Where the files of failed rounds are kept.
    pub failures_dir: PathBuf,
}

/// One round of a campaign.
#[derive(Debug, Clone)]
pub enum Round {
    /// Crashes at failpoints.
    AtFailpoints(CrashRound),
    /// Kills at random moments under heavy load.
    UnderLoad(LoadRound),
}

impl Round {
    /// The command that runs this round again.
    pub fn replay_command(&self) -> String {
        match self {
            Self::AtFailpoints(round) => round.replay_command(),
            Self::UnderLoad(round) => round.replay_command(),
        }
    }

    fn run(&self, tools: &CrashTools, board: &CoverageBoard, root: &Path) -> Result<RoundVerdict> {
        match self {
            Self::AtFailpoints(round) => round.run(tools, board, root),
            Self::UnderLoad(round) => round.run(tools, board, root),
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtFailpoints(CrashRound { store, class, seed, .. }) => {
                write!(f, "{} {class} seed {seed}", store.as_str())
            }
            Self::UnderLoad(LoadRound { store, seed, .. }) => write!(f, "{} under load seed {seed}", store.as_str()),
        }
    }
}

impl CampaignPlan {
    /// The columns of the coverage table.
    pub fn columns(&self) -> Vec<(StoreKind, HopClass)> {
        let classes = |store: &StoreKind| self.classes.iter().map(|class| (*store, *class)).collect::<Vec<_>>();
        self.stores.iter().flat_map(classes).collect()
    }

    /// The number of cycles that reach every failpoint of every column once.
    pub fn full_coverage_cycles(&self) -> usize {
        let cycles = |(store, class): &(StoreKind, HopClass)| plan_steps(0, *store, *class, self.short).len();
        self.columns().iter().map(cycles).sum()
    }

    /// The rounds, slowest first. A plan for one round uses the plan's own seed, so that a replay is identical.
    pub fn rounds(&self) -> Vec<Round> {
        if self.under_load {
            let kills = self.cycles.div_ceil(self.stores.len().max(1)) as u64;
            let rounds = self.stores.iter().flat_map(|store| LoadRound::split(*store, self.seed, kills));
            return rounds.map(Round::UnderLoad).collect();
        }
        let mut columns = self.columns();
        columns.sort_by_key(|(store, _)| *store == StoreKind::Sqlite);
        let (mut rounds, mut cycles_left) = (Vec::new(), self.cycles);
        for n in 0.. {
            let Some((store, class)) = columns.get(n % columns.len().max(1)).copied() else { break };
            if cycles_left == 0 {
                break;
            }
            let is_replay = columns.len() == 1 && n == 0;
            let seed =
                if is_replay { self.seed } else { SeededRng::derive(self.seed, &[n as u64]).below(1_000_000_000) };
            let cycles = plan_steps(seed, store, class, self.short).len().min(cycles_left);
            cycles_left -= cycles;
            rounds.push(Round::AtFailpoints(CrashRound { store, class, seed, short: self.short, cycles }));
        }
        rounds
    }

    /// Runs all rounds and calls `on_round_end` after each.
    pub fn run(
        &self,
        tools: &CrashTools,
        board: &CoverageBoard,
        on_round_end: impl Fn(&Round, &Result<RoundVerdict>) + Sync,
    ) -> Result<()> {
        let (rounds, next) = (self.rounds(), AtomicUsize::new(0));
        let errors: Mutex<Vec<anyhow::Error>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while let Some(round) = rounds.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let verdict = self.run_round(round, tools, board);
                        on_round_end(round, &verdict);
                        if let Err(why) = verdict {
                            errors.lock().unwrap_or_else(PoisonError::into_inner).push(why);
                        }
                    }
                });
            }
        });
        let mut errors = errors.into_inner().unwrap_or_else(PoisonError::into_inner);
        errors.pop().map_or(Ok(()), Err)
    }

    fn run_round(&self, round: &Round, tools: &CrashTools, board: &CoverageBoard) -> Result<RoundVerdict> {
        let root = tempfile::Builder::new().prefix("mailonce-crash").tempdir()?;
        let verdict = round.run(tools, board, root.path());
        let failure = match &verdict {
            Err(why) => format!("a round could not be completed: {why:#}"),
            Ok(verdict) if verdict.violations.is_empty() => return Ok(verdict.clone()),
            Ok(RoundVerdict { violations, log, .. }) => {
                let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
                format!("{}\n{log}", list.join("\n"))
            }
        };
        let kept = self.failures_dir.join(round.to_string().replace(' ', "-"));
        copy_folder(root.path(), &kept)?;
        let message = format!("{failure}\n  replay: {}\n  its files are in {}", round.replay_command(), kept.display());
        if verdict.is_ok() {
            board.update_counts(|counts| counts.violations.push(message.clone()));
        }
        verdict.with_context(|| message)
    }
}

/// Copies the logs, histories, configuration and data of a round.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &copy)?;
        } else if path.is_file() {
            std::fs::copy(&path, &copy)?;
        }
    }
    Ok(())
}
