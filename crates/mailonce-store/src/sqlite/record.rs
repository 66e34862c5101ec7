//! Records: small things a team owns that are not mail.

use mailonce_core::{
    id::TeamId,
    port::store::{Once, Operation, Result},
    record::{Created, Record, RecordChange, RecordEdit, RecordKind, RecordPage},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};
use uuid::Uuid;

use super::{
    accept::{self, no_team},
    ledger::Ledger,
    rows::damaged,
    schema::told,
};

const MAKE: &str = "INSERT INTO records (id, team, kind, name, rev, created_at, about) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
const ONE: &str = "SELECT id, name, rev, created_at, about FROM records WHERE team = ?1 AND kind = ?2 AND id = ?3";
const NAMED: &str = "SELECT id, name, rev, created_at, about FROM records WHERE team = ?1 AND kind = ?2 AND name = ?3";
const ANYWHERE: &str = "SELECT r.id, r.name, r.rev, r.created_at, r.about, t.id FROM records r \
     JOIN teams t ON t.number = r.team WHERE r.kind = ?1 AND r.id = ?2";
const LIST: &str = "SELECT id, name, rev, created_at, about FROM records WHERE team = ?1 AND kind = ?2 AND id < ?3 \
     ORDER BY id DESC LIMIT ?4";
const CHANGE: &str = "UPDATE records SET rev = rev + 1, about = ?2 WHERE id = ?1";
const REMOVE: &str = "DELETE FROM records WHERE id = ?1";

/// Where a record belongs: its team, the team's number, and its kind.
#[derive(Clone, Copy)]
pub(super) struct Shelf {
    pub(super) team: TeamId,
    pub(super) number: i64,
    pub(super) kind: RecordKind,
}

impl Shelf {
    fn read(&self, row: &Row<'_>) -> rusqlite::Result<Record> {
        Ok(Record {
            team: self.team,
            kind: self.kind,
            id: Uuid::from_bytes(row.get(0)?),
            name: row.get(1)?,
            rev: row.get(2)?,
            created_at: Time(row.get(3)?),
            about: row.get(4)?,
        })
    }

    fn find(&self, conn: &Connection, sql: &str, asked: impl Params) -> Result<Option<Record>> {
        let mut statement = conn.prepare_cached(sql).map_err(told)?;
        statement.query_row(asked, |row| self.read(row)).optional().map_err(told)
    }

    pub(super) fn one(&self, conn: &Connection, id: Uuid) -> Result<Option<Record>> {
        self.find(conn, ONE, params![self.number, self.kind.word(), id.as_bytes()])
    }

    pub(super) fn named(&self, conn: &Connection, name: &str) -> Result<Option<Record>> {
        self.find(conn, NAMED, params![self.number, self.kind.word(), name])
    }

    /// Records older than `before`, newest first.
    pub(super) fn list(&self, conn: &Connection, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        // Behind every UUIDv7 there is.
        let before = before.unwrap_or(Uuid::max());
        let mut statement = conn.prepare_cached(LIST).map_err(told)?;
        let asked = params![self.number, self.kind.word(), before.as_bytes(), limit as i64 + 1];
        let rows = statement.query_map(asked, |row| self.read(row)).and_then(Iterator::collect).map_err(told)?;
        Ok(RecordPage::of(rows, limit))
    }
}

/// One record, whosever it is.
pub(super) fn anywhere(conn: &Connection, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
    let mut statement = conn.prepare_cached(ANYWHERE).map_err(told)?;
    let found = statement.query_row(params![kind.word(), id.as_bytes()], |row| {
        Shelf { team: TeamId(Uuid::from_bytes(row.get(5)?)), number: 0, kind }.read(row)
    });
    found.optional().map_err(told)
}

fn shelf(ledger: &Ledger<'_>, team: TeamId, kind: RecordKind) -> Option<Shelf> {
    ledger.team_number(team).map(|number| Shelf { team, number, kind })
}

/// Makes a record, unless its name is taken.
pub(super) fn create(ledger: &mut Ledger<'_>, record: &Record, operation: Option<&Operation>) -> Result<Once<Created>> {
    let shelf = shelf(ledger, record.team, record.kind).ok_or_else(|| no_team(record.team))?;
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, record.created_at)?
    {
        return Ok(answer);
    }
    if let Some(taken) = shelf.named(ledger.conn, &record.name)? {
        // The very same one: this call was made before.
        let again = taken.id == record.id;
        return Ok(Once::Done(if again { Created::Made(taken) } else { Created::Taken(taken) }));
    }
    let Record { id, kind, name, rev, created_at, about, .. } = record;
    let made =
        ledger.execute(MAKE, params![id.as_bytes(), shelf.number, kind.word(), name, rev, created_at.0, about])?;
    if made != 1 {
        return Err(damaged("the id of a new record is taken"));
    }
    if let Some(operation) = operation {
        accept::bind_operation(ledger, operation)?;
    }
    record.told(None, record.created_at).iter().for_each(|event| ledger.emit(shelf.number, event));
    Ok(Once::Done(Created::Made(record.clone())))
}

/// Changes what a record says, if it is still as it was seen.
pub(super) fn change(
    ledger: &mut Ledger<'_>,
    edit: RecordEdit,
    operation: Option<&Operation>,
    now: Time,
) -> Result<Once<RecordChange>> {
    let Some(shelf) = shelf(ledger, edit.team, edit.kind) else { return Ok(Once::Done(RecordChange::Missing)) };
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(mut record) = shelf.one(ledger.conn, edit.id)? else { return Ok(Once::Done(RecordChange::Missing)) };
    if record.rev != edit.rev {
        return Ok(Once::Done(RecordChange::Stale(record)));
    }
    ledger.execute(CHANGE, params![edit.id.as_bytes(), edit.about])?;
    if let Some(operation) = operation {
        accept::bind_operation(ledger, operation)?;
    }
    let before = record.clone();
    record.rev += 1;
    record.about = edit.about;
    record.told(Some(&before), now).iter().for_each(|event| ledger.emit(shelf.number, event));
    Ok(Once::Done(RecordChange::Changed(record)))
}

/// Removes a record.
pub(super) fn remove(ledger: &Ledger<'_>, team: TeamId, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
    let Some(shelf) = shelf(ledger, team, kind) else { return Ok(None) };
    let found = shelf.one(ledger.conn, id)?;
    if found.is_some() {
        ledger.execute(REMOVE, [id.as_bytes()])?;
    }
    Ok(found)
}
