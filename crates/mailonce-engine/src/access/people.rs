//! People of a team: who they are, and what they may do.

use mailonce_core::{
    access::{
        person::{Person, Role},
        team::ApiKeyScope,
    },
    address::Address,
    id::{PersonId, TeamId},
    limits,
    operation::{IdempotentResult, KeyedOperation},
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
    time::Time,
};
use uuid::Uuid;

use crate::{
    access::{Access, People, api_keys::check_name, caller::Caller},
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CreateOutcome, CursorPage},
    },
};

/// How often a change that conflicts with a concurrent change is tried.
pub(super) const MAX_CONFLICT_RETRIES: usize = 8;

/// A person with id and revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonView {
    /// The id.
    pub id: PersonId,
    /// The revision.
    pub rev: u32,
    /// When the person was added.
    pub created_at: Time,
    /// Everything else.
    pub person: Person,
}

impl PersonView {
    pub(super) fn of(record: &Record) -> Result<Self, Problem> {
        let person = records::decode(record)?;
        Ok(Self { id: PersonId(record.id), rev: record.rev, created_at: record.created_at, person })
    }
}

/// A change of a person. Absent fields stay as they are.
#[derive(Clone, Debug, Default)]
pub struct PersonChange {
    /// The new display name.
    pub name: Option<String>,
    /// The new address; `Some(None)` removes it.
    pub address: Option<Option<String>>,
    /// The new role.
    pub role: Option<Role>,
}

fn require_people_access(caller: &Caller) -> Result<(), Problem> {
    caller.require_scope(ApiKeyScope::Admin)?;
    caller.require_unrestricted_key()
}

/// Checks a person, and writes the address in the form that is compared.
fn normalize(mut person: Person) -> Result<Person, Problem> {
    check_name(&person.name)?;
    person.name = person.name.trim().to_owned();
    if let Some(text) = person.address.take() {
        let address = Address::parse(&text).map_err(|error| Problem::invalid_field("address", error.to_string()))?;
        person.address = Some(address.as_str().to_owned());
    }
    Ok(person)
}

fn person_not_found(id: PersonId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no person {id}"))
}

impl Access {
    pub(crate) async fn person_of(&self, team: TeamId, id: PersonId) -> Result<Option<PersonView>, Problem> {
        let record = self.ctx.store.record(team, RecordKind::Person, id.0).await.map_err(unavailable)?;
        record.as_ref().map(PersonView::of).transpose()
    }

    /// Everybody in a team.
    pub(crate) async fn people_of(&self, team: TeamId) -> Result<Vec<PersonView>, Problem> {
        let (mut people, mut before) = (Vec::new(), None);
        loop {
            let page = self.ctx.store.records(team, RecordKind::Person, before, limits::PAGE_ROWS).await;
            let page = page.map_err(unavailable)?;
            for record in &page.rows {
                people.push(PersonView::of(record)?);
            }
            before = page.next;
            if before.is_none() {
                return Ok(people);
            }
        }
    }
}

impl People {
    /// Adds a person to the caller's team.
    pub async fn create_person(
        &self,
        caller: &Caller,
        person: Person,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<PersonView>, Problem> {
        require_people_access(caller)?;
        if person.operator {
            caller.require_scope(ApiKeyScope::Operator)?;
        }
        let person = normalize(person)?;
        let new = (RecordKind::Person, person.name.clone(), records::encode(&person)?);
        let created = self.ctx.create_named(caller, new, keyed_call.as_ref(), |_team| ()).await.map_err(|problem| {
            // The person may have another name since.
            let detail = format!("a person was added as {} before", person.name);
            if problem.code == Code::NameTaken { Problem { detail, ..problem } } else { problem }
        })?;
        Ok(CreateOutcome { value: PersonView::of(&created.value)?, is_new: created.is_new })
    }

    /// The people of the caller's team, newest first.
    pub async fn people(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<PersonView>, Problem> {
        require_people_access(caller)?;
        self.ctx.team_records(caller, RecordKind::Person, before, limit, PersonView::of).await
    }

    /// One person of the caller's team.
    pub async fn person(&self, caller: &Caller, id: PersonId) -> Result<PersonView, Problem> {
        require_people_access(caller)?;
        self.access.person_of(caller.team.id, id).await?.ok_or_else(|| person_not_found(id))
    }

    /// The person who was added under a name, whatever name is shown now.
    pub async fn find_person_by_initial_name(&self, team: TeamId, name: &str) -> Result<Option<PersonView>, Problem> {
        let record = self.ctx.store.record_by_name(team, RecordKind::Person, name.trim()).await.map_err(unavailable)?;
        record.as_ref().map(PersonView::of).transpose()
    }

    /// Changes a person, who must still have the given revision. Other nodes see it within a second.
    pub async fn change_person(
        &self,
        caller: &Caller,
        (id, rev): (PersonId, u32),
        change: PersonChange,
    ) -> Result<PersonView, Problem> {
        require_people_access(caller)?;
        let record = self.ctx.team_record(caller, RecordKind::Person, id.0).await?;
        let mut person: Person = records::decode(&record)?;
        person.name = change.name.unwrap_or(person.name);
        person.address = change.address.unwrap_or(person.address);
        person.role = change.role.unwrap_or(person.role);
        let mut edit = record.edit(records::encode(&normalize(person)?)?);
        edit.rev = rev;
        let changed = self.ctx.store.change_record(edit, None, self.ctx.now()).await;
        self.access.credentials.clear();
        match changed.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(record)) => PersonView::of(&record),
            IdempotentResult::Done(RecordChangeResult::Stale(record)) => {
                let detail = format!("the person changed since rev {rev}; it is at rev {}", record.rev);
                Err(Problem::new(Code::StaleRev, detail).with_extension("rev", record.rev))
            }
            // A replay or mismatch is impossible: the call has no idempotency key.
            _ => Err(person_not_found(id)),
        }
    }

