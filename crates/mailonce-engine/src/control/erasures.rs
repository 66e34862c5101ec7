//! Erasures: requests, their records, and the loop that works on them in small steps.
//!
//! Each step saves where the next one continues, with what was done so far. So an erasure goes on after a kill, on
//! any node, and two nodes that work on the same one do not disturb each other: every step can be repeated.

use crate::{
    access::caller::Caller,
    control::Erasures,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CursorPage},
        team_round::TeamRound,
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::Address,
    control::{
        erasure::{AddressEraser, Erasure, MAX_REASON_CHARS, is_alias},
        stop::ERASURE_JOURNAL_AUTHOR,
    },
    id::TeamId,
    inbox,
    operation::{IdempotentResult, KeyedOperation},
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use uuid::Uuid;

/// How many records one query reads.
const PAGE_SIZE: usize = 100;

/// An erasure as callers see it.
#[derive(Clone, Debug)]
pub struct ErasureView {
    /// Its id.
    pub id: Uuid,
    /// What it is doing, and what it did.
    pub erasure: Erasure,
}

/// An erasure in the journal, which outlives the ledger. It names the person by the alias alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The team.
    pub team: TeamId,
    /// The alias of the address.
    pub alias: String,
    /// When it was requested last.
    pub requested_at: Time,
}

/// The teams that have an erasure to work on, as far as this node knows.
#[derive(Default)]
pub(crate) struct ActiveErasures {
    teams: Mutex<BTreeSet<TeamId>>,
    /// How many requests this process got.
    requests: AtomicU64,
    /// Whether this process found that no stop of the journal is in force. It looks again with every
    /// [`Erasures::find_erasures`], because another process may have created one and ended.
    has_no_journal_stop: AtomicBool,
}

