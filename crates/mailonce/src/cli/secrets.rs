//! `secrets`: the source of the key encryption key (KEK), and its rotation.

use clap::{Args, Subcommand};
use mailonce_core::{access::install_secret::StoredSecret, ports::store::Result as StoreResult};
use mailonce_engine::access::kek::{Kek, KekRotation};
use mailonce_store::{postgres::Postgres, sqlite::Sqlite};
use serde_json::{Value, json};
use std::{path::PathBuf, process::ExitCode};

use super::{UsageError, exit, load_config};
use crate::{
    cli::kek_status::KekStatus,
    cli::{
        error::CliError,
        printer::{Printer, format_time, print_stderr},
    },
    config::{Config, Flags, StoreLocation},
    entropy::{OsEntropy, wall_time},
    secrets::{KekSource, UNLOCK_HINT},
};

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsVerb {
    /// Show the source of the key encryption key (KEK), its fingerprint, and since when it is in use
    Status(Flags),
    /// Encrypt the secrets of the ledger with a new KEK, also while servers run
    RotateKek(Box<RotateKekArgs>),
}

/// The ledger and the new KEK. The configuration still names the old one.
#[derive(Debug, Args)]
pub(crate) struct RotateKekArgs {
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    new: NewKek,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct NewKek {
    /// File with the new KEK: 32 bytes in base64 or hex, readable only by its owner
    #[arg(long, value_name = "FILE")]
    new_kek_file: Option<PathBuf>,
    /// Environment variable with the new KEK
    #[arg(long, value_name = "NAME")]
    new_kek_env: Option<String>,
    /// Program that prints the new KEK, with its arguments
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true)]
    new_kek_command: Option<Vec<String>>,
}

/// Runs a verb of `secrets`.
pub(super) async fn secrets(out: &Printer, verb: SecretsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        SecretsVerb::Status(flags) => status(out, &load_config(&flags)?).await,
        SecretsVerb::RotateKek(args) => rotate(out, *args).await,
    }
}

async fn status(out: &Printer, config: &Config) -> anyhow::Result<ExitCode> {
    let status = KekStatus::inspect(config).await?;
    let source = status.configured.as_ref().map(|(source, _)| source.to_string());
    let fingerprint = status.configured.as_ref().and_then(|(_, kek)| kek.as_ref().ok()).map(Kek::fingerprint);
    let (wrapped, open_error) = (status.wrapped(), status.open_error());
    let ledger = match &status.stored {
        None => "none",
        Some(StoredSecret::Plain(_)) => "plain",
        Some(StoredSecret::Wrapped(_)) => "wrapped",
    };
    if out.is_json() {
        out.print_json(&json!({
            "ledger": ledger,
            "ledger_kek": wrapped.as_ref().map(|wrapped| &wrapped.kek),
            "in_use_since": wrapped.as_ref().map(|wrapped| wrapped.since.to_string()),
            "configured": source,
            "configured_kek": fingerprint,
            "seal_bodies": config.secrets.seal_bodies,
            "open_error": open_error,
        }));
    } else {
        let mut fields = vec![
            ("ledger", explain_state(ledger).to_owned()),
            ("KEK", source.unwrap_or_else(|| "not configured".into())),
            ("fingerprint", fingerprint.unwrap_or_else(|| "-".into())),
            ("seal_bodies", config.secrets.seal_bodies.to_string()),
        ];
        if let Some(wrapped) = &wrapped {
            fields.push(("encrypted by", wrapped.kek.clone()));
            fields.push(("since", format_time(&wrapped.since.to_string())));
        }
        out.print_fields(&fields);
    }
    match open_error {
        Some(why) if !out.is_json() => Err(CliError::new("kek", why, UNLOCK_HINT).into()),
        Some(_) => Ok(ExitCode::from(exit::FAILED)),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn explain_state(ledger: &str) -> &'static str {
    match ledger {
        "wrapped" => "encrypted: its secrets cannot be read without the KEK",
        "plain" => "plain: the ledger contains the key to its secrets",
        _ => "none, or not yet opened by this version",
    }
}

async fn rotate(out: &Printer, args: RotateKekArgs) -> anyhow::Result<ExitCode> {
    let config = load_config(&args.flags)?;
    let NewKek { new_kek_file, new_kek_env, new_kek_command } = args.new;
    let source = KekSource::one_of(new_kek_file, new_kek_env, new_kek_command)?;
    let source = source
        .ok_or_else(|| UsageError("pass the new KEK with --new-kek-file, --new-kek-env or --new-kek-command".into()))?;
    let old = config.secrets.read_kek().await?;
    let old = old.ok_or_else(|| {
        CliError::new(
            "kek",
            "no KEK is configured, so there is none to rotate",
            "configure the current KEK in [secrets] first",
        )
    })?;
    let unreadable =
        |error: anyhow::Error| CliError::new("kek", format!("{error:#}"), "correct it; nothing was changed");
    let new = source.read().await.map_err(unreadable)?;
    if new.fingerprint() == old.fingerprint() {
        return Err(UsageError(format!("the new KEK is the same as the configured one ({})", old.fingerprint())).into());
    }
    let is_clean =
        rewrap_secret(&config, &KekRotation { old: &old, new: &new, entropy: &OsEntropy, now: wall_time() }).await?;
    let previous_source = config.secrets.kek.as_ref().map(ToString::to_string);
    show_rotated(
        out,
        &json!({ "from": old.fingerprint(), "to": new.fingerprint(), "previous_source": previous_source,
        "source": source.to_string(), "old_copies_removed": is_clean }),
    );
    Ok(ExitCode::SUCCESS)
}

async fn rewrap_secret(config: &Config, rotation: &KekRotation<'_>) -> StoreResult<bool> {
    match &config.store {
        StoreLocation::Sqlite => Sqlite::replace_secret(&config.data, rotation),
        StoreLocation::Postgres(url) => Postgres::replace_secret(url, rotation).await,
    }
}

fn show_rotated(out: &Printer, rotated: &Value) {
    if out.is_json() {
        return out.print_json(rotated);
    }
    let text = |name: &str| crate::cli::printer::display_text(&rotated[name]);
    out.print_fields(&[("from", text("from")), ("to", text("to")), ("source", text("source"))]);
    print_stderr(&format!(
        "Configure the new KEK ({}) in [secrets] on every server before its next start: the old KEK no longer opens this\n\
         ledger. Running servers are not affected. Older backups still need the old KEK.",
        text("source")
    ));
    if rotated["old_copies_removed"] == false {
        print_stderr(
            "Another process reads the ledger, so a copy encrypted by the old KEK stays in its files until the next start.",
        );
    }
}
