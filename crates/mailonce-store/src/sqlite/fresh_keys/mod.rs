//! Fresh keys: recently bound idempotency keys that are not yet in the `keys` table (the tree). They are in memory
//! and in blocks on disk.
//!
//! Key hashes are random. A key inserted directly into the tree dirties a page of its own, and that page is logged,
//! synced and checkpointed for one row. Instead, each commit appends its keys as one block. Later commits flush fresh
//! keys into the tree in key order, cycle after cycle, so that neighbouring keys share a page.
//!
//! A key is free only if it is neither in memory nor in the tree. If a key is in both a block and the tree, the tree
//! is right. A job that changes a key's row flushes the key into the tree first.

mod blocks;
#[cfg(test)]
mod tests;

use mailonce_core::{key::KeyHash, ports::store::Result};
use rusqlite::{Connection, Statement, params};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound::{Excluded, Unbounded},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::schema::store_error;

const MOVE_TO_TREE: &str = "INSERT INTO keys (team, hash, bind, email) VALUES (?1, ?2, 1, ?3) ON CONFLICT DO NOTHING";
const IN_TREE: &str = "SELECT 1 FROM keys WHERE team = ?1 AND hash = ?2";

/// The number of fresh keys may reach the number of keys in the tree divided by this, within the bounds below. The
/// more fresh keys there are, the more of them share a page when they are flushed.
const FRESH_DIVISOR: u64 = 16;
// Small in tests, so that the conformance tests run while keys are being flushed.
const MIN_FRESH: u64 = if cfg!(test) { 4 } else { 16_384 };
const MAX_FRESH: u64 = 393_216;
/// A commit flushes at most this many keys plus twice the number it adds, and drops at most this many blocks.
const EXTRA_MOVES_PER_COMMIT: usize = 32;
const BLOCKS_DROPPED_PER_COMMIT: i64 = 64;

/// Maximum number of keys that each sweep flushes.
const FLUSHED_PER_SWEEP: usize = 128;

/// The primary key of a row of the tree: the team's number and the key's hash.
pub(crate) type TreeKey = (i64, [u8; 16]);

/// The committed fresh keys, each with the ordered bits of its email's id. Shared with the readers.
#[derive(Default)]
pub(crate) struct FreshKeys {
    all: RwLock<BTreeMap<TreeKey, i64>>,
    /// Approximate number of rows in the tree.
    pub(crate) in_tree: AtomicU64,
}

impl FreshKeys {
    /// The email that a fresh key is bound to. A reader must query memory first and the tree second: a key that is
    /// flushed in between is then still found.
    pub(crate) fn get(&self, team: i64, key: KeyHash) -> Option<i64> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).get(&(team, key.0)).copied()
    }

    /// Approximate number of all keys.
    pub(crate) fn count(&self) -> u64 {
        self.len() as u64 + self.in_tree.load(Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        self.all.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How many keys may stay fresh.
    fn max_fresh(&self) -> usize {
        (self.in_tree.load(Ordering::Relaxed) / FRESH_DIVISOR).clamp(MIN_FRESH, MAX_FRESH) as usize
    }
}

/// The state at the start of a job's savepoint.
#[derive(Clone, Copy)]
pub(crate) struct FreshKeySavepoint {
    added: usize,
    moved: usize,
    next_cycle: FlushCycle,
}

/// The writer's side: the key changes of the current group, and the progress of flushing keys into the tree.
pub(crate) struct FreshKeyWriter<'c> {
    shared: Arc<FreshKeys>,
    statements: FlushStatements<'c>,
    /// Keys bound by the current group.
    added: Vec<(TreeKey, i64)>,
    added_index: HashMap<TreeKey, i64>,
    /// Keys flushed into the tree by the current group.
    moved: Vec<TreeKey>,
    moved_index: HashSet<TreeKey>,
    cycle: FlushCycle,
    /// The flush cycle as it will be when the current group is committed.
    next_cycle: FlushCycle,
}

