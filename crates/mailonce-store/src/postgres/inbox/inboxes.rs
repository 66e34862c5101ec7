//! Inboxes and their addresses. An address is never reassigned to another inbox; a catch-all can be.

use deadpool_postgres::Transaction;
use mailonce_core::{
    control::audit::act::Act,
    id::{InboxId, TeamId},
    inbox::{CreateInboxResult, Inbox, InboxChangeResult, InboxEdit},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use crate::postgres::{
    SharedState,
    control::audit_chain,
    error::{TxError, TxResult},
    inbound::row::{INBOX_COLUMNS, inbox_columns, read_first, read_inbox},
    operation_keys::bind_or_replay,
    row::write_json,
    statements::{execute, query_rows},
};

macro_rules! inboxes {
    ($rest:literal) => {
        concat!("SELECT ", inbox_columns!(), " FROM inboxes i WHERE i.removed_at IS NULL AND ", $rest)
    };
}

/// Waits for a concurrent insert with the same client id. If that commits, this one inserts nothing.
const INSERT: &str = "
    INSERT INTO inboxes (team, id, rev, seq, created_at, address, client_id, about)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
/// Claims addresses in sorted order: unused ones, and those that already belong to this inbox.
const CLAIM_ADDRESSES: &str = "
    INSERT INTO addresses (name, team, inbox)
    SELECT name, $2, $3 FROM unnest($1::text[]) AS w (name) ORDER BY name
    ON CONFLICT (name) DO UPDATE SET retired = false
     WHERE addresses.team = excluded.team AND addresses.inbox = excluded.inbox";
const RETIRE_ADDRESS: &str = "UPDATE addresses SET retired = true WHERE name = $1 AND team = $2 AND inbox = $3";
const RELEASE_ADDRESS: &str = "DELETE FROM addresses WHERE name = $1 AND team = $2 AND inbox = $3";
const BY_ID: &str = inboxes!("i.team = $1 AND i.id = $2");
const BY_ID_LOCKED: &str = inboxes!("i.team = $1 AND i.id = $2 FOR UPDATE");
/// The row that caused the conflict: the inbox itself, removed or not, or the one with the same client id.
const CONFLICTING_INBOX: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    ", i.removed_at IS NULL FROM inboxes i
      WHERE i.team = $1 AND (i.id = $2 OR (i.client_id = $3 AND i.removed_at IS NULL)) ORDER BY i.id <> $2 LIMIT 1"
);
const LIST: &str = inboxes!("i.team = $1 AND i.id < $2 ORDER BY i.id DESC LIMIT $3");
/// The first of these addresses that was ever taken decides, even if it is retired.
const BY_ADDRESS: &str = concat!(
    "SELECT ",
    inbox_columns!(),
    " FROM (SELECT a.team, a.inbox, a.retired
              FROM unnest($1::text[]) WITH ORDINALITY AS w (name, place),
                   LATERAL (SELECT a.team, a.inbox, a.retired FROM addresses a WHERE a.name = w.name LIMIT 1) a
             ORDER BY w.place LIMIT 1) a
       JOIN inboxes i ON i.team = a.team AND i.id = a.inbox
      WHERE NOT a.retired AND i.removed_at IS NULL"
);
/// The team that owns or owned the first of these addresses that was ever taken.
const TEAM_BY_ADDRESS: &str = "SELECT a.team
       FROM unnest($1::text[]) WITH ORDINALITY AS w (name, place),
            LATERAL (SELECT a.team FROM addresses a WHERE a.name = w.name LIMIT 1) a
      ORDER BY w.place LIMIT 1";
const UPDATE: &str = "UPDATE inboxes SET rev = $3, address = $4, about = $5 WHERE team = $1 AND id = $2";
const REMOVE: &str = concat!(
    "UPDATE inboxes i SET removed_at = $3, sweep_at = $3 WHERE i.team = $1 AND i.id = $2 AND i.removed_at IS NULL RETURNING ",
    inbox_columns!()
);

/// Claims addresses for an inbox. False when one of them belongs or belonged to another inbox.
async fn claim_addresses(tx: &Transaction<'_>, names: &[String], inbox: &Inbox) -> TxResult<bool> {
    let taken = execute(tx, CLAIM_ADDRESSES, &[&names, &inbox.team.0, &inbox.id.0]).await?;
    Ok(taken as usize == names.len())
}

/// Drops addresses with a NUL character, which PostgreSQL text cannot contain.
fn without_nul(names: &[String]) -> Vec<&String> {
    names.iter().filter(|name| !name.contains('\0')).collect()
}

