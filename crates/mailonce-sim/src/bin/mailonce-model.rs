//! `mailonce-model`: plays every order of events of a small world and prints what it saw as JSON.

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use mailonce_core::outbound::email::OnUnknown;
use mailonce_sim::{
    model::{
        config::{ModelConfig, ModelHopClass, SeededBug},
        run::{ModelSummary, RunBounds, check_model},
    },
    protocol::render_page,
    report::summary::{RunSummary as Report, TestRun},
};
use std::{path::PathBuf, time::Duration};

/// Plays every order of events of a small world. Without `--class` every class of next hop is played.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    other: Option<ModelCommand>,
    /// Workers, each a process of its own.
    #[arg(long, default_value_t = 3)]
    workers: u8,
    /// Handoffs of the one email.
    #[arg(long, default_value_t = 2)]
    handoffs: u8,
    /// Leases that each handoff may have, at most 8.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    leases: u8,
    /// What the next hop can do.
    #[arg(long)]
    class: Option<ModelHopClass>,
    /// The email asks to be resent when its outcome stays unknown.
    #[arg(long)]
    resend: bool,
    /// The next hop tells what became of the mail.
    #[arg(long)]
    news: bool,
    /// A mistake that must be found.
    #[arg(long)]
    flaw: Option<SeededBug>,
    /// Threads that play.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Leaves a summary in this folder.
    #[arg(long)]
    proof: Option<PathBuf>,
    /// Seconds after which a class is given up as not done.
    #[arg(long)]
    seconds: Option<u64>,
}

/// What else there is to play.
#[derive(Subcommand)]
enum ModelCommand {
    /// Protocols that do not hold, as the page `docs/protocols.md`.
    Protocols,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if matches!(args.other, Some(ModelCommand::Protocols)) {
        print!("{}", render_page()?);
        return Ok(());
    }
    let classes = args
        .class
        .map_or(vec![ModelHopClass::Keyed, ModelHopClass::LookUp, ModelHopClass::Keyless], |class| vec![class]);
    let bounds = RunBounds { threads: args.threads.max(1), timeout: args.seconds.map(Duration::from_secs) };
    let (begun, mut played) = (TestRun::start("model"), Vec::new());
    for class in classes {
        let size = ModelConfig {
            class,
            on_unknown: if args.resend { OnUnknown::Resend } else { OnUnknown::Hold },
            workers: args.workers,
            handoffs: args.handoffs,
            leases: args.leases,
            news: args.news,
            flaw: args.flaw,
        };
        let summary = check_model(size, bounds).context("the world could not be made")?;
        println!("{}", serde_json::to_string_pretty(&summary)?);
        played.push(summary);
    }
    if let Some(dir) = &args.proof {
        report(&begun, &played).write(dir)?;
    }
    if !played.iter().all(ModelSummary::holds) {
        bail!("a law was broken, or not everything was seen");
    }
    Ok(())
}

/// What was played, in the form of every rig.
fn report(begun: &TestRun, played: &[ModelSummary]) -> Report {
    let mut report = begun.summary();
    report.counts.insert("states".into(), played.iter().map(|one| one.states as u64).sum());
    report.counts.insert("moves".into(), played.iter().map(|one| one.moves as u64).sum());
    report.table.push(
        ["next hop", "workers", "handoffs", "leases", "states", "moves", "all of it"].map(str::to_owned).to_vec(),
    );
    for one in played {
        let class = serde_json::to_value(one.size.class).ok().and_then(|class| class.as_str().map(str::to_owned));
        let figures = [one.size.workers, one.size.handoffs, one.size.leases].map(|figure| figure.to_string());
        let mut row = vec![class.unwrap_or_default()];
        row.extend(figures);
        row.extend([one.states.to_string(), one.moves.to_string(), if one.complete { "yes" } else { "no" }.to_owned()]);
        report.table.push(row);
        let broken = one.violations.iter().map(|found| format!("{}: {}", found.law, found.moves.join(", ")));
        report.violations.extend(broken.map(Into::into));
        report.violations.extend(one.missed.iter().map(|missed| format!("never happened: {missed}").into()));
    }
    report
}
