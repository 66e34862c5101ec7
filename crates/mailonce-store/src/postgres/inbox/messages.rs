//! Queries for messages. Messages in removed inboxes are excluded.

use mailonce_core::{
    id::{InboxId, MessageId, TeamId},
    inbox::message::{Message, MessagePage, MessagePosition, MessageQuery},
    limits,
};

use crate::postgres::inbound::row::{message_columns, read_first, read_message};
use crate::postgres::{SharedState, error::TxResult, statements::query_rows};

/// How many messages a list reads at a time.
const MESSAGES_PER_READ: usize = 1000;

macro_rules! messages {
    ($columns:expr, $rest:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM messages m JOIN inboxes i ON i.team = m.team AND i.id = m.inbox AND i.removed_at IS NULL ",
            $rest
        )
    };
}

const BY_ID: &str = messages!(message_columns!(), "WHERE m.team = $1 AND m.id = $2");
const RAW: &str = messages!(
    "r.bytes",
    "JOIN deliveries d ON d.team = m.team AND d.id = m.delivery JOIN raws r ON r.id = d.raw
     WHERE m.team = $1 AND m.id = $2"
);
const BEFORE: &str =
    messages!(message_columns!(), "WHERE m.team = $1 AND m.inbox = $2 AND m.seq < $3 ORDER BY m.seq DESC LIMIT $4");
const AFTER: &str =
    messages!(message_columns!(), "WHERE m.team = $1 AND m.inbox = $2 AND m.seq > $3 ORDER BY m.seq LIMIT $4");

/// One message.
pub(crate) async fn message(shared: &SharedState, team: TeamId, id: MessageId) -> TxResult<Option<Message>> {
    read_first(&query_rows(&shared.connections.client().await?, BY_ID, &[&team.0, &id.0]).await?, read_message)
}

/// The raw bytes of a message, packed as the engine stored them.
pub(crate) async fn raw_message(shared: &SharedState, team: TeamId, id: MessageId) -> TxResult<Option<Vec<u8>>> {
    read_first(&query_rows(&shared.connections.client().await?, RAW, &[&team.0, &id.0]).await?, |row| {
        Ok(row.try_get(0)?)
    })
}

/// Messages of an inbox, ordered by their numbers.
pub(crate) async fn messages(
    shared: &SharedState,
    team: TeamId,
    inbox: InboxId,
    query: &MessageQuery,
) -> TxResult<MessagePage> {
    let client = shared.connections.client().await?;
    let (sql, mut from) = match query.position {
        MessagePosition::Before(seq) => (BEFORE, seq),
        MessagePosition::After(seq) => (AFTER, seq),
    };
    let (mut page, mut looked) = (MessagePage::default(), 0);
    loop {
        // The first read takes one more than fits, to see whether more exist. Later reads are larger because few
        // rows match.
        let chunk = if looked == 0 { query.limit.saturating_add(1).min(MESSAGES_PER_READ) } else { MESSAGES_PER_READ };
        let place = i64::try_from(from).unwrap_or(i64::MAX);
        let rows = query_rows(&client, sql, &[&team.0, &inbox.0, &place, &(chunk as i64)]).await?;
        let ended = rows.len() < chunk;
        for row in &rows {
            if page.rows.len() == query.limit || looked == limits::SCAN_ROWS {
                return Ok(page);
            }
            let message = read_message(row)?;
            looked += 1;
            from = message.seq;
            page.next = Some(from);
            if query.matches(&message) {
                page.rows.push(message);
            }
        }
        if ended {
            page.next = None;
            return Ok(page);
        }
    }
}
