//! `claims`: list and show claims, and decide about one whose holder was lost.

use clap::Subcommand;
use hyper::Method;
use mailonce_transport::http::base::percent_encode;
use serde_json::json;
use std::process::ExitCode;

use super::{
    ServerArgs,
    client::CliClient,
    inbox::show,
    listing::{PageArgs, fetch_list, show_list},
};
use crate::cli::printer::{Printer, field_text};

#[derive(Debug, Subcommand)]
pub(crate) enum ClaimsVerb {
    /// List claims, newest first
    List {
        #[command(flatten)]
        server: ServerArgs,
        /// Only claims in this state: claimed, begun, completed, failed, unknown or abandoned
        #[arg(long)]
        state: Option<String>,
        /// Only the claim with this key
        #[arg(long)]
        key: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one claim and its result
    Show {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the claim
        id: String,
    },
    /// Decide about a claim whose holder was lost after it began
    Resolve {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the claim
        id: String,
        /// done (it happened), retry (somebody may do it, possibly again) or abandon (nobody does it any more)
        #[arg(long = "as", value_name = "DECISION")]
        decision: String,
        /// Decide only if the claim still has this revision; the current one by default
        #[arg(long)]
        rev: Option<u32>,
    },
}

const CLAIM_FIELDS: &[&str] = &[
    "id",
    "key",
    "state",
    "rev",
    "label",
    "lease_expires_at",
    "fence",
    "may_repeat",
    "corrected",
    "result",
    "result_omitted",
    "reason",
    "created_at",
    "ended_at",
    "expires_at",
    "resolved_as",
];

fn claim_path(id: &str) -> String {
    format!("/v1/claims/{}", percent_encode(id))
}

/// Runs a verb of `claims`.
pub(super) async fn claims(out: &Printer, verb: ClaimsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        ClaimsVerb::List { server, state, key, page } => {
            let filters = vec![("state", state), ("key", key)];
            let page = fetch_list(&CliClient::find(&server)?, "/v1/claims", filters, &page).await?;
            show_list(out, &page, &["id", "state", "created", "label", "~key"], |claim| {
                ["id", "state", "created_at", "label", "key"].iter().map(|name| field_text(claim, name)).collect()
            });
        }
        ClaimsVerb::Show { server, id } => {
            let claim = CliClient::find(&server)?.get(&claim_path(&id)).await?;
            show(out, &claim, CLAIM_FIELDS);
        }
        ClaimsVerb::Resolve { server, id, decision, rev } => {
            let client = CliClient::find(&server)?;
            let path = claim_path(&id);
            let rev = match rev {
                Some(rev) => json!(rev),
                None => client.get(&path).await?["rev"].clone(),
            };
            let body = json!({ "as": decision, "rev": rev });
            let (_, claim) = client.call(Method::POST, &format!("{path}/resolve"), None, Some(&body)).await?;
            show(out, &claim, CLAIM_FIELDS);
        }
    }
    Ok(ExitCode::SUCCESS)
}
