//! Fresh keys on disk: a block holds the keys of one commit, 32 bytes each.

use mailonce_core::ports::store::Result;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

use super::TreeKey;
use crate::sqlite::{rows::corrupt_row, schema::store_error};

pub(crate) const INSERT: &str = "INSERT INTO fresh_keys (block, keys) VALUES (?1, ?2)";
pub(crate) const DROP: &str = "DELETE FROM fresh_keys WHERE block <= ?1";
const ALL: &str = "SELECT block, keys FROM fresh_keys ORDER BY block";

/// Bytes of a key in a block: team number (8), hash (16), email (8).
const PACKED_KEY_BYTES: usize = 32;
/// Keys per block when blocks are rewritten: about a page.
const KEYS_PER_BLOCK: usize = 120;

/// Packs keys into a block.
pub(crate) fn pack_keys(keys: &[(TreeKey, i64)]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(keys.len() * PACKED_KEY_BYTES);
    for ((team, hash), email) in keys {
        packed.extend_from_slice(&team.to_be_bytes());
        packed.extend_from_slice(hash);
        packed.extend_from_slice(&email.to_be_bytes());
    }
    packed
}

/// Unpacks one key of a block. `None` when it is damaged.
fn unpack_key(packed: &[u8; PACKED_KEY_BYTES]) -> Option<(TreeKey, i64)> {
    let (team, rest) = packed.split_first_chunk()?;
    let (hash, email) = rest.split_first_chunk()?;
    Some(((i64::from_be_bytes(*team), *hash), i64::from_be_bytes(email.try_into().ok()?)))
}

/// The keys of all blocks in key order, and the number of the last block.
pub(crate) fn read_blocks(conn: &Connection) -> Result<(BTreeMap<TreeKey, i64>, i64)> {
    let mut statement = conn.prepare(ALL).map_err(store_error)?;
    let mut rows = statement.query([]).map_err(store_error)?;
    let (mut found, mut last_block) = (BTreeMap::new(), 0);
    while let Some(row) = rows.next().map_err(store_error)? {
        last_block = row.get(0).map_err(store_error)?;
        let packed = row.get_ref(1).map_err(store_error)?.as_blob().map_err(|_type| corrupt_row("fresh keys"))?;
        let (keys, torn) = packed.as_chunks::<PACKED_KEY_BYTES>();
        if !torn.is_empty() {
            return Err(corrupt_row("fresh keys"));
        }
        // A later block overrides an earlier one.
        for key in keys {
            let (place, email) = unpack_key(key).ok_or_else(|| corrupt_row("fresh keys"))?;
            found.insert(place, email);
        }
    }
    Ok((found, last_block))
}

/// Replaces all blocks by new ones that hold only the keys that are still fresh. Returns the number of the last block.
pub(crate) fn rewrite_blocks(conn: &Connection, fresh: &BTreeMap<TreeKey, i64>) -> Result<i64> {
    let keys: Vec<(TreeKey, i64)> = fresh.iter().map(|(place, email)| (*place, *email)).collect();
    let tx = conn.unchecked_transaction().map_err(store_error)?;
    tx.execute("DELETE FROM fresh_keys", []).map_err(store_error)?;
    let mut last_block = 0;
    for some in keys.chunks(KEYS_PER_BLOCK) {
        last_block += 1;
        tx.execute(INSERT, params![last_block, pack_keys(some)]).map_err(store_error)?;
    }
    tx.commit().map_err(store_error)?;
    Ok(last_block)
}
