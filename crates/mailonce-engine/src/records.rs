//! What domains, suppressions and sources have in common: records that are read, paged and repeated alike.

use mailonce_core::{
    id::TeamId,
    port::store::{Bound, Once},
    problem::{Code, Problem},
    record::{Created, Record, RecordKind},
};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::{Asked, Caller, Engine, change::taken, operation, unavailable};

/// A page of things, newest first.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    /// The things.
    pub rows: Vec<T>,
    /// Where to go on; `None` at the end.
    pub next: Option<Uuid>,
}

/// Something that a call made, or found already there.
#[derive(Clone, Debug)]
pub struct Made<T> {
    /// What it is.
    pub thing: T,
    /// Whether this call made it.
    pub first: bool,
}

/// What a record says.
pub(crate) fn read<T: DeserializeOwned>(record: &Record) -> Result<T, Problem> {
    serde_json::from_str(&record.about).map_err(|error| {
        tracing::error!(%error, kind = record.kind.word(), id = %record.id, "a record cannot be read");
        Problem::new(Code::Internal, format!("the {} {} cannot be read", record.kind.word(), record.name))
    })
}

/// What a record is to say.
pub(crate) fn write<T: Serialize>(about: &T) -> Result<String, Problem> {
    serde_json::to_string(about).map_err(|error| Problem::new(Code::Internal, error.to_string()))
}

/// The problem for a record that is not there.
pub(crate) fn missing(kind: RecordKind, name: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no {} {name}", kind.word()))
}

/// Refuses a key that is tied to inboxes where records of a kind concern the whole team.
fn need_team_for(caller: &Caller, kind: RecordKind) -> Result<(), Problem> {
    match kind {
        RecordKind::Escalation | RecordKind::Draft => Ok(()),
        _ => caller.need_whole_team(),
    }
}

impl Engine {
    /// Whether a call under a key was made before, so that a repeat needs no second look at the world. A key that
    /// belongs to something else is refused.
    pub(crate) async fn was_asked(&self, caller: &Caller, asked: Option<&Asked>) -> Result<bool, Problem> {
        let Some(asked) = asked else { return Ok(false) };
        let key = asked.name.hash(caller.team.id);
        match self.store.bound(caller.team.id, key, self.now()).await.map_err(unavailable)? {
            None => Ok(false),
            Some(Bound::Operation { digest }) if digest == asked.digest => Ok(true),
            Some(other) => Err(taken(&other)),
        }
    }

    /// Creates a record whose name must be free, or finds the one that a repeat of the call created. `changed` is called
    /// before the answer is known to be good: a commit whose answer was lost may stand.
    pub(crate) async fn create_named(
        &self,
        caller: &Caller,
        (kind, name, about): (RecordKind, String, String),
        asked: Option<&Asked>,
        changed: impl FnOnce(TeamId),
    ) -> Result<Made<Record>, Problem> {
        let (team, now) = (caller.team.id, self.now());
        let record = Record { team, kind, id: self.new_id(now), name: name.clone(), rev: 1, created_at: now, about };
        let created = self.store.create_record(record, operation(caller, asked, Vec::new(), now)).await;
        changed(team);
        match created.map_err(unavailable)? {
            Once::Done(Created::Made(record)) => Ok(Made { thing: record, first: true }),
            Once::Done(Created::Taken(record)) => {
                let detail = format!("there is a {} named {} already", kind.word(), record.name);
                Err(Problem::field(Code::NameTaken, "name", detail).with("id", record.id.to_string()))
            }
            Once::Repeated(_) => {
                let found = self.store.record_named(team, kind, &name).await.map_err(unavailable)?;
                Ok(Made { thing: found.ok_or_else(|| missing(kind, &name))?, first: false })
            }
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// One record of the caller's team.
    pub(crate) async fn own_record(&self, caller: &Caller, kind: RecordKind, id: Uuid) -> Result<Record, Problem> {
        need_team_for(caller, kind)?;
        let found = self.store.record(caller.team.id, kind, id).await.map_err(unavailable)?;
        found.ok_or_else(|| missing(kind, &id.to_string()))
    }

    /// A page of the caller's records, each read by `view`.
    pub(crate) async fn own_records<T>(
        &self,
        caller: &Caller,
        kind: RecordKind,
        before: Option<Uuid>,
        limit: usize,
        view: impl Fn(&Record) -> Result<T, Problem>,
    ) -> Result<Listed<T>, Problem> {
        need_team_for(caller, kind)?;
        let page = self.store.records(caller.team.id, kind, before, limit).await.map_err(unavailable)?;
        Ok(Listed { rows: page.rows.iter().map(view).collect::<Result<_, _>>()?, next: page.next })
    }
}
