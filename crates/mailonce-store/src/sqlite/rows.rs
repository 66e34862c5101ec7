//! Reading rows: conversions of columns, and loading an email with everything that belongs to it.

use mailonce_core::{
    handoff::{Attempt, Handoff, HandoffProgress, HandoffState, Outcome},
    id::{self, EmailId, NodeId, StopId, TeamId},
    outbound::{
        digest::Digest,
        email::{Email, Guard},
        holds::Holds,
        suppressed_call::SuppressedCall,
    },
    ports::store::{Result, StoreError},
    time::Time,
    ttl::Ttl,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params, types::ValueRef};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::schema::store_error;

const EMAIL_BY_ID: &str = "SELECT email, tail, rev, bind, ttl, settled_at, guard, resent_as, digest, head, holds FROM emails \
     WHERE email = ?2 AND team = ?1";
const HANDOFFS: &str = "SELECT number, transport, recipients, state, due_at, attempts, fence, holder, work, parked_by FROM handoffs \
     WHERE team = ?1 AND email = ?2 ORDER BY number";
const ATTEMPTS: &str = "SELECT handoff, number, at, outcome, reply, ended_at, about FROM attempts WHERE email = ?1 \
     ORDER BY handoff, number";
const SUPPRESSED: &str = "SELECT count, latest FROM suppressed WHERE email = ?1";
const BODY: &str = "SELECT COALESCE(body, (SELECT body FROM bodies WHERE email = ?1)) FROM emails WHERE email = ?1";

pub(crate) fn corrupt_row(what: &str) -> StoreError {
    StoreError::Corrupt(format!("a row of the ledger cannot be read: {what}"))
}

/// A text column that holds the name of an enum value.
pub(crate) fn parse_column<T>(row: &Row<'_>, at: usize, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
    let word = row.get_ref(at).map_err(store_error)?.as_str().map_err(|_type| corrupt_row("a word"))?;
    parse(word).ok_or_else(|| corrupt_row(word))
}

/// A value that is stored as JSON.
pub(crate) fn json_column<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<T> {
    let json = row.get_ref(at).map_err(store_error)?.as_str().map_err(|_type| corrupt_row("JSON"))?;
    serde_json::from_str(json).map_err(|e| corrupt_row(&e.to_string()))
}

/// The same for a column that may be NULL.
pub(crate) fn optional_json<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> Result<Option<T>> {
    let is_there = row.get_ref(at).map_err(store_error)? != ValueRef::Null;
    is_there.then(|| json_column(row, at)).transpose()
}

/// Serializes a value for a JSON column.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| StoreError::Corrupt(e.to_string()))
}

/// An id that is stored as 16 bytes.
pub(crate) fn id_column(row: &Row<'_>, at: usize) -> Result<Uuid> {
    row.get(at).map(Uuid::from_bytes).map_err(store_error)
}

/// The same for a column that may be NULL.
pub(crate) fn optional_id(row: &Row<'_>, at: usize) -> Result<Option<Uuid>> {
    Ok(row.get::<_, Option<[u8; 16]>>(at).map_err(store_error)?.map(Uuid::from_bytes))
}

/// An id that is stored in two columns: its ordered bits, then its random bits.
pub(crate) fn split_id(row: &Row<'_>, at: usize) -> Result<Uuid> {
    Ok(id::from_bits(row.get(at).map_err(store_error)?, row.get(at + 1).map_err(store_error)?))
}

/// A time that may be NULL.
pub(crate) fn optional_time(row: &Row<'_>, at: usize) -> Result<Option<Time>> {
    Ok(row.get::<_, Option<i64>>(at).map_err(store_error)?.map(Time))
}

/// Loads the email whose id has these ordered bits. [`email_by_id`] also compares the rest of the id.
pub(crate) fn email_by_bits(conn: &Connection, team: TeamId, number: i64, bits: i64) -> Result<Option<Email>> {
    let mut statement = conn.prepare_cached(EMAIL_BY_ID).map_err(store_error)?;
    let mut rows = statement.query(params![number, bits]).map_err(store_error)?;
    match rows.next().map_err(store_error)? {
        Some(row) => email_row(conn, team, number, row).map(Some),
        None => Ok(None),
    }
}

/// Loads the email with this id, including its handoffs.
pub(crate) fn email_by_id(conn: &Connection, team: TeamId, number: i64, id: EmailId) -> Result<Option<Email>> {
    Ok(email_by_bits(conn, team, number, id::ordered_bits(id.0))?.filter(|email| email.id == id))
}

