//! Many worlds in parallel, and their totals.

use super::{WorldOutcome, replay_command, run};
use crate::proof::Violation;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of failures that are kept with their details.
const KEPT_FAILURES: usize = 20;
/// One of this many worlds runs twice, to verify that it is deterministic.
const REPLAY_EVERY: u64 = 100;
/// Worlds between two reports.
const WORLDS_PER_PART: u64 = 1_000;
/// How often the progress bar is drawn.
const BAR_UPDATE_EVERY: u64 = 64;

/// The worlds of a campaign.
#[derive(Debug, Clone, Copy)]
pub struct WorldCampaign {
    /// The first seed.
    pub seed: u64,
    /// How many worlds.
    pub worlds: u64,
    /// Worlds that run in parallel.
    pub jobs: usize,
    /// The mutant, if any.
    pub mutant: Option<&'static str>,
    /// Whether to stop at the first violation.
    pub stop_at_first: bool,
}

/// A world with a violation, or one that was not deterministic.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorldFailure {
    /// Its seed.
    pub seed: u64,
    /// The command that replays it.
    pub replay: String,
    /// Its plan.
    pub plan: String,
    /// Its violations.
    pub violations: Vec<Violation>,
}

/// The totals of a campaign.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WorldSummary {
    /// The version of the code.
    pub version: String,
    /// The first seed.
    pub seed: u64,
    /// Worlds.
    pub worlds: u64,
    /// Worlds that ran twice with equal traces.
    pub replayed: u64,
    /// Accepted emails.
    pub emails: u64,
    /// Calls.
    pub calls: u64,
    /// Mails that next hops accepted.
    pub mails: u64,
    /// Faults by kind.
    pub faults: BTreeMap<String, u64>,
    /// Final states of handoffs.
    pub states: BTreeMap<String, u64>,
    /// Transitions of handoffs.
    pub moves: BTreeMap<String, u64>,
    /// Events in conversations: refusals by guard, and actions of agents.
    #[serde(default)]
    pub conversations: BTreeMap<String, u64>,
    /// Side effects that began, and final states of claims.
    #[serde(default)]
    pub claims: BTreeMap<String, u64>,
    /// Worlds with a violation.
    pub violations: u64,
    /// Some of them.
    pub failures: Vec<WorldFailure>,
    /// A hash of the traces of all worlds, in any order.
    pub trace: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

impl WorldCampaign {
    /// Runs the campaign.
    pub fn run(&self) -> WorldSummary {
        // A search for one failing world has no progress bar of its own.
        let bar = if self.stop_at_first { ProgressBar::hidden() } else { progress_bar(self.worlds) };
        let sum = self.run_with_bar(&bar);
        bar.finish_and_clear();
        sum
    }

    /// Runs the campaign in parts and reports the totals after each, so that an interrupted campaign can continue. It
    /// starts with the totals of an earlier run.
    pub fn run_resumed<E>(
        &self,
        mut sum: WorldSummary,
        mut reported: impl FnMut(&WorldSummary) -> Result<(), E>,
    ) -> Result<WorldSummary, E> {
        let bar = progress_bar(self.worlds);
        while sum.worlds < self.worlds && (sum.violations == 0 || !self.stop_at_first) {
            bar.set_position(sum.worlds);
            let (seed, worlds) = (self.seed.wrapping_add(sum.worlds), WORLDS_PER_PART.min(self.worlds - sum.worlds));
            sum.merge_part(Self { seed, worlds, ..*self }.run_with_bar(&bar));
            reported(&sum)?;
        }
        bar.finish_and_clear();
        Ok(sum)
    }

    fn run_with_bar(&self, bar: &ProgressBar) -> WorldSummary {
        let began = Instant::now();
        let (next, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let sum = Mutex::new(WorldSummary { seed: self.seed, version, ..WorldSummary::default() });
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= self.worlds || ended.load(Ordering::Relaxed) {
                            return;
                        }
                        let failed = self.run_world(self.seed.wrapping_add(number), number, &sum);
                        if failed && self.stop_at_first {
                            ended.store(true, Ordering::Relaxed);
                        }
                        if number.is_multiple_of(BAR_UPDATE_EVERY) {
                            bar.inc(BAR_UPDATE_EVERY.min(self.worlds - number));
                        }
                    }
                });
            }
        });
        let mut sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
        sum.failures.sort_by_key(|failure| failure.seed);
        sum.seconds = began.elapsed().as_secs_f64();
        sum
    }

    /// Runs one world and adds it to the totals. Returns true if it has a violation.
    fn run_world(&self, seed: u64, number: u64, sum: &Mutex<WorldSummary>) -> bool {
        let outcome = run(seed, self.mutant, false);
        let again =
            (self.mutant.is_none() && number.is_multiple_of(REPLAY_EVERY)).then(|| run(seed, None, false).trace);
        let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.add_outcome(&outcome);
        let differs = again.is_some_and(|trace| trace != outcome.trace);
        sum.replayed += u64::from(again.is_some() && !differs);
        let failed = differs || !outcome.violations.is_empty();
        sum.violations += u64::from(failed);
        if failed && sum.failures.len() < KEPT_FAILURES {
            let (replay, plan) = (replay_command(seed, self.mutant), format!("{:?}", outcome.plan));
            sum.failures.push(WorldFailure { seed, replay, plan, violations: outcome.violations });
        }
        failed
    }
}

