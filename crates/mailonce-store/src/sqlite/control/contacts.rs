//! Contacts: whom a team mailed.

use mailonce_core::{control::contact::ContactHash, ports::store::Result};
use rusqlite::{Connection, params};

use crate::sqlite::{schema::store_error, write_session::WriteSession};

const REMEMBER: &str = "INSERT INTO contacts (team, hash) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
const IS_KNOWN: &str = "SELECT 1 FROM contacts WHERE team = ?1 AND hash = ?2";

/// Remembers the recipients of an email that leaves.
pub(crate) fn remember(ledger: &WriteSession<'_>, team: i64, contacts: &[ContactHash]) -> Result<()> {
    for contact in contacts {
        ledger.execute(REMEMBER, params![team, contact.0])?;
    }
    Ok(())
}

/// Whether each of these contacts is known.
pub(crate) fn known(conn: &Connection, team: i64, contacts: &[ContactHash]) -> Result<Vec<bool>> {
    let mut statement = conn.prepare_cached(IS_KNOWN).map_err(store_error)?;
    contacts.iter().map(|contact| statement.exists(params![team, contact.0]).map_err(store_error)).collect()
}
