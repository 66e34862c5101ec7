//! Fresh keys: those bound lately, in memory and in blocks on disk, before they lie in the tree of keys.
//!
//! Hashes are random, so a key that goes straight into the tree dirties a page of its own, which is then logged,
//! synced and moved for one row. Here a commit leaves its keys as one block, and a hand that goes round the tree from
//! end to end takes the fresh keys along in its order: neighbours share a page. A key is free only when neither
//! memory nor the tree knows it. What lies in the tree counts: whoever changes a key's row moves the key there first.

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

/// Fresh keys are this part of all keys, within bounds: the more there are, the more of them share a page of the tree.
const FRESH_DIVISOR: u64 = 16;
// Few in tests, so that every promise is kept while keys move.
const MIN_FRESH: u64 = if cfg!(test) { 4 } else { 16_384 };
const MAX_FRESH: u64 = 393_216;
/// Keys that one commit moves beside as many as it adds, and blocks that it drops.
const EXTRA_MOVES_PER_COMMIT: usize = 32;
const BLOCKS_DROPPED_PER_COMMIT: i64 = 64;

/// Keys that every sweep moves.
const FLUSHED_PER_SWEEP: usize = 128;

/// A key's place in the tree: the team's number and the hash.
pub(crate) type TreeKey = (i64, [u8; 16]);

/// The fresh keys that are committed, each with its email. Shared with the readers.
#[derive(Default)]
pub(crate) struct FreshKeys {
    all: RwLock<BTreeMap<TreeKey, i64>>,
    /// Rows of the tree, about.
    pub(crate) in_tree: AtomicU64,
}

impl FreshKeys {
    /// The email that a fresh key is bound to. A reader that finds none asks the tree afterwards, in this order.
    pub(crate) fn get(&self, team: i64, key: KeyHash) -> Option<i64> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).get(&(team, key.0)).copied()
    }

    /// Keys remembered, about.
    pub(crate) fn count(&self) -> u64 {
        self.len() as u64 + self.in_tree.load(Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        self.all.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How many may stay fresh.
    fn max_fresh(&self) -> usize {
        (self.in_tree.load(Ordering::Relaxed) / FRESH_DIVISOR).clamp(MIN_FRESH, MAX_FRESH) as usize
    }
}

/// Where a verb's savepoint began.
#[derive(Clone, Copy)]
pub(crate) struct FreshKeySavepoint {
    added: usize,
    moved: usize,
    next_cycle: FlushCycle,
}

/// The writer's side: what this group did so far, and the hand that moves keys into the tree.
pub(crate) struct FreshKeyWriter<'c> {
    shared: Arc<FreshKeys>,
    statements: FlushStatements<'c>,
    /// Bound by this group.
    added: Vec<(TreeKey, i64)>,
    added_index: HashMap<TreeKey, i64>,
    /// Moved into the tree by this group.
    moved: Vec<TreeKey>,
    moved_index: HashSet<TreeKey>,
    cycle: FlushCycle,
    /// The round as it will be when this group is committed.
    next_cycle: FlushCycle,
}

struct FlushStatements<'c> {
    in_tree: Statement<'c>,
    move_to_tree: Statement<'c>,
    insert_block: Statement<'c>,
    drop_blocks: Statement<'c>,
}

/// How far the hand is.
#[derive(Clone, Copy, Default)]
struct FlushCycle {
    /// The last key it moved.
    position: Option<TreeKey>,
    /// The last block on disk.
    last_block: i64,
    /// The last block when this round began: its keys are moved when the round ends.
    last_block_at_start: i64,
    /// Blocks up to here are moved, and up to here they are gone.
    flushed_block: i64,
    dropped_block: i64,
}

impl<'c> FreshKeyWriter<'c> {
    /// Reads the blocks that are left. Keys that were moved since they were written are in the tree already.
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
            // Each start begins a round anew. Processes that all ended before their first round did would leave blocks
            // behind for good.
            last_block = blocks::rewrite_blocks(conn, &fresh)?;
        }
        *hand.shared.all.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        hand.cycle = FlushCycle { last_block, last_block_at_start: last_block, ..FlushCycle::default() };
        Ok(hand)
    }

    fn is_in_tree(&mut self, place: TreeKey) -> Result<bool> {
        self.statements.in_tree.exists(params![place.0, place.1]).map_err(store_error)
    }

    /// Forgets a group that was not committed.
    pub(crate) fn begin_group(&mut self) {
        self.added.clear();
        self.added_index.clear();
        self.moved.clear();
        self.moved_index.clear();
        self.next_cycle = self.cycle;
    }

    /// The email of a fresh key, as this group sees it.
    pub(crate) fn get(&self, team: i64, key: KeyHash) -> Option<i64> {
        let place = (team, key.0);
        if self.moved_index.contains(&place) {
            return None;
        }
        self.added_index.get(&place).copied().or_else(|| self.shared.get(team, key))
    }

    /// Binds a key if it is free. False when it is known, whatever it is to whom.
    pub(crate) fn bind_if_free(&mut self, team: i64, key: KeyHash, email: i64) -> Result<bool> {
        let place = (team, key.0);
        if self.get(team, key).is_some() || self.is_in_tree(place)? {
            return Ok(false);
        }
        self.added.push((place, email));
        self.added_index.insert(place, email);
        Ok(true)
    }

    /// Moves a key into the tree if it is fresh, so that its row can be changed there.
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

    /// Takes back what a verb did since its savepoint.
    pub(crate) fn roll_back_to(&mut self, mark: FreshKeySavepoint) {
        for (place, _) in self.added.drain(mark.added..) {
            self.added_index.remove(&place);
        }
        for place in self.moved.drain(mark.moved..) {
            self.moved_index.remove(&place);
        }
        // Keys that are fresh again must be passed again: a round that ends without them drops their blocks.
        self.next_cycle = mark.next_cycle;
    }

    /// Lets the hand go on a little, so that on a quiet ledger no key stays fresh for days.
    pub(crate) fn flush_some(&mut self) -> Result<()> {
        self.flush_next(FLUSHED_PER_SWEEP)
    }

    /// Writes the group's block, and lets the hand go on while there are more fresh keys than there should be.
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
            // A few at a time, because each frees a page.
            self.next_cycle.dropped_block =
                self.next_cycle.flushed_block.min(self.next_cycle.dropped_block + BLOCKS_DROPPED_PER_COMMIT);
            self.statements.drop_blocks.execute([self.next_cycle.dropped_block]).map_err(store_error)?;
        }
        Ok(())
    }

    /// Moves the next keys in the order of the tree.
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
            // All that was fresh when the round began is in the tree now; the next one begins at the front.
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

    /// Lets readers see what the group did. Called after its commit and before anybody is answered.
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
