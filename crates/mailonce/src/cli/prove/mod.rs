//! `prove`: tests how a server of a known dialect handles retries and idempotency keys.

mod call_result;
mod case;
mod cases;
mod client;
mod dialect;
mod report;
pub(super) mod sink;

use clap::Args;
use std::{net::SocketAddr, process::ExitCode, time::Duration};

use self::{
    case::ProveCase,
    dialect::TargetDialect,
    report::{ProveFinding, ProveReport},
    sink::CountingSink,
};
use super::{ServerArgs, UsageError, client::CliClient, exit, progress::Progress};
use crate::cli::prove::client::ProveClient;
use crate::cli::{error::CliError, http_client::ApiServer, printer::Printer};

/// The server to test, and how.
#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// Base URL of the server, as its SDK takes it; default: the mailonce server that other commands use
    #[arg(long, value_name = "URL")]
    target: Option<String>,
    /// API of the server
    #[arg(long, value_enum, default_value_t = TargetDialect::Mailonce)]
    dialect: TargetDialect,
    /// API key of the server
    #[arg(long, env = "MAILONCE_PROVE_KEY", value_name = "KEY", hide_env_values = true)]
    key: Option<String>,
    /// Sender that the server accepts; with agentmail, the inbox
    #[arg(long, default_value = "prove@mailonce.test")]
    from: String,
    /// Recipient of the emails
    #[arg(long, default_value = "reader@mailonce.test")]
    to: String,
    /// Address of an SMTP sink that counts the delivered emails; configure it as the relay of the server
    #[arg(long, value_name = "ADDR")]
    sink: Option<SocketAddr>,
    /// Number of concurrent clients in the case `race`
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(2..=1000))]
    callers: u32,
    /// Seconds without a new email after which the sink counts
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    settle: u64,
    /// Seconds to wait for missing emails
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    server: ServerArgs,
}

/// Runs every case and prints the report. Exit code 0 if every promised case passed, 5 if not, 2 if the server does not
/// answer.
pub(super) async fn prove(out: &Printer, args: ProveArgs) -> anyhow::Result<ExitCode> {
    let (server, api_key) = target(&args)?;
    if let Err(error) = server.open_stream().await {
        return Err(CliError::no_server(format!("{} cannot be reached: {error}", server.url())).into());
    }
    let sink = match args.sink {
        Some(at) => Some(CountingSink::listen(at).await?),
        None => None,
    };
    let caller = ProveClient::new(server, args.dialect, api_key, args.from, args.to)?;
    caller.check_setup().await?;
    let mut findings = Vec::new();
    let progress = Progress::bar("cases", ProveCase::ALL.len() as u64);
    for case in ProveCase::ALL {
        progress.set_message(&format!("{}: {}", case.as_str(), case.description()));
        findings.push(ProveFinding::of(case, args.dialect, cases::run_case(case, &caller, args.callers).await));
        progress.advance();
    }
    if let Some(sink) = &sink {
        progress.set_message(&format!("counting emails at {}", sink.address()));
        let expected = findings.iter().flat_map(ProveFinding::expected_mails).collect();
        sink.wait_for_mails(&expected, Duration::from_secs(args.settle), Duration::from_secs(args.timeout)).await;
        let arrived = sink.counts_by_marker();
        if arrived.is_empty() {
            progress.print_line("no email reached the sink: is it the relay of the server?");
        }
        findings.iter_mut().for_each(|finding| finding.count_mails(&arrived));
    }
    drop(progress);
    let report = ProveReport { target: caller.url(), dialect: args.dialect, mails_counted: sink.is_some(), findings };
    report.show(out);
    Ok(if report.has_passed() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

/// The server and its API key. A mailonce server is found as by other commands.
fn target(args: &ProveArgs) -> anyhow::Result<(ApiServer, String)> {
    let ca_file = args.server.ca_file.as_deref();
    match (&args.target, &args.key) {
        (Some(url), Some(key)) => Ok((ApiServer::new(url, ca_file)?, key.clone())),
        (url, key) if args.dialect == TargetDialect::Mailonce => {
            let mut server = args.server.clone();
            server.url = url.clone().or(server.url);
            server.api_key = key.clone().or(server.api_key);
            let client = CliClient::find(&server).map_err(|error| UsageError(format!("{error:#}")))?;
            Ok((client.server, client.api_key))
        }
        _ => {
            Err(UsageError(format!("--target and --key are required for the dialect {}", args.dialect.as_str())).into())
        }
    }
}
