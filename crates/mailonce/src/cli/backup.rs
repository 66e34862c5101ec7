//! `backup` and `restore` of the SQLite ledger. A backup can be taken while a server uses the ledger.
//!
//! A restored ledger does not know what was sent after the backup. If mail is queued in the backup, the user has to
//! choose whether it is sent.

use anyhow::Context as _;
use clap::Args;
use mailonce_core::{access::install_secret::StoredSecret, time::Time};
use mailonce_engine::control::erasures::JournalEntry;
use mailonce_store::sqlite::{BackupContents, Sqlite};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{load_config, progress::Progress};
use crate::{
    cli::{
        error::CliError,
        printer::{Printer, format_time, print_stderr},
    },
    config::{Config, Flags, StoreLocation},
    entropy::wall_time,
    erasure_journal, wiring,
};

/// The ledger and the file to write.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    flags: Flags,
    /// File to write; it must not exist
    file: PathBuf,
}

/// The backup, and what happens to its queued mail.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    flags: Flags,
    /// Backup to restore
    file: PathBuf,
    /// Send nothing until `mailonce resume` (default), because queued mail may have been sent since the backup
    #[arg(long, conflicts_with = "run")]
    hold: bool,
    /// Send the queued mail of the backup, because nothing was sent since it was taken
    #[arg(long)]
    run: bool,
    /// Journal of erasures of the lost ledger, `erasures.json`, if it is in another directory: these people are erased again
    #[arg(long, value_name = "FILE")]
    erasures: Option<PathBuf>,
}

