//! `mailonce-fuzz`: mutates seeds for every parser of outside bytes and prints failures as JSON.

use anyhow::{Context as _, bail};
use clap::Parser;
use mailonce_sim::{
    fuzz::{
        FuzzTarget, TARGETS,
        driver::{FuzzPlan, FuzzReport, MAX_CPU_TIME, run_input, run_target},
        find_target, libfuzzer_files,
    },
    harness::rng::seed_from_env,
    report::summary::{RunSummary, TestRun},
};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Mutates seeds for every parser of outside bytes, or for one.
#[derive(Parser)]
struct Args {
    /// Only this parser.
    #[arg(long)]
    target: Option<String>,
    /// Seconds for each parser.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Maximum number of inputs for each parser.
    #[arg(long, default_value_t = u64::MAX)]
    inputs: u64,
    /// Seed of all inputs [default: MAILONCE_SEED, else a new one].
    #[arg(long)]
    seed: Option<u64>,
    /// A folder with more seeds.
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Write failing inputs to this folder.
    #[arg(long, default_value = "target/fuzz")]
    keep: PathBuf,
    /// Run one file and nothing else.
    #[arg(long, requires = "target")]
    replay: Option<PathBuf>,
    /// Write a summary to this folder.
    #[arg(long)]
    proof: Option<PathBuf>,
    /// List the parsers.
    #[arg(long)]
    list: bool,
    /// Write the seeds of each parser to a folder of its own below this one, for libFuzzer.
    #[arg(long)]
    write_seeds: Option<PathBuf>,
    /// Write the manifest and the targets of `cargo fuzz` to this folder.
    #[arg(long)]
    write_targets: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let chosen: Vec<&FuzzTarget> = match &args.target {
        Some(name) => vec![find_target(name).with_context(|| format!("there is no reader {name}; see --list"))?],
        None => TARGETS.iter().collect(),
    };
    if args.list {
        chosen.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    }
    if let Some(dir) = &args.write_seeds {
        return chosen.iter().try_for_each(|target| write_seeds(target, dir));
    }
    if let Some(dir) = &args.write_targets {
        return write_targets(dir);
    }
    if let Some(file) = &args.replay {
        let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
        for target in chosen {
            if let Err(what) = run_input(target, &bytes, MAX_CPU_TIME).0 {
                bail!("{}: {what}", target.name);
            }
            println!("{} holds", target.name);
        }
        return Ok(());
    }
    let run = TestRun::start("fuzz");
    let plan = FuzzPlan {
        seed: args.seed.unwrap_or_else(seed_from_env),
        max_inputs: args.inputs,
        time_limit: Duration::from_secs(args.seconds),
        max_cpu_time: MAX_CPU_TIME,
        corpus: args.corpus,
        failures_dir: args.keep,
    };
    let driven = chosen.iter().map(|target| run_target(target, &plan)).collect::<Result<Vec<FuzzReport>, _>>()?;
    println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "seed": plan.seed, "readers": driven }))?);
    if let Some(dir) = &args.proof {
        summary(&run, plan.seed, &driven).write(dir)?;
    }
    let failures: Vec<_> = driven.iter().flat_map(|driven| &driven.failures).collect();
    for failure in &failures {
        eprintln!("{}\n  {}", failure.what, failure.replay);
    }
    if failures.is_empty() { Ok(()) } else { bail!("{} inputs broke something", failures.len()) }
}

fn summary(run: &TestRun, seed: u64, driven: &[FuzzReport]) -> RunSummary {
    let mut summary = run.summary();
    summary.seeds = seed.into();
    if !summary.command.contains("--seed") {
        summary.command = format!("{} --seed {seed}", summary.command);
    }
    summary.counts.insert("inputs".into(), driven.iter().map(|driven| driven.inputs).sum());
    summary.counts.insert("read through".into(), driven.iter().map(|driven| driven.through).sum());
    summary.counts.insert("readers".into(), driven.len() as u64);
    for failure in driven.iter().flat_map(|driven| &driven.failures) {
        summary.violations.push(format!("{}: {}", failure.what, failure.replay).into());
    }
    summary.table.push(["reader", "inputs", "read through", "slowest, ms"].map(str::to_owned).to_vec());
    let row = |driven: &FuzzReport| {
        let figures = [driven.inputs, driven.through, driven.slowest_ms].map(|figure| figure.to_string());
        [vec![driven.target.to_owned()], figures.to_vec()].concat()
    };
    summary.table.extend(driven.iter().map(row));
    summary
}

fn write_targets(dir: &Path) -> anyhow::Result<()> {
    let targets = dir.join("fuzz_targets");
    fs::create_dir_all(&targets)?;
    fs::write(dir.join("Cargo.toml"), libfuzzer_files::manifest())?;
    for target in TARGETS {
        fs::write(targets.join(format!("{}.rs", target.name)), libfuzzer_files::target_file(target.name))?;
    }
    Ok(())
}

fn write_seeds(target: &FuzzTarget, dir: &Path) -> anyhow::Result<()> {
    let dir = dir.join(target.name);
    fs::create_dir_all(&dir)?;
    for (number, seed) in (target.seeds)().iter().enumerate() {
        fs::write(dir.join(format!("seed-{number:02}")), seed)?;
    }
    Ok(())
}
