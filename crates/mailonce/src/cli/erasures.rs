//! `erase` and `erasures`: remove a person's address, names and mail.

use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};
use std::process::ExitCode;

use super::{ServerArgs, client::CliClient, inbox::show, listing::show_rows};
use crate::cli::printer::{Printer, print_stderr};

/// The person to erase.
#[derive(Debug, Args)]
pub(crate) struct EraseArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// The person's address
    address: String,
    /// Why, for the audit; the address is removed from it
    #[arg(long)]
    reason: Option<String>,
}

/// Reads of erasures.
#[derive(Debug, Subcommand)]
pub(crate) enum ErasuresVerb {
    /// List erasures, newest first
    List(ServerArgs),
    /// Show an erasure and what it did
    Show(ShowErasureArgs),
}

/// The erasure to show.
#[derive(Debug, Args)]
pub(crate) struct ShowErasureArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Id of the erasure
    id: String,
}

const FIELDS: &[&str] = &["id", "state", "stage", "alias", "reason", "requested_at", "done_at", "in_doubt", "counts"];

/// Requests an erasure.
pub(super) async fn erase(out: &Printer, args: EraseArgs) -> anyhow::Result<ExitCode> {
    let body = json!({ "address": args.address, "reason": args.reason });
    let client = CliClient::find(&args.server)?;
    let (_, erasure) = client.call(Method::POST, "/v1/erasures", None, Some(&body)).await?;
    let id = erasure["id"].as_str().unwrap_or_default().to_owned();
    show_erasure(out, erasure);
    if !out.is_json() {
        print_stderr(&format!("It runs in the background. `mailonce erasures show {id}` shows how far it is."));
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists erasures, or shows one.
pub(super) async fn erasures(out: &Printer, verb: ErasuresVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ErasuresVerb::List(server) => {
            let page = CliClient::find(&server)?.get("/v1/erasures").await?;
            let text = |erasure: &Value, name: &str| erasure[name].as_str().unwrap_or_default().to_owned();
            let columns = ["id", "state", "stage", "requested_at", "reason"];
            show_rows(out, &page, &columns, |erasure| columns.iter().map(|name| text(erasure, name)).collect());
        }
        ErasuresVerb::Show(args) => {
            let path = format!("/v1/erasures/{}", args.id);
            show_erasure(out, CliClient::find(&args.server)?.get(&path).await?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show_erasure(out: &Printer, mut erasure: Value) {
    if !out.is_json() {
        let counts = erasure["counts"].as_object().cloned().unwrap_or_default();
        let done = counts.iter().filter(|(_, count)| count.as_u64() != Some(0));
        let words: Vec<String> = done.map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
        erasure["counts"] = if words.is_empty() { Value::Null } else { words.join(", ").into() };
    }
    show(out, &erasure, FIELDS);
}