struct FlushStatements<'c> {
    in_tree: Statement<'c>,
    move_to_tree: Statement<'c>,
    insert_block: Statement<'c>,
    drop_blocks: Statement<'c>,
}

/// The progress of flushing. A cycle runs over all fresh keys once, in key order.
#[derive(Clone, Copy, Default)]
struct FlushCycle {
    /// The last key that was flushed. `None` at the start of a cycle.
    position: Option<TreeKey>,
    /// The number of the last block on disk.
    last_block: i64,
    /// The number of the last block when this cycle began. All keys up to this block are flushed when the cycle ends.
    last_block_at_start: i64,
    /// Blocks up to these numbers are flushed, and deleted.
    flushed_block: i64,
    dropped_block: i64,
}

impl<'c> FreshKeyWriter<'c> {
    /// Loads the fresh keys from the blocks on disk, without those that are in the tree already.
    pub(crate) fn new(conn: &'c Connection, shared: Arc<FreshKeys>) -> Result<Self> {
        let prepare = |sql: &str| conn.prepare(sql).map_err(store_error);
        let statements = FlushStatements {
            in_tree: prepare(IN_TREE)?,
            move_to_tree: prepare(MOVE_TO_TREE)?,
            insert_block: prepare(blocks::INSERT)?,
            drop_blocks: prepare(blocks::DROP)?,
        };
        let mut hand = Self {
            shared,
            statements,
            added: Vec::new(),
            added_index: HashMap::new(),
            moved: Vec::new(),
            moved_index: HashSet::new(),
            cycle: FlushCycle::default(),
            next_cycle: FlushCycle::default(),
        };
        let (found, mut last_block) = blocks::read_blocks(conn)?;
        let (mut fresh, in_blocks) = (BTreeMap::new(), found.len());
        for (place, email) in found {
            if !hand.is_in_tree(place)? {
                fresh.insert(place, email);
            }
        }
        if in_blocks > 2 * fresh.len() {
            // Every start begins a new flush cycle. Without this, a process that always ends before its first cycle
            // does would never delete a block.
            last_block = blocks::rewrite_blocks(conn, &fresh)?;
        }
        *hand.shared.all.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        hand.cycle = FlushCycle { last_block, last_block_at_start: last_block, ..FlushCycle::default() };
        Ok(hand)
    }

    fn is_in_tree(&mut self, place: TreeKey) -> Result<bool> {
        self.statements.in_tree.exists(params![place.0, place.1]).map_err(store_error)
    }

    /// Starts a group, and discards the changes of one that was not committed.
    pub(crate) fn begin_group(&mut self) {
        self.added.clear();
        self.added_index.clear();
        self.moved.clear();
        self.moved_index.clear();
        self.next_cycle = self.cycle;
    }

    /// The email of a fresh key, including the changes of the current group. `None` when the key is not fresh.
    pub(crate) fn get(&self, team: i64, key: KeyHash) -> Option<i64> {
        let place = (team, key.0);
        if self.moved_index.contains(&place) {
            return None;
        }
        self.added_index.get(&place).copied().or_else(|| self.shared.get(team, key))
    }

    /// Whether a key has no row, neither a fresh one nor one in the tree.
    pub(crate) fn is_free(&mut self, team: i64, key: KeyHash) -> Result<bool> {
        Ok(self.get(team, key).is_none() && !self.is_in_tree((team, key.0))?)
    }

    /// Binds a free key to an email.
    pub(crate) fn bind_free(&mut self, team: i64, key: KeyHash, email: i64) {
        let place = (team, key.0);
        self.added.push((place, email));
        self.added_index.insert(place, email);
    }

    /// Flushes one key into the tree if it is fresh, so that its row can be changed there.
    pub(crate) fn flush_key(&mut self, team: i64, key: KeyHash) -> Result<()> {
        match self.get(team, key) {
            Some(email) => self.move_to_tree((team, key.0), email),
            None => Ok(()),
        }
    }

