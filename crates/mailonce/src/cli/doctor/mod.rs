//! `doctor`: looks at what there is and says what to mend.
//!
//! | file | looks at |
//! |---|---|
//! | `machine` | files and their modes, the disk, the clock |
//! | `ledger` | the schema and its durability, or the server that has it |
//! | `secrets` | the key that encrypts the ledger's secrets |
//! | `ways` | transports, as far as their log-in |
//! | `names` | the DNS records of domains that send and receive |

mod ledger;
mod machine;
mod names;
mod secrets;
mod ways;

use clap::Args;
use mailonce_transport::names::Resolver;
use serde_json::json;
use std::{net::SocketAddr, process::ExitCode};

use super::{configured, exit, out::Out, table::wrapped};
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
enum Level {
    Ok,
    Warn,
    Fail,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug)]
struct Check {
    name: &'static str,
    level: Level,
    /// One sentence.
    found: String,
    /// The next step. Also where all is well and more could be had.
    next: String,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, level: Level::Ok, found: found.into(), next: String::new() }
    }

    fn warn(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, level: Level::Warn, found: found.into(), next: next.into() }
    }

    fn fail(name: &'static str, found: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name, level: Level::Fail, found: found.into(), next: next.into() }
    }

    fn and(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }
}

/// Checks this installation. Exit code 5 when something fails; a warning is no failure.
pub(super) async fn doctor(out: &Out, args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = match configured(&args.flags) {
        Ok(config) => config,
        Err(error) => {
            let found = format!("{error:#}").lines().next().unwrap_or_default().replace("configuration: ", "");
            let next = "correct the file or the variable it names, then look again";
            return Ok(report(out, &[Check::fail("configuration", found, next)]));
        }
    };
    let mut checks = vec![configuration(args, &config)];
    checks.push(machine::permissions(&config, args.flags.config.as_deref()));
    checks.push(machine::disk(&config.data));
    let (check, opens) = secrets::look(&config).await;
    checks.extend(check);
    let ledger = if opens { ledger::look(&config).await } else { ledger::Ledger::default() };
    checks.push(machine::clock(ledger.seen_at, args.offline));
    checks.extend(ledger.checks);
    checks.extend(ways::transports(&config, args.offline).await);
    if !args.offline {
        let resolver = args.dns.map_or_else(Resolver::system, |at| Resolver::at(vec![at]));
        checks.extend(names::records(&resolver, &config, &ledger.domains).await);
    }
    Ok(report(out, &checks))
}

fn configuration(args: &DoctorArgs, config: &Config) -> Check {
    let usual = std::path::Path::new("mailonce.toml");
    let file = args.flags.config.as_deref().or_else(|| usual.exists().then_some(usual));
    let file = file.map_or_else(|| "no file, only defaults".to_owned(), |file| file.display().to_string());
    Check::ok("configuration", format!("{file}; data in {}", config.data.display()))
}

fn report(out: &Out, checks: &[Check]) -> ExitCode {
    let count = |level| checks.iter().filter(|check| check.level == level).count();
    let (warned, failed) = (count(Level::Warn), count(Level::Fail));
    if out.is_json() {
        let one = |check: &Check| json!({ "check": check.name, "level": check.level.word(), "found": check.found, "next": check.next });
        let all: Vec<_> = checks.iter().map(one).collect();
        out.value(&json!({ "ok": failed == 0, "warnings": warned, "failures": failed, "checks": all }));
    } else {
        checks.iter().for_each(|check| show(out, check));
        let said = match (failed, warned) {
            (0, 0) => out.good("All is well."),
            (0, warned) => out.odd(&format!("It works, with {warned} to look at.")),
            (failed, _) => out.bad(&format!("{failed} to mend.")),
        };
        out.line(&format!("\n{said}"));
    }
    ExitCode::from(if failed == 0 { 0 } else { exit::FAILED })
}

/// Columns before the sentence of a check.
const INDENT: usize = 21;
/// Below this a sentence begins on a line of its own.
const NARROW: usize = 64;

fn show(out: &Out, check: &Check) {
    let mark = format!("{:4}", check.level.word());
    let mark = match check.level {
        Level::Ok => out.good(&mark),
        Level::Warn => out.odd(&mark),
        Level::Fail => out.bad(&mark),
    };
    let width = out.width();
    let indent = if width.is_some_and(|width| width < NARROW) { 6 } else { INDENT };
    let found = wrapped(&check.found, indent, width);
    if indent == INDENT {
        out.line(&format!("{mark}  {:14} {found}", check.name));
    } else {
        out.line(&format!("{mark}  {}\n      {found}", check.name));
    }
    if !check.next.is_empty() {
        out.line(&format!("{:indent$}{}", "", out.dim(&wrapped(&format!("→ {}", check.next), indent, width))));
    }
}