/// Creates an inbox.
pub(crate) async fn create_inbox(
    shared: &SharedState,
    inbox: &Inbox,
    operation: Option<&KeyedOperation>,
) -> TxResult<IdempotentResult<CreateInboxResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, inbox.created_at).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let (rev, seq, about) = (inbox.rev as i32, inbox.latest_seq as i64, write_json(&inbox.settings)?);
    let (team, id) = (inbox.team.0, inbox.id.0);
    let params: [&(dyn ToSql + Sync); 8] =
        [&team, &id, &rev, &seq, &inbox.created_at.0, &inbox.address, &inbox.client_id, &about];
    if execute(&tx, INSERT, &params).await? == 0 {
        let read = |row: &Row| Ok((read_inbox(row)?, row.try_get(INBOX_COLUMNS)?));
        let same = read_first(&query_rows(&tx, CONFLICTING_INBOX, &[&team, &id, &inbox.client_id]).await?, read)?;
        tx.rollback().await?;
        // The other inbox was removed between the two statements: its client id is free again, so retry.
        let (same, is_there) = same.ok_or_else(|| TxError::Conflict("an inbox was removed meanwhile".into()))?;
        return Ok(IdempotentResult::Done(match (same.id == inbox.id, is_there) {
            (true, true) => CreateInboxResult::Created(same),
            (true, false) => CreateInboxResult::AddressTaken,
            (false, _) => CreateInboxResult::AlreadyExists(same),
        }));
    }
    if !claim_addresses(&tx, &inbox.lookup_addresses(), inbox).await? {
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(CreateInboxResult::AddressTaken));
    }
    audit_chain::record_act(&tx, Act::of_inbox(None, Some(inbox)).as_ref(), inbox.created_at).await?;
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(CreateInboxResult::Created(inbox.clone())))
}

/// One inbox.
pub(crate) async fn inbox(shared: &SharedState, team: TeamId, id: InboxId) -> TxResult<Option<Inbox>> {
    read_first(&query_rows(&shared.connections.client().await?, BY_ID, &[&team.0, &id.0]).await?, read_inbox)
}

/// The inbox at the first of these addresses that was ever taken. `None` if that address is retired.
pub(crate) async fn inbox_by_address(shared: &SharedState, places: &[String]) -> TxResult<Option<Inbox>> {
    read_first(&query_rows(&shared.connections.client().await?, BY_ADDRESS, &[&without_nul(places)]).await?, read_inbox)
}

/// The team that owns or owned the first of these addresses that was ever taken.
pub(crate) async fn team_by_address(shared: &SharedState, places: &[String]) -> TxResult<Option<TeamId>> {
    let rows = query_rows(&shared.connections.client().await?, TEAM_BY_ADDRESS, &[&without_nul(places)]).await?;
    read_first(&rows, |row| Ok(TeamId(row.try_get(0)?)))
}

/// Inboxes older than `before`, newest first.
pub(crate) async fn inboxes(
    shared: &SharedState,
    team: TeamId,
    before: Option<InboxId>,
    limit: usize,
) -> TxResult<Vec<Inbox>> {
    let (before, limit) = (before.map_or(Uuid::max(), |id| id.0), i64::try_from(limit).unwrap_or(i64::MAX));
    let client = shared.connections.client().await?;
    query_rows(&client, LIST, &[&team.0, &before, &limit]).await?.iter().map(read_inbox).collect()
}

/// Changes an inbox, if its revision is still the expected one.
pub(crate) async fn change_inbox(
    shared: &SharedState,
    edit: &InboxEdit,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<InboxChangeResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let found = read_first(&query_rows(&tx, BY_ID_LOCKED, &[&edit.team.0, &edit.id.0]).await?, read_inbox)?;
    let before = match found {
        Some(inbox) if inbox.rev == edit.rev => inbox,
        other => {
            tx.rollback().await?;
            return Ok(IdempotentResult::Done(other.map_or(InboxChangeResult::Missing, InboxChangeResult::Stale)));
        }
    };
    let edited = edit.clone().plan_for(&before);
    let Some(inbox) = save_with_addresses(&tx, edited).await? else {
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(InboxChangeResult::AddressTaken));
    };
    audit_chain::record_act(&tx, Act::of_inbox(Some(&before), Some(&inbox)).as_ref(), now).await?;
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(InboxChangeResult::Changed(inbox)))
}

/// Removes an inbox. Its contents are swept later.
pub(crate) async fn remove_inbox(
    shared: &SharedState,
    team: TeamId,
    id: InboxId,
    now: Time,
) -> TxResult<Option<Inbox>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    // `FOR UPDATE` conflicts with the `FOR KEY SHARE` of receiving. The update alone changes no key column, so it
    // would not.
    query_rows(&tx, BY_ID_LOCKED, &[&team.0, &id.0]).await?;
    let removed = read_first(&query_rows(&tx, REMOVE, &[&team.0, &id.0, &now.0]).await?, read_inbox)?;
    audit_chain::record_act(&tx, Act::of_inbox(removed.as_ref(), None).as_ref(), now).await?;
    shared.commit(tx, 1).await?;
    Ok(removed)
}

/// Saves a changed inbox and its addresses. `None` when an address is taken.
async fn save_with_addresses(
    tx: &Transaction<'_>,
    edited: mailonce_core::inbox::InboxEditPlan,
) -> TxResult<Option<Inbox>> {
    let inbox = edited.inbox;
    let (team, id) = (inbox.team.0, inbox.id.0);
    if !edited.claimed_addresses.is_empty() && !claim_addresses(tx, &edited.claimed_addresses, &inbox).await? {
        return Ok(None);
    }
    if let Some(name) = &edited.retired_address {
        execute(tx, RETIRE_ADDRESS, &[name, &team, &id]).await?;
    }
    if let Some(name) = &edited.freed_catch_all {
        execute(tx, RELEASE_ADDRESS, &[name, &team, &id]).await?;
    }
    execute(tx, UPDATE, &[&team, &id, &(inbox.rev as i32), &inbox.address, &write_json(&inbox.settings)?]).await?;
    Ok(Some(inbox))
}
