//! Inboxes and the addresses under which they are found. An address is somebody's for ever.

use deadpool_postgres::Transaction;
use mailonce_core::{
    id::{InboxId, TeamId},
    inbox::{Inbox, InboxChange, InboxEdit, InboxMade},
    port::store::{Once, Operation},
    time::Time,
};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::row::{INBOX_COLUMNS, first, inbox_columns, read_inbox};
use crate::postgres::{
    Ledger,
    record::bind,
    row::write_json,
    trouble::{Tried, Trouble},
    write::{ask, run},
};

macro_rules! inboxes {
    ($rest:literal) => {
        concat!("SELECT ", inbox_columns!(), " FROM inboxes i WHERE i.removed_at IS NULL AND ", $rest)
    };
}

/// Waits for whoever makes an inbox with the same client id at this moment; then one of the two finds the other's.
const MAKE: &str = "
    INSERT INTO inboxes (team, id, rev, seq, created_at, address, client_id, about)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
/// Takes names in their order: free ones, and those that were the inbox's own.
const TAKE: &str = "
    INSERT INTO addresses (name, team, inbox)
    SELECT name, $2, $3 FROM unnest($1::text[]) AS w (name) ORDER BY name
    ON CONFLICT (name) DO UPDATE SET retired = false
     WHERE addresses.team = excluded.team AND addresses.inbox = excluded.inbox";
const RETIRE: &str = "UPDATE addresses SET retired = true WHERE name = $1 AND team = $2 AND inbox = $3";
const FREE: &str = "DELETE FROM addresses WHERE name = $1 AND team = $2 AND inbox = $3";
const ONE: &str = inboxes!("i.team = $1 AND i.id = $2");
const ONE_LOCKED: &str = inboxes!("i.team = $1 AND i.id = $2 FOR UPDATE");
/// What was in the way: the inbox itself, removed or not, or the one with the same client id.
const SAME: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    ", i.removed_at IS NULL FROM inboxes i
      WHERE i.team = $1 AND (i.id = $2 OR (i.client_id = $3 AND i.removed_at IS NULL)) ORDER BY i.id <> $2 LIMIT 1"
);
const LIST: &str = inboxes!("i.team = $1 AND i.id < $2 ORDER BY i.id DESC LIMIT $3");
/// The first of these names that was ever taken decides, even when it reaches nobody.
const AT: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    " FROM (SELECT a.team, a.inbox, a.retired
              FROM unnest($1::text[]) WITH ORDINALITY AS w (name, place),
                   LATERAL (SELECT a.team, a.inbox, a.retired FROM addresses a WHERE a.name = w.name LIMIT 1) a
             ORDER BY w.place LIMIT 1) a
       JOIN inboxes i ON i.team = a.team AND i.id = a.inbox
      WHERE NOT a.retired AND i.removed_at IS NULL"
);
/// Whose the first of these names that was ever taken is or was.
const OWNER: &str = "SELECT a.team
       FROM unnest($1::text[]) WITH ORDINALITY AS w (name, place),
            LATERAL (SELECT a.team FROM addresses a WHERE a.name = w.name LIMIT 1) a
      ORDER BY w.place LIMIT 1";
const CHANGE: &str = "UPDATE inboxes SET rev = $3, address = $4, about = $5 WHERE team = $1 AND id = $2";
const REMOVE: &str = concat!(
    "UPDATE inboxes i SET removed_at = $3, sweep_at = $3 WHERE i.team = $1 AND i.id = $2 AND i.removed_at IS NULL RETURNING ",
    inbox_columns!()
);

/// Takes names for an inbox. False when one of them is or was somebody else's.
async fn take(tx: &Transaction<'_>, names: &[String], inbox: &Inbox) -> Tried<bool> {
    let taken = run(tx, TAKE, &[&names, &inbox.team.0, &inbox.id.0]).await?;
    Ok(taken as usize == names.len())
}

/// The names that there can be: no text of the database holds this character.
fn storable(names: &[String]) -> Vec<&String> {
    names.iter().filter(|name| !name.contains('\0')).collect()
}