    /// Removes a person. All sessions and connections end: here at once, on other nodes within a second.
    pub async fn remove_person(&self, caller: &Caller, id: PersonId) -> Result<PersonView, Problem> {
        require_people_access(caller)?;
        let removed = self.ctx.store.remove_record(caller.team.id, RecordKind::Person, id.0).await;
        self.access.credentials.clear();
        let removed = removed.map_err(unavailable)?.ok_or_else(|| person_not_found(id))?;
        self.access.check_active_keys().await;
        PersonView::of(&removed)
    }

    /// Ends all sessions, connections and approval links of a person. A person may do this, in all teams that the
    /// sign-in proved, and so may an admin of the team.
    pub async fn sign_out_everywhere(
        &self,
        caller: &Caller,
        id: PersonId,
        keyed_call: Option<KeyedCall>,
    ) -> Result<PersonView, Problem> {
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), self.ctx.now());
        if caller.person() != Some(id) {
            require_people_access(caller)?;
            return self.end_all_sessions(caller.team.id, id, operation).await;
        }
        let others = caller.key.details.on_behalf_of.as_ref().map(|access| access.other_teams.as_slice());
        for (team, person) in others.unwrap_or_default() {
            match self.end_all_sessions(*team, *person, None).await {
                // An admin of that team has removed the person, so nothing is left to end.
                Err(problem) if problem.code == Code::NotFound => {}
                ended => drop(ended?),
            }
        }
        self.end_all_sessions(caller.team.id, id, operation).await
    }

    async fn end_all_sessions(
        &self,
        team: TeamId,
        id: PersonId,
        operation: Option<KeyedOperation>,
    ) -> Result<PersonView, Problem> {
        let kind = RecordKind::Person;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let record = self.ctx.store.record(team, kind, id.0).await.map_err(unavailable)?;
            let record = record.ok_or_else(|| person_not_found(id))?;
            let now = self.ctx.now();
            let person: Person = records::decode(&record)?;
            let edit = record.edit(records::encode(&person.signed_out(now))?);
            let changed = self.ctx.store.change_record(edit, operation.clone(), now).await;
            self.access.credentials.clear();
            match changed.map_err(unavailable)? {
                IdempotentResult::Done(RecordChangeResult::Changed(record)) => {
                    self.access.check_active_keys().await;
                    return PersonView::of(&record);
                }
                IdempotentResult::Replayed(_) => return PersonView::of(&record),
                IdempotentResult::KeyMismatch(bound) => return Err(key_mismatch(&bound)),
                IdempotentResult::Done(_) => {}
            }
        }
        Err(Problem::new(Code::Unavailable, "the person was changed several times meanwhile; try again"))
    }

    /// Ends all sessions and connections of everybody. For a restored ledger, which has sessions that ended since.
    pub async fn sign_out_everybody(&self) -> Result<(), Problem> {
        for team in self.access.teams().await? {
            for view in self.access.people_of(team.id).await? {
                self.end_all_sessions(team.id, view.id, None).await?;
            }
        }
        Ok(())
    }

    /// The person with this record name in a team, as `describe` makes it from the existing one. For the command line, which
    /// opens the ledger directly, and for sign-ins that another server vouches for. `describe` is called again after a
    /// conflict, so that what an admin changed meanwhile is kept.
    pub(crate) async fn ensure_person(
        &self,
        team: TeamId,
        record_name: &str,
        describe: impl Fn(Option<&Person>) -> Person + Send,
    ) -> Result<PersonView, Problem> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let now = self.ctx.now();
            let (id, json) = (self.ctx.new_id(now), records::encode(&normalize(describe(None))?)?);
            let record = Record {
                team,
                kind: RecordKind::Person,
                id,
                name: record_name.to_owned(),
                rev: 1,
                created_at: now,
                json,
            };
            let created = self.ctx.store.create_record(record, None).await.map_err(unavailable)?;
            let existing = match created {
                IdempotentResult::Done(CreateRecordResult::Created(record)) => return PersonView::of(&record),
                IdempotentResult::Done(CreateRecordResult::NameTaken(existing)) => existing,
                // Impossible without an idempotency key.
                IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => continue,
            };
            let view = PersonView::of(&existing)?;
            let person = normalize(describe(Some(&view.person)))?;
            let address = person.address.clone().or(view.person.address.clone());
            // Whoever has a session or link of the person so far must not become an operator by it.
            let is_raised = person.operator && !view.person.operator;
            let Person { signed_out_at, sign_outs, .. } = view.person;
            let next = Person { address, signed_out_at, sign_outs, ..person };
            let next = if is_raised { next.signed_out(now) } else { next };
            if next == view.person {
                return Ok(view);
            }
            let changed = self.ctx.store.change_record(existing.edit(records::encode(&next)?), None, now).await;
            self.access.credentials.clear();
            if let IdempotentResult::Done(RecordChangeResult::Changed(record)) = changed.map_err(unavailable)? {
                return PersonView::of(&record);
            }
        }
        Err(Problem::new(Code::Unavailable, "the person was changed several times meanwhile; try again"))
    }
}