impl ActiveErasures {
    fn add(&self, team: TeamId) {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).insert(team);
    }

    fn remove(&self, team: TeamId) {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).remove(&team);
    }

    fn teams(&self) -> Vec<TeamId> {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

fn view(record: &Record) -> Result<ErasureView, Problem> {
    Ok(ErasureView { id: record.id, erasure: records::decode(record)? })
}

impl Erasures {
    /// Requests the erasure of a person. A request for the same person while one is running returns that one; a later
    /// request erases what came in since.
    pub async fn request_erasure(
        &self,
        caller: &Caller,
        address: &Address,
        reason: Option<String>,
        keyed_call: Option<KeyedCall>,
    ) -> Result<ErasureView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        self.check_erasure(caller.team.id, address, reason.as_deref()).await?;
        let (team, now) = (caller.team.id, self.ctx.now());
        let eraser = AddressEraser::new(&self.ctx.secret, team, address.as_str());
        let reason = reason.map(|reason| eraser.redact(&reason).unwrap_or(reason));
        let erasure = Erasure::new(&eraser, reason, Some(caller.key.id), now);
        let record = Record {
            team,
            kind: RecordKind::Erasure,
            id: self.ctx.new_id(now),
            name: erasure.alias.clone(),
            rev: 1,
            created_at: now,
            json: records::encode(&erasure)?,
        };
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        let created = self.ctx.store.create_record(record, operation.clone()).await.map_err(unavailable)?;
        self.active_erasures.add(team);
        self.active_erasures.requests.fetch_add(1, Ordering::Relaxed);
        match created {
            IdempotentResult::Done(CreateRecordResult::Created(record)) => view(&record),
            IdempotentResult::Done(CreateRecordResult::NameTaken(earlier)) => {
                self.replay_or_restart_erasure(earlier, erasure, operation).await
            }
            IdempotentResult::Replayed(_) => {
                let found = self.ctx.store.record_by_name(team, RecordKind::Erasure, &erasure.alias).await;
                let found = found.map_err(unavailable)?;
                view(&found.ok_or_else(|| records::not_found(RecordKind::Erasure, &erasure.alias))?)
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Returns a running erasure of the same address, or starts a finished one again.
    async fn replay_or_restart_erasure(
        &self,
        earlier: Record,
        mut erasure: Erasure,
        operation: Option<KeyedOperation>,
    ) -> Result<ErasureView, Problem> {
        let before: Erasure = records::decode(&earlier)?;
        if before.is_running() {
            return view(&earlier);
        }
        erasure.counts = before.counts;
        let edit = earlier.edit(records::encode(&erasure)?);
        match self.ctx.store.change_record(edit, operation, self.ctx.now()).await.map_err(unavailable)? {
            IdempotentResult::Done(RecordChangeResult::Changed(record) | RecordChangeResult::Stale(record)) => {
                view(&record)
            }
            IdempotentResult::Done(RecordChangeResult::Missing) | IdempotentResult::Replayed(_) => view(&earlier),
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    async fn check_erasure(&self, team: TeamId, address: &Address, reason: Option<&str>) -> Result<(), Problem> {
        if reason.is_some_and(|reason| reason.chars().count() > MAX_REASON_CHARS) {
            let detail = format!("must have at most {MAX_REASON_CHARS} characters");
            return Err(Problem::invalid_field("reason", detail));
        }
        if is_alias(address.as_str()) {
            return Err(Problem::invalid_field("address", "is the alias of a person who was erased before"));
        }
        let places = inbox::candidate_addresses(address.as_str());
        let inbox = self.ctx.store.inbox_by_address(&places).await.map_err(unavailable)?;
        if inbox.is_some_and(|inbox| inbox.team == team && inbox.address == address.as_str()) {
            let detail = format!("{} is an inbox of this team. Delete the inbox to remove its mail", address.as_str());
            return Err(Problem::for_field(Code::InvalidField, "address", detail));
        }
        Ok(())
    }

    /// The erasures of the team, newest first.
    pub async fn erasures(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<ErasureView>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        self.ctx.team_records(caller, RecordKind::Erasure, before, limit, view).await
    }

    /// One erasure.
    pub async fn erasure(&self, caller: &Caller, id: Uuid) -> Result<ErasureView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        view(&self.ctx.team_record(caller, RecordKind::Erasure, id).await?)
    }

    /// Looks for erasures of all teams that are not done, such as those of a process that was killed. The next
    /// [`Self::run_erasures`] also looks for a stop of the journal that such a process left.
    pub async fn find_erasures(&self) -> Result<(), StoreError> {
        self.active_erasures.has_no_journal_stop.store(false, Ordering::Relaxed);
        let mut round = TeamRound::default();
        for team in self.ctx.store.teams().await? {
            let running = self.running_erasures(team.id).await;
            if round.record(team.id, running).is_some_and(|running| !running.is_empty()) {
                self.active_erasures.add(team.id);
            }
            if round.must_end() {
                break;
            }
        }
        round.finish(())
    }

    /// How many erasures were requested in this process.
    pub fn erasure_requests(&self) -> u64 {
        self.active_erasures.requests.load(Ordering::Relaxed)
    }

    /// All erasures, for the journal.
    pub async fn erasure_journal(&self) -> Result<Vec<JournalEntry>, StoreError> {
        let mut journal = Vec::new();
        for team in self.ctx.store.teams().await? {
            for record in self.erasure_records(team.id).await? {
                if let Ok(Erasure { alias, requested_at, .. }) = serde_json::from_str(&record.json) {
                    journal.push(JournalEntry { team: team.id, alias, requested_at });
                }
            }
        }
        Ok(journal)
    }

    /// Requests the erasures of a journal that this ledger does not know, because it was restored from an older backup.
    /// Returns how many. The installation is stopped until the email to these people is cancelled: the backup may have
    /// it in its queue. Other stops of the installation stay as they are.
    ///
    /// To be called before this process hands anything off.
    pub async fn apply_erasure_journal(&self, journal: Vec<JournalEntry>) -> Result<usize, StoreError> {
        let teams: BTreeSet<TeamId> = self.ctx.store.teams().await?.into_iter().map(|team| team.id).collect();
        let mut applied = 0;
        for entry in journal.into_iter().filter(|entry| teams.contains(&entry.team)) {
            applied += usize::from(self.apply_journal_entry(entry).await?);
        }
        // The records come before the stop, because every node ends a stop that no record needs. No email leaves in
        // between: this process hands nothing off yet, and a node that runs on the restored ledger already was not
        // stopped before either. Old records count too, since the process that wrote them may have been killed before it
        // created the stop.
        if self.may_have_restored_email().await? {
            self.stop_for_journal().await?;
        }
        Ok(applied)
    }

    /// Writes the record of an erasure, unless the ledger knows it. Returns whether it did.
    async fn apply_journal_entry(&self, entry: JournalEntry) -> Result<bool, StoreError> {
        let JournalEntry { team, alias, requested_at } = entry;
        let known = self.ctx.store.record_by_name(team, RecordKind::Erasure, &alias).await?;
        let before = known.as_ref().and_then(|record| serde_json::from_str::<Erasure>(&record.json).ok());
        if before.as_ref().is_some_and(|before| before.requested_at >= requested_at) {
            return Ok(false);
        }
        let erasure = Erasure::from_journal(alias.clone(), requested_at, before);
        let json = serde_json::to_string(&erasure).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let now = self.ctx.now();
        if let Some(record) = known {
            let _changed = self.ctx.store.change_record(record.edit(json), None, now).await?;
        } else {
            let (kind, id) = (RecordKind::Erasure, self.ctx.new_id(now));
            let record = Record { team, kind, id, name: alias, rev: 1, created_at: now, json };
            let _created = self.ctx.store.create_record(record, None).await?;
        }
        self.active_erasures.add(team);
        Ok(true)
    }

    async fn stop_for_journal(&self) -> Result<(), StoreError> {
        let reason = "people who were erased are erased again, because the ledger is from before";
        self.control.stops.stop_installation(ERASURE_JOURNAL_AUTHOR, reason).await?;
        self.active_erasures.has_no_journal_stop.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Works on the erasures that this node knows of, with at most this many steps for each. The next call goes on.
    pub async fn run_erasures(&self, max_steps: usize) -> Result<(), StoreError> {
        let mut round = TeamRound::default();
        for team in self.active_erasures.teams() {
            let running = self.running_erasures(team).await;
            let mut is_done = running.is_ok();
            // An erasure that fails must not keep the others of its team waiting.
            for record in round.record(team, running).unwrap_or_default() {
                let result = self.run_erasure(record, max_steps).await;
                is_done &= round.record(team, result).unwrap_or(false);
            }
            if is_done {
                self.active_erasures.remove(team);
            }
            if round.must_end() {
                break;
            }
        }
        let ended = self.end_stop_of_journal().await;
        round.finish(()).and(ended)
    }

    /// Lets email leave again when no restored email to an erased person can be queued any more. The stop may be from a
    /// process that was killed.
    async fn end_stop_of_journal(&self) -> Result<(), StoreError> {
        if self.active_erasures.has_no_journal_stop.load(Ordering::Relaxed) || self.may_have_restored_email().await? {
            return Ok(());
        }
        let has_ended = self.control.stops.end_installation_stop_of(ERASURE_JOURNAL_AUTHOR).await?;
        // Another node may have applied its journal after the check, and relied on the stop that ended here.
        if has_ended && self.may_have_restored_email().await? {
            return self.stop_for_journal().await;
        }
        self.active_erasures.has_no_journal_stop.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether email to a person of the journal may still be queued, in any team.
    async fn may_have_restored_email(&self) -> Result<bool, StoreError> {
        for team in self.ctx.store.teams().await? {
            for record in self.erasure_records(team.id).await? {
                let erasure = serde_json::from_str::<Erasure>(&record.json);
                if erasure.is_ok_and(|erasure| erasure.may_have_restored_email()) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    async fn running_erasures(&self, team: TeamId) -> Result<Vec<Record>, StoreError> {
        let mut records = self.erasure_records(team).await?;
        records.retain(|record| serde_json::from_str::<Erasure>(&record.json).is_ok_and(|is| is.is_running()));
        Ok(records)
    }

    async fn erasure_records(&self, team: TeamId) -> Result<Vec<Record>, StoreError> {
        let (mut records, mut before) = (Vec::new(), None);
        loop {
            let page = self.ctx.store.records(team, RecordKind::Erasure, before, PAGE_SIZE).await?;
            records.extend(page.rows);
            before = page.next;
            if before.is_none() {
                return Ok(records);
            }
        }
    }

    /// Runs an erasure until it is done or has to wait. Returns whether it is done.
    async fn run_erasure(&self, mut record: Record, max_steps: usize) -> Result<bool, StoreError> {
        for _ in 0..max_steps {
            let corrupt = |error: serde_json::Error| StoreError::Corrupt(format!("erasure {}: {error}", record.id));
            let mut erasure: Erasure = serde_json::from_str(&record.json).map_err(corrupt)?;
            if !erasure.is_running() {
                return Ok(true);
            }
            let goes_on = self.erasure_step(record.team, &mut erasure).await?;
            let json = serde_json::to_string(&erasure).map_err(corrupt)?;
            if json != record.json {
                crate::failpoint!("erasure-before-save");
                match self.ctx.store.change_record(record.edit(json), None, self.ctx.now()).await? {
                    IdempotentResult::Done(RecordChangeResult::Changed(changed)) => record = changed,
                    // Another node made this step, or a caller asked again.
                    _ => return Ok(false),
                }
                crate::failpoint!("erasure-after-save");
            }
            if !goes_on {
                break;
            }
        }
        Ok(false)
    }
}
