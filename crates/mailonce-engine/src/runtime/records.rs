//! Helpers for named records such as domains, suppressions and sources: read, page, and create once per key.

use crate::{
    access::caller::Caller,
    runtime::{
        context::Context,
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
    },
};
use mailonce_core::{
    id::TeamId,
    operation::IdempotentResult,
    outbound::key_binding::KeyBinding,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordKind},
};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

/// A page of results, newest first.
#[derive(Clone, Debug)]
pub struct CursorPage<T> {
    /// The results.
    pub rows: Vec<T>,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<Uuid>,
}

/// The result of a call that creates something or finds it already there.
#[derive(Clone, Debug)]
pub struct CreateOutcome<T> {
    /// The object.
    pub value: T,
    /// Whether this call created it.
    pub is_new: bool,
}

/// Decodes a record.
pub(crate) fn decode<T: DeserializeOwned>(record: &Record) -> Result<T, Problem> {
    serde_json::from_str(&record.json).map_err(|error| {
        tracing::error!(%error, kind = record.kind.as_str(), id = %record.id, "a record cannot be decoded");
        Problem::new(Code::Internal, format!("the {} {} cannot be decoded", record.kind.as_str(), record.name))
    })
}

/// Encodes the JSON of a record.
pub(crate) fn encode<T: Serialize>(details: &T) -> Result<String, Problem> {
    serde_json::to_string(details).map_err(|error| Problem::new(Code::Internal, error.to_string()))
}

/// The problem for a missing record.
pub(crate) fn not_found(kind: RecordKind, name: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no {} {name}", kind.as_str()))
}

/// Refuses a key that is restricted to inboxes, for kinds of records that belong to the whole team.
fn require_team_access(caller: &Caller, kind: RecordKind) -> Result<(), Problem> {
    match kind {
        RecordKind::Escalation | RecordKind::Draft => Ok(()),
        _ => caller.require_unrestricted_key(),
    }
}

impl Context {
    /// Whether an earlier call used this key with the same digest. A repeat then skips checks against the current
    /// state. Returns a problem when the key is bound to something else.
    pub(crate) async fn is_repeated_call(
        &self,
        caller: &Caller,
        keyed_call: Option<&KeyedCall>,
    ) -> Result<bool, Problem> {
        let Some(keyed_call) = keyed_call else { return Ok(false) };
        let key = keyed_call.key.hash(caller.team.id);
        match self.store.key_binding(caller.team.id, key, self.now()).await.map_err(unavailable)? {
            None => Ok(false),
            Some(KeyBinding::Operation { digest }) if digest == keyed_call.digest => Ok(true),
            Some(other) => Err(key_mismatch(&other)),
        }
    }

    /// Creates a record whose name must be free, or finds the one that an earlier call with the same key created.
    /// `changed` runs before the result is checked, because a commit whose answer was lost may be durable.
    pub(crate) async fn create_named(
        &self,
        caller: &Caller,
        (kind, name, json): (RecordKind, String, String),
        keyed_call: Option<&KeyedCall>,
        changed: impl FnOnce(TeamId),
    ) -> Result<CreateOutcome<Record>, Problem> {
        let (team, now) = (caller.team.id, self.now());
        let record = Record { team, kind, id: self.new_id(now), name: name.clone(), rev: 1, created_at: now, json };
        let created = self.store.create_record(record, operation(caller, keyed_call, Vec::new(), now)).await;
        changed(team);
        match created.map_err(unavailable)? {
            IdempotentResult::Done(CreateRecordResult::Created(record)) => {
                Ok(CreateOutcome { value: record, is_new: true })
            }
            IdempotentResult::Done(CreateRecordResult::NameTaken(record)) => {
                let detail = format!("the {} {} already exists", kind.as_str(), record.name);
                Err(Problem::for_field(Code::NameTaken, "name", detail).with_extension("id", record.id.to_string()))
            }
            IdempotentResult::Replayed(_) => {
                let found = self.store.record_by_name(team, kind, &name).await.map_err(unavailable)?;
                Ok(CreateOutcome { value: found.ok_or_else(|| not_found(kind, &name))?, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// One record of the caller's team.
    pub(crate) async fn team_record(&self, caller: &Caller, kind: RecordKind, id: Uuid) -> Result<Record, Problem> {
        require_team_access(caller, kind)?;
        let found = self.store.record(caller.team.id, kind, id).await.map_err(unavailable)?;
        found.ok_or_else(|| not_found(kind, &id.to_string()))
    }

    /// A page of the team's records, each converted by `view`.
    pub(crate) async fn team_records<T>(
        &self,
        caller: &Caller,
        kind: RecordKind,
        before: Option<Uuid>,
        limit: usize,
        view: impl Fn(&Record) -> Result<T, Problem>,
    ) -> Result<CursorPage<T>, Problem> {
        require_team_access(caller, kind)?;
        let page = self.store.records(caller.team.id, kind, before, limit).await.map_err(unavailable)?;
        Ok(CursorPage { rows: page.rows.iter().map(view).collect::<Result<_, _>>()?, next: page.next })
    }
}
