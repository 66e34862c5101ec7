//! `secrets`: where the key encryption key (KEK) lives, and its rotation.

use clap::{Args, Subcommand};
use mailonce_core::{access::install_secret::StoredSecret, ports::store::Result as StoreResult};
use mailonce_engine::access::kek::{Kek, KekRotation};
use mailonce_store::{postgres::Postgres, sqlite::Sqlite};
use serde_json::{Value, json};
use std::{path::PathBuf, process::ExitCode};

use super::{UsageError, exit, load_config};
use crate::{
    cli::{
        error::CliError,
        printer::{Printer, format_time, print_stderr},
    },
    config::{Config, Flags, StoreLocation},
    entropy::{OsEntropy, wall_time},
    secrets::{KekSource, KekStatus, UNLOCK_HINT},
};

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsVerb {
    /// Show where the key encryption key (KEK) lives, its fingerprint, and since when it is in use
    Status(Flags),
    /// Wrap the ledger's secrets under a new KEK, also while servers run
    RotateKek(Box<RotateKekArgs>),
}

/// The ledger, and the KEK that follows. The configuration still names the old one.
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
    /// File with the new KEK: 32 bytes in base64 or hex, readable by its owner alone
    #[arg(long, value_name = "FILE")]
    new_kek_file: Option<PathBuf>,
    /// Environment variable with the new KEK
    #[arg(long, value_name = "NAME")]
    new_kek_env: Option<String>,
    /// Program that prints the new KEK, with its arguments
    #[arg(long, value_name = "WORDS", num_args = 1.., allow_hyphen_values = true)]
    new_kek_command: Option<Vec<String>>,
}

/// Verbs about the KEK.
pub(super) async fn secrets(out: &Printer, verb: SecretsVerb) -> anyhow::Result<ExitCode> {
    match verb {
        SecretsVerb::Status(flags) => status(out, &load_config(&flags)?).await,
        SecretsVerb::RotateKek(args) => rotate(out, *args).await,
    }
}

async fn status(out: &Printer, config: &Config) -> anyhow::Result<ExitCode> {
    let status = KekStatus::inspect(config).await?;
    let place = status.configured.as_ref().map(|(source, _)| source.to_string());
    let fingerprint = status.configured.as_ref().and_then(|(_, kek)| kek.as_ref().ok()).map(Kek::fingerprint);
    let (wrapped, refusal) = (status.wrapped(), status.open_error());
    let ledger = match &status.stored {
        None => "none",
        Some(StoredSecret::Plain(_)) => "plain",
        Some(StoredSecret::Wrapped(_)) => "wrapped",
    };
    if out.is_json() {
        out.print_json(&json!({
            "ledger": ledger,
            "ledger_kek": wrapped.as_ref().map(|wrapped| &wrapped.kek),
            "since": wrapped.as_ref().map(|wrapped| wrapped.since.to_string()),
            "configured": place,
            "configured_kek": fingerprint,
            "seal_bodies": config.secrets.seal_bodies,
            "refusal": refusal,
        }));
    } else {
        let mut facts = vec![
            ("ledger", explain_state(ledger).to_owned()),
            ("KEK", place.unwrap_or_else(|| "not configured".into())),
            ("fingerprint", fingerprint.unwrap_or_else(|| "-".into())),
            ("seal_bodies", config.secrets.seal_bodies.to_string()),
        ];
        if let Some(wrapped) = &wrapped {
            facts.push(("wrapped by", wrapped.kek.clone()));
            facts.push(("since", format_time(&wrapped.since.to_string())));
        }
        out.print_fields(&facts);
    }
    match refusal {
        Some(why) if !out.is_json() => Err(CliError::new("kek", why, UNLOCK_HINT).into()),
        Some(_) => Ok(ExitCode::from(exit::FAILED)),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn explain_state(ledger: &str) -> &'static str {
    match ledger {
        "wrapped" => "wrapped: without the KEK its secrets cannot be opened",
        "plain" => "plain: the install secret lies in the ledger",
        _ => "none yet, or none that this version has opened",
    }
}

async fn rotate(out: &Printer, args: RotateKekArgs) -> anyhow::Result<ExitCode> {
    let config = load_config(&args.flags)?;
    let NewKek { new_kek_file, new_kek_env, new_kek_command } = args.new;
    let source = KekSource::one_of(new_kek_file, new_kek_env, new_kek_command)?;
    let source = source.ok_or_else(|| UsageError("a new KEK is missing".into()))?;
    let old = config.secrets.read_kek().await?;
    let old = old.ok_or_else(|| {
        CliError::new(
            "kek",
            "no KEK is configured, so there is none to rotate",
            "set [secrets] to the present KEK first",
        )
    })?;
    let unread = |error: anyhow::Error| CliError::new("kek", format!("{error:#}"), "correct it; nothing was changed");
    let new = source.read().await.map_err(unread)?;
    if new.fingerprint() == old.fingerprint() {
        return Err(UsageError(format!("the new KEK is the configured one ({})", old.fingerprint())).into());
    }
    let is_clean =
        rewrap_secret(&config, &KekRotation { old: &old, new: &new, entropy: &OsEntropy, now: wall_time() }).await?;
    let before = config.secrets.kek.as_ref().map(ToString::to_string);
    show_rotated(
        out,
        &json!({ "from": old.fingerprint(), "to": new.fingerprint(), "from_place": before,
        "place": source.to_string(), "clean": is_clean }),
    );
    Ok(ExitCode::SUCCESS)
}

async fn rewrap_secret(config: &Config, keeper: &KekRotation<'_>) -> StoreResult<bool> {
    match &config.store {
        StoreLocation::Sqlite => Sqlite::replace_secret(&config.data, keeper),
        StoreLocation::Postgres(url) => Postgres::replace_secret(url, keeper).await,
    }
}

fn show_rotated(out: &Printer, rotated: &Value) {
    if out.is_json() {
        return out.print_json(rotated);
    }
    let text = |name: &str| crate::cli::printer::display_text(&rotated[name]);
    out.print_fields(&[("from", text("from")), ("to", text("to")), ("place", text("place"))]);
    print_stderr(&format!(
        "Set [secrets] to the new KEK ({}) on every node before its next start: the old one opens this ledger no more.\n\
         Servers that run go on. Backups made before still need the old KEK.",
        text("place")
    ));
    if rotated["clean"] == false {
        print_stderr(
            "Another process reads the ledger, so the secret wrapped by the old KEK stays in its files until the next start.",
        );
    }
}
