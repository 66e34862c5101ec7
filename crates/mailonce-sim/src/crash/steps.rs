//! The order in which a round reaches its points, from its seed.

use super::table::{Bait, Class, ROWS, Row, Store, rows};
use crate::rig::chance::Chance;
use std::time::Duration;

/// One death, or one sleep.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// The point.
    pub row: &'static Row,
    /// Whether the process is stopped there, else it is killed.
    pub stop: bool,
    /// At which time that it gets there.
    pub time: u64,
}

impl Step {
    /// In the words of the environment.
    pub fn armed(&self) -> String {
        format!("{}:{}:{}", self.row.point, if self.stop { "stop" } else { "kill" }, self.time)
    }

    /// How long the point may take to be reached.
    pub fn patience(&self, store: Store) -> Duration {
        match (self.row.bait, store) {
            // A minute after the doubt.
            (Bait::OldDoubt, _) => Duration::from_secs(100),
            // 15 s after the last sign of life.
            (Bait::Leftover, Store::Postgres) => Duration::from_secs(40),
            _ => Duration::from_secs(20),
        }
    }
}

/// All steps of a round: what needs an empty ledger first, what needs an old doubt last, and a leftover right after the
/// death that leaves it.
pub fn steps(seed: u64, store: Store, class: Class, short: bool) -> Vec<Step> {
    let mut chance = Chance::at(seed, &[77]);
    let mut rows = rows(store, class, short);
    for last in (1..rows.len()).rev() {
        rows.swap(last, chance.below(last as u64 + 1) as usize);
    }
    rows.sort_by_key(|row| match row.bait {
        // One migration after the other, and then whatever needs the tables.
        Bait::Fresh if row.point.ends_with("migrating") => 0,
        Bait::Fresh => 1,
        Bait::OldDoubt => 3,
        _ => 2,
    });
    if let Some(at) = rows.iter().position(|row| row.bait == Bait::Leftover) {
        rows.splice(at..at, leaving());
    }
    let mut steps: Vec<Step> = rows.into_iter().map(|row| step(row, store, &mut chance)).collect();
    // A leftover needs a death right before it.
    for at in 1..steps.len() {
        let leftover = steps[at].row.bait == Bait::Leftover;
        steps[at - 1].stop &= !leftover;
    }
    steps
}

/// The death that leaves what a step is to find, if it needs one.
pub fn leaves(step: &Step) -> Option<Step> {
    let needed = step.row.bait == Bait::Leftover;
    leaving().filter(|_| needed).map(|row| Step { row, stop: false, time: 1 })
}

/// Where a death leaves a mail of which nobody knows whether it left.
fn leaving() -> Option<&'static Row> {
    ROWS.iter().find(|row| row.point == "after-marker")
}

fn step(row: &'static Row, store: Store, chance: &mut Chance) -> Step {
    let sleeps = matches!(
        row.bait,
        Bait::Mail | Bait::Batch | Bait::Doubt | Bait::Hook | Bait::Letter | Bait::Parcel | Bait::Code
    );
    // Where another node can take over, more of them sleep.
    let stop = sleeps && chance.below(if store == Store::Postgres { 3 } else { 6 }) == 0;
    Step { row, stop, time: chance.between(1, row.times) }
}