impl WorldSummary {
    /// Adds the next part of the same campaign.
    fn merge_part(&mut self, part: Self) {
        if self.worlds == 0 {
            *self = part;
            return;
        }
        self.worlds += part.worlds;
        self.replayed += part.replayed;
        self.emails += part.emails;
        self.calls += part.calls;
        self.mails += part.mails;
        self.violations += part.violations;
        self.trace = self.trace.wrapping_add(part.trace);
        self.seconds += part.seconds;
        self.failures.extend(part.failures);
        self.failures.truncate(KEPT_FAILURES);
        let pairs = [
            (&mut self.faults, part.faults),
            (&mut self.states, part.states),
            (&mut self.moves, part.moves),
            (&mut self.conversations, part.conversations),
            (&mut self.claims, part.claims),
        ];
        for (sum, part) in pairs {
            part.into_iter().for_each(|(name, count)| *sum.entry(name).or_default() += count);
        }
    }

    fn add_outcome(&mut self, outcome: &WorldOutcome) {
        let history = &outcome.history;
        self.worlds += 1;
        self.emails += history.emails.len() as u64;
        self.calls += history.calls.len() as u64;
        self.mails += history.arrivals.iter().filter(|arrival| arrival.taken).count() as u64;
        self.trace = self.trace.wrapping_add(outcome.trace);
        for (kind, count) in &outcome.faults {
            *self.faults.entry((*kind).to_owned()).or_default() += count;
        }
        for handoff in history.emails.iter().flat_map(|email| &email.handoffs) {
            *self.states.entry(handoff.state.clone()).or_default() += 1;
        }
        for (what, count) in history.conversations.count_by_kind() {
            *self.conversations.entry(what).or_default() += count;
        }
        for (what, count) in history.claims.count_by_kind() {
            *self.claims.entry(what).or_default() += count;
        }
        for step in history.moves.iter().filter(|step| !step.from.is_empty()) {
            *self.moves.entry(format!("{} -> {}", step.from, step.to)).or_default() += 1;
        }
    }

    /// The summary line.
    pub fn headline(&self) -> String {
        let faults: u64 = self.faults.values().sum();
        format!(
            "{} worlds, {} emails, {} calls, {} mails taken, {faults} faults of {} kinds, {} replayed alike, {} broke a promise; {:.1} s, {:.2} ms a world",
            self.worlds,
            self.emails,
            self.calls,
            self.mails,
            self.faults.len(),
            self.replayed,
            self.violations,
            self.seconds,
            self.seconds * 1000.0 / self.worlds.max(1) as f64
        )
    }
}

impl std::fmt::Display for WorldFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.plan)?;
        if self.violations.is_empty() {
            writeln!(f, "  the same seed gave two traces")?;
        }
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        writeln!(f, "replay: {}", self.replay)
    }
}

fn progress_bar(worlds: u64) -> ProgressBar {
    let bar = ProgressBar::new(worlds);
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} worlds, {per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_wrong| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_campaign_has_the_same_totals() {
        let campaign = WorldCampaign { seed: 40, worlds: 12, jobs: 2, mutant: None, stop_at_first: false };
        let whole = campaign.run();
        let part = WorldCampaign { worlds: 5, ..campaign }.run();
        let mut reported = 0;
        let joined = campaign.run_resumed(part, |sum| {
            reported = sum.worlds;
            Ok::<(), ()>(())
        });
        let joined = joined.unwrap();
        assert_eq!((joined.worlds, joined.trace, reported), (12, whole.trace, 12));
        assert_eq!((joined.faults, joined.states, joined.emails), (whole.faults, whole.states, whole.emails));
    }
}
