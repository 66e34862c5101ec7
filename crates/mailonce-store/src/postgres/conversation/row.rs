//! Rows: how threads are stored in their table, read, and locked together with a message.

use deadpool_postgres::Transaction;
use mailonce_core::{
    conversation::thread::Thread,
    id::{InboxId, MessageId, TeamId, ThreadId},
    inbox::message::Message,
    time::Time,
};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::postgres::{
    error::TxResult,
    inbound::row::{MESSAGE_COLUMNS, message_columns, read_message},
    row::read_json,
    statements::{BoundStatement, query_pipelined},
};

/// The columns of a thread: its row `t`.
macro_rules! thread_columns {
    () => {
        "t.team, t.id, t.inbox, t.rev, t.latest_at, t.about"
    };
}
pub(crate) use thread_columns;

/// Messages with their threads, except those in removed inboxes.
macro_rules! messages_of_threads {
    ($columns:expr, $rest:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM messages m
                JOIN threads t ON t.team = m.team AND t.id = m.thread
                JOIN inboxes i ON i.team = m.team AND i.id = m.inbox AND i.removed_at IS NULL ",
            $rest
        )
    };
}
pub(crate) use messages_of_threads;

const LOCK_THREAD_OF_MESSAGE: &str = messages_of_threads!("", "WHERE m.team = $1 AND m.id = $2 FOR UPDATE OF t");
/// The current state of messages, each with its thread.
pub(crate) const READ_MESSAGES: &str = messages_of_threads!(
    concat!(message_columns!(), ", ", thread_columns!()),
    "WHERE m.team = $1 AND m.id = ANY ($2) ORDER BY m.seq"
);

/// Reads [`thread_columns`] that begin at column `at`.
pub(crate) fn read_thread(row: &Row, at: usize) -> TxResult<Thread> {
    Ok(Thread {
        team: TeamId(row.try_get(at)?),
        id: ThreadId(row.try_get(at + 1)?),
        inbox: InboxId(row.try_get(at + 2)?),
        rev: row.try_get::<_, i32>(at + 3)? as u32,
        last_activity_at: Time(row.try_get(at + 4)?),
        details: read_json(row.try_get(at + 5)?, "a thread")?,
    })
}

/// Reads the columns of [`READ_MESSAGES`].
pub(crate) fn read_message_and_thread(row: &Row) -> TxResult<(Message, Thread)> {
    Ok((read_message(row)?, read_thread(row, MESSAGE_COLUMNS)?))
}

/// Locks the thread of a message and reads both. The locking statement may have read an older version before it
/// waited for the lock, so a second statement reads the message.
pub(crate) async fn lock_message_and_thread(
    tx: &Transaction<'_>,
    team: TeamId,
    id: MessageId,
) -> TxResult<Option<(Message, Thread)>> {
    let ids: [Uuid; 1] = [id.0];
    let asked: [BoundStatement<'_>; 2] =
        [(LOCK_THREAD_OF_MESSAGE, &[&team.0, &id.0]), (READ_MESSAGES, &[&team.0, &ids.as_slice()])];
    let answers = query_pipelined(tx, &asked).await?;
    answers.last().and_then(|rows| rows.first()).map(read_message_and_thread).transpose()
}
