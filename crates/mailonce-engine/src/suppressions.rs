//! Suppressions: addresses that a team does not write to, because a person said so, mail came back, or somebody
//! complained.
//!
//! An accept must not read the ledger for each recipient. So each team's list is in memory as a set of hashes, loaded
//! at first use. The set only grows: a hit is looked up in the ledger, which alone decides, and a removed address
//! costs that look-up and nothing else. On SQLite nobody else writes and the set is always whole; on PostgreSQL what
//! other nodes added is read every few seconds, so an address may slip through for that long.

use mailonce_core::{
    address::Address,
    content::Content,
    id::TeamId,
    port::store::{Once, StoreError},
    problem::{Code, Problem},
    record::{Created, Record, RecordKind},
    team::Scope,
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

use crate::{
    Asked, Caller, Engine,
    change::taken,
    operation,
    records::{self, Listed, Made},
    unavailable,
};

/// How long a list is trusted while other nodes may add to it, in milliseconds.
const SHARED_MS: i64 = 3_000;
/// Addresses read at once.
const READ_AT_ONCE: usize = 1_000;
/// Ids of other nodes may be a little older than what was read before, because their clocks are.
const OVERLAP_MS: i64 = 600_000;

/// An address that is not written to.
#[derive(Clone, Debug)]
pub struct Suppression {
    /// Its id.
    pub id: Uuid,
    /// The bare address.
    pub address: String,
    /// Its rev.
    pub rev: u32,
    /// When it was added.
    pub created_at: Time,
    /// Why, and by what.
    pub about: AboutSuppression,
}

/// Why an address is not written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutSuppression {
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

impl AboutSuppression {
    /// By a person.
    pub fn by_hand(reason: Option<String>) -> Self {
        Self { reason: reason.unwrap_or_else(|| "manual".into()), email: None, source: None, detail: None }
    }
}

/// One team's list.
#[derive(Default)]
struct List {
    hashes: RwLock<HashSet<u64>>,
    /// When it was read, by the even counter. Zero is never.
    read_at: AtomicI64,
    /// The newest id that was read. Whoever holds it reads.
    newest: tokio::sync::Mutex<Option<Uuid>>,
}

impl List {
    fn is_empty(&self) -> bool {
        self.hashes.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// The lists of every team that sent something.
#[derive(Default)]
pub(crate) struct StopList {
    lists: RwLock<HashMap<TeamId, Arc<List>>>,
    hasher: RandomState,
}

impl StopList {
    fn list(&self, team: TeamId) -> Arc<List> {
        if let Some(list) = self.lists.read().unwrap_or_else(PoisonError::into_inner).get(&team) {
            return Arc::clone(list);
        }
        Arc::clone(self.lists.write().unwrap_or_else(PoisonError::into_inner).entry(team).or_default())
    }

    fn add<'a>(&self, list: &List, addresses: impl Iterator<Item = &'a str>) {
        let mut hashes = list.hashes.write().unwrap_or_else(PoisonError::into_inner);
        hashes.extend(addresses.map(|address| self.hasher.hash_one(address)));
    }

    fn may_hold(&self, list: &List, address: &str) -> bool {
        let hashes = list.hashes.read().unwrap_or_else(PoisonError::into_inner);
        hashes.contains(&self.hasher.hash_one(address))
    }
}

fn view(record: &Record) -> Result<Suppression, Problem> {
    Ok(Suppression {
        id: record.id,
        address: record.name.clone(),
        rev: record.rev,
        created_at: record.created_at,
        about: records::read(record)?,
    })
}

/// The milliseconds in an id.
fn made_at(id: Uuid) -> i64 {
    (id.as_u128() >> 80) as i64
}

impl Engine {
    /// Adds an address to the caller's list. One that is there already stays as it is.
    pub async fn suppress(
        &self,
        caller: &Caller,
        address: &Address,
        about: AboutSuppression,
        asked: Option<Asked>,
    ) -> Result<Made<Suppression>, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        let now = self.now();
        let record = self.suppression(caller.team.id, address, &about, now)?;
        let operation = operation(caller, asked.as_ref(), Vec::new(), now);
        match self.store.create_record(record, operation).await.map_err(unavailable)? {
            Once::Done(created) => self.suppressed(&created),
            Once::Repeated(_) => Ok(Made { thing: view(&self.suppression_of(caller, address).await?)?, first: false }),
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// Adds an address to a team's list because of what a provider told.
    pub(crate) async fn suppress_by_report(
        &self,
        team: TeamId,
        address: &Address,
        about: AboutSuppression,
    ) -> Result<bool, Problem> {
        let record = self.suppression(team, address, &about, self.now())?;
        match self.store.create_record(record, None).await.map_err(unavailable)? {
            Once::Done(created) => Ok(self.suppressed(&created)?.first),
            Once::Repeated(_) | Once::Mismatch(_) => Ok(false),
        }
    }

    fn suppression(
        &self,
        team: TeamId,
        address: &Address,
        about: &AboutSuppression,
        now: Time,
    ) -> Result<Record, Problem> {
        Ok(Record {
            team,
            kind: RecordKind::Suppression,
            id: self.new_id(now),
            name: address.as_str().to_owned(),
            rev: 1,
            created_at: now,
            about: records::write(about)?,
        })
    }

    fn suppressed(&self, created: &Created) -> Result<Made<Suppression>, Problem> {
        let (Created::Made(record) | Created::Taken(record)) = created;
        let list = self.stop_list.list(record.team);
        self.stop_list.add(&list, std::iter::once(record.name.as_str()));
        Ok(Made { thing: view(record)?, first: matches!(created, Created::Made(_)) })
    }

    /// The caller's list, newest first.
    pub async fn suppressions(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Listed<Suppression>, Problem> {
        caller.need(Scope::Read)?;
        caller.need_whole_team()?;
        self.own_records(caller, RecordKind::Suppression, before, limit, view).await
    }

    /// Why an address is not written to.
    pub async fn read_suppression(&self, caller: &Caller, address: &Address) -> Result<Suppression, Problem> {
        caller.need(Scope::Read)?;
        caller.need_whole_team()?;
        view(&self.suppression_of(caller, address).await?)
    }

    async fn suppression_of(&self, caller: &Caller, address: &Address) -> Result<Record, Problem> {
        let kind = RecordKind::Suppression;
        let found = self.store.record_named(caller.team.id, kind, address.as_str()).await.map_err(unavailable)?;
        found.ok_or_else(|| records::missing(kind, address.as_str()))
    }

    /// Takes an address off the caller's list.
    pub async fn unsuppress(&self, caller: &Caller, address: &Address) -> Result<Suppression, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        let record = self.suppression_of(caller, address).await?;
        let removed = self.store.remove_record(caller.team.id, RecordKind::Suppression, record.id).await;
        let removed = removed.map_err(unavailable)?;
        view(&removed.ok_or_else(|| records::missing(RecordKind::Suppression, address.as_str()))?)
    }

    /// Refuses a mail to an address on its team's list.
    pub(crate) async fn check_recipients(&self, team: TeamId, content: &Content) -> Result<(), Problem> {
        let list = self.stop_list_of(team).await.map_err(unavailable)?;
        if list.is_empty() {
            return Ok(());
        }
        for (field, boxes) in [("to", &content.to), ("cc", &content.cc), ("bcc", &content.bcc)] {
            for (at, mailbox) in boxes.iter().enumerate() {
                self.check_recipient(team, &list, mailbox.bare().as_str(), &format!("{field}[{at}]")).await?;
            }
        }
        Ok(())
    }

    /// The same for bare addresses of an email that was accepted before.
    pub(crate) async fn check_addresses(&self, team: TeamId, field: &str, all: &[String]) -> Result<(), Problem> {
        let list = self.stop_list_of(team).await.map_err(unavailable)?;
        for (at, address) in all.iter().enumerate() {
            self.check_recipient(team, &list, address, &format!("{field}[{at}]")).await?;
        }
        Ok(())
    }

    async fn check_recipient(&self, team: TeamId, list: &List, address: &str, field: &str) -> Result<(), Problem> {
        if !self.stop_list.may_hold(list, address) {
            return Ok(());
        }
        let found = self.store.record_named(team, RecordKind::Suppression, address).await.map_err(unavailable)?;
        let Some(record) = found else { return Ok(()) };
        let reason = records::read::<AboutSuppression>(&record)?.reason;
        let detail = format!("{field} {address} is suppressed: {reason}");
        Err(Problem::field(Code::RecipientSuppressed, field, detail).with("reason", reason).with("recipient", address))
    }

    /// A team's list, read anew when others may have added to it.
    async fn stop_list_of(&self, team: TeamId) -> Result<Arc<List>, StoreError> {
        let list = self.stop_list.list(team);
        let fresh = |even: i64| {
            let read_at = list.read_at.load(Ordering::Acquire);
            read_at != 0 && (self.alone || even - read_at < SHARED_MS)
        };
        if fresh(self.time.even()) {
            return Ok(list);
        }
        let mut newest = list.newest.lock().await;
        let even = self.time.even();
        if !fresh(even) {
            *newest = self.read_stop_list(team, &list, *newest).await?;
            // A counter that stands at zero must not look like a list that was never read.
            list.read_at.store(even.max(1), Ordering::Release);
        }
        drop(newest);
        Ok(list)
    }

    /// Reads what is newer than what is known, and a little more. The newest id there is.
    async fn read_stop_list(&self, team: TeamId, list: &List, known: Option<Uuid>) -> Result<Option<Uuid>, StoreError> {
        let (mut before, mut newest) = (None, known);
        loop {
            let page = self.store.records(team, RecordKind::Suppression, before, READ_AT_ONCE).await?;
            self.stop_list.add(list, page.rows.iter().map(|record| record.name.as_str()));
            newest = newest.max(page.rows.first().map(|record| record.id));
            let reached = |id: Uuid| known.is_some_and(|known| made_at(id) < made_at(known) - OVERLAP_MS);
            match page.next.filter(|last| !reached(*last)) {
                Some(last) => before = Some(last),
                None => return Ok(newest),
            }
        }
    }
}
