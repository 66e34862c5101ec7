//! Suppressions: addresses that a team doesn't send to, because a person added them, mail bounced, or the recipient
//! complained or unsubscribed.
//!
//! An accept must not query the store for each recipient. So each team's list is in memory as a set of hashes, loaded
//! at first use. A hit is looked up in the store, which decides. The set only grows, so a removed address costs one
//! more query and nothing else. With SQLite there is only one node, and the set is always complete. With PostgreSQL,
//! additions of other nodes are read every few seconds, so a send may reach a suppressed address for that long.

use crate::{
    access::caller::Caller,
    control::{Control, unsubscribe::has_unsubscribe_tag},
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CreateOutcome, CursorPage},
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::Address,
    control::erasure::alias_of,
    id::TeamId,
    operation::{IdempotentResult, KeyedOperation},
    outbound::content::EmailContent,
    ports::store::StoreError,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering},
    },
};
use uuid::Uuid;

/// How long a list is used without a new read when other nodes may add to it, in milliseconds.
const MULTI_NODE_TTL_MS: i64 = 3_000;
/// How often an addition is tried again after a conflict.
const MAX_CONFLICT_RETRIES: usize = 4;
/// How many addresses are read per query.
const PAGE_SIZE: usize = 1_000;
/// How far a read goes back before the newest known id, in milliseconds. The clocks of other nodes may be behind, so
/// that their new ids are older.
const REREAD_OVERLAP_MS: i64 = 600_000;

/// The tags of an email: names and optional values.
pub(crate) type EmailTags = BTreeMap<String, Option<String>>;

/// A suppressed address.
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
    /// Why it is suppressed.
    pub details: SuppressionDetails,
}

/// Which email a suppression refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuppressionScope {
    /// All email.
    #[default]
    All,
    /// Email with one of the team's unsubscribe tags.
    Unsubscribable,
}

impl SuppressionScope {
    /// The spelling on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Unsubscribable => "unsubscribable",
        }
    }
}

/// Why an address is suppressed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuppressionDetails {
    /// Which email it refuses.
    #[serde(default)]
    pub scope: SuppressionScope,
    /// `bounced`, `complained`, `manual`, or a person's own text.
    pub reason: String,
    /// The email that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<Uuid>,
    /// The source that reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Uuid>,
    /// The provider's or server's explanation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl SuppressionDetails {
    /// The details of a suppression by a person.
    pub fn manual(reason: Option<String>) -> Self {
        let reason = reason.unwrap_or_else(|| "manual".into());
        Self { scope: SuppressionScope::All, reason, email: None, source: None, detail: None }
    }
}

/// The suppression list of one team, in memory.
#[derive(Default)]
struct TeamSuppressions {
    hashes: RwLock<HashSet<u64>>,
    /// When the list was last read, by the boot clock. Zero means never.
    read_at: AtomicI64,
    /// The newest id that was read. The lock is held during a read.
    newest: tokio::sync::Mutex<Option<Uuid>>,
}

