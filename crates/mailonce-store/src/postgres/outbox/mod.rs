//! The outbox in the user's own PostgreSQL. That database is not the ledger: mailonce has one schema there and calls only
//! its functions.
//!
//! | file | contents |
//! |---|---|
//! | this one | the drainer's calls ([`OutboxDatabase`]) |
//! | [`schema`] | install, upgrade, confirm and uninstall |
//! | [`source`] | the table of the Debezium outbox router that an outbox reads |
//!
//! Every call is one statement outside a transaction block, so no transaction is open between two calls.

pub mod schema;
pub mod source;

use async_trait::async_trait;
use mailonce_core::{
    id::EmailId,
    outbound::email::EmailState,
    outbox::{
        LeasedRow, OutboxError, OutboxStatus, ParkedRow, RowEmail, RowFailure, RowKind, RowOutcome, RowRecord,
        SourceTable, reports::ReportedRow,
    },
    ports::outbox_database::{OutboxDatabase, Result},
    time::Time,
};
use serde_json::{Value, json};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::sync::{Mutex, Notify};
use tokio_postgres::{
    Client, Row, Statement,
    error::SqlState,
    types::{FromSql, ToSql},
};
use uuid::Uuid;

use super::{error::server_message, session_pools::ConnectConfig};
use schema::{SCHEMA_VERSION, check_schema_name};

/// Settings of every session. A statement of a drainer takes milliseconds; the limits end one that hangs. A drainer that
/// stands still while it reads an answer would keep the transaction of the statement open. PostgreSQL heeds
/// `statement_timeout` only after it has written the answer, so `tcp_user_timeout` ends that session.
const SESSION_SETUP: &str = "
    SET default_transaction_isolation = 'read committed';
    SET statement_timeout = '30s';
    SET lock_timeout = '10s';
    SET tcp_user_timeout = '15s';
    SET idle_in_transaction_session_timeout = '15s';
    SET client_min_messages = 'warning';";

/// How long a call may take. The database ends a statement after 30 s; a server that is silent for longer is gone.
const CALL_TIMEOUT: Duration = Duration::from_secs(40);

/// The SQLSTATE with which `lease` refuses a database that was restored, cloned or failed over.
const IDENTITY_CHANGED: &str = "MO001";
/// The SQLSTATE with which `lease` refuses a drainer that knows another version. The message is the version.
const WRONG_VERSION: &str = "MO002";
/// The SQLSTATE with which `collect` refuses a table whose rows nobody can read.
const UNREADABLE_TABLE: &str = "MO003";

/// An outbox in a PostgreSQL database. It connects at the first call, and again after a failure.
pub struct PostgresOutbox {
    config: ConnectConfig,
    schema: String,
    session: Mutex<Option<Arc<OutboxSession>>>,
    new_rows: Arc<Notify>,
}

/// A session, and the outbox that it found.
struct OutboxSession {
    client: Client,
    outbox_id: Uuid,
    /// Prepared statements by their text. Preparing costs two round trips.
    statements: Mutex<HashMap<String, Statement>>,
}

impl OutboxSession {
    async fn query(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
        let known = self.statements.lock().await.get(sql).cloned();
        if let Some(statement) = known {
            return self.client.query(&statement, params).await;
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.lock().await.insert(sql.to_owned(), statement.clone());
        self.client.query(&statement, params).await
    }
}

impl PostgresOutbox {
    /// An outbox by the URL of its database and the name of its schema. Does not connect.
    pub fn new(url: &str, schema: &str) -> Result<Self> {
        check_schema_name(schema)?;
        let config = ConnectConfig::parse(url).map_err(|error| OutboxError::Unreachable(error.to_string()))?;
        Ok(Self { config, schema: schema.to_owned(), session: Mutex::default(), new_rows: Arc::default() })
    }

    /// The open session, or a new one.
    async fn session(&self) -> Result<Arc<OutboxSession>> {
        let mut current = self.session.lock().await;
        if let Some(open) = current.as_ref().filter(|open| !open.client.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let opened = Arc::new(self.open_session().await?);
        // Rows may have come while nobody listened.
        self.new_rows.notify_one();
        Ok(Arc::clone(current.insert(opened)))
    }

    async fn open_session(&self) -> Result<OutboxSession> {
        let wake = Arc::clone(&self.new_rows);
        let heard = Arc::new(move |_payload: &str| wake.notify_one());
        let opening = self.config.open_foreign_session(SESSION_SETUP, heard);
        let (client, _driver) = within_timeout(opening).await?.map_err(|error| self.describe(&error))?;
        let found = self.version_of(&client).await?;
        client.batch_execute(&format!("LISTEN \"{}\"", self.schema)).await.map_err(|error| self.describe(&error))?;
        Ok(OutboxSession { client, outbox_id: found, statements: Mutex::default() })
    }

    /// Refuses a schema of another version. Returns the id of the outbox.
    async fn version_of(&self, client: &Client) -> Result<Uuid> {
        let asked = client.query_one(&format!("SELECT * FROM \"{}\".version()", self.schema), &[]).await;
        let row = asked.map_err(|error| self.describe(&error))?;
        let found = read::<i32>(&row, 0)?.cast_unsigned();
        if found != SCHEMA_VERSION {
            return Err(OutboxError::WrongVersion { found, expected: SCHEMA_VERSION });
        }
        read(&row, 1)
    }

    /// Calls a function of the schema. `call` is its name with its parameters.
    async fn call(&self, call: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        self.query(&format!("SELECT * FROM \"{}\".{call}", self.schema), params).await
    }

    async fn query(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let session = self.session().await?;
        let failed = match within_timeout(session.query(sql, params)).await {
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(error)) => self.describe(&error),
            Err(late) => late,
        };
        // The session may never answer again, or its prepared statements are those of an older schema. The next one
        // checks the version.
        if !matches!(failed, OutboxError::IdentityChanged(_) | OutboxError::UnreadableTable(_)) {
            *self.session.lock().await = None;
        }
        Err(failed)
    }

