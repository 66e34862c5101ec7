//! Runs the crash campaign: kills and stops the shipped binary, restarts it, and checks what it kept.

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use mailonce_sim::crash::campaign::{CampaignPlan, Round};
use mailonce_sim::crash::coverage::CoverageBoard;
use mailonce_sim::crash::environment::CrashTools;
use mailonce_sim::crash::failpoints::{HopClass, StoreKind};
use mailonce_sim::crash::report::CampaignReport;
use mailonce_sim::crash::verdict::RoundVerdict;
use mailonce_sim::harness::child_processes::{ChildProcesses, sleep};
use mailonce_sim::harness::postgres::{PostgresServer, run_for_output};
use mailonce_sim::harness::{rng, server};
use mailonce_sim::report::summary::TestRun;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time between two progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// The stores that a campaign covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreChoice {
    /// The embedded store.
    Sqlite,
    /// The store for several nodes; needs MAILONCE_TEST_POSTGRES.
    Postgres,
    /// Both stores.
    Both,
}

/// Kills and stops mailonce again and again, at each of its failpoints, and checks what it kept
#[derive(Debug, Parser)]
#[command(name = "mailonce-crash", max_term_width = 100)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Args {
    /// Minimum number of kills and stops
    #[arg(long, default_value_t = 500)]
    cycles: usize,
    /// Seed of all randomness [default: MAILONCE_SEED, else a new one]
    #[arg(long)]
    seed: Option<u64>,
    /// The store of the ledger
    #[arg(long, value_enum, default_value = "both")]
    store: StoreChoice,
    /// The class of next hop [default: all]
    #[arg(long, value_enum)]
    class: Vec<HopClass>,
    /// Rounds that run in parallel
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Only the failpoints of the short form
    #[arg(long)]
    short: bool,
    /// Kill at random moments under heavy load, in place of at failpoints
    #[arg(long, conflicts_with_all = ["class", "short", "proof"])]
    under_load: bool,
    /// The server, built with `--features failpoints` [default: the binary next to this one]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The second, independent checker: `scripts/prove-history` [default: none]
    #[arg(long, value_name = "FILE")]
    judge: Option<PathBuf>,
    /// A deliberate defect that every server has, which the checkers must find
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Print what happened in each round
    #[arg(long)]
    story: bool,
    /// Write the summary to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write results for docs/proof.md to this folder after each round
    #[arg(long, value_name = "DIR")]
    proof: Option<PathBuf>,
    /// Continue the campaign in the `--proof` folder until it has `--cycles` kills and stops
    #[arg(long, requires = "proof")]
    resume: bool,
    /// Keep the files of failed rounds in this folder
    #[arg(long, value_name = "DIR", default_value = "crash-failures")]
    keep: PathBuf,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut plan = campaign_plan(&args);
    let tools = crash_tools(&args)?;
    let (board, run) = open_board(&args)?;
    let done = board.counts();
    plan.cycles = plan.cycles.saturating_sub((done.kills + done.others + done.stops) as usize);
    println!("seed {}, {} rounds", plan.seed, plan.rounds().len());
    board.update_counts(|counts| counts.seeds.push(plan.seed));
    let report = args.proof.as_deref().map(|dir| CampaignReport { dir, run, columns: plan.columns() });
    let (over, write_error) = (AtomicBool::new(false), Mutex::new(None));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut waited_ms = 0;
            while !over.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(200));
                waited_ms += 200;
                if waited_ms >= PROGRESS_INTERVAL.as_millis() {
                    waited_ms = 0;
                    eprintln!("{}", board.status_line());
                }
            }
        });
        let result = plan.run(&tools, &board, |round, verdict| {
            print_round(&args, round, verdict);
            // Rounds end in parallel and all write the same file, so the lock is held while it is written.
            let mut write_error = write_error.lock().unwrap_or_else(PoisonError::into_inner);
            *write_error = report.as_ref().and_then(|report| report.write(&board).err());
        });
        over.store(true, Ordering::SeqCst);
        result
    });
    if let Some(why) = write_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(why.context("the results could not be written"));
    }
    finish(&args, &plan, &board, result)
}

