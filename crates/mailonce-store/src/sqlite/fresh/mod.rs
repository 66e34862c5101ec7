//! Fresh keys: those bound lately, in memory and in blocks on disk, before they lie in the tree of keys.
//!
//! Hashes are random, so a key that goes straight into the tree dirties a page of its own, which is then logged,
//! synced and moved for one row. Here a commit leaves its keys as one block, and a hand that goes round the tree from
//! end to end takes the fresh keys along in its order: neighbours share a page. A key is free only when neither
//! memory nor the tree knows it. What lies in the tree counts: whoever changes a key's row moves the key there first.

mod blocks;
#[cfg(test)]
mod tests;

use mailonce_core::{key::KeyHash, port::store::Result};
use rusqlite::{Connection, Statement, params};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound::{Excluded, Unbounded},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::schema::told;

const MOVE: &str = "INSERT INTO keys (team, hash, bind, email) VALUES (?1, ?2, 1, ?3) ON CONFLICT DO NOTHING";
const IN_TREE: &str = "SELECT 1 FROM keys WHERE team = ?1 AND hash = ?2";

/// Fresh keys are this part of all keys, within bounds: the more there are, the more of them share a page of the tree.
const PART: u64 = 16;
// Few in tests, so that every promise is kept while keys move.
const FEWEST: u64 = if cfg!(test) { 4 } else { 16_384 };
const MOST: u64 = 393_216;
/// Keys that one commit moves beside as many as it adds, and blocks that it drops.
const MOVED_BESIDE: usize = 32;
const DROPPED_AT_ONCE: i64 = 64;

/// Keys that every sweep moves.
const STROLL: usize = 128;

/// A key's place in the tree: the team's number and the hash.
pub(super) type Place = (i64, [u8; 16]);

/// The fresh keys that are committed, each with its email. Shared with the readers.
#[derive(Default)]
pub(super) struct FreshKeys {
    all: RwLock<BTreeMap<Place, i64>>,
    /// Rows of the tree, about.
    pub(super) in_tree: AtomicU64,
}

impl FreshKeys {
    /// The email that a fresh key is bound to. A reader that finds none asks the tree afterwards, in this order.
    pub(super) fn get(&self, team: i64, key: KeyHash) -> Option<i64> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).get(&(team, key.0)).copied()
    }

    /// Keys remembered, about.
    pub(super) fn count(&self) -> u64 {
        self.len() as u64 + self.in_tree.load(Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        self.all.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How many may stay fresh.
    fn target(&self) -> usize {
        (self.in_tree.load(Ordering::Relaxed) / PART).clamp(FEWEST, MOST) as usize
    }
}

/// Where a verb's savepoint began.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    added: usize,
    moved: usize,
    next: Round,
}

/// The writer's side: what this group did so far, and the hand that moves keys into the tree.
pub(super) struct Hand<'c> {
    shared: Arc<FreshKeys>,
    statements: Statements<'c>,
    /// Bound by this group.
    added: Vec<(Place, i64)>,
    added_index: HashMap<Place, i64>,
    /// Moved into the tree by this group.
    moved: Vec<Place>,
    moved_index: HashSet<Place>,
    round: Round,
    /// The round as it will be when this group is committed.
    next: Round,
}

struct Statements<'c> {
    in_tree: Statement<'c>,
    go: Statement<'c>,
    insert: Statement<'c>,
    drop: Statement<'c>,
}

/// How far the hand is.
#[derive(Clone, Copy, Default)]
struct Round {
    /// The last key it moved.
    at: Option<Place>,
    /// The last block on disk.
    last_block: i64,
    /// The last block when this round began: its keys are moved when the round ends.
    began_at: i64,
    /// Blocks up to here are moved, and up to here they are gone.
    done: i64,
    gone: i64,
}

impl<'c> Hand<'c> {
    /// Reads the blocks that are left. Keys that were moved since they were written are in the tree already.
    pub(super) fn new(conn: &'c Connection, shared: Arc<FreshKeys>) -> Result<Self> {
        let prepare = |sql: &str| conn.prepare(sql).map_err(told);
        let statements = Statements {
            in_tree: prepare(IN_TREE)?,
            go: prepare(MOVE)?,
            insert: prepare(blocks::INSERT)?,
            drop: prepare(blocks::DROP)?,
        };
        let mut hand = Self {
            shared,
            statements,
            added: Vec::new(),
            added_index: HashMap::new(),
            moved: Vec::new(),
            moved_index: HashSet::new(),
            round: Round::default(),
            next: Round::default(),
        };
        let (found, mut last_block) = blocks::read(conn)?;
        let (mut fresh, in_blocks) = (BTreeMap::new(), found.len());
        for (place, email) in found {
            if !hand.is_in_tree(place)? {
                fresh.insert(place, email);
            }
        }
        if in_blocks > 2 * fresh.len() {
            // Each start begins a round anew. Processes that all ended before their first round did would leave blocks
            // behind for good.
            last_block = blocks::rewrite(conn, &fresh)?;
        }
        *hand.shared.all.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        hand.round = Round { last_block, began_at: last_block, ..Round::default() };
        Ok(hand)
    }