    async fn call_one<'a, T: for<'b> FromSql<'b>>(&self, call: &str, params: &[&'a (dyn ToSql + Sync)]) -> Result<T> {
        let rows = self.call(call, params).await?;
        rows.first().map_or_else(|| Err(unreadable("no row")), |row| read(row, 0))
    }

    fn describe(&self, error: &tokio_postgres::Error) -> OutboxError {
        match error.as_db_error() {
            Some(said) if said.code().code() == IDENTITY_CHANGED => {
                OutboxError::IdentityChanged(said.message().to_owned())
            }
            Some(said) if said.code().code() == UNREADABLE_TABLE => {
                OutboxError::UnreadableTable(said.message().to_owned())
            }
            Some(said) if said.code().code() == WRONG_VERSION => {
                let found = said.message().parse().unwrap_or_default();
                OutboxError::WrongVersion { found, expected: SCHEMA_VERSION }
            }
            Some(said)
                if [SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME, SqlState::UNDEFINED_TABLE]
                    .contains(said.code()) =>
            {
                OutboxError::NotInstalled(self.schema.clone())
            }
            _ => OutboxError::Unreachable(server_message(error)),
        }
    }
}

async fn within_timeout<T>(call: impl Future<Output = T>) -> Result<T> {
    let late = |_elapsed| OutboxError::Unreachable(format!("no answer within {} s", CALL_TIMEOUT.as_secs()));
    tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(late)
}

fn unreadable(why: impl std::fmt::Display) -> OutboxError {
    OutboxError::Unreachable(format!("an answer of the database cannot be read: {why}"))
}

fn read<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(unreadable)
}

fn read_leased(row: &Row) -> Result<LeasedRow> {
    Ok(LeasedRow {
        id: read(row, 0)?,
        fence: read(row, 1)?,
        payload: read(row, 2)?,
        key: read(row, 3)?,
        attempts: read::<i32>(row, 4)?.cast_unsigned(),
        kind: read_kind(row, 5)?,
    })
}

fn read_kind(row: &Row, column: usize) -> Result<RowKind> {
    let kind: &str = read(row, column)?;
    RowKind::parse(kind).ok_or_else(|| unreadable(format!("a row of the kind {kind}")))
}

/// The outcome of a row as `record_outcomes` takes it.
fn outcome_json(record: &RowRecord) -> Value {
    // JSON in PostgreSQL has no NUL.
    let failed = |state: &str, failure: &RowFailure| {
        let detail = failure.detail.replace('\0', "\u{fffd}");
        json!({ "state": state, "code": failure.code, "detail": detail })
    };
    let mut value = match &record.outcome {
        RowOutcome::Done(email) => json!({
            "state": "done", "email_id": email.id.0, "email_state": email.state.as_str(), "email_rev": email.rev,
            "may_change": email.may_change(),
        }),
        RowOutcome::Offered(claim) => json!({ "state": "done", "claim_id": claim.0 }),
        RowOutcome::Parked(failure) => failed("parked", failure),
        RowOutcome::Retry { pause_ms, failure } => {
            let mut value = failed("pending", failure);
            value["pause_ms"] = (*pause_ms).into();
            value
        }
    };
    value["id"] = record.row.to_string().into();
    value["fence"] = record.fence.into();
    value
}

fn read_parked(row: &Row) -> Result<ParkedRow> {
    Ok(ParkedRow {
        seq: read(row, 0)?,
        id: read(row, 1)?,
        key: read(row, 2)?,
        order_key: read(row, 3)?,
        failure: RowFailure { code: read(row, 4)?, detail: read(row, 5)? },
        attempts: read::<i32>(row, 6)?.cast_unsigned(),
        created_at: Time(read(row, 7)?),
        parked_at: Time(read(row, 8)?),
        kind: read_kind(row, 9)?,
    })
}

