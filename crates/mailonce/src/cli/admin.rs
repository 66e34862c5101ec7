//! `migrate`, and the hidden `bench-fill`. Both open the ledger directly.

use anyhow::Context as _;
use clap::Args;
use mailonce_core::{
    key::Key,
    outbound::content::{EmailContent, RawContent},
    problem::Problem,
};
use mailonce_engine::{Caller, Engine, outbound::keyed_send::SendRequest};
use mailonce_store::{postgres::Postgres, sqlite::Sqlite};
use serde_json::json;
use std::{process::ExitCode, sync::Arc};

use super::{load_config, progress::Progress};
use crate::cli::{error::CliError, printer::Printer};
use crate::{
    config::{Flags, StoreLocation},
    wiring,
};

/// Opens the ledger, which no server may be using.
pub(super) async fn open_ledger(flags: &Flags) -> anyhow::Result<Arc<Engine>> {
    let mut config = load_config(flags)?;
    if config.store == StoreLocation::Sqlite && Sqlite::is_busy(&config.data) {
        let detail = format!("another process uses the data directory {}", config.data.display());
        return Err(CliError::new("ledger_in_use", detail, "stop that process first, or choose another --data").into());
    }
    // Whoever can open the ledger need not prove that a domain is theirs.
    config.defaults.verify_domains.get_or_insert(false);
    wiring::open_engine(&config).await.context("opening the ledger")
}

/// An engine's problem as an error of the command line.
pub(super) fn problem_error(problem: Problem) -> anyhow::Error {
    CliError::from_problem(&problem).into()
}

/// Upgrades the schema, which happens when the ledger is opened, and prints its version.
pub(super) async fn migrate(out: &Printer, flags: &Flags) -> anyhow::Result<ExitCode> {
    let config = load_config(flags)?;
    let store = wiring::open_store(&config).await?;
    store.close().await;
    let schema = match &config.store {
        StoreLocation::Sqlite => Sqlite::schema_version(&config.data)?,
        StoreLocation::Postgres(url) => Postgres::schema_version(url).await?.map(i64::from),
    };
    let schema = schema.context("the ledger has no schema")?;
    if out.is_json() {
        out.print_json(&json!({ "schema": schema }))
    } else {
        out.print_line(&format!("the ledger has schema {schema}"))
    }
    Ok(ExitCode::SUCCESS)
}

/// The ledger to fill, and how many keys it gets.
#[derive(Debug, Args)]
pub(crate) struct FillArgs {
    #[command(flatten)]
    flags: Flags,
    /// Number of idempotency keys
    #[arg(long)]
    keys: u64,
}

/// Fills a ledger with idempotency keys of sent emails, through the same engine calls as requests.
pub(super) async fn fill(out: &Printer, args: FillArgs) -> anyhow::Result<ExitCode> {
    let engine = open_ledger(&args.flags).await?;
    let secret = crate::cli::run_server::dev_key(&engine, &load_config(&args.flags)?.data).await?;
    let progress = Progress::bar("idempotency keys", args.keys);
    let caller = engine
        .access
        .authenticate(&secret, mailonce_core::outbound::email::Channel::Cli)
        .await
        .map_err(problem_error)?;
    fill_ledger(&engine, &caller, args.keys, |done| progress.set_total(done)).await?;
    drop(progress);
    engine.ctx.store().close().await;
    out.print_line(&format!("{} idempotency keys", args.keys));
    Ok(ExitCode::SUCCESS)
}

/// Accepts `count` emails with idempotency keys, in batches, and lets the sandbox capture them.
async fn fill_ledger(engine: &Arc<Engine>, caller: &Caller, count: u64, progress: impl Fn(u64)) -> anyhow::Result<()> {
    const BATCH: u64 = 500;
    for first in (0..count).step_by(BATCH as usize) {
        let items = (first..count.min(first + BATCH)).map(filler_email).collect();
        let receipt = engine.outbound.send_batch(caller, None, items, true).await.map_err(problem_error)?;
        while engine.ctx.store().capture(mailonce_engine::SANDBOX, BATCH as usize, None, engine.ctx.now()).await? > 0 {}
        progress(first + receipt.items.len() as u64);
    }
    Ok(())
}

/// A small email with its own idempotency key.
fn filler_email(n: u64) -> Result<SendRequest, Problem> {
    let raw = RawContent {
        from: "filler@example.com".into(),
        to: vec!["reader@example.org".into()],
        subject: format!("Filler {n}"),
        text: Some("Nothing to see.".into()),
        ..RawContent::default()
    };
    let key = Key::parse(&format!("filler-{n}")).ok();
    let content = EmailContent::validate(raw)?;
    Ok(SendRequest::new(content, key))
}
