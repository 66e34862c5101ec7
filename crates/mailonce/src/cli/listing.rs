//! Lists that come in pages.

use clap::Args;
use mailonce_transport::http::base::percent_encode;
use serde_json::Value;

use super::client::CliClient;
use crate::cli::printer::{Printer, print_stderr};

/// Rows of the pages that `--all` fetches: the most that the API returns.
const MAX_PAGE_ROWS: u8 = 100;

/// Which part of a list to show.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Number of rows, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100))]
    limit: u8,
    /// Cursor of the page, from the end of the page before
    #[arg(long)]
    cursor: Option<String>,
    /// Show every page, from the cursor to the end
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// A query string of the parameters that have a value.
fn query_string<'a>(parameters: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let given = parameters.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", percent_encode(&value?))));
    given.collect::<Vec<_>>().join("&")
}

/// Fetches one page, or with `--all` every page as one.
pub(super) async fn fetch_list(
    client: &CliClient,
    path: &str,
    filters: Vec<(&str, Option<String>)>,
    args: &PageArgs,
) -> anyhow::Result<Value> {
    let limit = if args.all { MAX_PAGE_ROWS } else { args.limit };
    let (mut cursor, mut rows) = (args.cursor.clone(), Vec::new());
    loop {
        let paging = [("limit", Some(limit.to_string())), ("cursor", cursor)];
        let query = query_string(filters.iter().cloned().chain(paging));
        let mut page = client.get(&format!("{path}?{query}")).await?;
        if let Value::Array(data) = page["data"].take() {
            rows.extend(data);
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || !args.all {
            page["data"] = Value::Array(rows);
            return Ok(page);
        }
    }
}

/// Shows a page as a table.
pub(super) fn show_rows(out: &Printer, page: &Value, heads: &[&str], row: impl Fn(&Value) -> Vec<String>) {
    if out.is_json() {
        return out.print_json(page);
    }
    let data = page["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    out.print_table(heads, data.iter().map(row).collect());
}

/// Shows a page as a table, and how to get the rest.
pub(super) fn show_list(out: &Printer, page: &Value, heads: &[&str], row: impl Fn(&Value) -> Vec<String>) {
    show_rows(out, page, heads, row);
    if let Some(cursor) = page["next_cursor"].as_str().filter(|_| !out.is_json()) {
        print_stderr(&format!("There are more: pass --all, or --cursor {cursor} for the next page."));
    }
}
