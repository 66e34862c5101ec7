//! Records: small things a team owns that are not mail.

use deadpool_postgres::Transaction;
use mailonce_core::{
    id::TeamId,
    port::store::{CommitTime, Once, Operation},
    record::{Created, Record, RecordChange, RecordEdit, RecordKind, RecordPage},
    time::Time,
};
use std::{collections::BTreeSet, sync::Arc};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Ledger,
    careful::{load, lock_scopes},
    row::Scope,
    trouble::{Tried, Trouble},
    write::{ask, run, write, write_events},
};

macro_rules! records {
    ($rest:literal) => {
        concat!("SELECT id, team, kind, name, rev, created_at, about FROM records WHERE ", $rest)
    };
}

/// Waits for whoever makes the same name at this moment; then one of the two finds the other's.
const MAKE: &str = "
    INSERT INTO records (id, team, kind, name, rev, created_at, about) VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (team, kind, name) DO NOTHING";
const ONE: &str = records!("team = $1 AND kind = $2 AND id = $3");
const ONE_LOCKED: &str = records!("team = $1 AND kind = $2 AND id = $3 FOR UPDATE");
const NAMED: &str = records!("team = $1 AND kind = $2 AND name = $3");
const ANYWHERE: &str = records!("kind = $1 AND id = $2");
const LIST: &str = records!("team = $1 AND kind = $2 AND id < $3 ORDER BY id DESC LIMIT $4");
const CHANGE: &str = "UPDATE records SET rev = rev + 1, about = $2 WHERE id = $1";
const REMOVE: &str = "
    DELETE FROM records WHERE team = $1 AND kind = $2 AND id = $3
    RETURNING id, team, kind, name, rev, created_at, about";

fn read(row: &Row) -> Tried<Record> {
    let kind: &str = row.try_get(2)?;
    Ok(Record {
        id: row.try_get(0)?,
        team: TeamId(row.try_get(1)?),
        kind: RecordKind::parse(kind).ok_or_else(|| Trouble::unreadable("the kind of a record"))?,
        name: row.try_get(3)?,
        rev: row.try_get::<_, i32>(4)? as u32,
        created_at: Time(row.try_get(5)?),
        about: row.try_get(6)?,
    })
}

fn first(rows: &[Row]) -> Tried<Option<Record>> {
    rows.first().map(read).transpose()
}

/// Binds the key of an operation. The answer instead when it was done before, or the key belongs to something else.
pub(super) async fn bind<T>(
    tx: &Transaction<'_>,
    time: &Arc<CommitTime>,
    operation: Option<&Operation>,
    now: Time,
) -> Tried<Option<Once<T>>> {
    let Some(operation) = operation else { return Ok(None) };
    let scopes: BTreeSet<Scope> = BTreeSet::from([(operation.team, operation.key)]);
    lock_scopes(tx, &scopes).await?;
    let mut ground = load(tx, time, &scopes, &[]).await?;
    if let Some(answer) = ground.repeat_of(operation, now) {
        return Ok(Some(answer));
    }
    ground.bind_operation(operation);
    write(tx, &ground).await?;
    Ok(None)
}

/// Leaves the event of a record that is told of, when it is one.
async fn tell(tx: &Transaction<'_>, record: &Record, before: Option<&Record>, now: Time) -> Tried<()> {
    let events: Vec<_> = record.told(before, now).map(|event| (record.team, event)).into_iter().collect();
    write_events(tx, &events).await
}

impl Ledger {
    /// Makes a record, unless its name is taken.
    pub(super) async fn create_record(&self, record: &Record, operation: Option<&Operation>) -> Tried<Once<Created>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        if let Some(answer) = bind(&tx, &self.time, operation, record.created_at).await? {
            tx.rollback().await?;
            return Ok(answer);
        }
        let Record { team, kind, id, name, rev, created_at, about } = record;
        let rev = *rev as i32;
        let made = run(&tx, MAKE, &[id, &team.0, &kind.word(), name, &rev, &created_at.0, about]).await?;
        if made == 1 {
            tell(&tx, record, None, record.created_at).await?;
            self.commit(tx, 1).await?;
            return Ok(Once::Done(Created::Made(record.clone())));
        }
        let taken = first(&ask(&tx, NAMED, &[&team.0, &kind.word(), name]).await?)?;
        tx.rollback().await?;
        // Removed between the two statements: the name is free again.
        let taken = taken.ok_or_else(|| Trouble::Again("a record was removed meanwhile".into()))?;
        let again = taken.id == record.id;
        Ok(Once::Done(if again { Created::Made(taken) } else { Created::Taken(taken) }))
    }

    /// One record.
    pub(super) async fn record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Tried<Option<Record>> {
        first(&ask(&self.link.client().await?, ONE, &[&team.0, &kind.word(), &id]).await?)
    }

    /// The record with this name.
    pub(super) async fn record_named(&self, team: TeamId, kind: RecordKind, name: &str) -> Tried<Option<Record>> {
        first(&ask(&self.link.client().await?, NAMED, &[&team.0, &kind.word(), &name]).await?)
    }

    /// One record, whosever it is.
    pub(super) async fn record_anywhere(&self, kind: RecordKind, id: Uuid) -> Tried<Option<Record>> {
        first(&ask(&self.link.client().await?, ANYWHERE, &[&kind.word(), &id]).await?)
    }

    /// Records older than `before`, newest first.
    pub(super) async fn records(
        &self,
        team: TeamId,
        kind: RecordKind,
        before: Option<Uuid>,
        limit: usize,
    ) -> Tried<RecordPage> {
        // Behind every UUIDv7 there is.
        let before = before.unwrap_or(Uuid::max());
        let more = limit as i64 + 1;
        let rows = ask(&self.link.client().await?, LIST, &[&team.0, &kind.word(), &before, &more]).await?;
        Ok(RecordPage::of(rows.iter().map(read).collect::<Tried<_>>()?, limit))
    }

    /// Changes what a record says, if it is still as it was seen.
    pub(super) async fn change_record(
        &self,
        edit: &RecordEdit,
        operation: Option<&Operation>,
        now: Time,
    ) -> Tried<Once<RecordChange>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        if let Some(answer) = bind(&tx, &self.time, operation, now).await? {
            tx.rollback().await?;
            return Ok(answer);
        }
        let found = first(&ask(&tx, ONE_LOCKED, &[&edit.team.0, &edit.kind.word(), &edit.id]).await?)?;
        let mut record = match found {
            Some(record) if record.rev == edit.rev => record,
            other => {
                tx.rollback().await?;
                return Ok(Once::Done(other.map_or(RecordChange::Missing, RecordChange::Stale)));
            }
        };
        run(&tx, CHANGE, &[&edit.id, &edit.about]).await?;
        let before = record.clone();
        record.rev += 1;
        record.about.clone_from(&edit.about);
        tell(&tx, &record, Some(&before), now).await?;
        self.commit(tx, 1).await?;
        Ok(Once::Done(RecordChange::Changed(record)))
    }

    /// Removes a record.
    pub(super) async fn remove_record(&self, team: TeamId, kind: RecordKind, id: Uuid) -> Tried<Option<Record>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        let removed = first(&ask(&tx, REMOVE, &[&team.0, &kind.word(), &id]).await?)?;
        self.commit(tx, 1).await?;
        Ok(removed)
    }
}
