//! Inboxes: their rows, and the addresses that lead to them.

use mailonce_core::{
    control::audit::act::Act,
    id::{InboxId, TeamId, ordered_bits, random_bits},
    inbox::{CreateInboxResult, Inbox, InboxChangeResult, InboxEdit},
    operation::{IdempotentResult, KeyedOperation},
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};

use crate::sqlite::{
    control::audit,
    outbound::key_bindings::{self, unknown_team_error},
    rows::{id_column, json_column, split_id, to_json},
    schema::store_error,
    write_session::WriteSession,
};

/// An inbox that was not removed, with its team's id.
const INBOX: &str = "SELECT i.inbox, i.tail, i.rev, i.seq, i.address, i.client_id, i.created_at, i.about, t.id \
     FROM inboxes i JOIN teams t ON t.number = i.team WHERE i.removed IS NULL";
const EXISTS: &str = "SELECT 1 FROM inboxes WHERE inbox = ?1 AND tail = ?2 AND team = ?3 AND removed IS NULL";
const BY_NAME: &str = "SELECT inbox, reaches FROM inbox_names WHERE name = ?1";
/// The team that owns or owned an address. Works for removed inboxes too, because their rows stay.
const TEAM_BY_NAME: &str = "SELECT t.id FROM inbox_names n JOIN inboxes i ON i.inbox = n.inbox \
     JOIN teams t ON t.number = i.team WHERE n.name = ?1";
const INSERT: &str = "INSERT INTO inboxes (inbox, tail, team, rev, seq, address, client_id, created_at, about) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const UPDATE: &str = "UPDATE inboxes SET rev = ?2, address = ?3, about = ?4 WHERE inbox = ?1";
const SAVE_NAME: &str = "INSERT INTO inbox_names (name, inbox, reaches) VALUES (?1, ?2, ?3) \
     ON CONFLICT DO UPDATE SET inbox = ?2, reaches = ?3";
const REMOVE: &str = "UPDATE inboxes SET removed = 1 WHERE inbox = ?1";

fn find(conn: &Connection, which: &str, asked: impl Params) -> Result<Option<Inbox>> {
    let mut statement = conn.prepare_cached(&format!("{INBOX} {which}")).map_err(store_error)?;
    let mut rows = statement.query(asked).map_err(store_error)?;
    rows.next().map_err(store_error)?.map(inbox_row).transpose()
}

fn inbox_row(row: &Row<'_>) -> Result<Inbox> {
    Ok(Inbox {
        id: InboxId(split_id(row, 0)?),
        team: TeamId(id_column(row, 8)?),
        rev: row.get(2).map_err(store_error)?,
        latest_seq: row.get::<_, i64>(3).map_err(store_error)? as u64,
        address: row.get(4).map_err(store_error)?,
        client_id: row.get(5).map_err(store_error)?,
        created_at: Time(row.get(6).map_err(store_error)?),
        settings: json_column(row, 7)?,
    })
}

/// One inbox of a team.
pub(crate) fn by_id(conn: &Connection, team: i64, id: InboxId) -> Result<Option<Inbox>> {
    let found = find(conn, "AND i.inbox = ?1 AND i.team = ?2", params![ordered_bits(id.0), team])?;
    Ok(found.filter(|inbox| inbox.id == id))
}

/// Whether a team has this inbox, and it was not removed.
pub(crate) fn exists(conn: &Connection, team: i64, id: InboxId) -> Result<bool> {
    let row = params![ordered_bits(id.0), random_bits(id.0), team];
    conn.prepare_cached(EXISTS).and_then(|mut statement| statement.exists(row)).map_err(store_error)
}

/// The inbox of the first of these addresses that was ever assigned. `None` if that address no longer leads to its
/// inbox.
pub(crate) fn by_address(conn: &Connection, places: &[String]) -> Result<Option<Inbox>> {
    for place in places {
        if let Some((inbox, reaches)) = find_name(conn, place)? {
            return if reaches { find(conn, "AND i.inbox = ?1", [inbox]) } else { Ok(None) };
        }
    }
    Ok(None)
}

/// The team that owns or owned the first of these addresses that was ever assigned.
pub(crate) fn team_by_address(conn: &Connection, places: &[String]) -> Result<Option<TeamId>> {
    let mut statement = conn.prepare_cached(TEAM_BY_NAME).map_err(store_error)?;
    for place in places {
        let mut rows = statement.query([place]).map_err(store_error)?;
        if let Some(row) = rows.next().map_err(store_error)? {
            return Ok(Some(TeamId(id_column(row, 0)?)));
        }
    }
    Ok(None)
}

/// The inbox that owns an address, and whether the address still leads to it.
fn find_name(conn: &Connection, name: &str) -> Result<Option<(i64, bool)>> {
    let mut statement = conn.prepare_cached(BY_NAME).map_err(store_error)?;
    statement.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).optional().map_err(store_error)
}

