//! Rounds side by side, until there were enough cycles.

use super::round::CrashRound;
use crate::crash::coverage::CoverageBoard;
use crate::crash::environment::CrashTools;
use crate::crash::failpoints::{HopClass, StoreKind};
use crate::crash::schedule::plan_steps;
use crate::crash::verdict::RoundVerdict;
use crate::harness::rng::SeededRng;
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is played.
#[derive(Debug, Clone)]
pub struct CampaignPlan {
    /// The stores.
    pub stores: Vec<StoreKind>,
    /// The classes.
    pub classes: Vec<HopClass>,
    /// At least so many cycles; every part is played at least once, unless there are fewer cycles than it needs.
    pub cycles: usize,
    /// Everything that is by chance.
    pub seed: u64,
    /// Rounds side by side.
    pub jobs: usize,
    /// Whether only the short form's points are played.
    pub short: bool,
    /// Where rounds that failed are kept.
    pub failures_dir: PathBuf,
}

impl CampaignPlan {
    /// The columns of the table.
    pub fn columns(&self) -> Vec<(StoreKind, HopClass)> {
        let classes = |store: &StoreKind| self.classes.iter().map(|class| (*store, *class)).collect::<Vec<_>>();
        self.stores.iter().flat_map(classes).collect()
    }

    /// The cycles that it takes to play every part once.
    pub fn full_coverage_cycles(&self) -> usize {
        let cycles = |(store, class): &(StoreKind, HopClass)| plan_steps(0, *store, *class, self.short).len();
        self.columns().iter().map(cycles).sum()
    }

    /// The rounds, those that wait longest first. A plan with one part plays its seed itself, so that a replay is the same.
    pub fn rounds(&self) -> Vec<CrashRound> {
        let mut parts = self.columns();
        parts.sort_by_key(|(store, _)| *store == StoreKind::Sqlite);
        let (mut rounds, mut left) = (Vec::new(), self.cycles);
        for n in 0.. {
            let Some((store, class)) = parts.get(n % parts.len().max(1)).copied() else { break };
            if left == 0 {
                break;
            }
            let alone = parts.len() == 1 && n == 0;
            let seed = if alone { self.seed } else { SeededRng::derive(self.seed, &[n as u64]).below(1_000_000_000) };
            let cycles = plan_steps(seed, store, class, self.short).len().min(left);
            left -= cycles;
            rounds.push(CrashRound { store, class, seed, short: self.short, cycles });
        }
        rounds
    }

    /// Plays all rounds. `told` hears of each that is over.
    pub fn run(
        &self,
        tools: &CrashTools,
        board: &CoverageBoard,
        told: impl Fn(&CrashRound, &Result<RoundVerdict>) + Sync,
    ) -> Result<()> {
        let (rounds, next) = (self.rounds(), AtomicUsize::new(0));
        let trouble: Mutex<Vec<anyhow::Error>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while let Some(round) = rounds.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let judgement = self.run_round(round, tools, board);
                        told(round, &judgement);
                        if let Err(why) = judgement {
                            trouble.lock().unwrap_or_else(PoisonError::into_inner).push(why);
                        }
                    }
                });
            }
        });
        let mut trouble = trouble.into_inner().unwrap_or_else(PoisonError::into_inner);
        trouble.pop().map_or(Ok(()), Err)
    }

    fn run_round(&self, round: &CrashRound, tools: &CrashTools, board: &CoverageBoard) -> Result<RoundVerdict> {
        let root = tempfile::Builder::new().prefix("mailonce-crash").tempdir()?;
        let judgement = round.run(tools, board, root.path());
        let broken = match &judgement {
            Err(why) => format!("a round could not be played: {why:#}"),
            Ok(judgement) if judgement.violations.is_empty() => return Ok(judgement.clone()),
            Ok(RoundVerdict { violations, log: story, .. }) => {
                let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
                format!("{}\n{story}", list.join("\n"))
            }
        };
        let kept = self.keep_artifacts(round, root.path())?;
        let told = format!("{broken}\n  replay: {}\n  everything is in {}", round.replay_command(), kept.display());
        if judgement.is_ok() {
            board.update_counts(|counts| counts.violations.push(told.clone()));
        }
        judgement.with_context(|| told)
    }

    /// Keeps what a round left: logs, histories, configuration.
    fn keep_artifacts(&self, round: &CrashRound, root: &Path) -> Result<PathBuf> {
        let kept = self.failures_dir.join(format!("{}-{}-{}", round.store.as_str(), round.class, round.seed));
        std::fs::create_dir_all(&kept)?;
        for entry in std::fs::read_dir(root)? {
            let path = entry?.path();
            if let (true, Some(name)) = (path.is_file(), path.file_name()) {
                std::fs::copy(&path, kept.join(name))?;
            }
        }
        Ok(kept)
    }
}
