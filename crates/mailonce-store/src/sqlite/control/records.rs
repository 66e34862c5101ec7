//! Records: small named JSON documents of a team, such as sending domains, suppressed addresses and settings.

use mailonce_core::{
    control::audit::act::Act,
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    ports::store::Result,
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind, RecordPage},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};
use uuid::Uuid;

use crate::sqlite::{
    control::audit,
    outbound::key_bindings::{self, unknown_team_error},
    rows::corrupt_row,
    schema::store_error,
    write_session::WriteSession,
};

const INSERT: &str = "INSERT INTO records (id, team, kind, name, rev, created_at, about) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
const BY_ID: &str = "SELECT id, name, rev, created_at, about FROM records WHERE team = ?1 AND kind = ?2 AND id = ?3";
const BY_NAME: &str =
    "SELECT id, name, rev, created_at, about FROM records WHERE team = ?1 AND kind = ?2 AND name = ?3";
const BY_ID_ANY_TEAM: &str = "SELECT r.id, r.name, r.rev, r.created_at, r.about, t.id FROM records r \
     JOIN teams t ON t.number = r.team WHERE r.kind = ?1 AND r.id = ?2";
const LIST: &str = "SELECT id, name, rev, created_at, about FROM records WHERE team = ?1 AND kind = ?2 AND id < ?3 \
     ORDER BY id DESC LIMIT ?4";
const UPDATE: &str = "UPDATE records SET rev = rev + 1, about = ?2 WHERE id = ?1";
const REMOVE: &str = "DELETE FROM records WHERE id = ?1";

/// The scope of a record: its team, the team's number, and its kind.
#[derive(Clone, Copy)]
pub(crate) struct RecordScope {
    pub(crate) team: TeamId,
    pub(crate) number: i64,
    pub(crate) kind: RecordKind,
}

impl RecordScope {
    fn read_row(&self, row: &Row<'_>) -> rusqlite::Result<Record> {
        Ok(Record {
            team: self.team,
            kind: self.kind,
            id: Uuid::from_bytes(row.get(0)?),
            name: row.get(1)?,
            rev: row.get(2)?,
            created_at: Time(row.get(3)?),
            json: row.get(4)?,
        })
    }

    fn find(&self, conn: &Connection, sql: &str, asked: impl Params) -> Result<Option<Record>> {
        let mut statement = conn.prepare_cached(sql).map_err(store_error)?;
        statement.query_row(asked, |row| self.read_row(row)).optional().map_err(store_error)
    }

    pub(crate) fn by_id(&self, conn: &Connection, id: Uuid) -> Result<Option<Record>> {
        self.find(conn, BY_ID, params![self.number, self.kind.as_str(), id.as_bytes()])
    }

    pub(crate) fn by_name(&self, conn: &Connection, name: &str) -> Result<Option<Record>> {
        self.find(conn, BY_NAME, params![self.number, self.kind.as_str(), name])
    }

    /// Records older than `before`, newest first.
    pub(crate) fn list(&self, conn: &Connection, before: Option<Uuid>, limit: usize) -> Result<RecordPage> {
        // Greater than every UUIDv7.
        let before = before.unwrap_or(Uuid::max());
        let mut statement = conn.prepare_cached(LIST).map_err(store_error)?;
        let asked = params![self.number, self.kind.as_str(), before.as_bytes(), limit as i64 + 1];
        let rows =
            statement.query_map(asked, |row| self.read_row(row)).and_then(Iterator::collect).map_err(store_error)?;
        Ok(RecordPage::from_rows(rows, limit))
    }
}

/// One record of any team.
pub(crate) fn by_id_any_team(conn: &Connection, kind: RecordKind, id: Uuid) -> Result<Option<Record>> {
    let mut statement = conn.prepare_cached(BY_ID_ANY_TEAM).map_err(store_error)?;
    let found = statement.query_row(params![kind.as_str(), id.as_bytes()], |row| {
        RecordScope { team: TeamId(Uuid::from_bytes(row.get(5)?)), number: 0, kind }.read_row(row)
    });
    found.optional().map_err(store_error)
}

fn record_scope(ledger: &WriteSession<'_>, team: TeamId, kind: RecordKind) -> Option<RecordScope> {
    ledger.team_number(team).map(|number| RecordScope { team, number, kind })
}

/// Creates a record, unless its name is taken.
pub(crate) fn create(
    ledger: &mut WriteSession<'_>,
    record: &Record,
    operation: Option<&KeyedOperation>,
) -> Result<IdempotentResult<CreateRecordResult>> {
    let scope = record_scope(ledger, record.team, record.kind).ok_or_else(|| unknown_team_error(record.team))?;
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, record.created_at)?
    {
        return Ok(answer);
    }
    if let Some(taken) = scope.by_name(ledger.conn, &record.name)? {
        // The same id: this call is a retry.
        let again = taken.id == record.id;
        return Ok(IdempotentResult::Done(if again {
            CreateRecordResult::Created(taken)
        } else {
            CreateRecordResult::NameTaken(taken)
        }));
    }
    let Record { id, kind, name, rev, created_at, json: about, .. } = record;
    let made =
        ledger.execute(INSERT, params![id.as_bytes(), scope.number, kind.as_str(), name, rev, created_at.0, about])?;
    if made != 1 {
        return Err(corrupt_row("the id of a new record is taken"));
    }
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    record.to_event(None, record.created_at).iter().for_each(|event| ledger.emit(scope.number, event));
    audit::record_act(ledger, Act::of_record(None, Some(record)), record.created_at)?;
    Ok(IdempotentResult::Done(CreateRecordResult::Created(record.clone())))
}

/// Replaces the JSON of a record, if its `rev` is still the one that the caller read.
pub(crate) fn change(
    ledger: &mut WriteSession<'_>,
    edit: RecordEdit,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<RecordChangeResult>> {
    let Some(scope) = record_scope(ledger, edit.team, edit.kind) else {
        return Ok(IdempotentResult::Done(RecordChangeResult::Missing));
    };
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(mut record) = scope.by_id(ledger.conn, edit.id)? else {
        return Ok(IdempotentResult::Done(RecordChangeResult::Missing));
    };
    if record.rev != edit.rev {
        return Ok(IdempotentResult::Done(RecordChangeResult::Stale(record)));
    }
    ledger.execute(UPDATE, params![edit.id.as_bytes(), edit.json])?;
    if let Some(operation) = operation {
        key_bindings::bind_operation(ledger, operation)?;
    }
    let before = record.clone();
    record.rev += 1;
    record.json = edit.json;
    record.to_event(Some(&before), now).iter().for_each(|event| ledger.emit(scope.number, event));
    audit::record_act(ledger, Act::of_record(Some(&before), Some(&record)), now)?;
    Ok(IdempotentResult::Done(RecordChangeResult::Changed(record)))
}

/// Removes a record.
pub(crate) fn remove(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    kind: RecordKind,
    id: Uuid,
) -> Result<Option<Record>> {
    let Some(scope) = record_scope(ledger, team, kind) else { return Ok(None) };
    let found = scope.by_id(ledger.conn, id)?;
    if found.is_some() {
        ledger.execute(REMOVE, [id.as_bytes()])?;
        let now = ledger.time.commit_time(Time(0));
        audit::record_act(ledger, Act::of_record(found.as_ref(), None), now)?;
    }
    Ok(found)
}