fn read_row_email(row: &Row) -> Result<(Uuid, RowEmail)> {
    let state: &str = read(row, 2)?;
    let state = EmailState::parse(state).ok_or_else(|| unreadable(format!("the state {state}")))?;
    let rev = u32::try_from(read::<i64>(row, 3)?).map_err(unreadable)?;
    Ok((read(row, 0)?, RowEmail { id: EmailId(read(row, 1)?), state, rev }))
}

pub(super) fn read_status(row: &Row) -> Result<OutboxStatus> {
    Ok(OutboxStatus {
        outbox_id: read(row, 0)?,
        schema_version: read::<i32>(row, 1)?.cast_unsigned(),
        confirmed_identity: read(row, 2)?,
        current_identity: read(row, 3)?,
        pending: read::<i64>(row, 4)?.cast_unsigned(),
        parked: read::<i64>(row, 5)?.cast_unsigned(),
        oldest_pending_s: read(row, 6)?,
        source: match read::<Option<String>>(row, 7)? {
            Some(table) => Some(SourceTable { table, types: read(row, 8)?, problem: read(row, 9)? }),
            None => None,
        },
    })
}

#[async_trait]
impl OutboxDatabase for PostgresOutbox {
    async fn outbox_id(&self) -> Result<Uuid> {
        Ok(self.session().await?.outbox_id)
    }

    async fn collect(&self, max: usize) -> Result<Option<usize>> {
        let copied: Option<i32> = self.call_one("collect($1)", &[&(max as i32)]).await?;
        Ok(copied.map(|copied| copied.cast_unsigned() as usize))
    }

    async fn lease(&self, holder: &str, max: usize, lease: Duration) -> Result<Vec<LeasedRow>> {
        let (max, lease_ms, version) = (max as i32, lease.as_millis() as i64, SCHEMA_VERSION as i32);
        let rows = self.call("lease($1, $2, $3, $4)", &[&holder, &max, &lease_ms, &version]).await?;
        rows.iter().map(read_leased).collect()
    }

    async fn record_outcomes(&self, records: &[RowRecord]) -> Result<Vec<Uuid>> {
        let outcomes = records.iter().map(outcome_json).collect::<Value>().to_string();
        let rows = self.call("record_outcomes($1::text::jsonb)", &[&outcomes]).await?;
        rows.iter().map(|row| read(row, 0)).collect()
    }

    async fn rows_to_refresh(&self, max: usize) -> Result<Vec<(Uuid, RowEmail)>> {
        let rows = self.call("rows_to_refresh($1)", &[&(max as i32)]).await?;
        rows.iter().map(read_row_email).collect()
    }

    async fn write_back(&self, rows: &[(Uuid, RowEmail)]) -> Result<()> {
        let row_json = |(row, email): &(Uuid, RowEmail)| {
            json!({
                "id": row.to_string(), "state": email.state.as_str(), "rev": email.rev, "may_change": email.may_change(),
            })
        };
        let states = rows.iter().map(row_json).collect::<Value>().to_string();
        // A commit for each row would take as many round trips to the disk.
        let call = format!("\"{}\".write_back(w.id, w.state, w.rev, w.may_change)", self.schema);
        let rows = "jsonb_to_recordset($1::text::jsonb) AS w (id uuid, state text, rev bigint, may_change boolean)";
        self.query(&format!("SELECT {call} FROM {rows}"), &[&states]).await.map(drop)
    }

    async fn parked(&self, before: Option<i64>, limit: usize) -> Result<Vec<ParkedRow>> {
        let rows = self.call("parked($1, $2)", &[&before, &(limit as i32)]).await?;
        rows.iter().map(read_parked).collect()
    }

    async fn is_parked(&self, row: Uuid) -> Result<Option<bool>> {
        self.call_one("is_parked($1)", &[&row]).await
    }

    async fn unreported(&self, max: usize) -> Result<Vec<ReportedRow>> {
        let rows = self.call("unreported($1)", &[&(max as i32)]).await?;
        let read_row = |row| {
            let (id, kind) = (read(row, 0)?, read_kind(row, 1)?);
            Ok(ReportedRow { id, kind, code: read(row, 2)?, parked_at: Time(read(row, 3)?) })
        };
        rows.iter().map(read_row).collect()
    }

    async fn mark_reported(&self, rows: &[ReportedRow]) -> Result<()> {
        let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
        let times: Vec<i64> = rows.iter().map(|row| row.parked_at.0).collect();
        self.call("mark_reported($1, $2)", &[&ids, &times]).await.map(drop)
    }

    async fn replay(&self, row: Uuid, request: Uuid) -> Result<()> {
        self.call("replay($1, $2)", &[&row, &request]).await.map(drop)
    }

    async fn status(&self) -> Result<OutboxStatus> {
        let rows = self.call("status()", &[]).await?;
        rows.first().map_or_else(|| Err(OutboxError::NotInstalled(self.schema.clone())), read_status)
    }

    async fn wait_for_rows(&self, at_most: Duration) {
        // Without a notification the time is over: then the caller looks anyway.
        let _elapsed = tokio::time::timeout(at_most, self.new_rows.notified()).await;
    }
}
