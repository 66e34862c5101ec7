//! `search`: find emails and messages.

use clap::Args;
use std::process::ExitCode;

use super::{
    ServerArgs,
    client::CliClient,
    listing::{PageArgs, fetch_list, show_list},
};
use crate::cli::printer::{Printer, display_text};

/// What to search for.
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Words, "phrases", -excluded words, and fields such as from:alice@example.com, state:held or after:2026-11-01
    #[arg(required = true, value_name = "QUERY")]
    query: Vec<String>,
    /// Emails, messages or both
    #[arg(long = "in", value_name = "WHERE", default_value = "all", value_parser = ["emails", "messages", "all"])]
    within: String,
    #[command(flatten)]
    page: PageArgs,
}

/// Searches mail.
pub(super) async fn search(out: &Printer, args: SearchArgs) -> anyhow::Result<ExitCode> {
    let client = CliClient::find(&args.server)?;
    let filters = vec![("q", Some(args.query.join(" "))), ("in", Some(args.within))];
    let page = fetch_list(&client, "/v1/search", filters, &args.page).await?;
    show_list(out, &page, &["at", "kind", "id", "snippet"], |hit| {
        ["at", "kind", "id", "snippet"].map(|name| display_text(&hit[name])).into()
    });
    Ok(ExitCode::SUCCESS)
}
