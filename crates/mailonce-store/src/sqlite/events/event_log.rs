//! The event log, stored in blocks: one row holds up to `PER_BLOCK` events of one team and commit. The accepts of a
//! commit therefore share an insert.

use mailonce_core::{
    events::{
        event::Event,
        notice::{LeasedNotice, Notice},
    },
    ports::store::{Result, StoreError},
    time::Time,
};
use rusqlite::{Connection, Row, params};
use serde_json::Value;
use std::collections::BTreeMap;

use crate::sqlite::{
    events::event_blocks::{PackedEvent, pack_block, unpack_block},
    schema::store_error,
    write_session::WriteSession,
};

const BLOCKS_AFTER: &str = "SELECT last, events FROM event_blocks WHERE team = ?1 AND last > ?2 ORDER BY last";
const BLOCKS_BACKWARDS: &str = "SELECT last, events FROM event_blocks WHERE team = ?1 ORDER BY last DESC";
/// How far the times of events may be out of order, in milliseconds.
const MAX_TIME_DISORDER_MS: i64 = 3_600_000;
const UPDATE_BLOCK: &str = "UPDATE event_blocks SET events = ?3 WHERE team = ?1 AND last = ?2";

/// Unpacks a block and assigns the sequence numbers.
pub(super) fn read_block(row: &Row<'_>) -> Result<Vec<Event>> {
    let last: i64 = row.get(0).map_err(store_error)?;
    let packed = row.get_ref(1).map_err(store_error)?.as_blob().unwrap_or_default();
    let damaged = || StoreError::Corrupt(format!("the block of events up to {last} is damaged"));
    let block = unpack_block(packed).ok_or_else(damaged)?;
    let first = last as u64 + 1 - block.len() as u64;
    Ok((first..).zip(block).map(|(seq, event)| Event { seq, event }).collect())
}

/// Events after a sequence number, in order.
pub(crate) fn events_after(conn: &Connection, team: i64, after: u64, limit: usize) -> Result<Vec<Event>> {
    let mut statement = conn.prepare_cached(BLOCKS_AFTER).map_err(store_error)?;
    let mut rows = statement.query(params![team, after as i64]).map_err(store_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        found.extend(read_block(row)?.into_iter().filter(|event| event.seq > after));
        if found.len() >= limit {
            found.truncate(limit);
            break;
        }
    }
    Ok(found)
}

/// Replaces the data of events, by number. A number in no block is passed over.
pub(crate) fn replace_data(ledger: &WriteSession<'_>, team: i64, events: &[(u64, Value)]) -> Result<()> {
    let new_data: BTreeMap<u64, &Value> = events.iter().map(|(seq, data)| (*seq, data)).collect();
    let mut next = new_data.keys().next().copied();
    while let Some(seq) = next {
        let block = {
            let mut statement = ledger.conn.prepare_cached(BLOCKS_AFTER).map_err(store_error)?;
            let mut rows = statement.query(params![team, seq as i64 - 1]).map_err(store_error)?;
            rows.next().map_err(store_error)?.map(read_block).transpose()?
        };
        let Some(last) = block.as_ref().and_then(|block| block.last()).map(|event| event.seq) else { break };
        let packed = block.into_iter().flatten().map(|mut event| {
            if let Some(data) = new_data.get(&event.seq) {
                event.event.data = (*data).clone();
            }
            PackedEvent::pack(&event.event)
        });
        let packed = pack_block(&packed.collect::<Vec<_>>());
        ledger.execute(UPDATE_BLOCK, params![team, last as i64, packed])?;
        next = new_data.range(last + 1..).next().map(|(seq, _)| *seq);
    }
    Ok(())
}

/// Adds the event to each notice. Consecutive notices often share a block, so the last block is kept.
pub(crate) fn attach_events(conn: &Connection, team: i64, notices: Vec<Notice>) -> Result<Vec<LeasedNotice>> {
    let mut statement = conn.prepare_cached(BLOCKS_AFTER).map_err(store_error)?;
    let (mut owed, mut block) = (Vec::with_capacity(notices.len()), Vec::new());
    for notice in notices {
        let seq = notice.seq;
        let known = |block: &Vec<Event>| block.binary_search_by_key(&seq, |event| event.seq).ok();
        if known(&block).is_none() {
            let mut rows = statement.query(params![team, seq as i64 - 1]).map_err(store_error)?;
            block = rows.next().map_err(store_error)?.map_or(Ok(Vec::new()), read_block)?;
        }
        let event = known(&block).and_then(|place| block.get(place)).cloned();
        let event = event.ok_or_else(|| StoreError::Corrupt(format!("the event {seq} of a notice is missing")))?;
        owed.push(LeasedNotice { notice, event });
    }
    Ok(owed)
}

/// The sequence number just before the first event that happened at or after a time.
pub(crate) fn seq_before_time(conn: &Connection, team: i64, time: Time) -> Result<u64> {
    let mut statement = conn.prepare_cached(BLOCKS_BACKWARDS).map_err(store_error)?;
    let mut rows = statement.query([team]).map_err(store_error)?;
    let mut before = None;
    while let Some(row) = rows.next().map_err(store_error)? {
        let block = read_block(row)?;
        let first = block.iter().find(|event| event.event.at >= time);
        before = first.map(|event| event.seq - 1).or(before).or(block.last().map(|event| event.seq));
        // Times rarely decrease from one event to the next, and never by this much. Earlier blocks cannot match.
        if block.iter().all(|event| time.since(event.event.at) > MAX_TIME_DISORDER_MS) {
            break;
        }
    }
    Ok(before.unwrap_or(0))
}