/// Reads a row of [`EMAIL_BY_ID`], and loads the email's handoffs and its count of suppressed calls.
fn email_row(conn: &Connection, team: TeamId, number: i64, row: &Row<'_>) -> Result<Email> {
    let bits: i64 = row.get(0).map_err(store_error)?;
    let guard = row.get_ref(6).map_err(store_error)?.as_str_or_null().map_err(|_type| corrupt_row("guard"))?;
    let holds = row.get_ref(10).map_err(store_error)?.as_str_or_null().map_err(|_type| corrupt_row("holds"))?;
    let resent_as: Option<[u8; 16]> = row.get(7).map_err(store_error)?;
    let digest = row.get_ref(8).map_err(store_error)?.as_blob().map_err(|_type| corrupt_row("digest"))?;
    let head = row.get_ref(9).map_err(store_error)?.as_str().map_err(|_type| corrupt_row("head"))?;
    Ok(Email {
        id: EmailId(id::from_bits(bits, row.get(1).map_err(store_error)?)),
        team,
        rev: row.get(2).map_err(store_error)?,
        bind_number: row.get(3).map_err(store_error)?,
        ttl: Ttl(row.get(4).map_err(store_error)?),
        settled_at: row.get::<_, Option<i64>>(5).map_err(store_error)?.map(Time),
        guard: guard.map(|word| Guard::parse(word).ok_or_else(|| corrupt_row("guard"))).transpose()?,
        holds: Holds::from_column(holds).ok_or_else(|| corrupt_row("holds"))?,
        resent_as: resent_as.map(|bytes| EmailId(Uuid::from_bytes(bytes))),
        digest: Digest::from_bytes(digest).ok_or_else(|| corrupt_row("digest"))?,
        head: serde_json::from_str(head).map_err(|e| corrupt_row(&format!("head: {e}")))?,
        handoffs: handoffs(conn, number, bits)?,
        suppressed: suppressed(conn, bits)?.0,
    })
}

fn handoffs(conn: &Connection, number: i64, bits: i64) -> Result<Vec<Handoff>> {
    let mut statement = conn.prepare_cached(HANDOFFS).map_err(store_error)?;
    let mut rows = statement.query(params![number, bits]).map_err(store_error)?;
    let mut found = Vec::with_capacity(1);
    while let Some(row) = rows.next().map_err(store_error)? {
        let recipients = row.get_ref(2).map_err(store_error)?.as_str().map_err(|_type| corrupt_row("recipients"))?;
        let state = row.get_ref(3).map_err(store_error)?.as_str().map_err(|_type| corrupt_row("state"))?;
        found.push(Handoff {
            number: row.get(0).map_err(store_error)?,
            transport: row.get(1).map_err(store_error)?,
            recipients: serde_json::from_str(recipients).map_err(|_json| corrupt_row("recipients"))?,
            state: HandoffState::parse(state).ok_or_else(|| corrupt_row("state"))?,
            due_at: row.get::<_, Option<i64>>(4).map_err(store_error)?.map(Time),
            attempts: row.get(5).map_err(store_error)?,
            fence: row.get::<_, i64>(6).map_err(store_error)? as u64,
            holder: row
                .get::<_, Option<[u8; 16]>>(7)
                .map_err(store_error)?
                .map(|bytes| NodeId(Uuid::from_bytes(bytes))),
            progress: match row
                .get_ref(8)
                .map_err(store_error)?
                .as_str_or_null()
                .map_err(|_type| corrupt_row("work"))?
            {
                Some(json) => serde_json::from_str(json).map_err(|_json| corrupt_row("work"))?,
                None => HandoffProgress::default(),
            },
            parked_by: row
                .get::<_, Option<[u8; 16]>>(9)
                .map_err(store_error)?
                .map(|bytes| StopId(Uuid::from_bytes(bytes))),
        });
    }
    Ok(found)
}

/// The attempts of an email, by handoff and number.
pub(crate) fn attempts(conn: &Connection, bits: i64) -> Result<Vec<Attempt>> {
    let mut statement = conn.prepare_cached(ATTEMPTS).map_err(store_error)?;
    let rows = statement.query_map([bits], |row| {
        Ok(Attempt {
            handoff: row.get(0)?,
            number: row.get(1)?,
            at: Time(row.get(2)?),
            outcome: row.get::<_, Option<String>>(3)?.as_deref().and_then(Outcome::parse),
            reply: row.get(4)?,
            ended_at: row.get::<_, Option<i64>>(5)?.map(Time),
            details: row
                .get::<_, Option<String>>(6)?
                .and_then(|json| serde_json::from_str(&json).ok())
                .unwrap_or_default(),
        })
    });
    rows.and_then(Iterator::collect).map_err(store_error)
}

/// The number of suppressed calls, and the latest of them, oldest first.
pub(crate) fn suppressed(conn: &Connection, bits: i64) -> Result<(u64, Vec<SuppressedCall>)> {
    let mut statement = conn.prepare_cached(SUPPRESSED).map_err(store_error)?;
    let found = statement.query_row([bits], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)));
    match found.optional().map_err(store_error)? {
        Some((count, latest)) => {
            Ok((count as u64, serde_json::from_str(&latest).map_err(|_json| corrupt_row("suppressed"))?))
        }
        None => Ok((0, Vec::new())),
    }
}

/// The packed body of an email. `None` after it was dropped.
pub(crate) fn body(conn: &Connection, bits: i64) -> Result<Option<Vec<u8>>> {
    let mut statement = conn.prepare_cached(BODY).map_err(store_error)?;
    Ok(statement.query_row([bits], |row| row.get(0)).optional().map_err(store_error)?.flatten())
}
