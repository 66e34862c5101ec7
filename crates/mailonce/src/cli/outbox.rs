//! `outbox`: the schema in the user's own PostgreSQL, whose rows a server drains.

use clap::{Args, Subcommand};
use hyper::Method;
use mailonce_core::outbox::{OutboxError, OutboxStatus, RowKind};
use mailonce_store::postgres::outbox::{
    schema::{DoneRow, OutboxSchema, SCHEMA_VERSION},
    source::NewOutboxTable,
};
use mailonce_transport::http::base::percent_encode;
use serde_json::{Value, json};
use std::process::ExitCode;

use super::{
    ServerArgs,
    client::{CliClient, ServerProblem},
    exit,
    inbox::show,
    listing::{PageArgs, fetch_list, show_list},
};
use crate::{
    cli::{
        error::CliError,
        printer::{Printer, field_text, print_stderr},
    },
    config::OUTBOX_SCHEMA,
};

/// Rows that one query of `verify` reads.
const VERIFY_BATCH: usize = 500;

/// The database of an outbox.
#[derive(Debug, Args)]
pub(crate) struct DatabaseArgs {
    /// URL of your database: `postgres://user@host/database`
    #[arg(long, env = "MAILONCE_OUTBOX_DATABASE", value_name = "URL", hide_env_values = true)]
    database: String,
    /// Name of the schema
    #[arg(long, default_value = OUTBOX_SCHEMA, value_name = "NAME")]
    schema: String,
}

impl DatabaseArgs {
    async fn open(&self) -> anyhow::Result<OutboxSchema> {
        OutboxSchema::open(&self.database, &self.schema).await.map_err(outbox_error)
    }
}

