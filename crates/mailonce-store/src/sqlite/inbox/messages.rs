//! Messages: queries for them, and saving their state.

use mailonce_core::{
    id::{DeliveryId, InboxId, MessageId, TeamId, ThreadId, ordered_bits},
    inbox::message::{Message, MessagePage, MessagePosition, MessageQuery, MessageState},
    limits,
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, Row, params};
use std::sync::Arc;

use crate::sqlite::{
    inbound::deliveries,
    rows::{id_column, json_column, parse_column, split_id, to_json},
    schema::store_error,
    write_session::WriteSession,
};

/// A message whose inbox was not removed.
const MESSAGE: &str = "SELECT m.message, m.tail, i.inbox, i.tail, m.seq, m.rev, m.thread, m.delivery, m.received_at, m.state, \
     m.marks, m.head FROM messages m JOIN inboxes i ON i.inbox = m.inbox WHERE i.removed IS NULL AND m.team = ?1";
/// Repeats the condition of a partial index literally, so that SQLite uses the index.
const UNANSWERED: &str = "AND m.inbox = ?2 AND m.state = 'unanswered' AND m.seq > ?3 ORDER BY m.seq LIMIT ?4";
const UPDATE: &str = "UPDATE messages SET rev = ?2, state = ?3, marks = ?4 WHERE message = ?1";

fn message_row(row: &Row<'_>, team: TeamId) -> Result<Message> {
    Ok(Message {
        id: MessageId(split_id(row, 0)?),
        team,
        inbox: InboxId(split_id(row, 2)?),
        seq: row.get::<_, i64>(4).map_err(store_error)? as u64,
        rev: row.get(5).map_err(store_error)?,
        thread: ThreadId(id_column(row, 6)?),
        delivery: DeliveryId(id_column(row, 7)?),
        received_at: Time(row.get(8).map_err(store_error)?),
        state: parse_column(row, 9, MessageState::parse)?,
        annotations: json_column(row, 10)?,
        head: Arc::new(json_column(row, 11)?),
    })
}

/// One message of a team.
pub(crate) fn by_id(conn: &Connection, team: TeamId, number: i64, id: MessageId) -> Result<Option<Message>> {
    let mut statement = conn.prepare_cached(&format!("{MESSAGE} AND m.message = ?2")).map_err(store_error)?;
    let mut rows = statement.query(params![number, ordered_bits(id.0)]).map_err(store_error)?;
    let found = rows.next().map_err(store_error)?.map(|row| message_row(row, team)).transpose()?;
    Ok(found.filter(|message| message.id == id))
}

/// Unanswered messages of an inbox after a sequence number, oldest first.
pub(crate) fn unanswered(
    conn: &Connection,
    (team, number): (TeamId, i64),
    inbox: InboxId,
    after: u64,
    limit: usize,
) -> Result<Vec<Message>> {
    let mut statement = conn.prepare_cached(&format!("{MESSAGE} {UNANSWERED}")).map_err(store_error)?;
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![number, ordered_bits(inbox.0), after, limit as i64]).map_err(store_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        found.push(message_row(row, team)?);
    }
    // The query compares only the ordered bits of the inbox id. Drop messages of another id with the same bits.
    found.retain(|message| message.inbox == inbox);
    Ok(found)
}

/// Saves the state and the annotations of a message.
pub(crate) fn save(ledger: &WriteSession<'_>, message: &Message) -> Result<()> {
    let Message { id, rev, state, annotations: marks, .. } = message;
    ledger.execute(UPDATE, params![ordered_bits(id.0), rev, state.as_str(), to_json(marks)?]).map(drop)
}

/// The packed raw bytes of a message, while they are kept.
pub(crate) fn raw(conn: &Connection, team: TeamId, number: i64, id: MessageId) -> Result<Option<Vec<u8>>> {
    let Some(message) = by_id(conn, team, number, id)? else { return Ok(None) };
    let kept = deliveries::by_id(conn, team, number, message.delivery)?;
    Ok(kept.and_then(|kept| kept.raw).map(|raw| deliveries::raw_bytes(conn, raw)).transpose()?.flatten())
}

/// Whether the raw bytes of a message are kept. `None` when there is no such message, or when it was erased.
pub(crate) fn has_raw(conn: &Connection, team: TeamId, number: i64, id: MessageId) -> Result<Option<bool>> {
    let found = by_id(conn, team, number, id)?;
    let Some(message) = found.filter(Message::is_visible) else { return Ok(None) };
    let kept = deliveries::by_id(conn, team, number, message.delivery)?;
    Ok(Some(kept.is_some_and(|kept| kept.raw.is_some())))
}

/// Messages of an inbox, ordered by sequence number.
pub(crate) fn list(
    conn: &Connection,
    (team, number): (TeamId, i64),
    inbox: InboxId,
    query: &MessageQuery,
) -> Result<MessagePage> {
    let (order, from) = match query.position {
        MessagePosition::After(seq) => ("AND m.seq > ?3 ORDER BY m.seq", seq),
        MessagePosition::Before(seq) => ("AND m.seq < ?3 ORDER BY m.seq DESC", seq),
    };
    let sql = format!("{MESSAGE} AND m.inbox = ?2 {order} LIMIT ?4");
    let from = i64::try_from(from).unwrap_or(i64::MAX);
    let asked = params![number, ordered_bits(inbox.0), from, limits::SCAN_ROWS as i64 + 1];
    let mut statement = conn.prepare_cached(&sql).map_err(store_error)?;
    let mut rows = statement.query(asked).map_err(store_error)?;
    let (mut page, mut looked) = (MessagePage::default(), 0);
    while let Some(row) = rows.next().map_err(store_error)? {
        if page.rows.len() == query.limit || looked == limits::SCAN_ROWS {
            return Ok(page);
        }
        looked += 1;
        let message = message_row(row, team)?;
        page.next = Some(message.seq);
        if message.inbox == inbox && query.matches(&message) {
            page.rows.push(message);
        }
    }
    page.next = None;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{Sqlite, schema};

    #[test]
    fn unanswered_messages_are_found_by_their_index() {
        let home = tempfile::tempdir().unwrap();
        drop(Sqlite::open(home.path(), [7; 32]).unwrap());
        let conn = schema::open_reader(&home.path().join("ledger.db")).unwrap();
        let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {MESSAGE} {UNANSWERED}")).unwrap();
        let steps = explain.query_map(params![1, 2, 3, 4], |row| row.get::<_, String>(3)).unwrap();
        let steps: Vec<String> = steps.map(rusqlite::Result::unwrap).collect();
        assert!(steps.iter().any(|step| step.contains("messages_unanswered (inbox=? AND seq>?")), "{steps:?}");
    }
}
