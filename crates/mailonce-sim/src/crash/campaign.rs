//! Rounds side by side, until there were enough cycles.

use super::board::Board;
use super::judge::Judgement;
use super::round::Round;
use super::steps::steps;
use super::table::{Class, Store};
use super::world::Tools;
use crate::rig::chance::Chance;
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is played.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The stores.
    pub stores: Vec<Store>,
    /// The classes.
    pub classes: Vec<Class>,
    /// At least so many cycles; every part is played at least once, unless there are fewer cycles than it needs.
    pub cycles: usize,
    /// Everything that is by chance.
    pub seed: u64,
    /// Rounds side by side.
    pub jobs: usize,
    /// Whether only the short form's points are played.
    pub short: bool,
    /// Where rounds that failed are kept.
    pub keep: PathBuf,
}

impl Plan {
    /// The columns of the table.
    pub fn parts(&self) -> Vec<(Store, Class)> {
        let classes = |store: &Store| self.classes.iter().map(|class| (*store, *class)).collect::<Vec<_>>();
        self.stores.iter().flat_map(classes).collect()
    }

    /// The cycles that it takes to play every part once.
    pub fn every_cell(&self) -> usize {
        let cycles = |(store, class): &(Store, Class)| steps(0, *store, *class, self.short).len();
        self.parts().iter().map(cycles).sum()
    }

    /// The rounds, those that wait longest first. A plan with one part plays its seed itself, so that a replay is the same.
    pub fn rounds(&self) -> Vec<Round> {
        let mut parts = self.parts();
        parts.sort_by_key(|(store, _)| *store == Store::Sqlite);
        let (mut rounds, mut left) = (Vec::new(), self.cycles);
        for n in 0.. {
            let Some((store, class)) = parts.get(n % parts.len().max(1)).copied() else { break };
            if left == 0 {
                break;
            }
            let alone = parts.len() == 1 && n == 0;
            let seed = if alone { self.seed } else { Chance::at(self.seed, &[n as u64]).below(1_000_000_000) };
            let cycles = steps(seed, store, class, self.short).len().min(left);
            left -= cycles;
            rounds.push(Round { store, class, seed, short: self.short, cycles });
        }
        rounds
    }

    /// Plays all rounds. `told` hears of each that is over.
    pub fn run(&self, tools: &Tools, board: &Board, told: impl Fn(&Round, &Result<Judgement>) + Sync) -> Result<()> {
        let (rounds, next) = (self.rounds(), AtomicUsize::new(0));
        let trouble: Mutex<Vec<anyhow::Error>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while let Some(round) = rounds.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let judgement = self.play(round, tools, board);
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

    fn play(&self, round: &Round, tools: &Tools, board: &Board) -> Result<Judgement> {
        let root = tempfile::Builder::new().prefix("mailonce-crash").tempdir()?;
        let judgement = round.play(tools, board, root.path());
        let broken = match &judgement {
            Err(why) => format!("a round could not be played: {why:#}"),
            Ok(judgement) if judgement.violations.is_empty() => return Ok(judgement.clone()),
            Ok(Judgement { violations, story, .. }) => {
                let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
                format!("{}\n{story}", list.join("\n"))
            }
        };
        let kept = self.keep(round, root.path())?;
        let told = format!("{broken}\n  replay: {}\n  everything is in {}", round.replay(), kept.display());
        if judgement.is_ok() {
            board.count(|counts| counts.violations.push(told.clone()));
        }
        judgement.with_context(|| told)
    }

    /// Keeps what a round left: logs, histories, configuration.
    fn keep(&self, round: &Round, root: &Path) -> Result<PathBuf> {
        let kept = self.keep.join(format!("{}-{}-{}", round.store.word(), round.class, round.seed));
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
