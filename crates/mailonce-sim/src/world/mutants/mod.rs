//! Wrong turns that worlds must notice: small changes that somebody could make, each switched on by its name.
//!
//! Most are `mutant!("name")` in core, engine and the model store; some are turns of the ports, which the world itself
//! takes. A mutant that nobody convicts is a hole in the judge, in the weather, or in the promise.

mod list;

pub use list::MUTANTS;

use super::{FaultKind, HopProfile, WorldPlan, run_plan};
use crate::proof::Rule;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Who convicts a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum MutantDetector {
    /// The simulated worlds.
    Worlds,
    /// A test of its own, by its name.
    Test(&'static str),
}

/// A wrong turn.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Mutant {
    /// Its name in the code.
    pub name: &'static str,
    /// What is wrong.
    pub what: &'static str,
    /// Who convicts it.
    pub rig: MutantDetector,
    /// The weather in which it shows.
    #[serde(skip)]
    pub overrides: PlanOverrides,
}

/// What a world needs beside its own weather to bring a wrong turn to light soon.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanOverrides {
    /// Faults that happen besides.
    pub faults: &'static [FaultKind],
    /// Next hops, if not those that were drawn.
    pub hops: &'static [HopProfile],
    /// Nodes, if not as many as were drawn.
    pub nodes: usize,
    /// How likely a fault is, if not as was drawn.
    pub rate: u64,
    /// Whether mail comes in, whatever was drawn.
    pub mail: bool,
    /// Whether letters come that want an answer, whatever was drawn.
    pub conversations: bool,
    /// The point at which a node stands still or ends, and the time, if not as was drawn.
    pub failpoint: Option<(&'static str, u64)>,
}

impl PlanOverrides {
    /// A plan with this weather.
    pub fn apply_to(&self, mut plan: WorldPlan) -> WorldPlan {
        plan.faults.extend(self.faults);
        if !self.hops.is_empty() {
            plan.hops = self.hops.to_vec();
        }
        if self.nodes > 0 {
            plan.nodes = self.nodes;
        }
        if self.rate > 0 {
            plan.fault_percent = self.rate;
        }
        if self.mail {
            plan = plan.with_mail();
        }
        if self.conversations {
            plan = plan.with_conversations();
        }
        plan.failpoint = self.failpoint.unwrap_or(plan.failpoint);
        plan
    }
}

/// What became of a mutant.
#[derive(Debug, Clone, serde::Serialize)]
pub struct MutantVerdict {
    /// Which one.
    pub mutant: Mutant,
    /// After how many worlds it was convicted, if it was.
    pub worlds: Option<u64>,
    /// The seed of that world.
    pub seed: u64,
    /// The rules that it broke there.
    pub rules: BTreeSet<Rule>,
}

/// Runs worlds with a mutant until one of them convicts it, at most so many. A world convicts only what breaks a
/// promise in it that is kept there without the mutant.
pub fn detect(mutant: &Mutant, seed: u64, most: u64) -> MutantVerdict {
    let broken = |seed: u64, name| -> BTreeSet<Rule> {
        let outcome = run_plan(mutant.overrides.apply_to(WorldPlan::from_seed(seed)), name, false);
        outcome.violations.iter().map(|violation| violation.rule).collect()
    };
    for number in 0..most {
        let seed = seed.wrapping_add(number);
        let rules = broken(seed, Some(mutant.name));
        if !rules.is_empty() && broken(seed, None).is_empty() {
            return MutantVerdict { mutant: *mutant, worlds: Some(number + 1), seed, rules };
        }
    }
    MutantVerdict { mutant: *mutant, worlds: None, seed, rules: BTreeSet::new() }
}

/// Runs all mutants, some at a time, and calls `told` with each verdict as it comes.
pub fn detect_all(seed: u64, most: u64, jobs: usize, on_verdict: impl Fn(&MutantVerdict) + Sync) -> Vec<MutantVerdict> {
    let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(mutant) = MUTANTS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if mutant.rig == MutantDetector::Worlds {
                        let verdict = detect(mutant, seed, most);
                        on_verdict(&verdict);
                        verdicts.lock().unwrap_or_else(PoisonError::into_inner).push(verdict);
                    }
                }
            });
        }
    });
    let mut verdicts = verdicts.into_inner().unwrap_or_else(PoisonError::into_inner);
    verdicts.sort_by_key(|verdict| MUTANTS.iter().position(|mutant| mutant.name == verdict.mutant.name));
    verdicts
}

impl fmt::Display for MutantVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant { name, what, .. } = self.mutant;
        match self.worlds {
            None => write!(f, "{name:28} SURVIVED                    {what}"),
            Some(worlds) => {
                let rules: Vec<String> = self.rules.iter().map(|rule| format!("{rule:?}")).collect();
                write!(f, "{name:28} {worlds:>6} worlds  {:40} {what}", rules.join(" "))
            }
        }
    }
}

/// The wrong turn with this name.
pub fn find_mutant(name: &str) -> Option<&'static Mutant> {
    MUTANTS.iter().find(|mutant| mutant.name == name)
}
