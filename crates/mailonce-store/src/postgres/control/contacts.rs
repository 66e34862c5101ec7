//! Contacts: whom a team mailed.

use deadpool_postgres::Transaction;
use mailonce_core::{control::contact::ContactHash, id::TeamId};
use std::collections::BTreeSet;
use uuid::Uuid;

use crate::postgres::{
    SharedState,
    error::TxResult,
    statements::{execute, query_rows},
};

/// In sorted order, so that two transactions with the same contacts wait for each other and don't deadlock.
const REMEMBER: &str = "
    INSERT INTO contacts (team, hash)
    SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS w (team, hash) ORDER BY team, hash
    ON CONFLICT DO NOTHING";
const KNOWN: &str = "SELECT hash FROM contacts WHERE team = $1 AND hash = ANY($2)";

/// The contacts that a transaction remembers.
#[derive(Default)]
pub(crate) struct NewContacts(BTreeSet<(TeamId, ContactHash)>);

impl NewContacts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers the recipients of an email that leaves.
    pub(crate) fn remember(&mut self, team: TeamId, contacts: &[ContactHash]) {
        self.0.extend(contacts.iter().map(|contact| (team, *contact)));
    }

    pub(crate) async fn write(&self, tx: &Transaction<'_>) -> TxResult<()> {
        if self.is_empty() {
            return Ok(());
        }
        let teams: Vec<Uuid> = self.0.iter().map(|(team, _)| team.0).collect();
        let hashes: Vec<Uuid> = self.0.iter().map(|(_, contact)| Uuid::from_bytes(contact.0)).collect();
        execute(tx, REMEMBER, &[&teams, &hashes]).await.map(drop)
    }
}

/// Whether each of these contacts is known.
pub(crate) async fn known(shared: &SharedState, team: TeamId, contacts: &[ContactHash]) -> TxResult<Vec<bool>> {
    let hashes: Vec<Uuid> = contacts.iter().map(|contact| Uuid::from_bytes(contact.0)).collect();
    let rows = query_rows(&shared.connections.client().await?, KNOWN, &[&team.0, &hashes]).await?;
    let known = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<TxResult<BTreeSet<Uuid>>>()?;
    Ok(hashes.iter().map(|hash| known.contains(hash)).collect())
}
