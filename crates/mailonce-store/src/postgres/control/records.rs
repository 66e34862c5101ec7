//! Records: small named objects of a team, such as a sending domain or a suppressed address, stored as JSON.

use deadpool_postgres::Transaction;
use mailonce_core::{
    control::audit::act::Act,
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordEdit, RecordKind, RecordPage},
    time::Time,
};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::postgres::{
    SharedState,
    control::audit_chain,
    error::{TxError, TxResult},
    events::pending_events::write_events,
    operation_keys::bind_or_replay,
    statements::{execute, query_rows},
};

macro_rules! records {
    ($rest:literal) => {
        concat!("SELECT id, team, kind, name, rev, created_at, about FROM records WHERE ", $rest)
    };
}

/// Waits for a concurrent insert of the same name. If that commits, this one inserts nothing.
const INSERT: &str = "
    INSERT INTO records (id, team, kind, name, rev, created_at, about) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (team, kind, name) DO NOTHING";
const BY_ID: &str = records!("team = $1 AND kind = $2 AND id = $3");
const BY_ID_LOCKED: &str = records!("team = $1 AND kind = $2 AND id = $3 FOR UPDATE");
const BY_NAME: &str = records!("team = $1 AND kind = $2 AND name = $3");
const BY_ID_ANY_TEAM: &str = records!("kind = $1 AND id = $2");
const LIST: &str = records!("team = $1 AND kind = $2 AND id < $3 ORDER BY id DESC LIMIT $4");
const UPDATE: &str = "UPDATE records SET rev = rev + 1, about = $2 WHERE id = $1";
const REMOVE: &str = "
    DELETE FROM records WHERE team = $1 AND kind = $2 AND id = $3
    RETURNING id, team, kind, name, rev, created_at, about";

fn read_record(row: &Row) -> TxResult<Record> {
    let kind: &str = row.try_get(2)?;
    Ok(Record {
        id: row.try_get(0)?,
        team: TeamId(row.try_get(1)?),
        kind: RecordKind::parse(kind).ok_or_else(|| TxError::corrupt("the kind of a record"))?,
        name: row.try_get(3)?,
        rev: row.try_get::<_, i32>(4)? as u32,
        created_at: Time(row.try_get(5)?),
        json: row.try_get(6)?,
    })
}

fn read_first_record(rows: &[Row]) -> TxResult<Option<Record>> {
    rows.first().map(read_record).transpose()
}

/// Writes the event of a record change, if this kind of record has events.
async fn emit_record_event(tx: &Transaction<'_>, record: &Record, before: Option<&Record>, now: Time) -> TxResult<()> {
    let events: Vec<_> = record.to_event(before, now).map(|event| (record.team, event)).into_iter().collect();
    write_events(tx, &events).await
}

/// Creates a record, unless its name is taken.
pub(crate) async fn create_record(
    shared: &SharedState,
    record: &Record,
    operation: Option<&KeyedOperation>,
) -> TxResult<IdempotentResult<CreateRecordResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, record.created_at).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let Record { team, kind, id, name, rev, created_at, json: about } = record;
    let rev = *rev as i32;
    let made = execute(&tx, INSERT, &[id, &team.0, &kind.as_str(), name, &rev, &created_at.0, about]).await?;
    if made == 1 {
        emit_record_event(&tx, record, None, record.created_at).await?;
        audit_chain::record_act(&tx, Act::of_record(None, Some(record)).as_ref(), record.created_at).await?;
        shared.commit(tx, 1).await?;
        return Ok(IdempotentResult::Done(CreateRecordResult::Created(record.clone())));
    }
    let taken = read_first_record(&query_rows(&tx, BY_NAME, &[&team.0, &kind.as_str(), name]).await?)?;
    tx.rollback().await?;
    // The record was removed between the two statements: the name is free again, so retry.
    let taken = taken.ok_or_else(|| TxError::Conflict("a record was removed meanwhile".into()))?;
    let again = taken.id == record.id;
    Ok(IdempotentResult::Done(if again {
        CreateRecordResult::Created(taken)
    } else {
        CreateRecordResult::NameTaken(taken)
    }))
}

/// One record.
pub(crate) async fn record(shared: &SharedState, team: TeamId, kind: RecordKind, id: Uuid) -> TxResult<Option<Record>> {
    read_first_record(&query_rows(&shared.connections.client().await?, BY_ID, &[&team.0, &kind.as_str(), &id]).await?)
}

/// The record with this name.
pub(crate) async fn record_by_name(
    shared: &SharedState,
    team: TeamId,
    kind: RecordKind,
    name: &str,
) -> TxResult<Option<Record>> {
    read_first_record(
        &query_rows(&shared.connections.client().await?, BY_NAME, &[&team.0, &kind.as_str(), &name]).await?,
    )
}

/// One record of any team.
pub(crate) async fn record_of_any_team(shared: &SharedState, kind: RecordKind, id: Uuid) -> TxResult<Option<Record>> {
    read_first_record(&query_rows(&shared.connections.client().await?, BY_ID_ANY_TEAM, &[&kind.as_str(), &id]).await?)
}

/// Records older than `before`, newest first.
pub(crate) async fn records(
    shared: &SharedState,
    team: TeamId,
    kind: RecordKind,
    before: Option<Uuid>,
    limit: usize,
) -> TxResult<RecordPage> {
    // Above every UUIDv7.
    let before = before.unwrap_or(Uuid::max());
    let more = limit as i64 + 1;
    let rows =
        query_rows(&shared.connections.client().await?, LIST, &[&team.0, &kind.as_str(), &before, &more]).await?;
    Ok(RecordPage::from_rows(rows.iter().map(read_record).collect::<TxResult<_>>()?, limit))
}

/// Changes a record, if its revision is still the expected one.
pub(crate) async fn change_record(
    shared: &SharedState,
    edit: &RecordEdit,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<RecordChangeResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let found =
        read_first_record(&query_rows(&tx, BY_ID_LOCKED, &[&edit.team.0, &edit.kind.as_str(), &edit.id]).await?)?;
    let mut record = match found {
        Some(record) if record.rev == edit.rev => record,
        other => {
            tx.rollback().await?;
            return Ok(IdempotentResult::Done(other.map_or(RecordChangeResult::Missing, RecordChangeResult::Stale)));
        }
    };
    execute(&tx, UPDATE, &[&edit.id, &edit.json]).await?;
    let before = record.clone();
    record.rev += 1;
    record.json.clone_from(&edit.json);
    emit_record_event(&tx, &record, Some(&before), now).await?;
    audit_chain::record_act(&tx, Act::of_record(Some(&before), Some(&record)).as_ref(), now).await?;
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(RecordChangeResult::Changed(record)))
}

/// Removes a record.
pub(crate) async fn remove_record(
    shared: &SharedState,
    team: TeamId,
    kind: RecordKind,
    id: Uuid,
) -> TxResult<Option<Record>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let removed = read_first_record(&query_rows(&tx, REMOVE, &[&team.0, &kind.as_str(), &id]).await?)?;
    let now = shared.time.commit_time(Time(0));
    audit_chain::record_act(&tx, Act::of_record(removed.as_ref(), None).as_ref(), now).await?;
    shared.commit(tx, 1).await?;
    Ok(removed)
}
