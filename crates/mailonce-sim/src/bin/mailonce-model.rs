//! `mailonce-model`: plays every order of events of a small world and prints what it saw as JSON.

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use mailonce_core::email::OnUnknown;
use mailonce_sim::{
    model::{
        run::{Bounds, Summary, run},
        size::{Class, Flaw, Size},
    },
    protocol::page::page,
};
use std::time::Duration;

/// Plays every order of events of a small world. Without `--class` every class of next hop is played.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    other: Option<Other>,
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
    class: Option<Class>,
    /// The email asks to be resent when its outcome stays unknown.
    #[arg(long)]
    resend: bool,
    /// The next hop tells what became of the mail.
    #[arg(long)]
    news: bool,
    /// A mistake that must be found.
    #[arg(long)]
    flaw: Option<Flaw>,
    /// Threads that play.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Seconds after which a class is given up as not done.
    #[arg(long)]
    seconds: Option<u64>,
}

/// What else there is to play.
#[derive(Subcommand)]
enum Other {
    /// Protocols that do not hold, as the page `docs/protocols.md`.
    Protocols,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if matches!(args.other, Some(Other::Protocols)) {
        print!("{}", page()?);
        return Ok(());
    }
    let classes = args.class.map_or(vec![Class::Keyed, Class::LookUp, Class::Keyless], |class| vec![class]);
    let bounds = Bounds { threads: args.threads.max(1), patience: args.seconds.map(Duration::from_secs) };
    let mut held = true;
    for class in classes {
        let size = Size {
            class,
            on_unknown: if args.resend { OnUnknown::Resend } else { OnUnknown::Hold },
            workers: args.workers,
            handoffs: args.handoffs,
            leases: args.leases,
            news: args.news,
            flaw: args.flaw,
        };
        let summary: Summary = run(size, bounds).context("the world could not be made")?;
        println!("{}", serde_json::to_string_pretty(&summary)?);
        held &= summary.holds();
    }
    if !held {
        bail!("a law was broken, or not everything was seen");
    }
    Ok(())
}
