//! Migrations: the tables a binary knows, brought up to date in one transaction under one lock.
//!
//! PostgreSQL undoes DDL like anything else, so a migration that is killed leaves the old tables or the new ones.

use deadpool_postgres::Client;
use mailonce_core::port::store::StoreError;

use super::trouble::{Tried, Trouble};

/// Every migration, in order. Their number is the version.
pub(super) const MIGRATIONS: &[&str] = &[
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
];

/// Nodes that start together migrate one after the other.
pub(super) const LOCK: &str = "SELECT pg_advisory_xact_lock(7883366245)";
pub(super) const NAMESPACE: &str = "
    CREATE SCHEMA IF NOT EXISTS mailonce;
    CREATE TABLE IF NOT EXISTS mailonce.schema (
        version    integer     PRIMARY KEY,
        applied_at timestamptz NOT NULL DEFAULT now()
    )";
const EXISTS: &str = "SELECT to_regclass('mailonce.schema') IS NOT NULL";
const VERSION: &str = "SELECT coalesce(max(version), 0) FROM mailonce.schema";
const APPLIED: &str = "INSERT INTO mailonce.schema (version) VALUES ($1)";
const INSTALL: &str = "INSERT INTO install DEFAULT VALUES ON CONFLICT DO NOTHING";

/// The version this binary writes.
pub(super) const CURRENT: u32 = MIGRATIONS.len() as u32;

/// The version the database has. `None` when mailonce was never here.
pub(super) async fn version(client: &Client) -> Tried<Option<u32>> {
    if !client.query_one(EXISTS, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let version: i32 = client.query_one(VERSION, &[]).await?.try_get(0)?;
    Ok(Some(version as u32))
}

/// Brings the tables up to date.
pub(super) async fn migrate(client: &mut Client) -> Tried<()> {
    let found = version(client).await?;
    if found == Some(CURRENT) {
        return Ok(());
    }
    refuse_newer(found)?;
    let tx = client.transaction().await?;
    tx.batch_execute(LOCK).await?;
    tx.batch_execute(NAMESPACE).await?;
    // Another node may have been faster.
    let found: i32 = tx.query_one(VERSION, &[]).await?.try_get(0)?;
    refuse_newer(Some(found as u32))?;
    for (number, migration) in (1_i32..).zip(MIGRATIONS).skip(found as usize) {
        tx.batch_execute(migration).await?;
        tx.execute(APPLIED, &[&number]).await?;
        mailonce_core::failpoint!("postgres-migrating");
        tracing::info!(version = number, "the ledger's tables were brought up to date");
    }
    tx.execute(INSTALL, &[]).await?;
    tx.commit().await.map_err(|error| Trouble::at_commit(&error))?;
    mailonce_core::failpoint!("postgres-migrated");
    Ok(())
}

fn refuse_newer(found: Option<u32>) -> Tried<()> {
    match found {
        Some(found) if found > CURRENT => Err(Trouble::Store(StoreError::Corrupt(format!(
            "its tables are of version {found}, and this binary knows versions up to {CURRENT}: start a newer one"
        )))),
        _ => Ok(()),
    }
}
