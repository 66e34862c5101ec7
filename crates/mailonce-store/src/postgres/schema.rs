//! Migrations: bring the tables up to the version of this binary, in one transaction under an advisory lock.
//!
//! DDL is transactional in PostgreSQL, so a migration that is killed leaves either the old tables or the new ones.

use deadpool_postgres::Client;
use mailonce_core::ports::store::StoreError;

use crate::postgres::error::{TxError, TxResult};

/// All migrations, in order. Their count is the schema version.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/postgres/0001_ledger.sql"),
    include_str!("../../migrations/postgres/0002_handoff.sql"),
    include_str!("../../migrations/postgres/0003_records.sql"),
    include_str!("../../migrations/postgres/0004_arrivals.sql"),
    include_str!("../../migrations/postgres/0005_conversations.sql"),
    include_str!("../../migrations/postgres/0006_notices.sql"),
    include_str!("../../migrations/postgres/0007_history.sql"),
    include_str!("../../migrations/postgres/0008_transports.sql"),
    include_str!("../../migrations/postgres/0009_install_secret.sql"),
    include_str!("../../migrations/postgres/0010_budgets.sql"),
    include_str!("../../migrations/postgres/0011_budget_charges.sql"),
    include_str!("../../migrations/postgres/0012_stops.sql"),
    include_str!("../../migrations/postgres/0013_holds.sql"),
    include_str!("../../migrations/postgres/0014_contacts.sql"),
    include_str!("../../migrations/postgres/0015_audit.sql"),
    include_str!("../../migrations/postgres/0016_search.sql"),
    include_str!("../../migrations/postgres/0017_claims.sql"),
    include_str!("../../migrations/postgres/0018_implicit_watches.sql"),
    include_str!("../../migrations/postgres/0019_templates.sql"),
    include_str!("../../migrations/postgres/0020_claim_payloads.sql"),
    include_str!("../../migrations/postgres/0021_oauth_clients.sql"),
    include_str!("../../migrations/postgres/0022_due_bodies.sql"),
    include_str!("../../migrations/postgres/0023_dead_mail.sql"),
    include_str!("../../migrations/postgres/0024_rare_states.sql"),
    include_str!("../../migrations/postgres/0025_restored.sql"),
];

/// Serializes the migrations of nodes that start together.
pub(crate) const LOCK_MIGRATIONS: &str = "SELECT pg_advisory_xact_lock(7883366245)";
pub(crate) const NAMESPACE: &str = "
    CREATE SCHEMA IF NOT EXISTS mailonce;
    CREATE TABLE IF NOT EXISTS mailonce.schema (
        version    integer     PRIMARY KEY,
        applied_at timestamptz NOT NULL DEFAULT now()
    )";
const EXISTS: &str = "SELECT to_regclass('mailonce.schema') IS NOT NULL";
const SELECT_VERSION: &str = "SELECT coalesce(max(version), 0) FROM mailonce.schema";
const RECORD_VERSION: &str = "INSERT INTO mailonce.schema (version) VALUES ($1)";
const INSERT_INSTALL: &str = "INSERT INTO install DEFAULT VALUES ON CONFLICT DO NOTHING";

/// The schema version that this binary writes.
pub(crate) const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// The schema version of the database. `None` when mailonce was never installed there.
pub(crate) async fn schema_version(client: &Client) -> TxResult<Option<u32>> {
    if !client.query_one(EXISTS, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let version: i32 = client.query_one(SELECT_VERSION, &[]).await?.try_get(0)?;
    Ok(Some(version as u32))
}

/// Runs the pending migrations.
pub(crate) async fn migrate(client: &mut Client) -> TxResult<()> {
    let found = schema_version(client).await?;
    if found == Some(SCHEMA_VERSION) {
        return Ok(());
    }
    refuse_newer(found)?;
    let tx = client.transaction().await?;
    tx.batch_execute(LOCK_MIGRATIONS).await?;
    tx.batch_execute(NAMESPACE).await?;
    // Another node may have migrated while this one waited for the lock.
    let found: i32 = tx.query_one(SELECT_VERSION, &[]).await?.try_get(0)?;
    refuse_newer(Some(found as u32))?;
    for (number, migration) in (1_i32..).zip(MIGRATIONS).skip(found as usize) {
        tx.batch_execute(migration).await?;
        tx.execute(RECORD_VERSION, &[&number]).await?;
        mailonce_core::failpoint!("postgres-migrating");
        tracing::info!(version = number, "the ledger's tables were brought up to date");
    }
    tx.execute(INSERT_INSTALL, &[]).await?;
    tx.commit().await.map_err(|error| TxError::at_commit(&error))?;
    mailonce_core::failpoint!("postgres-migrated");
    Ok(())
}

fn refuse_newer(found: Option<u32>) -> TxResult<()> {
    match found {
        Some(found) if found > SCHEMA_VERSION => Err(TxError::Store(StoreError::Corrupt(format!(
            "its tables are of version {found}, and this binary knows versions up to {SCHEMA_VERSION}: start a newer one"
        )))),
        _ => Ok(()),
    }
}