impl Ledger {
    /// Makes an inbox.
    pub(super) async fn create_inbox(&self, inbox: &Inbox, operation: Option<&Operation>) -> Tried<Once<InboxMade>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        if let Some(answer) = bind(&tx, &self.time, operation, inbox.created_at).await? {
            tx.rollback().await?;
            return Ok(answer);
        }
        let (rev, seq, about) = (inbox.rev as i32, inbox.seq as i64, write_json(&inbox.about)?);
        let (team, id) = (inbox.team.0, inbox.id.0);
        let params: [&(dyn ToSql + Sync); 8] =
            [&team, &id, &rev, &seq, &inbox.created_at.0, &inbox.address, &inbox.client_id, &about];
        if run(&tx, MAKE, &params).await? == 0 {
            let read = |row: &Row| Ok((read_inbox(row)?, row.try_get(INBOX_COLUMNS)?));
            let same = first(&ask(&tx, SAME, &[&team, &id, &inbox.client_id]).await?, read)?;
            tx.rollback().await?;
            // Removed between the two statements: its client id is free again.
            let (same, is_there) = same.ok_or_else(|| Trouble::Again("an inbox was removed meanwhile".into()))?;
            return Ok(Once::Done(match (same.id == inbox.id, is_there) {
                (true, true) => InboxMade::Made(same),
                (true, false) => InboxMade::Taken,
                (false, _) => InboxMade::Before(same),
            }));
        }
        if !take(&tx, &inbox.names(), inbox).await? {
            tx.rollback().await?;
            return Ok(Once::Done(InboxMade::Taken));
        }
        self.commit(tx, 1).await?;
        Ok(Once::Done(InboxMade::Made(inbox.clone())))
    }

    /// One inbox.
    pub(super) async fn inbox(&self, team: TeamId, id: InboxId) -> Tried<Option<Inbox>> {
        first(&ask(&self.link.client().await?, ONE, &[&team.0, &id.0]).await?, read_inbox)
    }

    /// The inbox at the first of these names that was ever taken.
    pub(super) async fn inbox_at(&self, places: &[String]) -> Tried<Option<Inbox>> {
        first(&ask(&self.link.client().await?, AT, &[&storable(places)]).await?, read_inbox)
    }

    /// The team whose the first of these names is or was.
    pub(super) async fn team_at(&self, places: &[String]) -> Tried<Option<TeamId>> {
        let rows = ask(&self.link.client().await?, OWNER, &[&storable(places)]).await?;
        first(&rows, |row| Ok(TeamId(row.try_get(0)?)))
    }

    /// Inboxes older than `before`, newest first.
    pub(super) async fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Tried<Vec<Inbox>> {
        let (before, limit) = (before.map_or(Uuid::max(), |id| id.0), i64::try_from(limit).unwrap_or(i64::MAX));
        let client = self.link.client().await?;
        ask(&client, LIST, &[&team.0, &before, &limit]).await?.iter().map(read_inbox).collect()
    }

    /// Changes an inbox, if it is still as it was seen.
    pub(super) async fn change_inbox(
        &self,
        edit: &InboxEdit,
        operation: Option<&Operation>,
        now: Time,
    ) -> Tried<Once<InboxChange>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        if let Some(answer) = bind(&tx, &self.time, operation, now).await? {
            tx.rollback().await?;
            return Ok(answer);
        }
        let found = first(&ask(&tx, ONE_LOCKED, &[&edit.team.0, &edit.id.0]).await?, read_inbox)?;
        let inbox = match found {
            Some(inbox) if inbox.rev == edit.rev => inbox,
            other => {
                tx.rollback().await?;
                return Ok(Once::Done(other.map_or(InboxChange::Missing, InboxChange::Stale)));
            }
        };
        let edited = edit.clone().of(&inbox);
        let Some(inbox) = rename(&tx, edited).await? else {
            tx.rollback().await?;
            return Ok(Once::Done(InboxChange::Taken));
        };
        self.commit(tx, 1).await?;
        Ok(Once::Done(InboxChange::Changed(inbox)))
    }

    /// Removes an inbox. The sweep takes what is in it.
    pub(super) async fn remove_inbox(&self, team: TeamId, id: InboxId, now: Time) -> Tried<Option<Inbox>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        // The lock that arrivals wait for: an update alone does not touch a key and would pass them.
        ask(&tx, ONE_LOCKED, &[&team.0, &id.0]).await?;
        let removed = first(&ask(&tx, REMOVE, &[&team.0, &id.0, &now.0]).await?, read_inbox)?;
        self.commit(tx, 1).await?;
        Ok(removed)
    }
}

/// Writes a changed inbox and its names. `None` when a name is taken.
async fn rename(tx: &Transaction<'_>, edited: mailonce_core::inbox::Edited) -> Tried<Option<Inbox>> {
    let inbox = edited.inbox;
    let (team, id) = (inbox.team.0, inbox.id.0);
    if !edited.takes.is_empty() && !take(tx, &edited.takes, &inbox).await? {
        return Ok(None);
    }
    if let Some(name) = &edited.retires {
        run(tx, RETIRE, &[name, &team, &id]).await?;
    }
    if let Some(name) = &edited.frees {
        run(tx, FREE, &[name, &team, &id]).await?;
    }
    run(tx, CHANGE, &[&team, &id, &(inbox.rev as i32), &inbox.address, &write_json(&inbox.about)?]).await?;
    Ok(Some(inbox))
}
