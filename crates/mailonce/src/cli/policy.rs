//! `policy try`: what would happen to a send, without sending it.

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::Value;
use std::process::ExitCode;

use super::{ServerArgs, client::CliClient, exit, send::EmailArgs};
use crate::cli::printer::Printer;

/// Verbs about the policy of the team.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Say what would happen to an email, without sending it
    Try(TryArgs),
}

/// An email to try.
#[derive(Debug, Args)]
pub(crate) struct TryArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    email: EmailArgs,
}

/// Runs a verb. The exit code is that of the send: 0 accepted or replayed, 3 held, 5 refused.
pub(super) async fn run(out: &Printer, verb: PolicyVerb) -> anyhow::Result<ExitCode> {
    let PolicyVerb::Try(args) = verb;
    let client = CliClient::find(&args.server)?;
    let body = args.email.request_body()?;
    let (_, answer) = client.call(Method::POST, "/v1/policy/simulate", args.email.key(), Some(&body)).await?;
    if out.is_json() {
        out.print_json(&answer);
    } else {
        show(out, &answer);
    }
    Ok(match answer["would"].as_str() {
        Some("refuse") => ExitCode::from(exit::FAILED),
        Some("hold") => ExitCode::from(exit::HELD),
        _ => ExitCode::SUCCESS,
    })
}

/// Whether a stop in the mode `wait` covers the email.
fn is_stopped(answer: &Value) -> bool {
    let mut steps = answer["policy"].as_array().into_iter().flatten();
    steps.any(|step| step["kind"] == "stop" && step["verdict"] == "flag")
}

fn show(out: &Printer, answer: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let would = match answer["would"].as_str().unwrap_or_default() {
        "accept" if is_stopped(answer) => out.yellow("It would be accepted, and wait until a stop ends."),
        "accept" => out.green("It would be accepted and leave."),
        "hold" => out.yellow("It would be accepted and held."),
        "replay" => format!("It would be answered with email {}, and nothing would be sent.", text(&answer["email"])),
        _ => out.red(&format!("It would be refused: {}.", text(&answer["problem"]["code"]))),
    };
    out.print_line(&format!("{would}\n"));
    let row = |step: &Value| ["verdict", "kind", "name", "why"].map(|name| text(&step[name])).to_vec();
    let rows = answer["policy"].as_array().into_iter().flatten().map(row).collect();
    out.print_table(&["verdict", "kind", "~name", "~why"], rows);
    if let Some(next) = answer["problem"]["next"].as_str() {
        out.print_line(&format!("\n{next}"));
    }
}
