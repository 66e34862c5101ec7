//! Inboxes: their rows, and the names by which they are found.

use mailonce_core::{
    id::{InboxId, TeamId, ordered_bits, tail_bits},
    inbox::{Inbox, InboxChange, InboxEdit, InboxMade},
    port::store::{Once, Operation, Result},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};

use super::{
    accept::{self, no_team},
    ledger::Ledger,
    rows::{json, split_id, to_json, whole_id},
    schema::told,
};

/// A row of an inbox that is there, with its team's id.
const INBOX: &str = "SELECT i.inbox, i.tail, i.rev, i.seq, i.address, i.client_id, i.created_at, i.about, t.id \
     FROM inboxes i JOIN teams t ON t.number = i.team WHERE i.removed IS NULL";
const IS_THERE: &str = "SELECT 1 FROM inboxes WHERE inbox = ?1 AND tail = ?2 AND team = ?3 AND removed IS NULL";
const NAMED: &str = "SELECT inbox, reaches FROM inbox_names WHERE name = ?1";
/// Whose a name is or was: rows of removed inboxes stay.
const OWNER: &str = "SELECT t.id FROM inbox_names n JOIN inboxes i ON i.inbox = n.inbox \
     JOIN teams t ON t.number = i.team WHERE n.name = ?1";
const MAKE: &str = "INSERT INTO inboxes (inbox, tail, team, rev, seq, address, client_id, created_at, about) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const CHANGE: &str = "UPDATE inboxes SET rev = ?2, address = ?3, about = ?4 WHERE inbox = ?1";
const NAME: &str = "INSERT INTO inbox_names (name, inbox, reaches) VALUES (?1, ?2, ?3) \
     ON CONFLICT DO UPDATE SET inbox = ?2, reaches = ?3";
const REMOVE: &str = "UPDATE inboxes SET removed = 1 WHERE inbox = ?1";

fn find(conn: &Connection, which: &str, asked: impl Params) -> Result<Option<Inbox>> {
    let mut statement = conn.prepare_cached(&format!("{INBOX} {which}")).map_err(told)?;
    let mut rows = statement.query(asked).map_err(told)?;
    rows.next().map_err(told)?.map(inbox_row).transpose()
}

fn inbox_row(row: &Row<'_>) -> Result<Inbox> {
    Ok(Inbox {
        id: InboxId(split_id(row, 0)?),
        team: TeamId(whole_id(row, 8)?),
        rev: row.get(2).map_err(told)?,
        seq: row.get::<_, i64>(3).map_err(told)? as u64,
        address: row.get(4).map_err(told)?,
        client_id: row.get(5).map_err(told)?,
        created_at: Time(row.get(6).map_err(told)?),
        about: json(row, 7)?,
    })
}

/// One inbox of a team.
pub(super) fn one(conn: &Connection, team: i64, id: InboxId) -> Result<Option<Inbox>> {
    let found = find(conn, "AND i.inbox = ?1 AND i.team = ?2", params![ordered_bits(id.0), team])?;
    Ok(found.filter(|inbox| inbox.id == id))
}

/// Whether a team has this inbox, and it was not removed.
pub(super) fn is_there(conn: &Connection, team: i64, id: InboxId) -> Result<bool> {
    let row = params![ordered_bits(id.0), tail_bits(id.0), team];
    conn.prepare_cached(IS_THERE).and_then(|mut statement| statement.exists(row)).map_err(told)
}

/// The inbox at the first of these addresses that was ever taken.
pub(super) fn at(conn: &Connection, places: &[String]) -> Result<Option<Inbox>> {
    for place in places {
        if let Some((inbox, reaches)) = named(conn, place)? {
            return if reaches { find(conn, "AND i.inbox = ?1", [inbox]) } else { Ok(None) };
        }
    }
    Ok(None)
}

/// The team whose the first of these addresses is or was.
pub(super) fn team_at(conn: &Connection, places: &[String]) -> Result<Option<TeamId>> {
    let mut statement = conn.prepare_cached(OWNER).map_err(told)?;
    for place in places {
        let mut rows = statement.query([place]).map_err(told)?;
        if let Some(row) = rows.next().map_err(told)? {
            return Ok(Some(TeamId(whole_id(row, 0)?)));
        }
    }
    Ok(None)
}

/// Whose a name is, and whether it still reaches its inbox.
fn named(conn: &Connection, name: &str) -> Result<Option<(i64, bool)>> {
    let mut statement = conn.prepare_cached(NAMED).map_err(told)?;
    statement.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).optional().map_err(told)
}

