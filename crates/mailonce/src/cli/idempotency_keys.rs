//! `key`: derive, inspect, extend and forget idempotency keys.

use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_core::{address::NamedAddress, intent::Intent, outbound::content::sorted_addresses};
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::process::ExitCode;

use super::{ServerArgs, UsageError, client::CliClient};
use crate::cli::printer::{Printer, field_text};

#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    /// Derive the idempotency key of an intent, without a server
    Derive(DeriveArgs),
    /// Show the email of a key, when the key expires, and its duplicate calls
    Inspect {
        #[command(flatten)]
        server: ServerArgs,
        /// Idempotency key
        key: String,
    },
    /// Remember a key for longer
    Extend {
        #[command(flatten)]
        server: ServerArgs,
        /// Idempotency key
        key: String,
        /// How long to remember it: transactional, notification, or a duration such as 90d
        #[arg(long)]
        ttl: String,
    },
    /// Forget a key: the next send with it creates a new email
    Forget {
        #[command(flatten)]
        server: ServerArgs,
        /// Idempotency key
        key: String,
    },
}

/// An intent and its recipients.
#[derive(Debug, Args)]
pub(crate) struct DeriveArgs {
    /// Type of the email, such as order.confirmation
    #[arg(long = "type", value_name = "TYPE")]
    kind: String,
    /// What the email is about, such as order_4821
    #[arg(long)]
    entity: String,
    /// Address of a recipient; may be repeated
    #[arg(long, required = true)]
    to: Vec<String>,
    /// Version of the intent; raise it to send the same notification again on purpose
    #[arg(long, default_value_t = 1)]
    version: u32,
    /// Period of a recurring email, such as 2026-11-17 or 2026-W47
    #[arg(long)]
    period: Option<String>,
}

/// Runs a verb of `key`.
pub(super) async fn key(out: &Printer, verb: KeyVerb) -> anyhow::Result<ExitCode> {
    match verb {
        KeyVerb::Derive(args) => derive(out, args)?,
        KeyVerb::Inspect { server, key } => show_key(out, &CliClient::find(&server)?.get(&key_path(&key)).await?),
        KeyVerb::Extend { server, key, ttl } => {
            let body = json!({ "ttl": ttl });
            let (_, view) = CliClient::find(&server)?.call(Method::PATCH, &key_path(&key), None, Some(&body)).await?;
            show_key(out, &view);
        }
        KeyVerb::Forget { server, key } => {
            let (_, view) = CliClient::find(&server)?.call(Method::DELETE, &key_path(&key), None, None).await?;
            show_key(out, &view);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn key_path(key: &str) -> String {
    format!("/v1/keys/{}", percent_encode(key))
}

fn derive(out: &Printer, args: DeriveArgs) -> anyhow::Result<()> {
    let to = args
        .to
        .iter()
        .map(|text| NamedAddress::parse(text).map_err(|error| UsageError(format!("--to {text}: {error}"))));
    let to = sorted_addresses(&to.collect::<Result<Vec<_>, _>>()?);
    let intent = Intent { kind: args.kind, entity: args.entity, version: args.version, period: args.period };
    intent.validate().map_err(|error| UsageError(error.to_string()))?;
    let key = intent.derive_key(&to);
    if out.is_json() {
        out.print_json(&json!({ "key": key }))
    } else {
        out.print_line(&key)
    }
    Ok(())
}

fn show_key(out: &Printer, view: &Value) {
    if out.is_json() {
        return out.print_json(view);
    }
    let names = [
        "key",
        "bound_to",
        "email",
        "state",
        "derivation",
        "digest",
        "bind_number",
        "ttl",
        "expires_at",
        "forgotten_at",
        "hits",
    ];
    let fields: Vec<(&str, String)> = names.iter().map(|name| (*name, field_text(view, name))).collect();
    out.print_fields(&fields);
    show_calls(out, &view["suppressed_calls"]);
}

fn show_calls(out: &Printer, calls: &Value) {
    let calls = calls.as_array().map(Vec::as_slice).unwrap_or_default();
    if calls.is_empty() {
        return;
    }
    let row = |call: &Value| ["at", "channel", "reason", "caller"].map(|name| field_text(call, name)).to_vec();
    out.print_line("");
    out.print_table(&["duplicate call at", "channel", "reason", "caller"], calls.iter().map(row).collect());
}
