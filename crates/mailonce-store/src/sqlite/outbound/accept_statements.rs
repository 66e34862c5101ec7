//! The insert statements of an accept, prepared once for each connection that writes.

use mailonce_core::ports::store::Result;
use rusqlite::{Connection, Statement};

use crate::sqlite::schema::store_error;

const INSERT_EMAIL: &str = "INSERT INTO emails (team, email, tail, rev, bind, ttl, guard, digest, head, body, holds) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const INSERT_BODY: &str = "INSERT INTO bodies (email, body) VALUES (?1, ?2)";
pub(crate) const INSERT_HANDOFF: &str = "INSERT INTO handoffs (team, email, number, transport, recipients, state, due_at, attempts, fence) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0)";

/// The insert statements of an accept, prepared once.
pub(crate) struct AcceptStatements<'c> {
    pub(crate) email: Statement<'c>,
    pub(crate) body: Statement<'c>,
    pub(crate) handoff: Statement<'c>,
}

impl<'c> AcceptStatements<'c> {
    /// Prepares them.
    pub(crate) fn prepare(conn: &'c Connection) -> Result<Self> {
        let statement = |sql: &str| conn.prepare(sql).map_err(store_error);
        Ok(Self { email: statement(INSERT_EMAIL)?, body: statement(INSERT_BODY)?, handoff: statement(INSERT_HANDOFF)? })
    }
}
