//! `mailonce-proof`: writes `docs/proof.md` from saved test results.

use anyhow::Context as _;
use clap::Parser;
use mailonce_sim::report::{
    page::{TEMPLATE, render_page},
    summary::RunSummary,
};
use std::{fs, path::PathBuf};

/// Writes docs/proof.md from the results that tests saved.
#[derive(Parser)]
struct Args {
    /// The folder of the results.
    #[arg(long, default_value = "target/proof")]
    from: PathBuf,
    /// The page to write.
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
