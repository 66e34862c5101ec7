//! `doctor`: checks an installation and prints the next step for each problem.
//!
//! | file | checks |
//! |---|---|
//! | `machine` | files and their modes, the disk, the clock |
//! | `ledger` | schema, durability and queue, or the server that uses the ledger |
//! | `secrets` | the key that encrypts the ledger's secrets |
//! | `transports` | transports, up to the login |
//! | `dns` | the DNS records of domains that send and receive |

mod dns;
mod ledger;
mod machine;
mod secrets;
mod transports;

use clap::Args;
use mailonce_transport::dns::Resolver;
use serde_json::json;
use std::{net::SocketAddr, process::ExitCode};

use super::{exit, load_config, table::wrap};
use crate::cli::printer::Printer;
use crate::config::{Config, Flags};

/// Options of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    flags: Flags,
    /// DNS resolver to ask instead of the system's
    #[arg(long, value_name = "ADDR")]
    dns: Option<SocketAddr>,
    /// Skip the checks that need the network: transports, DNS and clock synchronization
    #[arg(long)]
    offline: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CheckLevel {
    Ok,
    Warn,
    Fail,
}

impl CheckLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// A check and its result.
#[derive(Debug)]
struct DoctorCheck {
    name: &'static str,
    level: CheckLevel,
    /// One sentence.
    finding: String,
    /// The next step. Also set for an `ok` that can be improved.
    next_step: String,
}

impl DoctorCheck {
    fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, level: CheckLevel::Ok, finding: finding.into(), next_step: String::new() }
    }

    fn warn(name: &'static str, finding: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, level: CheckLevel::Warn, finding: finding.into(), next_step: next.into() }
    }

    fn fail(name: &'static str, finding: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, level: CheckLevel::Fail, finding: finding.into(), next_step: next.into() }
    }

    fn with_next_step(mut self, next: impl Into<String>) -> Self {
        self.next_step = next.into();
        self
    }
}

/// Runs every check. Exit code 5 if one fails; warnings do not count.
pub(super) async fn doctor(out: &Printer, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = match load_config(&args.flags) {
        Ok(config) => config,
        Err(error) => {
            let finding = format!("{error:#}").lines().next().unwrap_or_default().replace("configuration: ", "");
            let next = "correct the file or the variable, then run `mailonce doctor` again";
            return Ok(report(out, &[DoctorCheck::fail("configuration", finding, next)]));
        }
    };
    let mut checks = vec![check_configuration(args, &config)];
    checks.push(machine::check_permissions(&config, args.flags.config.as_deref()));
    checks.push(machine::check_disk(&config.data));
    let (check, can_open) = secrets::inspect(&config).await;
    checks.extend(check);
    let ledger = if can_open { ledger::inspect(&config).await } else { ledger::LedgerReport::default() };
    checks.push(machine::check_clock(ledger.latest_time, args.offline));
    checks.extend(ledger.checks);
    checks.extend(transports::check_transports(&config, args.offline).await);
    if !args.offline {
        let resolver = args.dns.map_or_else(Resolver::system, |at| Resolver::with_servers(vec![at]));
        checks.extend(dns::check_records(&resolver, &config, &ledger.expected_records).await);
    }
    Ok(report(out, &checks))
}

fn check_configuration(args: &DoctorArgs, config: &Config) -> DoctorCheck {
    let default = std::path::Path::new("mailonce.toml");
    let file = args.flags.config.as_deref().or_else(|| default.exists().then_some(default));
    let file =
        file.map_or_else(|| "no configuration file, defaults apply".to_owned(), |file| file.display().to_string());
    DoctorCheck::ok("configuration", format!("{file}; data directory {}", config.data.display()))
}

fn report(out: &Printer, checks: &[DoctorCheck]) -> ExitCode {
    let count = |level| checks.iter().filter(|check| check.level == level).count();
    let (warned, failed) = (count(CheckLevel::Warn), count(CheckLevel::Fail));
    if out.is_json() {
        let one = |check: &DoctorCheck| json!({ "check": check.name, "level": check.level.as_str(), "finding": check.finding, "next": check.next_step });
        let all: Vec<_> = checks.iter().map(one).collect();
        out.print_json(&json!({ "ok": failed == 0, "warnings": warned, "failures": failed, "checks": all }));
    } else {
        checks.iter().for_each(|check| show(out, check));
        let summary = match (failed, warned) {
            (0, 0) => out.green("No problems found."),
            (0, warned) => out.yellow(&format!("No failures, {}.", count_of(warned, "warning"))),
            (failed, 0) => out.red(&format!("{}.", count_of(failed, "failure"))),
            (failed, warned) => out.red(&format!("{}, {}.", count_of(failed, "failure"), count_of(warned, "warning"))),
        };
        out.print_line(&format!("\n{summary}"));
    }
    ExitCode::from(if failed == 0 { 0 } else { exit::FAILED })
}

/// `1 warning`, `2 warnings`.
fn count_of(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Columns before the finding of a check.
const INDENT: usize = 21;
/// On a narrower terminal the finding gets its own line.
const NARROW_WIDTH: usize = 64;

fn show(out: &Printer, check: &DoctorCheck) {
    let mark = format!("{:4}", check.level.as_str());
    let mark = match check.level {
        CheckLevel::Ok => out.green(&mark),
        CheckLevel::Warn => out.yellow(&mark),
        CheckLevel::Fail => out.red(&mark),
    };
    let width = out.width();
    let indent = if width.is_some_and(|width| width < NARROW_WIDTH) { 6 } else { INDENT };
    let finding = wrap(&check.finding, indent, width);
    if indent == INDENT {
        out.print_line(&format!("{mark}  {:14} {finding}", check.name));
    } else {
        out.print_line(&format!("{mark}  {}\n      {finding}", check.name));
    }
    if !check.next_step.is_empty() {
        out.print_line(&format!("{:indent$}{}", "", out.dim(&wrap(&format!("→ {}", check.next_step), indent, width))));
    }
}
