//! The crash rig from the command line: kills and stops the shipped binary at its points, and judges what it kept.

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use mailonce_sim::crash::campaign::CampaignPlan;
use mailonce_sim::crash::coverage::CoverageBoard;
use mailonce_sim::crash::environment::CrashTools;
use mailonce_sim::crash::failpoints::{HopClass, StoreKind};
use mailonce_sim::crash::report::CampaignReport;
use mailonce_sim::crash::round::CrashRound;
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

/// Between two lines of the live count.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Which stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StoreChoice {
    /// The embedded one.
    Sqlite,
    /// The one for many nodes; needs MAILONCE_TEST_POSTGRES.
    Postgres,
    /// Both.
    Both,
}

/// Kills and stops mailonce at its named points, again and again, and judges what it kept.
#[derive(Debug, Parser)]
#[command(name = "mailonce-crash", max_term_width = 100)]
struct Args {
    /// At least so many deaths
    #[arg(long, default_value_t = 500)]
    cycles: usize,
    /// Where everything that is by chance comes from; else a new one
    #[arg(long)]
    seed: Option<u64>,
    /// What keeps the ledger
    #[arg(long, value_enum, default_value = "both")]
    store: StoreChoice,
    /// Where mail goes; else everywhere
    #[arg(long, value_enum)]
    class: Vec<HopClass>,
    /// Rounds side by side
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Only the points of the short form
    #[arg(long)]
    short: bool,
    /// The server's binary, built with `--features failpoints`; else the one beside this
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The second judge, `scripts/prove-history`; else there is only one
    #[arg(long, value_name = "FILE")]
    judge: Option<PathBuf>,
    /// A wrong turn that every server takes, to see that somebody notices
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Tell what happened in each round
    #[arg(long)]
    story: bool,
    /// Where the summary is written
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where figures are left for the page of proofs, round by round
    #[arg(long, value_name = "DIR")]
    proof: Option<PathBuf>,
    /// Goes on with the figures that are there, until there are so many deaths in all
    #[arg(long, requires = "proof")]
    resume: bool,
    /// Where rounds that failed are kept
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
    println!("seed {}, {} rounds to play", plan.seed, plan.rounds().len());
    board.update_counts(|counts| counts.seeds.push(plan.seed));
    let ledger = args.proof.as_deref().map(|dir| CampaignReport { dir, run, columns: plan.columns() });
    let (over, unwritten) = (AtomicBool::new(false), Mutex::new(None));
    let played = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut told = 0;
            while !over.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(200));
                told += 200;
                if told >= PROGRESS_INTERVAL.as_millis() {
                    told = 0;
                    eprintln!("{}", board.status_line());
                }
            }
        });
        let played = plan.run(&tools, &board, |round, judgement| {
            print_round(&args, round, judgement);
            // One at a time: two would write the same file.
            let mut unwritten = unwritten.lock().unwrap_or_else(PoisonError::into_inner);
            *unwritten = ledger.as_ref().and_then(|ledger| ledger.write(&board).err());
        });
        over.store(true, Ordering::SeqCst);
        played
    });
    if let Some(why) = unwritten.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(why.context("the figures could not be left"));
    }
    finish(&args, &plan, &board, played)
}

/// A board, empty or as an earlier run left it.
fn open_board(args: &Args) -> Result<(CoverageBoard, TestRun)> {
    let Some(dir) = args.proof.as_deref().filter(|_| args.resume) else {
        return Ok((CoverageBoard::default(), TestRun::start("kills")));
    };
    let (run, state) = TestRun::resume("kills", dir)?;
    let board = if state.is_null() { CoverageBoard::default() } else { CoverageBoard::resume(state)? };
    Ok((board, run))
}

fn finish(args: &Args, plan: &CampaignPlan, board: &CoverageBoard, played: Result<()>) -> Result<ExitCode> {
    let parts = plan.columns();
    println!("{}\n{}", board.table(&parts), board.status_line());
    let mut summary = board.summary(&parts);
    summary["seed"] = plan.seed.into();
    let missing: Vec<String> = board
        .missed_cells(&parts, plan.short, 1)
        .iter()
        .map(|(point, store, class)| format!("{point} {} {class}", store.as_str()))
        .collect();
    // A replay of a few cycles is not expected to reach everything.
    let whole = plan.rounds().len() >= parts.len() && args.class.is_empty();
    summary["missing"] = missing.clone().into();
    summary["trouble"] = played.as_ref().err().map(|why| format!("{why:#}")).into();
    if let Some(path) = &args.json {
        std::fs::write(path, format!("{summary:#}\n")).with_context(|| format!("writing {}", path.display()))?;
    }
    let violations = board.counts().violations;
    for violation in &violations {
        println!("VIOLATION {violation}");
    }
    if whole && !missing.is_empty() {
        println!("cells that were never reached:\n  {}", missing.join("\n  "));
    }
    played?;
    let good = violations.is_empty() && (missing.is_empty() || !whole);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_round(args: &Args, round: &CrashRound, judgement: &Result<RoundVerdict>) {
    let what = match judgement {
        Ok(judgement) => format!(
            "{} emails, {} acceptances, {} violations",
            judgement.emails,
            judgement.mails_accepted,
            judgement.violations.len()
        ),
        Err(why) => format!("not played: {why:#}"),
    };
    eprintln!("round {} {} seed {}: {what}", round.store.as_str(), round.class, round.seed);
    if let (true, Ok(judgement)) = (args.story, judgement) {
        eprintln!("{}", judgement.log);
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

/// The binary must have the very points that the table has.
fn check_points(server: &PathBuf) -> Result<()> {
    let mut command = Command::new(server);
    command.arg("failpoints");
    let said = run_for_output(command).context("was the binary built with `--features failpoints`?")?;
    let known = mailonce_core::failpoint::POINTS;
    ensure!(said.lines().eq(known), "the binary has other points than this rig: build both");
    Ok(())
}