impl TeamSuppressions {
    fn is_empty(&self) -> bool {
        self.hashes.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// The suppression lists of all teams that have sent something.
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

/// The timestamp of an id, in milliseconds.
fn id_timestamp_ms(id: Uuid) -> i64 {
    (id.as_u128() >> 80) as i64
}

impl Control {
    /// Adds an address to the team's list. An existing entry stays as it is, unless it refuses less.
    pub async fn suppress(
        &self,
        caller: &Caller,
        address: &Address,
        details: SuppressionDetails,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<SuppressionView>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let now = self.ctx.now();
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        match self.create_or_widen(caller.team.id, address, &details, operation).await? {
            IdempotentResult::Done(created) => self.index_created(&created),
            IdempotentResult::Replayed(_) => {
                Ok(CreateOutcome { value: view(&self.find_suppression(caller, address).await?)?, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Adds an address to a team's list because of a bounce, a complaint or an unsubscribe link. Returns whether it is
    /// new.
    pub(crate) async fn suppress_by_report(
        &self,
        team: TeamId,
        address: &Address,
        details: SuppressionDetails,
    ) -> Result<bool, Problem> {
        match self.create_or_widen(team, address, &details, None).await? {
            IdempotentResult::Done(created) => Ok(self.index_created(&created)?.is_new),
            IdempotentResult::Replayed(_) | IdempotentResult::KeyMismatch(_) => Ok(false),
        }
    }

    /// Adds an address. An entry that only refuses email with unsubscribe tags is replaced when all email is to be
    /// refused.
    async fn create_or_widen(
        &self,
        team: TeamId,
        address: &Address,
        details: &SuppressionDetails,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateRecordResult>, Problem> {
        // Another call may change or remove the entry in between, so that it must be looked at again.
        for _ in 0..MAX_CONFLICT_RETRIES {
            let now = self.ctx.now();
            let record = self.new_suppression_record(team, address, details, now)?;
            let created = self.ctx.store.create_record(record, operation.clone()).await.map_err(unavailable)?;
            let IdempotentResult::Done(CreateRecordResult::NameTaken(existing)) = created else { return Ok(created) };
            let known = records::decode::<SuppressionDetails>(&existing)?.scope;
            if known == SuppressionScope::All || details.scope == SuppressionScope::Unsubscribable {
                return Ok(IdempotentResult::Done(CreateRecordResult::NameTaken(existing)));
            }
            let edit = existing.edit(records::encode(details)?);
            match self.ctx.store.change_record(edit, operation.clone(), now).await.map_err(unavailable)? {
                IdempotentResult::Done(RecordChangeResult::Changed(record)) => {
                    return Ok(IdempotentResult::Done(CreateRecordResult::Created(record)));
                }
                IdempotentResult::Done(RecordChangeResult::Stale(_) | RecordChangeResult::Missing) => {}
                IdempotentResult::Replayed(answer) => return Ok(IdempotentResult::Replayed(answer)),
                IdempotentResult::KeyMismatch(bound) => return Ok(IdempotentResult::KeyMismatch(bound)),
            }
        }
        Err(Problem::new(Code::Unavailable, "the suppression changed several times while it was added; try again"))
    }

    fn new_suppression_record(
        &self,
        team: TeamId,
        address: &Address,
        details: &SuppressionDetails,
        now: Time,
    ) -> Result<Record, Problem> {
        Ok(Record {
            team,
            kind: RecordKind::Suppression,
            id: self.ctx.new_id(now),
            name: address.as_str().to_owned(),
            rev: 1,
            created_at: now,
            json: records::encode(details)?,
        })
    }

    /// Adds an address or an alias to the set in memory.
    pub(super) fn index_suppression(&self, team: TeamId, name: &str) {
        self.suppression_index.add(&self.suppression_index.team(team), std::iter::once(name));
    }

    fn index_created(&self, created: &CreateRecordResult) -> Result<CreateOutcome<SuppressionView>, Problem> {
        let (CreateRecordResult::Created(record) | CreateRecordResult::NameTaken(record)) = created;
        let list = self.suppression_index.team(record.team);
        self.suppression_index.add(&list, std::iter::once(record.name.as_str()));
        Ok(CreateOutcome { value: view(record)?, is_new: matches!(created, CreateRecordResult::Created(_)) })
    }

    /// The team's suppressed addresses, newest first.
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

    /// The suppression of an address.
    pub async fn read_suppression(&self, caller: &Caller, address: &Address) -> Result<SuppressionView, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        caller.require_unrestricted_key()?;
        view(&self.find_suppression(caller, address).await?)
    }

    async fn find_suppression(&self, caller: &Caller, address: &Address) -> Result<Record, Problem> {
        let found = self.suppression_of(caller.team.id, address.as_str()).await.map_err(unavailable)?;
        found.ok_or_else(|| records::not_found(RecordKind::Suppression, address.as_str()))
    }

    /// The suppression of an address, or of its alias if the person was erased. Of two, the one that refuses more.
    async fn suppression_of(&self, team: TeamId, address: &str) -> Result<Option<Record>, StoreError> {
        let kind = RecordKind::Suppression;
        let refuses_all = |record: &Record| {
            records::decode::<SuppressionDetails>(record).is_ok_and(|details| details.scope == SuppressionScope::All)
        };
        let found = self.ctx.store.record_by_name(team, kind, address).await?;
        if found.as_ref().is_some_and(refuses_all) {
            return Ok(found);
        }
        let erased = self.ctx.store.record_by_name(team, kind, &alias_of(&self.ctx.secret, team, address)).await?;
        Ok(erased.filter(|erased| found.is_none() || refuses_all(erased)).or(found))
    }

    /// Removes an address from the team's list.
    pub async fn remove_suppression(&self, caller: &Caller, address: &Address) -> Result<SuppressionView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let record = self.find_suppression(caller, address).await?;
        let removed = self.ctx.store.remove_record(caller.team.id, RecordKind::Suppression, record.id).await;
        let removed = removed.map_err(unavailable)?;
        view(&removed.ok_or_else(|| records::not_found(RecordKind::Suppression, address.as_str()))?)
    }

    /// Refuses an email to a suppressed address.
    pub(crate) async fn check_recipients(&self, team: TeamId, content: &EmailContent) -> Result<(), Problem> {
        let list = self.team_suppressions(team).await.map_err(unavailable)?;
        if list.is_empty() {
            return Ok(());
        }
        for (field, recipients) in [("to", &content.to), ("cc", &content.cc), ("bcc", &content.bcc)] {
            for (index, mailbox) in recipients.iter().enumerate() {
                let (address, field) = (mailbox.to_address(), format!("{field}[{index}]"));
                self.check_recipient(team, &list, address.as_str(), &field, &content.tags).await?;
            }
        }
        Ok(())
    }

    /// The same check for the bare addresses of an email that is accepted already.
    pub(crate) async fn check_recipient_addresses(
        &self,
        team: TeamId,
        field: &str,
        addresses: &[String],
        tags: &EmailTags,
    ) -> Result<(), Problem> {
        let list = self.team_suppressions(team).await.map_err(unavailable)?;
        for (index, address) in addresses.iter().enumerate() {
            self.check_recipient(team, &list, address, &format!("{field}[{index}]"), tags).await?;
        }
        Ok(())
    }

    async fn check_recipient(
        &self,
        team: TeamId,
        list: &TeamSuppressions,
        address: &str,
        field: &str,
        tags: &EmailTags,
    ) -> Result<(), Problem> {
        let alias = alias_of(&self.ctx.secret, team, address);
        if ![address, &alias].iter().any(|name| self.suppression_index.may_contain(list, name)) {
            return Ok(());
        }
        let found = self.suppression_of(team, address).await.map_err(unavailable)?;
        let Some(record) = found else { return Ok(()) };
        let SuppressionDetails { reason, scope, .. } = records::decode(&record)?;
        if scope == SuppressionScope::Unsubscribable {
            let settings = self.access.settings_of(team).await.map_err(unavailable)?;
            if !has_unsubscribe_tag(&settings.unsubscribe_tags, tags) {
                return Ok(());
            }
        }
        let detail = format!("{field} {address} is suppressed: {reason}");
        Err(Problem::for_field(Code::RecipientSuppressed, field, detail)
            .with_extension("reason", reason)
            .with_extension("recipient", address))
    }

    /// A team's list, read again when other nodes may have added to it.
    async fn team_suppressions(&self, team: TeamId) -> Result<Arc<TeamSuppressions>, StoreError> {
        let list = self.suppression_index.team(team);
        let is_fresh = |boot_ms: i64| {
            let read_at = list.read_at.load(Ordering::Acquire);
            read_at != 0 && (self.ctx.is_single_node || boot_ms - read_at < MULTI_NODE_TTL_MS)
        };
        if is_fresh(self.ctx.time.boot_clock_ms()) {
            return Ok(list);
        }
        let mut newest = list.newest.lock().await;
        let boot_ms = self.ctx.time.boot_clock_ms();
        if !is_fresh(boot_ms) {
            *newest = self.load_suppressions(team, &list, *newest).await?;
            // Zero means never read, so a boot clock of zero is stored as one.
            list.read_at.store(boot_ms.max(1), Ordering::Release);
        }
        drop(newest);
        Ok(list)
    }

    /// Reads the entries newer than `known`, with an overlap. Returns the newest id.
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
            let is_known =
                |id: Uuid| known.is_some_and(|known| id_timestamp_ms(id) < id_timestamp_ms(known) - REREAD_OVERLAP_MS);
            match page.next.filter(|last| !is_known(*last)) {
                Some(last) => before = Some(last),
                None => return Ok(newest),
            }
        }
    }
}