    fn is_in_tree(&mut self, place: Place) -> Result<bool> {
        self.statements.in_tree.exists(params![place.0, place.1]).map_err(told)
    }

    /// Forgets a group that was not committed.
    pub(super) fn begin(&mut self) {
        self.added.clear();
        self.added_index.clear();
        self.moved.clear();
        self.moved_index.clear();
        self.next = self.round;
    }

    /// The email of a fresh key, as this group sees it.
    pub(super) fn get(&self, team: i64, key: KeyHash) -> Option<i64> {
        let place = (team, key.0);
        if self.moved_index.contains(&place) {
            return None;
        }
        self.added_index.get(&place).copied().or_else(|| self.shared.get(team, key))
    }

    /// Binds a key if it is free. False when it is known, whatever it is to whom.
    pub(super) fn bind_free(&mut self, team: i64, key: KeyHash, email: i64) -> Result<bool> {
        let place = (team, key.0);
        if self.get(team, key).is_some() || self.is_in_tree(place)? {
            return Ok(false);
        }
        self.added.push((place, email));
        self.added_index.insert(place, email);
        Ok(true)
    }

    /// Moves a key into the tree if it is fresh, so that its row can be changed there.
    pub(super) fn settle(&mut self, team: i64, key: KeyHash) -> Result<()> {
        match self.get(team, key) {
            Some(email) => self.go((team, key.0), email),
            None => Ok(()),
        }
    }

    fn go(&mut self, place: Place, email: i64) -> Result<()> {
        self.statements.go.execute(params![place.0, place.1, email]).map_err(told)?;
        self.moved.push(place);
        self.moved_index.insert(place);
        Ok(())
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { added: self.added.len(), moved: self.moved.len(), next: self.next }
    }

    /// Takes back what a verb did since its savepoint.
    pub(super) fn back_to(&mut self, mark: Mark) {
        for (place, _) in self.added.drain(mark.added..) {
            self.added_index.remove(&place);
        }
        for place in self.moved.drain(mark.moved..) {
            self.moved_index.remove(&place);
        }
        // Keys that are fresh again must be passed again: a round that ends without them drops their blocks.
        self.next = mark.next;
    }

    /// Lets the hand go on a little, so that on a quiet ledger no key stays fresh for days.
    pub(super) fn stroll(&mut self) -> Result<()> {
        self.go_on(STROLL)
    }

    /// Writes the group's block, and lets the hand go on while there are more fresh keys than there should be.
    pub(super) fn write(&mut self) -> Result<()> {
        if !self.added.is_empty() {
            self.next.last_block += 1;
            self.statements.insert.execute(params![self.next.last_block, blocks::pack(&self.added)]).map_err(told)?;
        }
        let fresh = self.shared.len() + self.added.len();
        let surplus = fresh.saturating_sub(self.moved.len() + self.shared.target());
        self.go_on(surplus.min(2 * self.added.len() + MOVED_BESIDE))?;
        if self.next.gone < self.next.done {
            // A few at a time, because each frees a page.
            self.next.gone = self.next.done.min(self.next.gone + DROPPED_AT_ONCE);
            self.statements.drop.execute([self.next.gone]).map_err(told)?;
        }
        Ok(())
    }

    /// Moves the next keys in the order of the tree.
    fn go_on(&mut self, count: usize) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let from = self.next.at.map_or(Unbounded, Excluded);
        let ahead: Vec<(Place, i64)> = {
            let all = self.shared.all.read().unwrap_or_else(PoisonError::into_inner);
            all.range((from, Unbounded)).take(count).map(|(place, email)| (*place, *email)).collect()
        };
        self.next.at = ahead.last().map(|(place, _)| *place);
        if ahead.len() < count {
            // All that was fresh when the round began is in the tree now; the next one begins at the front.
            (self.next.at, self.next.done, self.next.began_at) = (None, self.next.began_at, self.next.last_block);
        }
        for (place, email) in ahead {
            if !self.moved_index.contains(&place) {
                self.go(place, email)?;
            }
        }
        Ok(())
    }

    /// Lets readers see what the group did. Called after its commit and before anybody is answered.
    pub(super) fn publish(&mut self) {
        self.round = self.next;
        self.shared.in_tree.fetch_add(self.moved.len() as u64, Ordering::Relaxed);
        let mut all = self.shared.all.write().unwrap_or_else(PoisonError::into_inner);
        all.extend(self.added.drain(..));
        for place in self.moved.drain(..) {
            all.remove(&place);
        }
    }
}
