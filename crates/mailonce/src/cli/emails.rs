//! Emails: looked at, taken back, moved, sent again, decided about.

use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_transport::http::base::escaped;
use serde_json::{Value, json};
use std::process::ExitCode;

use super::{
    Reach,
    client::Client,
    inbox::rows,
    out::{Out, field, say, text},
    send,
};

#[derive(Debug, Subcommand)]
pub(crate) enum EmailsVerb {
    /// List emails, newest first
    List(ListArgs),
    /// Show one email with its envelopes, timeline and suppressed calls
    Show {
        #[command(flatten)]
        reach: Reach,
        /// The email's id
        id: String,
    },
    /// Take an email back before it is handed off
    Cancel {
        #[command(flatten)]
        reach: Reach,
        /// The email's id
        id: String,
    },
    /// Move a scheduled email
    Move {
        #[command(flatten)]
        reach: Reach,
        /// The email's id
        id: String,
        /// When it is due: RFC 3339, or "in 5 minutes"
        #[arg(long = "at", value_name = "TIME")]
        scheduled_at: String,
    },
    /// Send an email again on purpose, once: its next version
    Resend {
        #[command(flatten)]
        reach: Reach,
        /// The email's id
        id: String,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
    /// Decide what became of an email whose outcome is unknown
    Resolve(ResolveArgs),
}

/// A decision.
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    #[command(flatten)]
    reach: Reach,
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
pub(crate) struct ListArgs {
    #[command(flatten)]
    reach: Reach,
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

fn path(id: &str) -> String {
    format!("/v1/emails/{}", escaped(id))
}

/// Verbs about emails.
pub(super) async fn emails(out: &Out, verb: EmailsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        EmailsVerb::List(args) => list(out, args).await?,
        EmailsVerb::Show { reach, id } => show(out, &Client::find(&reach)?.get(&path(&id)).await?),
        EmailsVerb::Cancel { reach, id } => {
            let (_, email) =
                Client::find(&reach)?.ask(Method::POST, &format!("{}/cancel", path(&id)), None, None).await?;
            head(out, &email);
        }
        EmailsVerb::Move { reach, id, scheduled_at } => {
            let body = json!({ "scheduled_at": scheduled_at });
            head(out, &Client::find(&reach)?.ask(Method::PATCH, &path(&id), None, Some(&body)).await?.1);
        }
        EmailsVerb::Resend { reach, id, reason } => {
            let (path, body) = (format!("{}/resend", path(&id)), json!({ "reason": reason }));
            let (_, answer) = Client::find(&reach)?.ask(Method::POST, &path, None, Some(&body)).await?;
            send::show(out, &answer);
            return Ok(ExitCode::from(send::exit_code(&answer)));
        }
        EmailsVerb::Resolve(args) => resolve(out, args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(out: &Out, args: ListArgs) -> anyhow::Result<()> {
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
    let page = Client::find(&args.reach)?.get(&format!("/v1/emails?{}", query(asked))).await?;
    rows(out, &page, &["id", "state", "accepted", "~to", "~subject", "again"], |email| {
        ["id", "state", "created_at", "to", "subject", "suppressed"].map(|name| field(email, name)).to_vec()
    });
    if let Some(cursor) = page["next_cursor"].as_str().filter(|_| !out.is_json()) {
        say(&format!("more: --cursor {cursor}"));
    }
    Ok(())
}

/// A query of what was given.
pub(super) fn query<const N: usize>(asked: [(&str, Option<String>); N]) -> String {
    let given = asked.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", escaped(&value?))));
    given.collect::<Vec<_>>().join("&")
}

async fn resolve(out: &Out, args: ResolveArgs) -> anyhow::Result<()> {
    let client = Client::find(&args.reach)?;
    let rev = match args.rev {
        Some(rev) => json!(rev),
        None => client.get(&path(&args.id)).await?["rev"].clone(),
    };
    let body = json!({ "as": args.decision, "rev": rev, "handoff": args.handoff, "reason": args.reason });
    let (_, email) = client.ask(Method::POST, &format!("{}/resolve", path(&args.id)), None, Some(&body)).await?;
    head(out, &email);
    Ok(())
}

/// What an email is now.
fn head(out: &Out, email: &Value) {
    super::inbox::show(out, email, &["id", "state", "rev", "to", "subject", "key", "created_at", "scheduled_at"]);
}

fn show(out: &Out, email: &Value) {
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
        out.line("");
        timeline(out, email);
    }
}

/// What happened to an email, in order.
pub(super) fn timeline(out: &Out, email: &Value) {
    let facts = email["timeline"].as_array().map(Vec::as_slice).unwrap_or_default();
    out.table(&["when", "what"], facts.iter().map(|fact| vec![field(fact, "at"), text(&fact["what"])]).collect());
}