/// A table of the Debezium outbox router.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// Table of the Debezium outbox router that the outbox reads, with the columns id, type and payload
    #[arg(long, value_name = "SCHEMA.TABLE", requires = "types")]
    table: Option<String>,
    /// Value of the column type whose rows are emails; may be repeated
    #[arg(long = "type", value_name = "TYPE", requires = "table")]
    types: Vec<String>,
    /// Send the rows that the table has already, too
    #[arg(long, requires = "table")]
    include_existing: bool,
    /// Read the table although it is empty after inserts and deletes: from now on rows stay until they were read
    #[arg(long, requires = "table")]
    rows_stay: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OutboxVerb {
    /// Create the schema of an outbox in your database
    Install {
        #[command(flatten)]
        at: DatabaseArgs,
        /// Role of your application: it may put emails into the outbox
        #[arg(long, value_name = "ROLE")]
        grant_send: Vec<String>,
        /// Role with which the server connects: it may drain the outbox
        #[arg(long, value_name = "ROLE")]
        grant_drain: Vec<String>,
        #[command(flatten)]
        source: SourceArgs,
    },
    /// Bring the schema to the version of this program
    Upgrade {
        #[command(flatten)]
        at: DatabaseArgs,
    },
    /// Show how many rows wait, and whether the database was restored or cloned
    Status {
        #[command(flatten)]
        at: DatabaseArgs,
    },
    /// List rows that are marked done but whose email or claim the server does not know
    Verify {
        #[command(flatten)]
        at: DatabaseArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List dead letters of an outbox that the server drains, newest first
    Parked {
        #[command(flatten)]
        server: ServerArgs,
        /// Name of the outbox in the configuration of the server
        name: String,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Offer a dead letter again, under the same key
    Replay {
        #[command(flatten)]
        server: ServerArgs,
        /// Id of the row
        id: String,
        /// Idempotency key: the same key replays the row at most once
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
    },
    /// Confirm that a restored, cloned or failed-over database may be drained
    Confirm {
        #[command(flatten)]
        at: DatabaseArgs,
    },
    /// Remove the schema and its rows from your database
    Uninstall {
        #[command(flatten)]
        at: DatabaseArgs,
        /// Remove it although rows wait or are parked: their emails are never sent
        #[arg(long)]
        force: bool,
    },
}

fn outbox_error(error: OutboxError) -> anyhow::Error {
    let (code, next) = match &error {
        OutboxError::NotInstalled(_) => {
            ("no_outbox", "run `mailonce outbox install`, or name the schema with --schema")
        }
        OutboxError::WrongVersion { found, expected } if found > expected => {
            ("newer_outbox", "use the mailonce that installed it, or a newer one")
        }
        OutboxError::WrongVersion { .. } => ("older_outbox", "run `mailonce outbox upgrade`"),
        OutboxError::IdentityChanged(_) => {
            ("not_confirmed", "run `mailonce outbox confirm` when this is your database")
        }
        OutboxError::UnreadableTable(_) => (
            "unreadable_table",
            "copy the rows with a trigger (docs/outbox.md); if the application deletes rows only later, use --rows-stay",
        ),
        OutboxError::Unreachable(_) => ("database", "check --database and the rights of its role"),
    };
    CliError::new(code, error.to_string(), next).into()
}

/// Runs a verb of `outbox`.
pub(super) async fn outbox(out: &Printer, verb: OutboxVerb) -> anyhow::Result<ExitCode> {
    match verb {
        OutboxVerb::Install { at, grant_send, grant_drain, source } => {
            let mut schema = at.open().await?;
            let before = schema.version().await.map_err(outbox_error)?;
            if let Some(found) = before.filter(|found| *found < SCHEMA_VERSION) {
                return Err(outbox_error(OutboxError::WrongVersion { found, expected: SCHEMA_VERSION }));
            }
            schema.install().await.map_err(outbox_error)?;
            read_table(&mut schema, source).await?;
            for role in &grant_send {
                schema.grant_send(role).await.map_err(outbox_error)?;
            }
            for role in &grant_drain {
                schema.grant_drain(role).await.map_err(outbox_error)?;
            }
            show_status(out, &schema.status().await.map_err(outbox_error)?);
            if !out.is_json() {
                print_stderr(&next_steps(&at.schema));
            }
        }
        OutboxVerb::Upgrade { at } => {
            let mut schema = at.open().await?;
            if schema.version().await.map_err(outbox_error)?.is_none() {
                return Err(outbox_error(OutboxError::NotInstalled(at.schema)));
            }
            schema.install().await.map_err(outbox_error)?;
            show_status(out, &schema.status().await.map_err(outbox_error)?);
        }
        OutboxVerb::Status { at } => {
            show_status(out, &at.open().await?.status().await.map_err(outbox_error)?);
        }
        OutboxVerb::Verify { at, server } => return verify(out, &at, &server).await,
        OutboxVerb::Parked { server, name, page } => {
            let path = format!("/v1/outboxes/{}/parked", percent_encode(&name));
            let page = fetch_list(&CliClient::find(&server)?, &path, Vec::new(), &page).await?;
            show_list(out, &page, &["id", "code", "parked", "key", "~detail"], |row| {
                ["id", "code", "parked_at", "key", "detail"].iter().map(|name| field_text(row, name)).collect()
            });
        }
        OutboxVerb::Replay { server, id, key } => {
            let path = format!("/v1/parked/{}/replay", percent_encode(&id));
            let (_, row) = CliClient::find(&server)?.call(Method::POST, &path, key.as_deref(), None).await?;
            show(out, &row, &["id"]);
        }
        OutboxVerb::Confirm { at } => {
            show_status(out, &at.open().await?.confirm().await.map_err(outbox_error)?);
        }
        OutboxVerb::Uninstall { at, force } => uninstall(out, &at, force).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn read_table(schema: &mut OutboxSchema, source: SourceArgs) -> anyhow::Result<()> {
    let SourceArgs { table: Some(table), types, include_existing, rows_stay } = source else { return Ok(()) };
    let new = NewOutboxTable { table, types, includes_existing: include_existing, rows_stay };
    let skipped = schema.read_table(&new).await.map_err(outbox_error)?;
    if skipped > 0 {
        print_stderr(&format!(
            "{skipped} rows that {} has already are not sent; --include-existing sends them.",
            new.table
        ));
    }
    Ok(())
}

fn next_steps(schema: &str) -> String {
    format!(
        "Put an email into the outbox, in your own transaction:\n  \
         SELECT {schema}.send('{{\"from\": \"shop@example.com\", \"to\": \"ada@example.com\", \"subject\": \"Hi\", \"text\": \"Hello\"}}');\n\
         Or a claim, which a worker takes with POST /v1/claims:\n  \
         SELECT {schema}.claim('invoice-4821', '{{\"total\": 99}}');\n\
         A server drains it when its configuration has [[outboxes]] with this database."
    )
}

fn show_status(out: &Printer, status: &OutboxStatus) {
    let state = if status.is_confirmed() { "confirmed" } else { "not confirmed" };
    if out.is_json() {
        return out.print_json(&json!({
            "outbox_id": status.outbox_id.to_string(),
            "schema_version": status.schema_version,
            "state": state,
            "confirmed_identity": status.confirmed_identity,
            "current_identity": status.current_identity,
            "pending": status.pending,
            "parked": status.parked,
            "oldest_pending_s": status.oldest_pending_s,
            "source": status.source.as_ref().map(|source| {
                json!({ "table": source.table, "types": source.types, "problem": source.problem })
            }),
        }));
    }
    out.print_fields(&[
        ("outbox_id", status.outbox_id.to_string()),
        ("schema_version", status.schema_version.to_string()),
        ("state", state.to_owned()),
        ("identity", status.current_identity.clone()),
        ("pending", status.pending.to_string()),
        ("parked", status.parked.to_string()),
    ]);
    if let Some(source) = &status.source {
        out.print_fields(&[("table", source.table.clone()), ("types", source.types.join(", "))]);
        if let Some(problem) = &source.problem {
            print_stderr(&format!(
                "The table cannot be read: {problem}. Copy the rows with a trigger (docs/outbox.md)."
            ));
        }
    }
    if !status.is_confirmed() {
        print_stderr(&format!(
            "The database was restored, cloned or failed over: it was confirmed as {}. Nothing is drained until you run \
             `mailonce outbox confirm`.",
            status.confirmed_identity
        ));
    }
}

/// Asks the server for the email or claim of every row that is marked done.
async fn verify(out: &Printer, at: &DatabaseArgs, server: &ServerArgs) -> anyhow::Result<ExitCode> {
    let (schema, client) = (at.open().await?, CliClient::find(server)?);
    let (mut after, mut checked, mut missing) = (0, 0_u64, Vec::new());
    loop {
        let rows = schema.done_rows(after, VERIFY_BATCH).await.map_err(outbox_error)?;
        let Some(last) = rows.last() else { break };
        after = last.seq;
        checked += rows.len() as u64;
        for row in rows {
            let list = match row.kind {
                RowKind::Email => "emails",
                RowKind::Claim => "claims",
            };
            match client.get(&format!("/v1/{list}/{}", row.target)).await {
                Ok(_) => {}
                Err(error) if is_not_found(&error) => missing.push(row),
                Err(error) => return Err(error),
            }
        }
    }
    if out.is_json() {
        let field = |kind: RowKind| format!("{}_id", kind.as_str());
        let rows = missing
            .iter()
            .map(|DoneRow { id, kind, target, .. }| json!({ "id": id.to_string(), field(*kind): target.to_string() }));
        out.print_json(&json!({ "checked": checked, "missing": rows.collect::<Vec<Value>>() }));
    } else {
        let rows =
            missing.iter().map(|row| vec![row.id.to_string(), row.kind.as_str().to_owned(), row.target.to_string()]);
        out.print_table(&["row", "kind", "missing"], rows.collect());
        print_stderr(&format!("{checked} rows checked, {} missing.", missing.len()));
    }
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ServerProblem>().is_some_and(|ServerProblem(problem)| problem["code"] == "not_found")
}

async fn uninstall(out: &Printer, at: &DatabaseArgs, force: bool) -> anyhow::Result<()> {
    let mut schema = at.open().await?;
    let status = schema.status().await.map_err(outbox_error)?;
    if !force && status.pending + status.parked > 0 {
        let detail =
            format!("{} rows wait and {} are parked: their emails would never be sent", status.pending, status.parked);
        let next = "let a server drain them, or remove them with --force";
        return Err(CliError::new("outbox_not_empty", detail, next).into());
    }
    schema.uninstall().await.map_err(outbox_error)?;
    if out.is_json() {
        out.print_json(&json!({ "uninstalled": at.schema }));
    } else {
        out.print_line(&format!("the schema {} is removed", at.schema));
    }
    Ok(())
}
