//! Suppressions: addresses that a team does not write to, because a person said so, mail came back, or somebody
//! complained.
//!
//! An accept must not read the ledger for each recipient. So each team's list is in memory as a set of hashes, loaded
//! at first use. The set only grows: a hit is looked up in the ledger, which alone decides, and a removed address
//! costs that look-up and nothing else. On SQLite nobody else writes and the set is always whole; on PostgreSQL what
//! other nodes added is read every few seconds, so an address may slip through for that long.

use crate::{
    access::caller::Caller,
    control::Control,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CreateOutcome, CursorPage},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::Address,
    id::TeamId,
    operation::IdempotentResult,
    outbound::content::EmailContent,
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordKind},
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering},
    },
};
use uuid::Uuid;

/// How long a list is trusted while other nodes may add to it, in milliseconds.
const MULTI_NODE_TTL_MS: i64 = 3_000;
/// Addresses read at once.
const PAGE_SIZE: usize = 1_000;
/// Ids of other nodes may be a little older than what was read before, because their clocks are.
const REREAD_OVERLAP_MS: i64 = 600_000;

/// An address that is not written to.
#[derive(Clone, Debug)]
pub struct SuppressionView {
    /// Its id.
    pub id: Uuid,
    /// The bare address.
    pub address: String,
    /// Its rev.
    pub rev: u32,
    /// When it was added.
    pub created_at: Time,
    /// Why, and by what.
    pub details: SuppressionDetails,
}

/// Why an address is not written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressionDetails {
    /// `bounced`, `complained`, `manual`, or a person's words.
    pub reason: String,
    /// The email that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<Uuid>,
    /// The source that told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Uuid>,
    /// What the provider said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl SuppressionDetails {
    /// By a person.
    pub fn manual(reason: Option<String>) -> Self {
        Self { reason: reason.unwrap_or_else(|| "manual".into()), email: None, source: None, detail: None }
    }
}

/// One team's list.
#[derive(Default)]
struct TeamSuppressions {
    hashes: RwLock<HashSet<u64>>,
    /// When it was read, by the even counter. Zero is never.
    read_at: AtomicI64,
    /// The newest id that was read. Whoever holds it reads.
    newest: tokio::sync::Mutex<Option<Uuid>>,
}

