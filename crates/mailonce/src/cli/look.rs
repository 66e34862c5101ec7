//! Looking: keys and emails.

use clap::{Args, Subcommand};
use mailonce_core::{address::Mailbox, content::bare_sorted, intent::Intent};
use mailonce_transport::http::base::escaped;
use serde_json::{Value, json};
use std::process::ExitCode;

use super::{Reach, Usage, client::Client, out::Out};

#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    /// Work out the key of an intent; needs no server
    Derive(DeriveArgs),
    /// Show what a key is bound to, for how long, and who came again
    Inspect {
        #[command(flatten)]
        reach: Reach,
        /// The key
        key: String,
    },
}

/// An intent and its recipients.
#[derive(Debug, Args)]
pub(crate) struct DeriveArgs {
    /// What kind of mail it is
    #[arg(long = "type", value_name = "TYPE")]
    kind: String,
    /// What it is about
    #[arg(long)]
    entity: String,
    /// Recipient; repeat for several
    #[arg(long, required = true)]
    to: Vec<String>,
    /// Rises when the same thing is told again on purpose
    #[arg(long, default_value_t = 1)]
    version: u32,
    /// The day, week or run it belongs to
    #[arg(long)]
    period: Option<String>,
}

/// Verbs about keys.
pub(super) async fn key(out: &Out, verb: KeyVerb) -> anyhow::Result<ExitCode> {
    match verb {
        KeyVerb::Derive(args) => derive(out, args)?,
        KeyVerb::Inspect { reach, key } => {
            let view = Client::find(&reach)?.get(&format!("/v1/keys/{}", escaped(&key))).await?;
            if out.is_json() {
                out.value(&view);
            } else {
                show_key(out, &view);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn derive(out: &Out, args: DeriveArgs) -> anyhow::Result<()> {
    let to = args.to.iter().map(|text| Mailbox::parse(text).map_err(|error| Usage(format!("--to {text}: {error}"))));
    let to = bare_sorted(&to.collect::<Result<Vec<_>, _>>()?);
    let intent = Intent { kind: args.kind, entity: args.entity, version: args.version, period: args.period };
    intent.check().map_err(|error| Usage(error.to_string()))?;
    let key = intent.key(&to);
    if out.is_json() {
        out.value(&json!({ "key": key }))
    } else {
        out.line(&key)
    }
    Ok(())
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn show_key(out: &Out, view: &Value) {
    let names = [
        "key",
        "bound_to",
        "email",
        "state",
        "derivation",
        "digest",
        "bind",
        "ttl",
        "expires_at",
        "forgotten_at",
        "hits",
    ];
    let facts: Vec<(&str, String)> = names.iter().map(|name| (*name, text(&view[*name]))).collect();
    out.facts(&facts);
    show_calls(out, &view["calls"]);
}

fn show_calls(out: &Out, calls: &Value) {
    let calls = calls.as_array().map(Vec::as_slice).unwrap_or_default();
    if calls.is_empty() {
        return;
    }
    let row = |call: &Value| ["at", "channel", "reason", "caller"].iter().map(|name| text(&call[*name])).collect();
    out.line("");
    out.table(&["suppressed at", "channel", "reason", "caller"], calls.iter().map(row).collect());
}

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

/// Verbs about emails.
pub(super) async fn emails(out: &Out, verb: EmailsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        EmailsVerb::List(args) => list(out, args).await?,
        EmailsVerb::Show { reach, id } => {
            let email = Client::find(&reach)?.get(&format!("/v1/emails/{}", escaped(&id))).await?;
            if out.is_json() {
                out.value(&email);
            } else {
                show_email(out, &email);
            }
        }
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
    let query: Vec<String> =
        asked.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", escaped(&value?)))).collect();
    let page = Client::find(&args.reach)?.get(&format!("/v1/emails?{}", query.join("&"))).await?;
    if out.is_json() {
        out.value(&page);
        return Ok(());
    }
    let emails = page["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |email: &Value| {
        let to =
            email["to"].as_array().map(|to| to.iter().map(text).collect::<Vec<_>>().join(", ")).unwrap_or_default();
        vec![
            text(&email["id"]),
            text(&email["state"]),
            text(&email["created_at"]),
            to,
            text(&email["subject"]),
            text(&email["suppressed"]),
        ]
    };
    out.table(&["id", "state", "accepted", "to", "subject", "suppressed"], emails.iter().map(row).collect());
    if let Some(cursor) = page["next_cursor"].as_str() {
        super::out::say(&format!("more: --cursor {cursor}"));
    }
    Ok(())
}

fn show_email(out: &Out, email: &Value) {
    let names = [
        "id",
        "state",
        "rev",
        "from",
        "to",
        "subject",
        "message_id",
        "key",
        "created_at",
        "settled_at",
        "expires_at",
        "guard",
        "version",
        "suppressed",
    ];
    let facts: Vec<(&str, String)> = names.iter().map(|name| (*name, text(&email[*name]))).collect();
    out.facts(&facts);
    let timeline = email["timeline"].as_array().map(Vec::as_slice).unwrap_or_default();
    out.line("");
    out.table(&["when", "what"], timeline.iter().map(|fact| vec![text(&fact["at"]), text(&fact["what"])]).collect());
}
