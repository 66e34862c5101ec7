//! The schema of an outbox: install, upgrade, confirm and uninstall. All of it runs with the rights of the role in the URL
//! of the database, which needs no more than CREATE on the database.

use mailonce_core::{
    limits,
    outbox::{MAX_ROW_AGE_MS, OutboxError, OutboxStatus, RowKind},
    ports::outbox_database::Result,
};
use std::sync::Arc;
use tokio_postgres::{Client, GenericClient};
use uuid::Uuid;

use super::{ConnectConfig, SESSION_SETUP, read, read_kind, read_status, unreadable, within_timeout};
use crate::postgres::error::server_message;

/// The migrations of the tables, in order. Their count is the schema version. A change of a function alone also needs a
/// new migration, because the version says which functions a schema has.
const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/outbox/0001_tables.sql"),
    include_str!("../../../migrations/outbox/0002_claims_and_router_tables.sql"),
    include_str!("../../../migrations/outbox/0003_order_and_reports.sql"),
    include_str!("../../../migrations/outbox/0004_small_leases.sql"),
    include_str!("../../../migrations/outbox/0005_order_heads.sql"),
];
const FUNCTIONS: &str = include_str!("../../../migrations/outbox/functions.sql");

/// The schema version that this binary installs and drains.
pub const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// The oldest server that has everything the schema uses: `gen_random_uuid` without an extension.
const MIN_SERVER_VERSION: i32 = 130_000;
/// Payload bytes that one lease returns at most; the row that crosses the limit is still part of it. The transaction of a
/// lease is open until its rows fit into the buffers of the connection, so a drainer that reads slowly must not get many.
const MAX_LEASE_BYTES: usize = 1024 * 1024;
/// The same for a drainer on a Unix socket, where PostgreSQL ignores `tcp_user_timeout`. The rest of the answer must fit
/// into the buffer of the socket, which has about 200 KB on Linux.
const MAX_LOCAL_LEASE_BYTES: usize = 64 * 1024;
/// Order keys that one lease looks at most, when the rows of most keys are leased or paused. It takes about a tenth of a
/// second.
const MAX_LEASE_KEYS: u32 = 10_000;
/// How long a sent email is looked at again, in case it bounces.
const FOLLOW_DAYS: u32 = 7;
/// How many rows must be inserted and deleted unseen before the table that an outbox reads counts as unreadable. A few may
/// be the inserts of transactions that were rolled back, beside deletes of older rows.
const MIN_UNSEEN_ROWS: u32 = 10;

/// The functions that an application calls.
const SEND_FUNCTIONS: &[&str] = &["send(jsonb, text, text)", "claim(text, jsonb)"];
/// The functions that a drainer calls.
const DRAIN_FUNCTIONS: &[&str] = &[
    "version()",
    "collect(integer)",
    "lease(text, integer, bigint, integer)",
    "lease(text, integer, bigint)",
    "record_outcomes(jsonb)",
    "rows_to_refresh(integer)",
    "write_back(uuid, text, bigint, boolean)",
    "parked(bigint, integer)",
    "is_parked(uuid)",
    "unreported(integer)",
    "mark_reported(uuid[], bigint[])",
    "replay(uuid, uuid)",
    "status()",
];
/// The functions that only the owner calls, and those that other functions call.
const OWNER_FUNCTIONS: &[&str] =
    &["confirm()", "server_identity()", "check_identity()", "source_problem()", "lock_order_heads(integer)"];

/// Refuses names that need quoting or could be mistaken: the name is part of SQL text.
pub(super) fn check_schema_name(name: &str) -> Result<()> {
    let first = |c: char| c.is_ascii_lowercase() || c == '_';
    let rest = |c: char| first(c) || c.is_ascii_digit();
    let valid = name.len() <= 63 && name.starts_with(first) && name.chars().all(rest) && !name.starts_with("pg_");
    if valid { Ok(()) } else { Err(OutboxError::Unreachable(format!("`{name}` is not a valid name for the schema"))) }
}

