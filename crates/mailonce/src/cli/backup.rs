//! `backup` and `restore`: a copy of the embedded ledger, taken while it is used, and put in place where there is none.
//!
//! A ledger that comes back does not know what happened after the copy. So a restore of mail that waits must say
//! what is to become of it.

use anyhow::Context as _;
use clap::Args;
use mailonce_core::{access::install_secret::StoredSecret, time::Time};
use mailonce_store::sqlite::{BackupContents, Sqlite};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use super::{UsageError, load_config, progress::Progress};
use crate::{
    cli::{
        error::CliError,
        printer::{Printer, format_time, print_stderr},
    },
    config::{Config, Flags, StoreLocation},
    entropy::wall_time,
    wiring,
};

/// What to copy, and where to.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    flags: Flags,
    /// The file to write; it must not be there yet
    file: PathBuf,
}

/// What to put in place, and how it goes on.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    flags: Flags,
    /// A file that `backup` wrote
    file: PathBuf,
    /// Hand nothing over, restart or not, until `mailonce resume`: mail that waits in the copy may have left since
    #[arg(long, conflicts_with = "run")]
    hold: bool,
    /// Hand over what waits in the copy at once: nothing was sent since it was made
    #[arg(long)]
    run: bool,
}

/// Copies the ledger at one moment, also while a server uses it.
pub(super) async fn backup(out: &Printer, args: BackupArgs) -> anyhow::Result<ExitCode> {
    let config =
        embedded_config(&args.flags, "pg_dump --format=custom --schema=mailonce takes all of it at one moment")?;
    if args.file.exists() {
        let detail = format!("there is a file {} already", args.file.display());
        return Err(CliError::new("file_exists", detail, "choose another name, or move that file away first").into());
    }
    if !config.data.join("ledger.db").exists() {
        let detail = format!("there is no ledger in {}", config.data.display());
        return Err(CliError::new("no_ledger", detail, "name the data directory of the server with --data").into());
    }
    let (data, file) = (config.data.clone(), args.file.clone());
    // The copy holds all that was acknowledged by now.
    let as_of = wall_time();
    let contents = run_with_spinner("copying the ledger", move || Sqlite::back_up(&data, &file)).await?;
    let bytes = std::fs::metadata(&args.file).with_context(|| args.file.display().to_string())?.len();
    show(out, &args.file, &contents, &[("as_of", json!(as_of.to_string())), ("bytes", json!(bytes))]);
    if !out.is_json() {
        print_stderr(match Sqlite::stored_secret(&config.data)? {
            Some(StoredSecret::Wrapped(_)) => {
                "It holds everybody's mail, and secrets that only the KEK opens: keep the KEK too, but in another place."
            }
            _ => "It holds everybody's mail and the secret of this installation: keep it as safe as the ledger.",
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts a copy in place.
pub(super) async fn restore(out: &Printer, args: RestoreArgs) -> anyhow::Result<ExitCode> {
    let config =
        embedded_config(&args.flags, "pg_restore into an empty database, then start with MAILONCE_HANDOFF=paused")?;
    let file = args.file.clone();
    let contents = run_with_spinner("reading the copy", move || Sqlite::read_backup(&file)).await?;
    if contents.waiting > 0 && !args.hold && !args.run {
        let waiting = contents.waiting;
        return Err(UsageError(format!(
            "{waiting} of its mails wait to be handed over, and any that left since the copy was made would go again: \
             choose --hold (look first, then `mailonce resume`) or --run (nothing was sent since)"
        ))
        .into());
    }
    if config.data.join("ledger.db").exists() {
        let detail = format!("there is a ledger in {} already", config.data.display());
        return Err(
            CliError::new("ledger_exists", detail, "choose another --data, or move that ledger away first").into()
        );
    }
    let (file, data) = (args.file.clone(), config.data.clone());
    if args.hold {
        // First: a ledger that is in place must not be without it.
        wiring::hold_handoff(&data).with_context(|| format!("writing into {}", data.display()))?;
    }
    let restored =
        run_with_spinner("putting it in place", move || Sqlite::restore(&file, &data, epoch_from_clock())).await;
    if restored.is_err() && args.hold {
        wiring::release_handoff(&config.data).context("taking the mark back")?;
    }
    let contents = restored?;
    let handoff = if args.hold { "held" } else { "running" };
    show(out, &config.data, &contents, &[("handoff", json!(handoff))]);
    if !out.is_json() {
        print_stderr(&restore_consequences(args.hold));
    }
    Ok(ExitCode::SUCCESS)
}

/// What a ledger that came back means for once.
fn restore_consequences(hold: bool) -> String {
    let next = if hold {
        "\nNothing is handed over until `mailonce resume`, restarts or not. Before that, start it, look at\n\
         `mailonce emails list --state queued`, and cancel what your provider's log shows as sent."
    } else {
        ""
    };
    format!(
        "A key accepted after the copy was made is free again: a retry of it makes another email, under the same\n\
         Message-ID and downstream key, so a next hop that still remembers the key makes no second mail. Readers of\n\
         events begin anew: their cursors answer 410 cursor_reset.{next}"
    )
}

fn show(out: &Printer, place: &Path, contents: &BackupContents, more: &[(&str, serde_json::Value)]) {
    let BackupContents { schema, emails, waiting, unknown, seen_at } = contents;
    let seen = seen_at.map(|Time(ms)| Time(ms).to_string());
    let mut value = json!({ "place": place.display().to_string(), "schema": schema, "emails": emails,
        "waiting": waiting, "unknown": unknown, "seen_at": seen });
    more.iter().for_each(|(name, said)| value[*name] = said.clone());
    if out.is_json() {
        return out.print_json(&value);
    }
    let mut facts = vec![
        ("place", place.display().to_string()),
        ("last seen", seen.as_deref().map_or_else(|| "-".into(), format_time)),
        ("emails", emails.to_string()),
        ("waiting", waiting.to_string()),
        ("unknown", unknown.to_string()),
    ];
    // Whoever makes a copy knows when; whoever reads one knows only when its ledger last wrote down the time.
    if let Some((_, as_of)) = more.iter().find(|(name, _)| *name == "as_of") {
        facts[1] = ("as of", format_time(&crate::cli::printer::display_text(as_of)));
    }
    let others = more.iter().filter(|(name, _)| *name != "as_of");
    facts.extend(others.map(|(name, said)| (*name, crate::cli::printer::display_text(said))));
    out.print_fields(&facts);
}

/// The configuration of an embedded ledger.
fn embedded_config(flags: &Flags, instead: &str) -> anyhow::Result<Config> {
    let config = load_config(flags)?;
    match config.store {
        StoreLocation::Sqlite => Ok(config),
        StoreLocation::Postgres(_) => {
            Err(CliError::new("not_embedded", "the ledger is in PostgreSQL, which has means of its own", instead)
                .into())
        }
    }
}

/// Runs what may take a while beside a sign of life on stderr.
async fn run_with_spinner<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> mailonce_core::ports::store::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let _sign = Progress::spinner(what);
    Ok(tokio::task::spawn_blocking(work).await.context(what)??)
}

/// No two restores of one copy get the same epoch, unless within a second.
fn epoch_from_clock() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32)
}