/// Inboxes older than `before`, newest first.
pub(crate) fn list(conn: &Connection, team: i64, before: Option<InboxId>, limit: usize) -> Result<Vec<Inbox>> {
    let sql = format!("{INBOX} AND i.team = ?1 AND i.inbox < ?2 ORDER BY i.inbox DESC LIMIT ?3");
    let mut statement = conn.prepare_cached(&sql).map_err(store_error)?;
    let before = before.map_or(i64::MAX, |id| ordered_bits(id.0));
    let mut rows = statement.query(params![team, before, limit as i64]).map_err(store_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        found.push(inbox_row(row)?);
    }
    Ok(found)
}

/// Whether none of these addresses belongs to another inbox.
fn are_names_free(ledger: &WriteSession<'_>, names: &[String], inbox: i64) -> Result<bool> {
    for name in names {
        if find_name(ledger.conn, name)?.is_some_and(|(owner, _)| owner != inbox) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn claim_names(ledger: &WriteSession<'_>, names: &[String], inbox: i64) -> Result<()> {
    names.iter().try_for_each(|name| ledger.execute(SAVE_NAME, params![name, inbox, true]).map(drop))
}

/// Creates an inbox, unless it exists or an address is taken.
pub(crate) fn create(
    ledger: &mut WriteSession<'_>,
    inbox: &Inbox,
    operation: Option<&KeyedOperation>,
) -> Result<IdempotentResult<CreateInboxResult>> {
    let team = ledger.team_number(inbox.team).ok_or_else(|| unknown_team_error(inbox.team))?;
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, inbox.created_at)?
    {
        return Ok(answer);
    }
    if let Some(made) = by_id(ledger.conn, team, inbox.id)? {
        // The same id: this call is a retry.
        return Ok(IdempotentResult::Done(CreateInboxResult::Created(made)));
    }
    if let Some(client_id) = &inbox.client_id
        && let Some(before) = find(ledger.conn, "AND i.team = ?1 AND i.client_id = ?2", params![team, client_id])?
    {
        return Ok(IdempotentResult::Done(CreateInboxResult::AlreadyExists(before)));
    }
    let (bits, names) = (ordered_bits(inbox.id.0), inbox.lookup_addresses());
    if !are_names_free(ledger, &names, bits)? {
        return Ok(IdempotentResult::Done(CreateInboxResult::AddressTaken));
    }
    let Inbox { id, rev, latest_seq: seq, address, client_id, created_at, settings: about, .. } = inbox;
    let (tail, about) = (random_bits(id.0), to_json(about)?);
    ledger.execute(INSERT, params![bits, tail, team, rev, *seq as i64, address, client_id, created_at.0, about])?;
    claim_names(ledger, &names, bits)?;
    ledger.reserve_id(id.0);
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    audit::record_act(ledger, Act::of_inbox(None, Some(inbox)), inbox.created_at)?;
    Ok(IdempotentResult::Done(CreateInboxResult::Created(inbox.clone())))
}

/// Changes an inbox, if its `rev` is still the one that the caller read.
pub(crate) fn change(
    ledger: &mut WriteSession<'_>,
    edit: InboxEdit,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<InboxChangeResult>> {
    let Some(team) = ledger.team_number(edit.team) else {
        return Ok(IdempotentResult::Done(InboxChangeResult::Missing));
    };
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(inbox) = by_id(ledger.conn, team, edit.id)? else {
        return Ok(IdempotentResult::Done(InboxChangeResult::Missing));
    };
    if inbox.rev != edit.rev {
        return Ok(IdempotentResult::Done(InboxChangeResult::Stale(inbox)));
    }
    let (bits, edited) = (ordered_bits(inbox.id.0), edit.plan_for(&inbox));
    if !are_names_free(ledger, &edited.claimed_addresses, bits)? {
        return Ok(IdempotentResult::Done(InboxChangeResult::AddressTaken));
    }
    if let Some(name) = &edited.freed_catch_all {
        ledger.execute("DELETE FROM inbox_names WHERE name = ?1", [name])?;
    }
    if let Some(name) = &edited.retired_address {
        ledger.execute(SAVE_NAME, params![name, bits, false])?;
    }
    claim_names(ledger, &edited.claimed_addresses, bits)?;
    let Inbox { rev, address, settings: about, .. } = &edited.inbox;
    ledger.execute(UPDATE, params![bits, rev, address, to_json(about)?])?;
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    audit::record_act(ledger, Act::of_inbox(Some(&inbox), Some(&edited.inbox)), now)?;
    Ok(IdempotentResult::Done(InboxChangeResult::Changed(edited.inbox)))
}

/// Removes an inbox. Its content becomes invisible at once, and the next sweeps delete it.
pub(crate) fn remove(ledger: &mut WriteSession<'_>, team: TeamId, id: InboxId, now: Time) -> Result<Option<Inbox>> {
    let Some(team) = ledger.team_number(team) else { return Ok(None) };
    let found = by_id(ledger.conn, team, id)?;
    if found.is_some() {
        ledger.execute(REMOVE, [ordered_bits(id.0)])?;
        audit::record_act(ledger, Act::of_inbox(found.as_ref(), None), now)?;
    }
    Ok(found)
}