/// A row that is marked done, for the comparison with the ledger.
#[derive(Clone, Copy, Debug)]
pub struct DoneRow {
    /// Its position.
    pub seq: i64,
    /// Its id.
    pub id: Uuid,
    /// What it became.
    pub kind: RowKind,
    /// The email or claim that the row says was accepted.
    pub target: Uuid,
}

/// The schema of an outbox in one database, for the command line.
pub struct OutboxSchema {
    pub(super) client: Client,
    pub(super) schema: String,
}

impl OutboxSchema {
    /// Connects to the database.
    pub async fn open(url: &str, schema: &str) -> Result<Self> {
        check_schema_name(schema)?;
        let config = ConnectConfig::parse(url).map_err(|error| OutboxError::Unreachable(error.to_string()))?;
        let opened = within_timeout(config.open_foreign_session(SESSION_SETUP, Arc::new(|_payload| {}))).await?;
        let (client, _driver) = opened.map_err(|error| failed(&error))?;
        Ok(Self { client, schema: schema.to_owned() })
    }

    /// Fills in the name of the schema and the limits.
    fn fill(&self, sql: &str) -> String {
        sql.replace("{schema}", &self.schema)
            .replace("{max_payload_bytes}", &limits::BODY_BYTES.to_string())
            .replace("{max_key_chars}", &limits::KEY_CHARS.to_string())
            .replace("{max_lease_bytes}", &MAX_LEASE_BYTES.to_string())
            .replace("{max_local_lease_bytes}", &MAX_LOCAL_LEASE_BYTES.to_string())
            .replace("{max_lease_keys}", &MAX_LEASE_KEYS.to_string())
            .replace("{max_age_days}", &(MAX_ROW_AGE_MS / 86_400_000).to_string())
            .replace("{follow_days}", &FOLLOW_DAYS.to_string())
            .replace("{min_unseen_rows}", &MIN_UNSEEN_ROWS.to_string())
    }

    /// The version of the schema; `None` when there is no outbox.
    pub async fn version(&self) -> Result<Option<u32>> {
        installed_version(&self.client, &self.schema).await
    }

