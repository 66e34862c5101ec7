//! Emails: looked at, taken back, moved, sent again, decided about.

use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::process::ExitCode;

use super::{ServerArgs, client::CliClient, inbox::show_rows, send};
use crate::cli::printer::{Printer, display_text, field_text, print_stderr};

#[derive(Debug, Subcommand)]
pub(crate) enum EmailsVerb {
    /// List emails, newest first
    List(ListEmailsArgs),
    /// Show one email with its envelopes, timeline and suppressed calls
    Show {
        #[command(flatten)]
        reach: ServerArgs,
        /// The email's id
        id: String,
    },
    /// Take an email back before it is handed off
    Cancel {
        #[command(flatten)]
        reach: ServerArgs,
        /// The email's id
        id: String,
    },
    /// Move a scheduled email
    Move {
        #[command(flatten)]
        reach: ServerArgs,
        /// The email's id
        id: String,
        /// When it is due: RFC 3339, or "in 5 minutes"
        #[arg(long = "at", value_name = "TIME")]
        scheduled_at: String,
    },
    /// Send an email again on purpose, once: its next version
    Resend {
        #[command(flatten)]
        reach: ServerArgs,
        /// The email's id
        id: String,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
    /// Decide what became of an email whose outcome is unknown
    Resolve(ResolveEmailArgs),
}

/// A decision.
#[derive(Debug, Args)]
pub(crate) struct ResolveEmailArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// The email's id
    id: String,
    /// sent (it arrived), resend (the same bytes again) or abandon (give it up)
    #[arg(long = "as", value_name = "DECISION")]
    decision: String,
    /// The rev that you saw; the latest when you do not say
    #[arg(long)]
    rev: Option<u32>,
    /// Only this handoff; every unknown one when you do not say
    #[arg(long)]
    handoff: Option<u16>,
    /// Why
    #[arg(long)]
    reason: Option<String>,
}

/// Which emails.
#[derive(Debug, Args)]
pub(crate) struct ListEmailsArgs {
    #[command(flatten)]
    reach: ServerArgs,
    /// Only in this state
    #[arg(long)]
    state: Option<String>,
    /// Only to this address
    #[arg(long)]
    to: Option<String>,
    /// Only under this key
    #[arg(long)]
    key: Option<String>,
    /// Accepted at or after
    #[arg(long)]
    since: Option<String>,
    /// Accepted before
    #[arg(long)]
    until: Option<String>,
    /// How many
    #[arg(long, default_value_t = 20)]
    limit: usize,
    /// Where the page before ended
    #[arg(long)]
    cursor: Option<String>,
}

fn email_path(id: &str) -> String {
    format!("/v1/emails/{}", percent_encode(id))
}

/// Verbs about emails.
pub(super) async fn emails(out: &Printer, verb: EmailsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        EmailsVerb::List(args) => list(out, args).await?,
        EmailsVerb::Show { reach, id } => show(out, &CliClient::find(&reach)?.get(&email_path(&id)).await?),
        EmailsVerb::Cancel { reach, id } => {
            let (_, email) =
                CliClient::find(&reach)?.call(Method::POST, &format!("{}/cancel", email_path(&id)), None, None).await?;
            show_state(out, &email);
        }
        EmailsVerb::Move { reach, id, scheduled_at } => {
            let body = json!({ "scheduled_at": scheduled_at });
            show_state(
                out,
                &CliClient::find(&reach)?.call(Method::PATCH, &email_path(&id), None, Some(&body)).await?.1,
            );
        }
        EmailsVerb::Resend { reach, id, reason } => {
            let (path, body) = (format!("{}/resend", email_path(&id)), json!({ "reason": reason }));
            let (_, answer) = CliClient::find(&reach)?.call(Method::POST, &path, None, Some(&body)).await?;
            send::show_result(out, &answer);
            return Ok(ExitCode::from(send::exit_code(&answer)));
        }
        EmailsVerb::Resolve(args) => resolve(out, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(out: &Printer, args: ListEmailsArgs) -> anyhow::Result<()> {
    let limit = args.limit.to_string();
    let asked = [
        ("state", args.state),
        ("to", args.to),
        ("key", args.key),
        ("since", args.since),
        ("until", args.until),
        ("cursor", args.cursor),
        ("limit", Some(limit)),
    ];
    let page = CliClient::find(&args.reach)?.get(&format!("/v1/emails?{}", query_string(asked))).await?;
    show_rows(out, &page, &["id", "state", "accepted", "~to", "~subject", "again"], |email| {
        ["id", "state", "created_at", "to", "subject", "suppressed"].map(|name| field_text(email, name)).to_vec()
    });
    if let Some(cursor) = page["next_cursor"].as_str().filter(|_| !out.is_json()) {
        print_stderr(&format!("more: --cursor {cursor}"));
    }
    Ok(())
}

/// A query of what was given.
pub(super) fn query_string<const N: usize>(asked: [(&str, Option<String>); N]) -> String {
    let given = asked.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", percent_encode(&value?))));
    given.collect::<Vec<_>>().join("&")
}

async fn resolve(out: &Printer, args: ResolveEmailArgs) -> anyhow::Result<()> {
    let client = CliClient::find(&args.reach)?;
    let rev = match args.rev {
        Some(rev) => json!(rev),
        None => client.get(&email_path(&args.id)).await?["rev"].clone(),
    };
    let body = json!({ "as": args.decision, "rev": rev, "handoff": args.handoff, "reason": args.reason });
    let (_, email) = client.call(Method::POST, &format!("{}/resolve", email_path(&args.id)), None, Some(&body)).await?;
    show_state(out, &email);
    Ok(())
}

/// What an email is now.
fn show_state(out: &Printer, email: &Value) {
    super::inbox::show(out, email, &["id", "state", "rev", "to", "subject", "key", "created_at", "scheduled_at"]);
}

fn show(out: &Printer, email: &Value) {
    const FACTS: &[&str] = &[
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
    super::inbox::show(out, email, FACTS);
    if !out.is_json() {
        out.print_line("");
        timeline(out, email);
    }
}

/// What happened to an email, in order.
pub(super) fn timeline(out: &Printer, email: &Value) {
    let facts = email["timeline"].as_array().map(Vec::as_slice).unwrap_or_default();
    out.print_table(
        &["when", "what"],
        facts.iter().map(|fact| vec![field_text(fact, "at"), display_text(&fact["what"])]).collect(),
    );
}