impl TeamSuppressions {
    fn is_empty(&self) -> bool {
        self.hashes.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// The lists of every team that sent something.
#[derive(Default)]
pub(crate) struct SuppressionIndex {
    teams: RwLock<HashMap<TeamId, Arc<TeamSuppressions>>>,
    hasher: RandomState,
}

impl SuppressionIndex {
    fn team(&self, team: TeamId) -> Arc<TeamSuppressions> {
        if let Some(list) = self.teams.read().unwrap_or_else(PoisonError::into_inner).get(&team) {
            return Arc::clone(list);
        }
        Arc::clone(self.teams.write().unwrap_or_else(PoisonError::into_inner).entry(team).or_default())
    }

    fn add<'a>(&self, list: &TeamSuppressions, addresses: impl Iterator<Item = &'a str>) {
        let mut hashes = list.hashes.write().unwrap_or_else(PoisonError::into_inner);
        hashes.extend(addresses.map(|address| self.hasher.hash_one(address)));
    }

    fn may_contain(&self, list: &TeamSuppressions, address: &str) -> bool {
        let hashes = list.hashes.read().unwrap_or_else(PoisonError::into_inner);
        hashes.contains(&self.hasher.hash_one(address))
    }
}

fn view(record: &Record) -> Result<SuppressionView, Problem> {
    Ok(SuppressionView {
        id: record.id,
        address: record.name.clone(),
        rev: record.rev,
        created_at: record.created_at,
        details: records::decode(record)?,
    })
}

/// The milliseconds in an id.
fn id_timestamp_ms(id: Uuid) -> i64 {
    (id.as_u128() >> 80) as i64
}

impl Control {
    /// Adds an address to the caller's list. One that is there already stays as it is.
    pub async fn suppress(
        &self,
        caller: &Caller,
        address: &Address,
        about: SuppressionDetails,
        asked: Option<KeyedCall>,
    ) -> Result<CreateOutcome<SuppressionView>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let now = self.ctx.now();
        let record = self.new_suppression_record(caller.team.id, address, &about, now)?;
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        match self.ctx.store.create_record(record, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(created) => self.index_created(&created),
            IdempotentResult::Replayed(_) => {
                Ok(CreateOutcome { value: view(&self.find_suppression(caller, address).await?)?, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Adds an address to a team's list because of what a provider told.
    pub(crate) async fn suppress_by_report(
        &self,
        team: TeamId,
        address: &Address,
        about: SuppressionDetails,
    ) -> Result<bool, Problem> {
        let record = self.new_suppression_record(team, address, &about, self.ctx.now())?;
        match self.ctx.store.create_record(record, None).await.map_err(unavailable)? {
            IdempotentResult::Done(created) => Ok(self.index_created(&created)?.is_new),
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => Ok(false),
        }
    }

    fn new_suppression_record(
        &self,
        team: TeamId,
        address: &Address,
        about: &SuppressionDetails,
        now: Time,
    ) -> Result<Record, Problem> {
        Ok(Record {
            team,
            kind: RecordKind::Suppression,
            id: self.ctx.new_id(now),
            name: address.as_str().to_owned(),
            rev: 1,
            created_at: now,
            json: records::encode(about)?,
        })
    }

    fn index_created(&self, created: &CreateRecordResult) -> Result<CreateOutcome<SuppressionView>, Problem> {
        let (CreateRecordResult::Created(record) | CreateRecordResult::NameTaken(record)) = created;
        let list = self.suppression_index.team(record.team);
        self.suppression_index.add(&list, std::iter::once(record.name.as_str()));
        Ok(CreateOutcome { value: view(record)?, is_new: matches!(created, CreateRecordResult::Created(_)) })
    }

    /// The caller's list, newest first.
    pub async fn suppressions(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<SuppressionView>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        caller.require_unrestricted_key()?;
        self.ctx.team_records(caller, RecordKind::Suppression, before, limit, view).await
    }

    /// Why an address is not written to.
    pub async fn read_suppression(&self, caller: &Caller, address: &Address) -> Result<SuppressionView, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        caller.require_unrestricted_key()?;
        view(&self.find_suppression(caller, address).await?)
    }

    async fn find_suppression(&self, caller: &Caller, address: &Address) -> Result<Record, Problem> {
        let kind = RecordKind::Suppression;
        let found = self.ctx.store.record_by_name(caller.team.id, kind, address.as_str()).await.map_err(unavailable)?;
        found.ok_or_else(|| records::not_found(kind, address.as_str()))
    }

    /// Takes an address off the caller's list.
    pub async fn remove_suppression(&self, caller: &Caller, address: &Address) -> Result<SuppressionView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let record = self.find_suppression(caller, address).await?;
        let removed = self.ctx.store.remove_record(caller.team.id, RecordKind::Suppression, record.id).await;
        let removed = removed.map_err(unavailable)?;
        view(&removed.ok_or_else(|| records::not_found(RecordKind::Suppression, address.as_str()))?)
    }

    /// Refuses a mail to an address on its team's list.
    pub(crate) async fn check_recipients(&self, team: TeamId, content: &EmailContent) -> Result<(), Problem> {
        let list = self.team_suppressions(team).await.map_err(unavailable)?;
        if list.is_empty() {
            return Ok(());
        }
        for (field, boxes) in [("to", &content.to), ("cc", &content.cc), ("bcc", &content.bcc)] {
            for (at, mailbox) in boxes.iter().enumerate() {
                self.check_recipient(team, &list, mailbox.to_address().as_str(), &format!("{field}[{at}]")).await?;
            }
        }
        Ok(())
    }

    /// The same for bare addresses of an email that was accepted before.
    pub(crate) async fn check_recipient_addresses(
        &self,
        team: TeamId,
        field: &str,
        all: &[String],
    ) -> Result<(), Problem> {
        let list = self.team_suppressions(team).await.map_err(unavailable)?;
        for (at, address) in all.iter().enumerate() {
            self.check_recipient(team, &list, address, &format!("{field}[{at}]")).await?;
        }
        Ok(())
    }

    async fn check_recipient(
        &self,
        team: TeamId,
        list: &TeamSuppressions,
        address: &str,
        field: &str,
    ) -> Result<(), Problem> {
        if !self.suppression_index.may_contain(list, address) {
            return Ok(());
        }
        let found = self.ctx.store.record_by_name(team, RecordKind::Suppression, address).await.map_err(unavailable)?;
        let Some(record) = found else { return Ok(()) };
        let reason = records::decode::<SuppressionDetails>(&record)?.reason;
        let detail = format!("{field} {address} is suppressed: {reason}");
        Err(Problem::for_field(Code::RecipientSuppressed, field, detail)
            .with_extension("reason", reason)
            .with_extension("recipient", address))
    }

    /// A team's list, read anew when others may have added to it.
    async fn team_suppressions(&self, team: TeamId) -> Result<Arc<TeamSuppressions>, StoreError> {
        let list = self.suppression_index.team(team);
        let fresh = |even: i64| {
            let read_at = list.read_at.load(Ordering::Acquire);
            read_at != 0 && (self.ctx.is_single_node || even - read_at < MULTI_NODE_TTL_MS)
        };
        if fresh(self.ctx.time.boot_clock_ms()) {
            return Ok(list);
        }
        let mut newest = list.newest.lock().await;
        let even = self.ctx.time.boot_clock_ms();
        if !fresh(even) {
            *newest = self.load_suppressions(team, &list, *newest).await?;
            // A counter that stands at zero must not look like a list that was never read.
            list.read_at.store(even.max(1), Ordering::Release);
        }
        drop(newest);
        Ok(list)
    }

    /// Reads what is newer than what is known, and a little more. The newest id there is.
    async fn load_suppressions(
        &self,
        team: TeamId,
        list: &TeamSuppressions,
        known: Option<Uuid>,
    ) -> Result<Option<Uuid>, StoreError> {
        let (mut before, mut newest) = (None, known);
        loop {
            let page = self.ctx.store.records(team, RecordKind::Suppression, before, PAGE_SIZE).await?;
            self.suppression_index.add(list, page.rows.iter().map(|record| record.name.as_str()));
            newest = newest.max(page.rows.first().map(|record| record.id));
            let reached =
                |id: Uuid| known.is_some_and(|known| id_timestamp_ms(id) < id_timestamp_ms(known) - REREAD_OVERLAP_MS);
            match page.next.filter(|last| !reached(*last)) {
                Some(last) => before = Some(last),
                None => return Ok(newest),
            }
        }
    }
}