/// Inboxes older than `before`, newest first.
pub(super) fn list(conn: &Connection, team: i64, before: Option<InboxId>, limit: usize) -> Result<Vec<Inbox>> {
    let sql = format!("{INBOX} AND i.team = ?1 AND i.inbox < ?2 ORDER BY i.inbox DESC LIMIT ?3");
    let mut statement = conn.prepare_cached(&sql).map_err(told)?;
    let before = before.map_or(i64::MAX, |id| ordered_bits(id.0));
    let mut rows = statement.query(params![team, before, limit as i64]).map_err(told)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(told)? {
        found.push(inbox_row(row)?);
    }
    Ok(found)
}

/// Whether an inbox may take all of these names.
fn are_free(ledger: &Ledger<'_>, names: &[String], inbox: i64) -> Result<bool> {
    for name in names {
        if named(ledger.conn, name)?.is_some_and(|(owner, _)| owner != inbox) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn take_names(ledger: &Ledger<'_>, names: &[String], inbox: i64) -> Result<()> {
    names.iter().try_for_each(|name| ledger.execute(NAME, params![name, inbox, true]).map(drop))
}

/// Makes an inbox, unless it is there or a name is taken.
pub(super) fn create(ledger: &mut Ledger<'_>, inbox: &Inbox, operation: Option<&Operation>) -> Result<Once<InboxMade>> {
    let team = ledger.team_number(inbox.team).ok_or_else(|| no_team(inbox.team))?;
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, inbox.created_at)?
    {
        return Ok(answer);
    }
    if let Some(made) = one(ledger.conn, team, inbox.id)? {
        // The very same one: this call was made before.
        return Ok(Once::Done(InboxMade::Made(made)));
    }
    if let Some(client_id) = &inbox.client_id
        && let Some(before) = find(ledger.conn, "AND i.team = ?1 AND i.client_id = ?2", params![team, client_id])?
    {
        return Ok(Once::Done(InboxMade::Before(before)));
    }
    let (bits, names) = (ordered_bits(inbox.id.0), inbox.names());
    if !are_free(ledger, &names, bits)? {
        return Ok(Once::Done(InboxMade::Taken));
    }
    let Inbox { id, rev, seq, address, client_id, created_at, about, .. } = inbox;
    let (tail, about) = (tail_bits(id.0), to_json(about)?);
    ledger.execute(MAKE, params![bits, tail, team, rev, *seq as i64, address, client_id, created_at.0, about])?;
    take_names(ledger, &names, bits)?;
    ledger.note_id(id.0);
    if let Some(operation) = operation {
        accept::bind_operation(ledger, operation)?;
    }
    Ok(Once::Done(InboxMade::Made(inbox.clone())))
}

/// Changes an inbox, if it is still as it was seen.
pub(super) fn change(
    ledger: &Ledger<'_>,
    edit: InboxEdit,
    operation: Option<&Operation>,
    now: Time,
) -> Result<Once<InboxChange>> {
    let Some(team) = ledger.team_number(edit.team) else { return Ok(Once::Done(InboxChange::Missing)) };
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(inbox) = one(ledger.conn, team, edit.id)? else { return Ok(Once::Done(InboxChange::Missing)) };
    if inbox.rev != edit.rev {
        return Ok(Once::Done(InboxChange::Stale(inbox)));
    }
    let (bits, edited) = (ordered_bits(inbox.id.0), edit.of(&inbox));
    if !are_free(ledger, &edited.takes, bits)? {
        return Ok(Once::Done(InboxChange::Taken));
    }
    if let Some(name) = &edited.frees {
        ledger.execute("DELETE FROM inbox_names WHERE name = ?1", [name])?;
    }
    if let Some(name) = &edited.retires {
        ledger.execute(NAME, params![name, bits, false])?;
    }
    take_names(ledger, &edited.takes, bits)?;
    let Inbox { rev, address, about, .. } = &edited.inbox;
    ledger.execute(CHANGE, params![bits, rev, address, to_json(about)?])?;
    if let Some(operation) = operation {
        accept::bind_operation(ledger, operation)?;
    }
    Ok(Once::Done(InboxChange::Changed(edited.inbox)))
}

/// Removes an inbox. What is in it is seen no more, and goes with the next sweeps.
pub(super) fn remove(ledger: &Ledger<'_>, team: TeamId, id: InboxId) -> Result<Option<Inbox>> {
    let Some(team) = ledger.team_number(team) else { return Ok(None) };
    let found = one(ledger.conn, team, id)?;
    if found.is_some() {
        ledger.execute(REMOVE, [ordered_bits(id.0)])?;
    }
    Ok(found)
}