    /// Creates the schema, or brings an older one up to date, in one transaction. Returns the version that it had.
    pub async fn install(&mut self) -> Result<Option<u32>> {
        let version = self.client.query_one("SELECT current_setting('server_version_num')::integer", &[]).await;
        if read::<i32>(&version.map_err(|error| failed(&error))?, 0)? < MIN_SERVER_VERSION {
            return Err(OutboxError::Unreachable("an outbox needs PostgreSQL 13 or newer".to_owned()));
        }
        let functions = self.fill(FUNCTIONS);
        let migrations: Vec<String> = MIGRATIONS.iter().map(|sql| self.fill(sql)).collect();
        let schema = self.schema.clone();
        let tx = self.client.transaction().await.map_err(|error| failed(&error))?;
        // Of two installations at the same time, the second finds the schema of the first.
        tx.batch_execute("SELECT pg_advisory_xact_lock(7883366246)").await.map_err(|error| failed(&error))?;
        let found = installed_version(&tx, &schema).await?;
        if let Some(newer) = found.filter(|found| *found > SCHEMA_VERSION) {
            return Err(OutboxError::WrongVersion { found: newer, expected: SCHEMA_VERSION });
        }
        let roles = if found.is_some() { granted_roles(&tx, &schema).await? } else { Vec::new() };
        let mut steps = Vec::new();
        if found.is_none() && !has_empty_schema(&tx, &schema).await? {
            steps.push(format!("CREATE SCHEMA \"{schema}\""));
        }
        steps.extend(migrations.into_iter().skip(found.unwrap_or(0) as usize));
        steps.push(functions);
        steps.push(match found {
            None => format!(
                "INSERT INTO \"{schema}\".install (schema_version, server_identity)
                 VALUES ({SCHEMA_VERSION}, \"{schema}\".server_identity())"
            ),
            Some(_) => format!("UPDATE \"{schema}\".install SET schema_version = {SCHEMA_VERSION}"),
        });
        steps.extend(roles.iter().map(|(role, functions)| grant_statement(&schema, role, functions)));
        for step in &steps {
            tx.batch_execute(step).await.map_err(|error| failed(&error))?;
        }
        tx.commit().await.map_err(|error| failed(&error))?;
        Ok(found)
    }

    /// Lets a role put emails into the outbox.
    pub async fn grant_send(&self, role: &str) -> Result<()> {
        self.grant(role, SEND_FUNCTIONS).await
    }

    /// Lets a role drain the outbox. It gets no right to a table.
    pub async fn grant_drain(&self, role: &str) -> Result<()> {
        self.grant(role, DRAIN_FUNCTIONS).await
    }

    async fn grant(&self, role: &str, functions: &[&str]) -> Result<()> {
        let sql = grant_statement(&self.schema, role, functions);
        self.client.batch_execute(&sql).await.map_err(|error| failed(&error))
    }

    /// What the outbox contains, and on which server it is.
    pub async fn status(&self) -> Result<OutboxStatus> {
        self.require_current().await?;
        let row = self.client.query_one(&format!("SELECT * FROM \"{}\".status()", self.schema), &[]).await;
        read_status(&row.map_err(|error| failed(&error))?)
    }

    /// Records that an operator looked at this database and wants it to be drained.
    pub async fn confirm(&self) -> Result<OutboxStatus> {
        self.require_current().await?;
        let done = self.client.query(&format!("SELECT \"{}\".confirm()", self.schema), &[]).await;
        done.map_err(|error| failed(&error))?;
        self.status().await
    }

    /// Rows that are marked done, in order, after this position. Only those whose email the ledger must still have: it
    /// forgets an email with its key.
    pub async fn done_rows(&self, after: i64, limit: usize) -> Result<Vec<DoneRow>> {
        self.require_current().await?;
        let sql = format!(
            "SELECT seq, id, coalesce(email_id, claim_id), kind FROM \"{}\".rows
              WHERE state = 'done' AND seq > $1 AND done_at > now() - interval '{} days' ORDER BY seq LIMIT $2",
            self.schema,
            MAX_ROW_AGE_MS / 86_400_000
        );
        let rows = self.client.query(&sql, &[&after, &(limit as i64)]).await.map_err(|error| failed(&error))?;
        let read_row = |row| {
            Ok(DoneRow { seq: read(row, 0)?, id: read(row, 1)?, target: read(row, 2)?, kind: read_kind(row, 3)? })
        };
        rows.iter().map(read_row).collect()
    }

    /// Removes the schema. Fails, and changes nothing, when it holds anything that mailonce did not create, or when other
    /// objects depend on it.
    pub async fn uninstall(&mut self) -> Result<()> {
        self.require_current().await?;
        let schema = self.schema.clone();
        let functions = [DRAIN_FUNCTIONS, SEND_FUNCTIONS, OWNER_FUNCTIONS].concat();
        let functions: Vec<String> = functions.iter().map(|name| format!("\"{schema}\".{name}")).collect();
        let tx = self.client.transaction().await.map_err(|error| failed(&error))?;
        for sql in [
            format!("DROP FUNCTION {}", functions.join(", ")),
            format!("DROP TABLE \"{schema}\".rows, \"{schema}\".source, \"{schema}\".collected, \"{schema}\".install"),
            format!("DROP SCHEMA \"{schema}\""),
        ] {
            tx.batch_execute(&sql).await.map_err(|error| failed(&error))?;
        }
        tx.commit().await.map_err(|error| failed(&error))
    }

    /// Refuses a schema of another version, whose tables and functions this binary does not know.
    async fn require_current(&self) -> Result<()> {
        match self.version().await?.ok_or_else(|| OutboxError::NotInstalled(self.schema.clone()))? {
            SCHEMA_VERSION => Ok(()),
            found => Err(OutboxError::WrongVersion { found, expected: SCHEMA_VERSION }),
        }
    }
}

fn grant_statement(schema: &str, role: &str, functions: &[&str]) -> String {
    let role = format!("\"{}\"", role.replace('"', "\"\""));
    let list: Vec<String> = functions.iter().map(|name| format!("\"{schema}\".{name}")).collect();
    let list = list.join(", ");
    format!("GRANT USAGE ON SCHEMA \"{schema}\" TO {role}; GRANT EXECUTE ON FUNCTION {list} TO {role}")
}

/// The roles that may send or drain, with the functions that this version has for them. An upgrade grants them again,
/// because new functions have no rights.
async fn granted_roles(client: &impl GenericClient, schema: &str) -> Result<Vec<(String, &'static [&'static str])>> {
    let sql = "SELECT r.rolname, p.proname = 'send'
                 FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
                WHERE p.pronamespace = to_regnamespace($1) AND p.proname IN ('send', 'version') AND a.grantee <> p.proowner";
    let rows = client.query(sql, &[&schema]).await.map_err(|error| failed(&error))?;
    let functions = |sends: bool| if sends { SEND_FUNCTIONS } else { DRAIN_FUNCTIONS };
    rows.iter().map(|row| Ok((read(row, 0)?, functions(read(row, 1)?)))).collect()
}