/// The coverage board: empty, or with the counts of the run that `--resume` continues.
fn open_board(args: &Args) -> Result<(CoverageBoard, TestRun)> {
    let Some(dir) = args.proof.as_deref().filter(|_| args.resume) else {
        return Ok((CoverageBoard::default(), TestRun::start("kills")));
    };
    let (run, state) = TestRun::resume("kills", dir)?;
    let board = if state.is_null() { CoverageBoard::default() } else { CoverageBoard::resume(state)? };
    Ok((board, run))
}

fn finish(args: &Args, plan: &CampaignPlan, board: &CoverageBoard, result: Result<()>) -> Result<ExitCode> {
    let columns = plan.columns();
    if !plan.under_load {
        println!("{}", board.table(&columns));
    }
    println!("{}", board.status_line());
    let mut summary = board.summary(&columns);
    summary["seed"] = plan.seed.into();
    let missing: Vec<String> = board
        .missed_cells(&columns, plan.short, 1)
        .iter()
        .map(|(point, store, class)| format!("{point} {} {class}", store.as_str()))
        .collect();
    // A replay of a few cycles, or kills at random moments, need not reach every failpoint.
    let whole = !plan.under_load && plan.rounds().len() >= columns.len() && args.class.is_empty();
    summary["missing"] = missing.clone().into();
    summary["trouble"] = result.as_ref().err().map(|why| format!("{why:#}")).into();
    if let Some(path) = &args.json {
        std::fs::write(path, format!("{summary:#}\n")).with_context(|| format!("writing {}", path.display()))?;
    }
    let violations = board.counts().violations;
    for violation in &violations {
        println!("VIOLATION {violation}");
    }
    if whole && !missing.is_empty() {
        println!("failpoints that were never reached:\n  {}", missing.join("\n  "));
    }
    result?;
    let passed = violations.is_empty() && (missing.is_empty() || !whole);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_round(args: &Args, round: &Round, verdict: &Result<RoundVerdict>) {
    let result = match verdict {
        Ok(verdict) => format!(
            "{} emails, {} acceptances, {} violations",
            verdict.emails,
            verdict.mails_accepted,
            verdict.violations.len()
        ),
        Err(why) => format!("failed: {why:#}"),
    };
    eprintln!("round {round}: {result}");
    if let (true, Ok(verdict)) = (args.story, verdict) {
        eprintln!("{}", verdict.log);
    }
}

fn campaign_plan(args: &Args) -> CampaignPlan {
    let stores = match args.store {
        StoreChoice::Sqlite => vec![StoreKind::Sqlite],
        StoreChoice::Postgres => vec![StoreKind::Postgres],
        StoreChoice::Both => StoreKind::ALL.to_vec(),
    };
    let classes = if args.class.is_empty() { HopClass::ALL.to_vec() } else { args.class.clone() };
    let seed = args.seed.unwrap_or_else(rng::seed_from_env);
    CampaignPlan {
        stores,
        classes,
        cycles: args.cycles,
        seed,
        jobs: args.jobs,
        short: args.short,
        under_load: args.under_load,
        failures_dir: args.keep.clone(),
    }
}

fn crash_tools(args: &Args) -> Result<CrashTools> {
    let children = ChildProcesses::default();
    children.kill_children_on_signal(None)?;
    let server = server::locate_binary(args.binary.as_ref())?;
    check_points(&server)?;
    let sink = std::env::current_exe()?.with_file_name("mailonce-sink");
    let postgres = if args.store == StoreChoice::Sqlite { None } else { Some(PostgresServer::from_env()?) };
    Ok(CrashTools { children, server, sink, second_checker: args.judge.clone(), mutant: args.mutant.clone(), postgres })
}

/// Fails unless the binary has exactly the failpoints that this program knows.
fn check_points(server: &PathBuf) -> Result<()> {
    let mut command = Command::new(server);
    command.arg("failpoints");
    let output = run_for_output(command).context("was the binary built with `--features failpoints`?")?;
    let known = mailonce_core::failpoint::POINTS;
    ensure!(output.lines().eq(known), "the binary has other failpoints than this program: rebuild both");
    Ok(())
}
