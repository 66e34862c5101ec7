//! Events in their packed form, and the blocks in which they are stored.
//!
//! A packed event is: kind (1-byte length prefix), time, subject id, rev, and JSON data (4-byte length prefix).

use mailonce_core::{
    events::event::{EventKind, NewEvent},
    outbound::email::Email,
    ports::store::Result,
    time::Time,
};
use rusqlite::Connection;
use serde::Serialize;
use std::{collections::HashMap, sync::Arc};
use uuid::Uuid;

use crate::sqlite::schema::store_error;

/// Maximum number of events in one row, so that reading a page does not unpack much more than it needs.
pub(crate) const PER_BLOCK: usize = 128;

pub(crate) const INSERT: &str = "INSERT INTO event_blocks (team, last, events) VALUES (?1, ?2, ?3)";
const LAST_SEQS: &str = "SELECT number, (SELECT MAX(last) FROM event_blocks WHERE team = number) FROM teams";

/// The sequence number of each team's last event.
pub(crate) fn last_seqs(conn: &Connection) -> Result<HashMap<i64, u64>> {
    let mut statement = conn.prepare(LAST_SEQS).map_err(store_error)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?.unwrap_or(0) as u64)));
    rows.and_then(Iterator::collect).map_err(store_error)
}

/// An event in its packed form.
#[derive(Clone)]
pub(crate) struct PackedEvent(Arc<[u8]>);

impl PackedEvent {
    /// Packs one event.
    pub(crate) fn pack(event: &NewEvent) -> Self {
        Self::pack_parts(event.kind, event.at, event.subject_id, event.rev, &event.data)
    }

    /// Packs the event of an email's acceptance directly, without building a `NewEvent`.
    pub(crate) fn pack_accepted(email: &Email) -> Self {
        Self::pack_parts(email.accepted_kind(), email.head.created_at, email.id.0, email.rev, &email.accepted_data())
    }

    fn pack_parts(kind: EventKind, at: Time, about: Uuid, rev: u32, data: &impl Serialize) -> Self {
        let kind = kind.as_str();
        let mut packed = Vec::with_capacity(160);
        packed.push(kind.len() as u8);
        packed.extend_from_slice(kind.as_bytes());
        packed.extend_from_slice(&at.0.to_be_bytes());
        packed.extend_from_slice(about.as_bytes());
        packed.extend_from_slice(&rev.to_be_bytes());
        let length_at = packed.len();
        packed.extend_from_slice(&[0; 4]);
        // Event data consists of strings and numbers, so serializing does not fail. `null` is the fallback.
        if serde_json::to_writer(&mut packed, data).is_err() {
            packed.truncate(length_at + 4);
            packed.extend_from_slice(b"null");
        }
        let length = (packed.len() - length_at - 4) as u32;
        packed[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
        Self(packed.into())
    }
}

/// Packs events into a block.
pub(crate) fn pack_block(events: &[PackedEvent]) -> Vec<u8> {
    let mut block = Vec::with_capacity(events.iter().map(|event| event.0.len()).sum());
    events.iter().for_each(|event| block.extend_from_slice(&event.0));
    block
}

/// Unpacks a block. `None` when it is damaged.
pub(super) fn unpack_block(mut packed: &[u8]) -> Option<Vec<NewEvent>> {
    fn take<'a>(packed: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
        let (part, rest) = packed.split_at_checked(count)?;
        *packed = rest;
        Some(part)
    }
    let mut events = Vec::new();
    while !packed.is_empty() {
        let length = usize::from(*take(&mut packed, 1)?.first()?);
        let kind = EventKind::parse(std::str::from_utf8(take(&mut packed, length)?).ok()?)?;
        let at = Time(i64::from_be_bytes(take(&mut packed, 8)?.try_into().ok()?));
        let about = Uuid::from_slice(take(&mut packed, 16)?).ok()?;
        let rev = u32::from_be_bytes(take(&mut packed, 4)?.try_into().ok()?);
        let length = u32::from_be_bytes(take(&mut packed, 4)?.try_into().ok()?) as usize;
        let data = serde_json::from_slice(take(&mut packed, length)?).ok()?;
        events.push(NewEvent { kind, at, subject_id: about, rev, data });
    }
    Some(events)
}
