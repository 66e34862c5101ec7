//! The rules, lists and budgets of teams, cached in memory because every send needs them.

use crate::control::{Control, budgets::CachedBudget, lists::MAX_ENTRIES};
use mailonce_core::{
    control::{
        budget::MAX_BUDGETS,
        list::ListEntry,
        rule::{MAX_RULES, Rule},
    },
    id::TeamId,
    ports::store::StoreError,
    record::{Record, RecordKind},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How long a node uses cached records that another node may have changed, in milliseconds.
const MULTI_NODE_TTL_MS: i64 = 2_000;
/// How many teams a cache holds.
const CACHE_CAPACITY: usize = 10_000;

/// The caches that a send uses.
pub(crate) struct RecordCaches {
    pub(crate) rules: RecordCache<Rule>,
    pub(crate) lists: RecordCache<ListEntry>,
    pub(crate) budgets: RecordCache<CachedBudget>,
}

impl Default for RecordCaches {
    fn default() -> Self {
        Self {
            rules: RecordCache::new(RecordKind::Rule, MAX_RULES),
            lists: RecordCache::new(RecordKind::ListEntry, MAX_ENTRIES),
            budgets: RecordCache::new(RecordKind::Budget, MAX_BUDGETS),
        }
    }
}

/// Records of one kind, by team.
pub(crate) struct RecordCache<T> {
    kind: RecordKind,
    /// The most records that a team can have.
    max: usize,
    state: Mutex<RecordCacheState<T>>,
}

struct RecordCacheState<T> {
    /// The records by team, and when they were read, by the boot clock.
    teams: HashMap<TeamId, (Arc<[T]>, i64)>,
    /// Counts the changes, so that a read that started before a change is not cached after it.
    changes: u64,
}

impl<T> RecordCache<T> {
    fn new(kind: RecordKind, max: usize) -> Self {
        Self { kind, max, state: Mutex::new(RecordCacheState { teams: HashMap::new(), changes: 0 }) }
    }

    fn state(&self) -> MutexGuard<'_, RecordCacheState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cached records if they were read at `since` or later; otherwise the number of changes so far.
    fn get(&self, team: TeamId, since: i64) -> Result<Arc<[T]>, u64> {
        let state = self.state();
        let cached = state.teams.get(&team).filter(|(_, read_at)| *read_at >= since);
        cached.map(|(records, _)| Arc::clone(records)).ok_or(state.changes)
    }

    /// Caches records, unless something changed since their read started.
    fn put(&self, team: TeamId, records: &Arc<[T]>, (read_at, changes): (i64, u64)) {
        let mut state = self.state();
        if state.changes != changes {
            return;
        }
        if state.teams.len() >= CACHE_CAPACITY {
            state.teams.clear();
        }
        state.teams.insert(team, (Arc::clone(records), read_at));
    }

    /// Removes a team's records from the cache. Must be called after each change of them.
    pub(crate) fn invalidate(&self, team: TeamId) {
        let mut state = self.state();
        state.changes += 1;
        state.teams.remove(&team);
    }
}

impl Control {
    /// A team's records, decoded by `read` and sorted by `sort`. A record that cannot be decoded is logged and skipped.
    pub(crate) async fn cached_records<T>(
        &self,
        cache: &RecordCache<T>,
        team: TeamId,
        read: impl Fn(Record) -> serde_json::Result<T>,
        sort: impl Fn(&mut Vec<T>),
    ) -> Result<Arc<[T]>, StoreError> {
        let boot_ms = self.ctx.time.boot_clock_ms();
        let since = if self.ctx.is_single_node { i64::MIN } else { boot_ms - MULTI_NODE_TTL_MS };
        let changes = match cache.get(team, since) {
            Ok(records) => return Ok(records),
            Err(changes) => changes,
        };
        let page = self.ctx.store.records(team, cache.kind, None, cache.max).await?;
        let mut records = Vec::with_capacity(page.rows.len());
        for record in page.rows {
            let id = record.id;
            match read(record) {
                Ok(record) => records.push(record),
                Err(error) => {
                    tracing::error!(%error, kind = cache.kind.as_str(), %id, "a record cannot be read and is left out");
                }
            }
        }
        sort(&mut records);
        let records: Arc<[T]> = records.into();
        cache.put(team, &records, (boot_ms, changes));
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const TEAM: TeamId = TeamId(Uuid::from_u128(1));

    #[test]
    fn a_read_that_began_before_a_change_is_not_cached() {
        let cache: RecordCache<u8> = RecordCache::new(RecordKind::Rule, 10);
        let old: Arc<[u8]> = vec![1].into();
        let changes = cache.get(TEAM, 0).unwrap_err();
        cache.invalidate(TEAM);
        cache.put(TEAM, &old, (5, changes));
        let changes = cache.get(TEAM, 0).expect_err("the record changed while it was read");
        cache.put(TEAM, &old, (5, changes));
        assert_eq!(cache.get(TEAM, 0).unwrap().as_ref(), [1]);
        assert!(cache.get(TEAM, 6).is_err(), "it is too old for a node that is not alone");
    }
}
