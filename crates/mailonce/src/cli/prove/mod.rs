//! `prove`: asks any server of a known dialect what a retry does, and says what held.

mod call_result;
mod cases;
mod client;
mod dialect;
mod report;
pub(super) mod sink;

use clap::Args;
use std::{net::SocketAddr, process::ExitCode, time::Duration};

use self::{
    cases::ProveCase,
    dialect::TargetDialect,
    report::{ProveFinding, ProveReport},
    sink::CountingSink,
};
use super::{ServerArgs, UsageError, client::CliClient, exit, progress::Progress};
use crate::cli::prove::client::ProveClient;
use crate::cli::{error::CliError, http_client::ApiServer, printer::Printer};

/// Which server is asked, and how.
#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// Base URL of the server, as its SDK takes it; else as client verbs find a mailonce
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// What the server speaks
    #[arg(long, value_enum, default_value_t = TargetDialect::Mailonce)]
    dialect: TargetDialect,
    /// API key of the server
    #[arg(long, env = "MAILONCE_PROVE_KEY", value_name = "KEY", hide_env_values = true)]
    key: Option<String>,
    /// A sender that the server accepts; with agentmail the inbox that sends
    #[arg(long, default_value = "prove@mailonce.test")]
    from: String,
    /// Who gets the mails
    #[arg(long, default_value = "reader@mailonce.test")]
    to: String,
    /// Listen here by SMTP and count what arrives; point the server's relay at it
    #[arg(long, value_name = "ADDR")]
    sink: Option<SocketAddr>,
    /// How many callers race with one key
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=1000))]
    callers: u32,
    /// Seconds without a mail after which the sink counts
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    quiet: u64,
    /// Seconds to wait for mails that are still missing
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    patience: u64,
    #[command(flatten)]
    reach: ServerArgs,
}

/// Asks everything and reports. 0 when all that is promised held, 5 when not, 2 when nobody answers.
pub(super) async fn prove(out: &Printer, args: ProveArgs) -> anyhow::Result<ExitCode> {
    let (place, api_key) = target(&args)?;
    if let Err(error) = place.open_stream().await {
        return Err(CliError::no_server(format!("{} cannot be reached: {error}", place.url())).into());
    }
    let sink = match args.sink {
        Some(at) => Some(CountingSink::listen(at).await?),
        None => None,
    };
    let caller = ProveClient::new(place, args.dialect, api_key, (&args.from, &args.to))?;
    caller.check_setup().await?;
    let mut findings = Vec::new();
    let progress = Progress::bar("asking", ProveCase::ALL.len() as u64);
    for case in ProveCase::ALL {
        progress.set_message(&format!("{}: {}", case.as_str(), case.description()));
        findings.push(ProveFinding::of(case, args.dialect, cases::run_case(case, &caller, args.callers).await));
        progress.advance();
    }
    if let Some(sink) = &sink {
        progress.set_message(&format!("counting mails at {}", sink.address()));
        let wanted = findings.iter().flat_map(ProveFinding::expected_mails).collect();
        sink.wait_for_mails(&wanted, Duration::from_secs(args.quiet), Duration::from_secs(args.patience)).await;
        let arrived = sink.counts_by_marker();
        if arrived.is_empty() {
            progress.print_line("no mail arrived at the sink: is the server's relay pointed at it?");
        }
        findings.iter_mut().for_each(|finding| finding.count_mails(&arrived));
    }
    drop(progress);
    let report = ProveReport { target: caller.url(), dialect: args.dialect, mails_counted: sink.is_some(), findings };
    report.show(out);
    Ok(if report.is_held() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// The server and its credential. A mailonce is also found as every other verb finds it.
fn target(args: &ProveArgs) -> anyhow::Result<(ApiServer, String)> {
    let ca_file = args.reach.ca_file.as_deref();
    match (&args.target, &args.key) {
        (Some(url), Some(key)) => Ok((ApiServer::new(url, ca_file)?, key.clone())),
        (url, key) if args.dialect == TargetDialect::Mailonce => {
            let mut reach = args.reach.clone();
            reach.url = url.clone().or(reach.url);
            reach.api_key = key.clone().or(reach.api_key);
            let client = CliClient::find(&reach).map_err(|error| UsageError(format!("{error:#}")))?;
            Ok((client.server, client.api_key))
        }
        _ => Err(UsageError(format!("--target and --key are needed for the dialect {}", args.dialect.as_str())).into()),
    }
}
