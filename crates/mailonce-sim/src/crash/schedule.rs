//! The order in which a round reaches its failpoints, drawn from its seed.

use crate::crash::failpoints::{HopClass, POINTS, PointRow, StoreKind, Trigger, reachable_points};
use crate::harness::rng::SeededRng;
use std::time::Duration;

/// One kill or pause.
#[derive(Debug, Clone, Copy)]
pub struct FaultStep {
    /// The failpoint.
    pub row: &'static PointRow,
    /// Whether the process is stopped with SIGSTOP, in place of killed.
    pub pauses: bool,
    /// The number of the hit at which it happens.
    pub nth_hit: u64,
}

impl FaultStep {
    /// The value of `MAILONCE_FAILPOINT`.
    pub fn failpoint_spec(&self) -> String {
        format!("{}:{}:{}", self.row.point, if self.pauses { "stop" } else { "kill" }, self.nth_hit)
    }

    /// How long the server may take to reach the failpoint.
    pub fn timeout(&self, store: StoreKind) -> Duration {
        match (self.row.trigger, store) {
            // A look-up starts a minute after the unknown outcome.
            (Trigger::OldUnknown, _) => Duration::from_secs(100),
            // A dead node is noticed after 15 s.
            (Trigger::Leftover, StoreKind::Postgres) => Duration::from_secs(40),
            _ => Duration::from_secs(20),
        }
    }
}

/// All steps of a round. Steps that need an empty ledger come first, those that need an old unknown outcome last. A
/// step that needs unfinished work follows the kill that leaves it.
pub fn plan_steps(seed: u64, store: StoreKind, class: HopClass, short: bool) -> Vec<FaultStep> {
    let mut rng = SeededRng::derive(seed, &[77]);
    let mut rows = reachable_points(store, class, short);
    for last in (1..rows.len()).rev() {
        rows.swap(last, rng.below(last as u64 + 1) as usize);
    }
    rows.sort_by_key(|row| match row.trigger {
        // Migrations run one after another, before everything that needs the tables.
        Trigger::EmptyLedger if row.point.ends_with("migrating") => 0,
        Trigger::EmptyLedger => 1,
        Trigger::OldUnknown => 3,
        _ => 2,
    });
    if let Some(at) = rows.iter().position(|row| row.trigger == Trigger::Leftover) {
        rows.splice(at..at, preparing_point());
    }
    let mut steps: Vec<FaultStep> = rows.into_iter().map(|row| draw_step(row, store, &mut rng)).collect();
    // Unfinished work is left by a kill only, not by a pause.
    for at in 1..steps.len() {
        let leftover = steps[at].row.trigger == Trigger::Leftover;
        steps[at - 1].pauses &= !leftover;
    }
    steps
}

/// The kill that leaves the unfinished work which a step needs, if it needs any.
pub fn preparing_step(step: &FaultStep) -> Option<FaultStep> {
    let needed = step.row.trigger == Trigger::Leftover;
    preparing_point().filter(|_| needed).map(|row| FaultStep { row, pauses: false, nth_hit: 1 })
}

/// A failpoint at which a kill leaves an email with an unknown outcome.
fn preparing_point() -> Option<&'static PointRow> {
    POINTS.iter().find(|row| row.point == "after-marker")
}

fn draw_step(row: &'static PointRow, store: StoreKind, rng: &mut SeededRng) -> FaultStep {
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
    // PostgreSQL has a second node that can take over, so more steps are pauses.
    let stop = sleeps && rng.below(if store == StoreKind::Postgres { 3 } else { 6 }) == 0;
    FaultStep { row, pauses: stop, nth_hit: rng.between(1, row.max_hit) }
}
