//! Runs simulated worlds, or replays one, and prints violations.

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use mailonce_sim::harness::rng;
use mailonce_sim::report::summary::TestRun;
use mailonce_sim::world::campaign::{WorldCampaign, WorldSummary};
use mailonce_sim::world::{mutants, report, run_twice};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Simulated worlds: the real engine against faults that follow from a seed.
#[derive(Debug, Parser)]
struct Args {
    /// Number of worlds.
    #[arg(long, default_value_t = 10_000)]
    worlds: u64,
    /// The first seed [default: a new one].
    #[arg(long)]
    seed: Option<u64>,
    /// Worlds that run in parallel.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Stop at the first violation.
    #[arg(long)]
    first: bool,
    /// Write the summary as JSON to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write results for docs/proof.md to this folder every thousand worlds
    #[arg(long, value_name = "DIR")]
    proof: Option<PathBuf>,
    /// Continue the campaign in the `--proof` folder until it has `--worlds` worlds
    #[arg(long, requires = "proof")]
    resume: bool,
    /// Run the world of this seed twice, print what happens, and compare.
    #[arg(long)]
    replay: Option<u64>,
    /// Run every mutant, or the one of `--mutant`, until a world detects it, in at most this many worlds.
    #[arg(long, value_name = "MOST")]
    mutants: Option<u64>,
    /// Run with this mutant.
    #[arg(long)]
    mutant: Option<String>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mutant = match &args.mutant {
        Some(name) => Some(mutants::find_mutant(name).with_context(|| format!("there is no mutant {name}"))?.name),
        None => None,
    };
    if let Some(seed) = args.replay {
        return replay_world(seed, mutant);
    }
    let seed = args.seed.unwrap_or_else(rng::seed_from_env);
    if let Some(most) = args.mutants {
        return run_mutants(&args, seed, most);
    }
    run_campaign(&args, seed, mutant)
}

/// Runs many worlds, continuing an interrupted campaign.
fn run_campaign(args: &Args, seed: u64, mutant: Option<&'static str>) -> Result<ExitCode> {
    let (run, before) = match args.proof.as_deref().filter(|_| args.resume) {
        None => (TestRun::start("worlds"), Value::Null),
        Some(dir) => TestRun::resume("worlds", dir)?,
    };
    let before: WorldSummary = if before.is_null() { WorldSummary::default() } else { serde_json::from_value(before)? };
    let seed = if before.worlds == 0 { seed } else { before.seed };
    let campaign = WorldCampaign { seed, worlds: args.worlds, jobs: args.jobs, mutant, stop_at_first: args.first };
    let summary = campaign.run_resumed(before, |sum| match &args.proof {
        Some(dir) => report::worlds_report(&run, sum)?.write(dir).context("the figures could not be left"),
        None => Ok(()),
    })?;
    for failure in &summary.failures {
        println!("{failure}");
    }
    println!("{}", summary.headline());
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&summary)?;
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if summary.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs all mutants and prints a line for each.
fn run_mutants(args: &Args, seed: u64, most: u64) -> Result<ExitCode> {
    let run = TestRun::start("mutants");
    let verdicts = match args.mutant.as_deref().and_then(mutants::find_mutant) {
        Some(only) => vec![mutants::detect(only, seed, most)],
        None => mutants::detect_all(seed, most, args.jobs, |verdict| println!("{verdict}")),
    };
    let survived = verdicts.iter().filter(|verdict| verdict.worlds.is_none()).count();
    println!("{} mutants, {survived} survived, from seed {seed}", verdicts.len());
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&verdicts)?;
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(dir) = &args.proof {
        report::mutants_report(&run, seed, &verdicts).write(dir).context("the figures could not be left")?;
    }
    Ok(if survived == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Replays one world and prints what happens.
fn replay_world(seed: u64, mutant: Option<&'static str>) -> Result<ExitCode> {
    let outcome = match run_twice(seed, mutant) {
        Ok(outcome) => outcome,
        Err(why) => bail!("seed {seed} is not the same again: {why}"),
    };
    println!("{:?}", outcome.plan);
    outcome.log.iter().for_each(|line| println!("{line}"));
    outcome.violations.iter().for_each(|violation| println!("{violation}"));
    println!("trace {:016x}, twice; {} violations", outcome.trace, outcome.violations.len());
    Ok(if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
