//! Measures mailonce and what it is compared with, and judges the figures. `scripts/bench` is the way to run it.

mod accept_search;
mod args;
mod attack;
mod baselines;
mod disk;
mod figures;
mod gates;
mod growth;
mod handoff;
mod inbound;
mod large_ledger;
mod large_ledger_emails;
mod mails;
mod outbox;
mod paint;
mod postfix;
mod postgres;
mod report;
mod restart;
mod results;
mod run;
mod sink;

use anyhow::{Context as _, Result};
use args::{Args, Figure};
use clap::Parser as _;
use gates::GateVerdict;
use mailonce_sim::harness::child_processes::ChildProcesses;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::ExitCode;

/// Descriptors that are needed beside one per connection of a storm.
const SPARE_FILES: u64 = 1000;

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if args.needs {
        println!("{}", args.required_services().join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    raise_file_limit(&args);
    let root = args.work.clone().unwrap_or_else(std::env::temp_dir);
    // Postfix reaches its own directory below as a user of its own.
    let passable = Permissions::from_mode(0o711);
    let work = tempfile::Builder::new().prefix("mailonce-bench").permissions(passable).tempdir_in(&root);
    let work = work.with_context(|| format!("cannot make a directory in {}", root.display()))?;
    if disk::is_memory(work.path()) {
        eprintln!("{} is kept in memory: every figure that needs the disk is too good (see --work)", root.display());
    }
    let children = ChildProcesses::default();
    children.kill_children_on_signal(Some(work.path().to_owned()))?;
    let results = run::run(&args, &children, work.path())?;
    let gates = gates::evaluate_gates(&args, &results);
    report::print(&args, &results, &gates);
    report::write(&args.json, &args, &results, &gates)?;
    let failed = args.gate && gates.iter().any(|gate| gate.verdict == GateVerdict::Fail);
    let broken = results.failures().next().is_some();
    Ok(if failed || broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A storm needs a descriptor per connection, here and in the server, which inherits the limit.
fn raise_file_limit(args: &Args) {
    let wanted = args.storm as u64 + SPARE_FILES;
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let maximum = now.maximum.map(|maximum| maximum.max(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    let storms = args.wants(Figure::Storm) || args.wants(Figure::PgStorm);
    if let (Err(why), true) = (raised, storms) {
        eprintln!("cannot raise the limit of open files to {wanted} ({why}): storms will fail");
    }
}
