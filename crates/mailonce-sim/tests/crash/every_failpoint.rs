//! Crashes at every failpoint of the short form.

use crate::fixtures::crash_tools;
use mailonce_sim::crash::{
    campaign::CampaignPlan,
    coverage::CoverageBoard,
    failpoints::{HopClass, StoreKind},
};
use mailonce_sim::harness::{postgres::PostgresServer, rng::seed_from_env, summary_writer::print_line};
use std::path::Path;

/// The minimum number of kills.
const MIN_KILLS: u64 = 150;
/// Rounds in parallel: those on PostgreSQL mostly wait until a dead node is noticed.
const JOBS: usize = 6;

#[test]
fn crashes_at_every_failpoint_cause_no_duplicate_and_no_loss() {
    let postgres = PostgresServer::from_env().unwrap_or_else(|why| panic!("{why:#}"));
    let (tools, board, seed) = (crash_tools(Some(postgres)), CoverageBoard::default(), seed_from_env());
    let plan = CampaignPlan {
        stores: StoreKind::ALL.to_vec(),
        classes: HopClass::ALL.to_vec(),
        cycles: 0,
        seed,
        jobs: JOBS,
        short: true,
        under_load: false,
        failures_dir: Path::new(env!("CARGO_TARGET_TMPDIR")).join("crash"),
    };
    let plan = CampaignPlan { cycles: plan.full_coverage_cycles(), ..plan };
    let campaign_result = plan.run(&tools, &board, |round, verdict| {
        let result = if verdict.as_ref().is_ok_and(|verdict| verdict.violations.is_empty()) { "ok" } else { "FAILED" };
        print_line(&format!("{round}: {result}; {}", board.status_line()));
    });
    print_line(&board.table(&plan.columns()));
    let counts = board.counts();
    assert!(counts.violations.is_empty(), "seed {seed}\n{}", counts.violations.join("\n\n"));
    campaign_result.unwrap_or_else(|why| panic!("seed {seed}: {why:#}"));
    let missing = board.missed_cells(&plan.columns(), true, 1);
    assert!(missing.is_empty(), "seed {seed}: never reached: {missing:?}");
    let kills = counts.kills + counts.others;
    assert!(kills >= MIN_KILLS, "only {kills} kills");
}