/// Takes a consistent copy of the ledger, also while a server uses it.
pub(super) async fn backup(out: &Printer, args: BackupArgs) -> anyhow::Result<ExitCode> {
    let config = embedded_config(&args.flags, "back up the database with `pg_dump --format=custom --schema=mailonce`")?;
    if args.file.exists() {
        let detail = format!("the file {} already exists", args.file.display());
        return Err(CliError::new("file_exists", detail, "choose another name, or move the file away").into());
    }
    if !config.data.join("ledger.db").exists() {
        let detail = format!("there is no ledger in {}", config.data.display());
        return Err(CliError::new("no_ledger", detail, "pass the data directory of the server with --data").into());
    }
    let (data, file) = (config.data.clone(), args.file.clone());
    // The backup contains everything that was acknowledged before this time.
    let as_of = wall_time();
    let contents = run_with_spinner("copying the ledger", move || Sqlite::back_up(&data, &file)).await?;
    let bytes = std::fs::metadata(&args.file).with_context(|| args.file.display().to_string())?.len();
    show(out, &args.file, &contents, &[("as_of", json!(as_of.to_string())), ("bytes", json!(bytes))]);
    if !out.is_json() {
        print_stderr(match Sqlite::stored_secret(&config.data)? {
            Some(StoredSecret::Wrapped(_)) => {
                "The backup contains all mail, and secrets that only the KEK decrypts. Keep the KEK too, but in another place."
            }
            _ => "The backup contains all mail and the secret of this installation. Protect it like the ledger.",
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// Restores a backup.
pub(super) async fn restore(out: &Printer, args: RestoreArgs) -> anyhow::Result<ExitCode> {
    let config = embedded_config(
        &args.flags,
        "restore with `pg_restore` into an empty database; the next start is stopped until `mailonce resume`",
    )?;
    let file = args.file.clone();
    run_with_spinner("reading the backup", move || Sqlite::read_backup(&file)).await?;
    let hold = args.hold || !args.run;
    if config.data.join("ledger.db").exists() {
        let detail = format!("{} already contains a ledger", config.data.display());
        return Err(CliError::new("ledger_exists", detail, "choose another --data, or move that ledger away").into());
    }
    let journal = args.erasures.as_deref().map(read_journal).transpose()?;
    let (file, data) = (args.file.clone(), config.data.clone());
    // Before the restore, so that the ledger is never in place without the marks.
    wiring::mark_restored(&data).with_context(|| format!("writing into {}", data.display()))?;
    if let Some(journal) = journal {
        erasure_journal::add(&data, journal)?;
    }
    if hold {
        wiring::write_hold_mark(&data).with_context(|| format!("writing into {}", data.display()))?;
    }
    let restored =
        run_with_spinner("restoring the ledger", move || Sqlite::restore(&file, &data, epoch_from_clock())).await;
    if restored.is_err() {
        wiring::unmark_restored(&config.data).context("removing the mark")?;
    }
    if restored.is_err() && hold {
        wiring::remove_hold_mark(&config.data).context("removing the mark")?;
    }
    let contents = restored?;
    let handoff = if hold { "stopped" } else { "running" };
    show(out, &config.data, &contents, &[("handoff", json!(handoff))]);
    if !out.is_json() {
        print_stderr(&restore_consequences(hold));
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a journal that the user named, so it must exist.
fn read_journal(path: &Path) -> anyhow::Result<Vec<JournalEntry>> {
    if path.exists() {
        return erasure_journal::read(path);
    }
    let detail = format!("there is no {}", path.display());
    Err(CliError::new("no_journal", detail, "name the erasures.json in the data directory of the lost ledger").into())
}

/// What a restore means for idempotency keys, events and queued mail.
fn restore_consequences(hold: bool) -> String {
    let next = if hold {
        "\nNothing is sent until `mailonce resume`, also after a restart. Before that, start the server, look at\n\
         `mailonce emails list --state queued`, and cancel what your provider's log shows as sent."
    } else {
        ""
    };
    format!(
        "Idempotency keys accepted after the backup are forgotten: a retry creates a new email, with the same\n\
         Message-ID and downstream key, so a next hop that remembers that key does not send it twice. Event cursors\n\
         are invalid and answer 410 cursor_reset.{next}"
    )
}

fn show(out: &Printer, path: &Path, contents: &BackupContents, more: &[(&str, serde_json::Value)]) {
    let BackupContents { schema, emails, waiting, unknown, seen_at } = contents;
    let latest_time = seen_at.map(|Time(ms)| Time(ms).to_string());
    let mut value = json!({ "path": path.display().to_string(), "schema": schema, "emails": emails,
        "waiting": waiting, "unknown": unknown, "latest_time": latest_time });
    more.iter().for_each(|(name, field)| value[*name] = field.clone());
    if out.is_json() {
        return out.print_json(&value);
    }
    let mut fields = vec![
        ("path", path.display().to_string()),
        ("latest time", latest_time.as_deref().map_or_else(|| "-".into(), format_time)),
        ("emails", emails.to_string()),
        ("waiting", waiting.to_string()),
        ("unknown", unknown.to_string()),
    ];
    // A new backup knows its time; a restored one knows only the latest time in its ledger.
    if let Some((_, as_of)) = more.iter().find(|(name, _)| *name == "as_of") {
        fields[1] = ("as of", format_time(&crate::cli::printer::display_text(as_of)));
    }
    let others = more.iter().filter(|(name, _)| *name != "as_of");
    fields.extend(others.map(|(name, field)| (*name, crate::cli::printer::display_text(field))));
    out.print_fields(&fields);
}

/// The configuration, if the ledger is SQLite.
fn embedded_config(flags: &Flags, instead: &str) -> anyhow::Result<Config> {
    let config = load_config(flags)?;
    match config.store {
        StoreLocation::Sqlite => Ok(config),
        StoreLocation::Postgres(_) => {
            Err(CliError::new("not_embedded", "the ledger is in PostgreSQL, which has its own tools", instead).into())
        }
    }
}

/// Runs blocking work with a spinner.
async fn run_with_spinner<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> mailonce_core::ports::store::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let _spinner = Progress::spinner(what);
    Ok(tokio::task::spawn_blocking(work).await.context(what)??)
}

/// A new epoch for each restore, unless two happen within a second.
fn epoch_from_clock() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}
