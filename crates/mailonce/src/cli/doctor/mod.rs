//! `doctor`: looks at what there is and says what to mend.
//!
//! | file | looks at |
//! |---|---|
//! | `machine` | files and their modes, the disk, the clock |
//! | `ledger` | the schema and its durability, or the server that has it |
//! | `secrets` | the key that encrypts the ledger's secrets |
//! | `ways` | transports, as far as their log-in |
//! | `names` | the DNS records of domains that send and receive |

mod dns;
mod ledger;
mod machine;
mod secrets;
mod transports;

use clap::Args;
use mailonce_transport::names::Resolver;
use serde_json::json;
use std::{net::SocketAddr, process::ExitCode};

use super::{exit, load_config, table::wrap};
use crate::cli::printer::Printer;
use crate::config::{Config, Flags};

/// What is looked at, and whom that asks.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    flags: Flags,
    /// Ask this resolver for DNS records instead of the machine's own
    #[arg(long, value_name = "ADDR")]
    dns: Option<SocketAddr>,
    /// Dial no transport, look up no record, and ask nobody who keeps the clock
    #[arg(long)]
    offline: bool,
}

/// How a thing is.
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

/// One thing that was looked at.
#[derive(Debug)]
struct DoctorCheck {
    name: &'static str,
    level: CheckLevel,
    /// One sentence.
    finding: String,
    /// The next step. Also where all is well and more could be had.
    next_step: String,
}

impl DoctorCheck {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, level: CheckLevel::Ok, finding: found.into(), next_step: String::new() }
    }

    fn warn(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, level: CheckLevel::Warn, finding: found.into(), next_step: next.into() }
    }

    fn fail(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, level: CheckLevel::Fail, finding: found.into(), next_step: next.into() }
    }

    fn with_next_step(mut self, next: impl Into<String>) -> Self {
        self.next_step = next.into();
        self
    }
}

/// Checks this installation. Exit code 5 when something fails; a warning is no failure.
pub(super) async fn doctor(out: &Printer, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = match load_config(&args.flags) {
        Ok(config) => config,
        Err(error) => {
            let found = format!("{error:#}").lines().next().unwrap_or_default().replace("configuration: ", "");
            let next = "correct the file or the variable it names, then look again";
            return Ok(report(out, &[DoctorCheck::fail("configuration", found, next)]));
        }
    };
    let mut checks = vec![check_configuration(args, &config)];
    checks.push(machine::check_permissions(&config, args.flags.config.as_deref()));
    checks.push(machine::check_disk(&config.data));
    let (check, opens) = secrets::inspect(&config).await;
    checks.extend(check);
    let ledger = if opens { ledger::inspect(&config).await } else { ledger::LedgerReport::default() };
    checks.push(machine::check_clock(ledger.latest_time, args.offline));
    checks.extend(ledger.checks);
    checks.extend(transports::check_transports(&config, args.offline).await);
    if !args.offline {
        let resolver = args.dns.map_or_else(Resolver::system, |at| Resolver::at(vec![at]));
        checks.extend(dns::check_records(&resolver, &config, &ledger.expected_records).await);
    }
    Ok(report(out, &checks))
}

fn check_configuration(args: &DoctorArgs, config: &Config) -> DoctorCheck {
    let usual = std::path::Path::new("mailonce.toml");
    let file = args.flags.config.as_deref().or_else(|| usual.exists().then_some(usual));
    let file = file.map_or_else(|| "no file, only defaults".to_owned(), |file| file.display().to_string());
    DoctorCheck::ok("configuration", format!("{file}; data in {}", config.data.display()))
}

fn report(out: &Printer, checks: &[DoctorCheck]) -> ExitCode {
    let count = |level| checks.iter().filter(|check| check.level == level).count();
    let (warned, failed) = (count(CheckLevel::Warn), count(CheckLevel::Fail));
    if out.is_json() {
        let one = |check: &DoctorCheck| json!({ "check": check.name, "level": check.level.as_str(), "found": check.finding, "next": check.next_step });
        let all: Vec<_> = checks.iter().map(one).collect();
        out.print_json(&json!({ "ok": failed == 0, "warnings": warned, "failures": failed, "checks": all }));
    } else {
        checks.iter().for_each(|check| show(out, check));
        let said = match (failed, warned) {
            (0, 0) => out.green("All is well."),
            (0, warned) => out.yellow(&format!("It works, with {warned} to look at.")),
            (failed, _) => out.red(&format!("{failed} to mend.")),
        };
        out.print_line(&format!("\n{said}"));
    }
    ExitCode::from(if failed == 0 { 0 } else { exit::FAILED })
}

/// Columns before the sentence of a check.
const INDENT: usize = 21;
/// Below this a sentence begins on a line of its own.
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
    let found = wrap(&check.finding, indent, width);
    if indent == INDENT {
        out.print_line(&format!("{mark}  {:14} {found}", check.name));
    } else {
        out.print_line(&format!("{mark}  {}\n      {found}", check.name));
    }
    if !check.next_step.is_empty() {
        out.print_line(&format!("{:indent$}{}", "", out.dim(&wrap(&format!("→ {}", check.next_step), indent, width))));
    }
}
