//! `mailonce-proof`: writes `docs/proof.md` from the summaries that rigs left.

use anyhow::Context as _;
use clap::Parser;
use mailonce_sim::report::{
    page::{TEMPLATE, render_page},
    summary::RunSummary,
};
use std::{fs, path::PathBuf};

/// Writes the page about what was run, from the figures that rigs left.
#[derive(Parser)]
struct Args {
    /// Where the summaries are.
    #[arg(long, default_value = "target/proof")]
    from: PathBuf,
    /// Where the page goes.
    #[arg(long, default_value = "docs/proof.md")]
    to: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let summaries = RunSummary::read_all(&args.from).with_context(|| format!("reading {}", args.from.display()))?;
    fs::write(&args.to, render_page(TEMPLATE, &summaries)?)
        .with_context(|| format!("writing {}", args.to.display()))?;
    let names: Vec<&str> = summaries.keys().map(String::as_str).collect();
    println!("{} from {}", args.to.display(), if names.is_empty() { "no summaries".into() } else { names.join(", ") });
    Ok(())
}
