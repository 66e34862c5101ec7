//! The order in which a round reaches its points, from its seed.

use crate::crash::failpoints::{HopClass, POINTS, PointRow, StoreKind, Trigger, reachable_points};
use crate::harness::rng::SeededRng;
use std::time::Duration;

/// One death, or one sleep.
#[derive(Debug, Clone, Copy)]
pub struct FaultStep {
    /// The point.
    pub row: &'static PointRow,
    /// Whether the process is stopped there, else it is killed.
    pub pauses: bool,
    /// At which time that it gets there.
    pub nth_hit: u64,
}

impl FaultStep {
    /// In the words of the environment.
    pub fn failpoint_spec(&self) -> String {
        format!("{}:{}:{}", self.row.point, if self.pauses { "stop" } else { "kill" }, self.nth_hit)
    }

    /// How long the point may take to be reached.
    pub fn timeout(&self, store: StoreKind) -> Duration {
        match (self.row.trigger, store) {
            // A minute after the doubt.
            (Trigger::OldUnknown, _) => Duration::from_secs(100),
            // 15 s after the last sign of life.
            (Trigger::Leftover, StoreKind::Postgres) => Duration::from_secs(40),
            _ => Duration::from_secs(20),
        }
    }
}

/// All steps of a round: what needs an empty ledger first, what needs an old doubt last, and a leftover right after the
/// death that leaves it.
pub fn plan_steps(seed: u64, store: StoreKind, class: HopClass, short: bool) -> Vec<FaultStep> {
    let mut chance = SeededRng::derive(seed, &[77]);
    let mut rows = reachable_points(store, class, short);
    for last in (1..rows.len()).rev() {
        rows.swap(last, chance.below(last as u64 + 1) as usize);
    }
    rows.sort_by_key(|row| match row.trigger {
        // One migration after the other, and then whatever needs the tables.
        Trigger::EmptyLedger if row.point.ends_with("migrating") => 0,
        Trigger::EmptyLedger => 1,
        Trigger::OldUnknown => 3,
        _ => 2,
    });
    if let Some(at) = rows.iter().position(|row| row.trigger == Trigger::Leftover) {
        rows.splice(at..at, preparing_point());
    }
    let mut steps: Vec<FaultStep> = rows.into_iter().map(|row| draw_step(row, store, &mut chance)).collect();
    // A leftover needs a death right before it.
    for at in 1..steps.len() {
        let leftover = steps[at].row.trigger == Trigger::Leftover;
        steps[at - 1].pauses &= !leftover;
    }
    steps
}

/// The death that leaves what a step is to find, if it needs one.
pub fn preparing_step(step: &FaultStep) -> Option<FaultStep> {
    let needed = step.row.trigger == Trigger::Leftover;
    preparing_point().filter(|_| needed).map(|row| FaultStep { row, pauses: false, nth_hit: 1 })
}

/// Where a death leaves a mail of which nobody knows whether it left.
fn preparing_point() -> Option<&'static PointRow> {
    POINTS.iter().find(|row| row.point == "after-marker")
}

fn draw_step(row: &'static PointRow, store: StoreKind, chance: &mut SeededRng) -> FaultStep {
    let sleeps = matches!(
        row.trigger,
        Trigger::Send
            | Trigger::Batch
            | Trigger::Unknown
            | Trigger::Hook
            | Trigger::InboundSmtp
            | Trigger::InboundHook
            | Trigger::ConsumeCode
    );
    // Where another node can take over, more of them sleep.
    let stop = sleeps && chance.below(if store == StoreKind::Postgres { 3 } else { 6 }) == 0;
    FaultStep { row, pauses: stop, nth_hit: chance.between(1, row.max_hit) }
}