    fn move_to_tree(&mut self, place: TreeKey, email: i64) -> Result<()> {
        self.statements.move_to_tree.execute(params![place.0, place.1, email]).map_err(store_error)?;
        self.moved.push(place);
        self.moved_index.insert(place);
        Ok(())
    }

    pub(crate) fn savepoint(&self) -> FreshKeySavepoint {
        FreshKeySavepoint { added: self.added.len(), moved: self.moved.len(), next_cycle: self.next_cycle }
    }

    /// Undoes the changes of a job since its savepoint.
    pub(crate) fn roll_back_to(&mut self, mark: FreshKeySavepoint) {
        for (place, _) in self.added.drain(mark.added..) {
            self.added_index.remove(&place);
        }
        for place in self.moved.drain(mark.moved..) {
            self.moved_index.remove(&place);
        }
        // The cycle must visit again the keys that became fresh again. A cycle that ends without them would drop their
        // blocks, and lose the keys.
        self.next_cycle = mark.next_cycle;
    }

    /// Flushes a few keys. Called by sweeps, so that no key stays fresh for days when there is little traffic.
    pub(crate) fn flush_some(&mut self) -> Result<()> {
        self.flush_next(FLUSHED_PER_SWEEP)
    }

    /// Writes the group's keys as a block. Flushes keys while there are more fresh keys than allowed, and drops flushed
    /// blocks.
    pub(crate) fn write_block(&mut self) -> Result<()> {
        if !self.added.is_empty() {
            self.next_cycle.last_block += 1;
            self.statements
                .insert_block
                .execute(params![self.next_cycle.last_block, blocks::pack_keys(&self.added)])
                .map_err(store_error)?;
        }
        let fresh = self.shared.len() + self.added.len();
        let surplus = fresh.saturating_sub(self.moved.len() + self.shared.max_fresh());
        self.flush_next(surplus.min(2 * self.added.len() + EXTRA_MOVES_PER_COMMIT))?;
        if self.next_cycle.dropped_block < self.next_cycle.flushed_block {
            // Drop only a few blocks at a time, because each one frees a page.
            self.next_cycle.dropped_block =
                self.next_cycle.flushed_block.min(self.next_cycle.dropped_block + BLOCKS_DROPPED_PER_COMMIT);
            self.statements.drop_blocks.execute([self.next_cycle.dropped_block]).map_err(store_error)?;
        }
        Ok(())
    }

    /// Flushes the next `count` fresh keys, in key order.
    fn flush_next(&mut self, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let from = self.next_cycle.position.map_or(Unbounded, Excluded);
        let ahead: Vec<(TreeKey, i64)> = {
            let all = self.shared.all.read().unwrap_or_else(PoisonError::into_inner);
            all.range((from, Unbounded)).take(count).map(|(place, email)| (*place, *email)).collect()
        };
        self.next_cycle.position = ahead.last().map(|(place, _)| *place);
        if ahead.len() < count {
            // The cycle ends: every key that was fresh when it began is in the tree now. Start the next cycle.
            (self.next_cycle.position, self.next_cycle.flushed_block, self.next_cycle.last_block_at_start) =
                (None, self.next_cycle.last_block_at_start, self.next_cycle.last_block);
        }
        for (place, email) in ahead {
            if !self.moved_index.contains(&place) {
                self.move_to_tree(place, email)?;
            }
        }
        Ok(())
    }

    /// Makes the group's key changes visible to readers. Called after the commit and before any reply is sent.
    pub(crate) fn publish(&mut self) {
        self.cycle = self.next_cycle;
        self.shared.in_tree.fetch_add(self.moved.len() as u64, Ordering::Relaxed);
        let mut all = self.shared.all.write().unwrap_or_else(PoisonError::into_inner);
        all.extend(self.added.drain(..));
        for place in self.moved.drain(..) {
            all.remove(&place);
        }
    }
}
