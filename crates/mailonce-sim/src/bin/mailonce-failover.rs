//! `mailonce-failover`: fails over to a synchronous standby again and again under load, and checks what was kept.

use anyhow::{Context as _, Result};
use clap::Parser;
use mailonce_sim::{
    failover::campaign::{FailoverCampaign, FailoverReport},
    harness::{child_processes::ChildProcesses, rng, server},
    report::summary::TestRun,
};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Fails over to a synchronous standby under load. Needs the programs of PostgreSQL: MAILONCE_PG_BIN.
#[derive(Debug, Parser)]
#[command(name = "mailonce-failover", max_term_width = 100)]
struct Args {
    /// Number of failovers in all
    #[arg(long, default_value_t = 5)]
    failovers: u64,
    /// Failovers per pair of servers; then a new pair is created and the results are written
    #[arg(long, default_value_t = 10)]
    part: u64,
    /// Seed of all randomness [default: MAILONCE_SEED, else a new one]
    #[arg(long)]
    seed: Option<u64>,
    /// The server's binary [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Write results for docs/proof.md to this folder after each pair
    #[arg(long, value_name = "DIR")]
    proof: Option<PathBuf>,
    /// Continue the campaign in the `--proof` folder until it has `--failovers` failovers
    #[arg(long, requires = "proof")]
    resume: bool,
}

/// The results of all parts so far.
#[derive(Debug, Default)]
struct FailoverTotals {
    report: FailoverReport,
    seeds: Vec<u64>,
}

impl FailoverTotals {
    fn failovers(&self) -> u64 {
        self.report.counts.get("failovers").copied().unwrap_or_default()
    }

    fn add(&mut self, seed: u64, part: FailoverReport) {
        self.seeds.push(seed);
        for (name, count) in part.counts {
            *self.report.counts.entry(name).or_default() += count;
        }
        self.report.violations.extend(part.violations);
    }

    fn write(&self, run: &TestRun, dir: &Path) -> Result<()> {
        let mut summary = run.summary();
        summary.seeds = self.seeds.clone().into();
        summary.counts.clone_from(&self.report.counts);
        summary.violations = self.report.violations.iter().cloned().map(Into::into).collect();
        summary.state =
            json!({"seeds": self.seeds, "counts": self.report.counts, "violations": self.report.violations});
        summary.write(dir).with_context(|| format!("writing into {}", dir.display()))
    }
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let (run, mut total) = start_or_resume(&args)?;
    let (binary, children) = (server::locate_binary(args.binary.as_ref())?, ChildProcesses::default());
    children.kill_children_on_signal(None)?;
    while total.failovers() < args.failovers {
        let seed = args.seed.map_or_else(rng::seed_from_env, |seed| seed + total.seeds.len() as u64);
        let failovers = args.part.max(1).min(args.failovers - total.failovers());
        println!("seed {seed}, {failovers} failovers");
        let part = FailoverCampaign { failovers, seed, binary: &binary, children: &children }.run()?;
        for violation in &part.violations {
            println!("VIOLATION {violation}");
        }
        total.add(seed, part);
        if let Some(dir) = &args.proof {
            total.write(&run, dir)?;
        }
        println!("{}", json!(total.report.counts));
    }
    println!("{} violations", total.report.violations.len());
    Ok(if total.report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// No results yet, or those of an earlier run of the same code.
fn start_or_resume(args: &Args) -> Result<(TestRun, FailoverTotals)> {
    let Some(dir) = args.proof.as_deref().filter(|_| args.resume) else {
        return Ok((TestRun::start("failovers"), FailoverTotals::default()));
    };
    let (run, state) = TestRun::resume("failovers", dir)?;
    if state.is_null() {
        return Ok((run, FailoverTotals::default()));
    }
    let report = FailoverReport {
        counts: serde_json::from_value(state["counts"].clone()).context("the figures of an earlier run")?,
        violations: serde_json::from_value(state["violations"].clone()).context("the violations of an earlier run")?,
    };
    let seeds = serde_json::from_value(state["seeds"].clone()).context("the seeds of an earlier run")?;
    Ok((run, FailoverTotals { report, seeds }))
}
