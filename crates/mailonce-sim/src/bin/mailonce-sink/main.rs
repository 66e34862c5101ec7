//! The oracle sink: a next hop in its own process. It accepts mail by SMTP and in three HTTP dialects, injects faults
//! that follow from a seed, and logs every mail that it accepted.
//!
//! It prints its addresses as one line of JSON, and exits on SIGTERM.

use anyhow::{Context as _, Result};
use clap::Parser;
use mailonce_sim::sink::http::HttpSink;
use mailonce_sim::sink::oracle::{SinkOracle, behavior::FaultRates};
use mailonce_sim::sink::smtp::{SmtpSink, SmtpSinkConfig};
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// A next hop that injects faults by a seed and logs everything.
#[derive(Debug, Parser)]
#[command(name = "mailonce-sink", max_term_width = 100)]
struct Args {
    /// The append-only log: JSON, a line for each mail
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// The seed of its faults
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    rates: FaultRates,
}

#[tokio::main(worker_threads = 1)]
async fn main() -> Result<()> {
    let Args { log, seed, rates } = Args::parse();
    let oracle = Arc::new(SinkOracle::open(seed, rates, &log)?);
    let smtp =
        SmtpSink::start(SmtpSinkConfig { oracle: Some(Arc::clone(&oracle)), ..SmtpSinkConfig::default() }).await?;
    let http = HttpSink::start_with_oracle(oracle).await?;
    let addresses = json!({
        "smtp": smtp.at.to_string(),
        "http": http.url(),
        "keyed": format!("{}/emails", http.url()),
        "look_up": format!("{}/email", http.url()),
        "keyless": format!("{}/other/send", http.url()),
        "log": log,
    });
    writeln!(std::io::stdout(), "{addresses}").context("nobody reads the addresses")?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        signal = tokio::signal::ctrl_c() => Ok(signal?),
    }
}
