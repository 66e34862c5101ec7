//! `mailonce-model`: explores every order of events of a small system and prints the result as JSON.

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

/// Explores every order of events of a small system. Without `--class`, every class of next hop is checked.
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
    /// The class of next hop.
    #[arg(long)]
    class: Option<ModelHopClass>,
    /// The email is resent when its outcome stays unknown.
    #[arg(long)]
    resend: bool,
    /// The provider sends events about the mail.
    #[arg(long)]
    news: bool,
    /// A deliberate bug that the checker must find.
    #[arg(long)]
    flaw: Option<SeededBug>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Write a summary to this folder.
    #[arg(long)]
    proof: Option<PathBuf>,
    /// Timeout for each class, in seconds. A class that exceeds it is incomplete.
    #[arg(long)]
    seconds: Option<u64>,
}

/// Further commands.
#[derive(Subcommand)]
enum ModelCommand {
    /// Print `docs/protocols.md`: recommended protocols that fail.
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
    let (begun, mut summaries) = (TestRun::start("model"), Vec::new());
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
        summaries.push(summary);
    }
    if let Some(dir) = &args.proof {
        report(&begun, &summaries).write(dir)?;
    }
    if !summaries.iter().all(ModelSummary::holds) {
        bail!("a law was broken, or not everything was seen");
    }
    Ok(())
}

/// The results in the format of `docs/proof.md`.
fn report(begun: &TestRun, summaries: &[ModelSummary]) -> Report {
    let mut report = begun.summary();
    report.counts.insert("states".into(), summaries.iter().map(|one| one.states as u64).sum());
    report.counts.insert("moves".into(), summaries.iter().map(|one| one.moves as u64).sum());
    report.table.push(
        ["next hop", "workers", "handoffs", "leases", "states", "moves", "all of it"].map(str::to_owned).to_vec(),
    );
    for one in summaries {
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
