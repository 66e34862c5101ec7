//! Mutants: small deliberate defects, each enabled by its name, that worlds must detect.
//!
//! Defects of rules are in core, engine and the memory store: as `mutant!("name")`, or in the `mutants.rs` of a domain,
//! which alters a finished decision. Defects that a port can show are in `ports`, because the world implements the
//! ports itself. An undetected mutant is a gap in the checker, in the faults, or in the invariants.

mod list;
pub(super) mod ports;

pub use list::MUTANTS;

use super::{FaultKind, HopProfile, WorldPlan, run_plan};
use crate::proof::Rule;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What detects a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum MutantDetector {
    /// The simulated worlds.
    Worlds,
    /// A separate test, by its name.
    Test(&'static str),
}

/// A mutant.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Mutant {
    /// Its name in the code.
    pub name: &'static str,
    /// What is wrong.
    pub what: &'static str,
    /// What detects it.
    pub detector: MutantDetector,
    /// The plan that makes it visible.
    #[serde(skip)]
    pub overrides: PlanOverrides,
}

/// Changes of a world's plan that make a mutant visible soon.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanOverrides {
    /// Additional faults.
    pub faults: &'static [FaultKind],
    /// Next hops, in place of the drawn ones.
    pub hops: &'static [HopProfile],
    /// Number of nodes, in place of the drawn one.
    pub nodes: usize,
    /// The probability of faults, in place of the drawn one.
    pub rate: u64,
    /// Whether mail is received in any case.
    pub mail: bool,
    /// Whether mail that needs a reply is received in any case.
    pub conversations: bool,
    /// Whether workers claim side effects in any case.
    pub claims: bool,
    /// The failpoint at which a node pauses or dies, and the hit, in place of the drawn ones.
    pub failpoint: Option<(&'static str, u64)>,
}

impl PlanOverrides {
    /// Applies the changes to a plan.
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
        if self.claims {
            plan = plan.with_claims();
        }
        plan.failpoint = self.failpoint.unwrap_or(plan.failpoint);
        plan
    }
}

/// The result of a mutant.
#[derive(Debug, Clone, serde::Serialize)]
pub struct MutantVerdict {
    /// Which one.
    pub mutant: Mutant,
    /// Worlds until it was detected, if it was.
    pub worlds: Option<u64>,
    /// The seed of that world.
    pub seed: u64,
    /// The rules that were broken.
    pub rules: BTreeSet<Rule>,
}

/// Runs worlds with a mutant until one detects it, up to a maximum. A violation counts only if the world has none
/// without the mutant.
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

/// Runs all mutants that the simulated worlds detect, `jobs` at a time, and calls `on_verdict` with each result.
pub fn detect_all(seed: u64, most: u64, jobs: usize, on_verdict: impl Fn(&MutantVerdict) + Sync) -> Vec<MutantVerdict> {
    let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(mutant) = MUTANTS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if mutant.detector == MutantDetector::Worlds {
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

/// The mutant with this name.
pub fn find_mutant(name: &str) -> Option<&'static Mutant> {
    MUTANTS.iter().find(|mutant| mutant.name == name)
}
