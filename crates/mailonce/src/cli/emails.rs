//! `emails`: list, show, cancel, reschedule, resend and resolve emails.

use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::process::ExitCode;

use super::{
    ServerArgs,
    client::CliClient,
    listing::{PageArgs, fetch_list, show_list},
    send,
};
use crate::cli::printer::{Printer, display_text, field_text};

#[derive(Debug, Subcommand)]
pub(crate) enum EmailsVerb {
    /// List emails, newest first
    List(ListEmailsArgs),
    /// Show one email and its timeline
    Show {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the email
        id: String,
    },
    /// Cancel an email that has not left yet
    Cancel {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the email
        id: String,
    },
    /// Change the time of a scheduled email
    Move {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the email
        id: String,
        /// When to send it: an RFC 3339 time, or "in 5 minutes"
        #[arg(long = "at", value_name = "TIME")]
        scheduled_at: String,
    },
    /// Send an email again on purpose, as its next version
    Resend {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the email
        id: String,
        /// Why, for the record
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        wait: send::FinalStateArgs,
    },
    /// Record what happened to an email whose outcome is unknown
    Resolve(ResolveEmailArgs),
}

/// What happened to an email, or what should happen.
#[derive(Debug, Args)]
pub(crate) struct ResolveEmailArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Id of the email
    id: String,
    /// sent (it arrived), resend (send the same bytes again) or abandon (give up)
    #[arg(long = "as", value_name = "DECISION")]
    decision: String,
    /// Revision that the decision is based on; fails if the email changed since; default: the latest
    #[arg(long)]
    rev: Option<u32>,
    /// Number of the handoff; default: every unknown one
    #[arg(long)]
    handoff: Option<u16>,
    /// Why, for the record
    #[arg(long)]
    reason: Option<String>,
}

/// Filters of `emails list`.
#[derive(Debug, Args)]
pub(crate) struct ListEmailsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Only emails in this state, such as queued, sent, held or unknown
    #[arg(long)]
    state: Option<String>,
    /// Only emails to this address
    #[arg(long)]
    to: Option<String>,
    /// Only the emails of this idempotency key
    #[arg(long)]
    key: Option<String>,
    /// Only emails accepted at this time or later (RFC 3339)
    #[arg(long)]
    since: Option<String>,
    /// Only emails accepted before this time (RFC 3339)
    #[arg(long)]
    until: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

fn email_path(id: &str) -> String {
    format!("/v1/emails/{}", percent_encode(id))
}

/// Runs a verb of `emails`.
pub(super) async fn emails(out: &Printer, verb: EmailsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        EmailsVerb::List(args) => list(out, args).await?,
        EmailsVerb::Show { server, id } => show(out, &CliClient::find(&server)?.get(&email_path(&id)).await?),
        EmailsVerb::Cancel { server, id } => {
            let (_, email) = CliClient::find(&server)?
                .call(Method::POST, &format!("{}/cancel", email_path(&id)), None, None)
                .await?;
            show_state(out, &email);
        }
        EmailsVerb::Move { server, id, scheduled_at } => {
            let body = json!({ "scheduled_at": scheduled_at });
            show_state(
                out,
                &CliClient::find(&server)?.call(Method::PATCH, &email_path(&id), None, Some(&body)).await?.1,
            );
        }
        EmailsVerb::Resend { server, id, reason, wait } => {
            let (path, body) = (format!("{}/resend", email_path(&id)), json!({ "reason": reason }));
            let client = CliClient::find(&server)?;
            let (_, receipt) = client.call(Method::POST, &path, None, Some(&body)).await?;
            return send::finish(out, &client, &wait, receipt).await;
        }
        EmailsVerb::Resolve(args) => resolve(out, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(out: &Printer, args: ListEmailsArgs) -> anyhow::Result<()> {
    let filters =
        vec![("state", args.state), ("to", args.to), ("key", args.key), ("since", args.since), ("until", args.until)];
    let page = fetch_list(&CliClient::find(&args.server)?, "/v1/emails", filters, &args.page).await?;
    show_list(out, &page, &["id", "state", "accepted", "~to", "~subject", "duplicates"], |email| {
        let mut row = ["id", "state", "created_at", "to", "subject", "suppressed"].map(|name| field_text(email, name));
        if email["stopped_by"].is_string() {
            row[1].push_str(" (stopped)");
        }
        row.to_vec()
    });
    Ok(())
}

async fn resolve(out: &Printer, args: ResolveEmailArgs) -> anyhow::Result<()> {
    let client = CliClient::find(&args.server)?;
    let rev = match args.rev {
        Some(rev) => json!(rev),
        None => client.get(&email_path(&args.id)).await?["rev"].clone(),
    };
    let body = json!({ "as": args.decision, "rev": rev, "handoff": args.handoff, "reason": args.reason });
    let (_, email) = client.call(Method::POST, &format!("{}/resolve", email_path(&args.id)), None, Some(&body)).await?;
    show_state(out, &email);
    Ok(())
}

/// Shows the current state of an email.
fn show_state(out: &Printer, email: &Value) {
    super::inbox::show(out, email, &["id", "state", "rev", "to", "subject", "key", "created_at", "scheduled_at"]);
}

fn show(out: &Printer, email: &Value) {
    const FIELDS: &[&str] = &[
        "id",
        "state",
        "rev",
        "from",
        "to",
        "subject",
        "message_id",
        "key",
        "created_at",
        "scheduled_at",
        "settled_at",
        "expires_at",
        "guard",
        "version",
        "suppressed",
    ];
    let stopped = email["stopped_by"].is_string().then_some("stopped_by");
    let fields: Vec<&str> = FIELDS.iter().copied().chain(stopped).collect();
    super::inbox::show(out, email, &fields);
    if !out.is_json() {
        out.print_line("");
        timeline(out, email);
    }
}

/// Shows what happened to an email, in order.
pub(super) fn timeline(out: &Printer, email: &Value) {
    let entries = email["timeline"].as_array().map(Vec::as_slice).unwrap_or_default();
    out.print_table(
        &["time", "what happened"],
        entries.iter().map(|entry| vec![field_text(entry, "at"), display_text(&entry["description"])]).collect(),
    );
}
