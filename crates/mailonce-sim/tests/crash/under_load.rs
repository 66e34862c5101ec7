//! Kills at random moments under heavy load, on both stores.
//!
//! `MAILONCE_KILLS=N` sets the kills per store, `MAILONCE_SEED=S` the seed.

use crate::fixtures::crash_tools;
use mailonce_sim::crash::{campaign::CampaignPlan, coverage::CoverageBoard, failpoints::StoreKind};
use mailonce_sim::harness::{
    postgres::PostgresServer,
    rng::{kills_from_env, seed_from_env},
    summary_writer::print_line,
};
use std::path::Path;

/// Kills per store in the short form.
const KILLS: u64 = 75;

#[test]
fn acknowledged_emails_survive_kills_under_load() {
    let postgres = PostgresServer::from_env().unwrap_or_else(|why| panic!("{why:#}"));
    let (tools, board, seed) = (crash_tools(Some(postgres)), CoverageBoard::default(), seed_from_env());
    let plan = CampaignPlan {
        stores: StoreKind::ALL.to_vec(),
        classes: Vec::new(),
        cycles: StoreKind::ALL.len() * kills_from_env(KILLS) as usize,
        seed,
        jobs: StoreKind::ALL.len(),
        short: false,
        under_load: true,
        failures_dir: Path::new(env!("CARGO_TARGET_TMPDIR")).join("crash"),
    };
    let campaign_result = plan.run(&tools, &board, |round, verdict| {
        let summary = verdict.as_ref().map_or("failed", |verdict| verdict.log.trim());
        print_line(&format!("{round}: {summary}"));
    });
    let counts = board.counts();
    assert!(counts.violations.is_empty(), "{}", counts.violations.join("\n\n"));
    campaign_result.unwrap_or_else(|why| panic!("{why:#}"));
    assert_eq!(counts.others, plan.cycles as u64);
}