pub(super) fn failed(error: &tokio_postgres::Error) -> OutboxError {
    let hint = error.as_db_error().and_then(|said| said.detail().or(said.hint()));
    let hint = hint.map(|hint| format!(" ({})", hint.replace('\n', "; "))).unwrap_or_default();
    OutboxError::Unreachable(format!("{}{hint}", server_message(error)))
}

/// Whether the schema exists and is empty: a database administrator may have created it, because the role may not. Refuses
/// one with other objects, because install revokes rights and uninstall removes the schema.
async fn has_empty_schema(client: &impl GenericClient, schema: &str) -> Result<bool> {
    let sql = "SELECT n.oid IS NOT NULL,
                      EXISTS (SELECT 1 FROM pg_class c WHERE c.relnamespace = n.oid)
                      OR EXISTS (SELECT 1 FROM pg_proc p WHERE p.pronamespace = n.oid)
                 FROM (SELECT to_regnamespace($1)::oid AS oid) n";
    let row = client.query_one(sql, &[&schema]).await.map_err(|error| failed(&error))?;
    if read::<bool>(&row, 1)? {
        return Err(OutboxError::Unreachable(format!("the schema {schema} holds objects that are no outbox")));
    }
    read(&row, 0)
}

/// The version of the schema; `None` when there is no outbox.
async fn installed_version(client: &impl GenericClient, schema: &str) -> Result<Option<u32>> {
    let exists = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&format!("\"{schema}\".install")]).await;
    if !read::<bool>(&exists.map_err(|error| failed(&error))?, 0)? {
        return Ok(None);
    }
    let found = client.query_opt(&format!("SELECT schema_version FROM \"{schema}\".install"), &[]).await;
    let row = found.map_err(|error| failed(&error))?.ok_or_else(|| unreadable("the table install is empty"))?;
    Ok(Some(read::<i32>(&row, 0)?.cast_unsigned()))
}

#[cfg(test)]
mod tests {
    use super::check_schema_name;

    #[test]
    fn the_name_of_the_schema_needs_no_quotes() {
        for good in ["mailonce_outbox", "_x", "a1"] {
            assert!(check_schema_name(good).is_ok(), "{good}");
        }
        for bad in ["", "1a", "A", "a-b", "a\"b", "a'b", "pg_x", &"a".repeat(64), "é"] {
            assert!(check_schema_name(bad).is_err(), "{bad}");
        }
    }
}
