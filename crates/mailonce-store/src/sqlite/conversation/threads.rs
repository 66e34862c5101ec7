//! Threads: their rows, and the emails that belong to them.

use mailonce_core::{
    conversation::thread::{Thread, ThreadEdit, ThreadQuery},
    id::{EmailId, InboxId, TeamId, ThreadId, ordered_bits},
    inbox::message::Message,
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use crate::sqlite::{
    rows::{id_column, json_column, split_id, to_json},
    schema::store_error,
    write_session::WriteSession,
};

/// A thread whose inbox was not removed. `CROSS JOIN` makes SQLite look up the inbox last, whatever the condition.
const THREAD: &str = "SELECT t.thread, i.inbox, i.tail, t.rev, t.latest_at, t.about \
     FROM threads t CROSS JOIN inboxes i ON i.inbox = t.inbox WHERE i.removed IS NULL";
const BY_ID: &str = "AND t.team = ?1 AND t.thread = ?2";
const OF_TEAM: &str = "AND t.team = ?1 AND (t.latest_at, t.thread) < (?2, ?3) ORDER BY t.latest_at DESC, t.thread DESC";
/// The unary plus keeps SQLite from using the team's index, because one inbox may have few of the team's threads.
const OF_INBOX: &str = "AND +t.team = ?1 AND t.inbox = ?4 AND (t.latest_at, t.thread) < (?2, ?3) \
     ORDER BY t.latest_at DESC, t.thread DESC";
const UPSERT: &str = "INSERT INTO threads (thread, team, inbox, rev, latest_at, about) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
     ON CONFLICT DO UPDATE SET rev = ?4, latest_at = ?5, about = ?6";
const ADD_EMAIL: &str = "INSERT OR IGNORE INTO thread_emails (thread, email) VALUES (?1, ?2)";
const EMAILS: &str = "SELECT email FROM thread_emails WHERE thread = ?1 AND email > ?2 ORDER BY email LIMIT ?3";

fn thread_row(row: &Row<'_>, team: TeamId) -> Result<Thread> {
    Ok(Thread {
        id: ThreadId(id_column(row, 0)?),
        team,
        inbox: InboxId(split_id(row, 1)?),
        rev: row.get(3).map_err(store_error)?,
        last_activity_at: Time(row.get(4).map_err(store_error)?),
        details: json_column(row, 5)?,
    })
}

/// One thread of a team.
pub(crate) fn by_id(conn: &Connection, (team, number): (TeamId, i64), id: ThreadId) -> Result<Option<Thread>> {
    let mut statement = conn.prepare_cached(&format!("{THREAD} {BY_ID}")).map_err(store_error)?;
    let mut rows = statement.query(params![number, id.0.as_bytes()]).map_err(store_error)?;
    rows.next().map_err(store_error)?.map(|row| thread_row(row, team)).transpose()
}

/// The thread of a message, or a new one if it has no row.
pub(crate) fn of_message(conn: &Connection, number: i64, message: &Message, now: Time) -> Result<Thread> {
    let found = by_id(conn, (message.team, number), message.thread)?;
    Ok(found.unwrap_or_else(|| Thread::from_first_message(message, now)))
}

/// Threads, latest activity first.
pub(crate) fn list(conn: &Connection, (team, number): (TeamId, i64), query: &ThreadQuery) -> Result<Vec<Thread>> {
    let (at, id) = query.before.map_or((i64::MAX, Uuid::max()), |(at, id)| (at.0, id.0));
    let which = if query.inbox.is_some() { OF_INBOX } else { OF_TEAM };
    let mut statement = conn.prepare_cached(&format!("{THREAD} {which}")).map_err(store_error)?;
    let mut rows = match query.inbox {
        Some(inbox) => statement.query(params![number, at, id.as_bytes(), ordered_bits(inbox.0)]),
        None => statement.query(params![number, at, id.as_bytes()]),
    }
    .map_err(store_error)?;
    let mut found = Vec::new();
    while found.len() < query.limit
        && let Some(row) = rows.next().map_err(store_error)?
    {
        found.extend(Some(thread_row(row, team)?).filter(|thread| query.matches(thread)));
    }
    Ok(found)
}

/// The emails of a thread, oldest first.
pub(crate) fn emails(
    conn: &Connection,
    place: (TeamId, i64),
    id: ThreadId,
    after: Option<EmailId>,
    limit: usize,
) -> Result<Vec<EmailId>> {
    if by_id(conn, place, id)?.is_none() {
        return Ok(Vec::new());
    }
    let after = after.as_ref().map_or(&[][..], |after| after.0.as_bytes());
    let mut statement = conn.prepare_cached(EMAILS).map_err(store_error)?;
    let rows = statement.query_map(params![id.0.as_bytes(), after, limit as i64], |row| row.get(0));
    let found: Vec<[u8; 16]> = rows.and_then(Iterator::collect).map_err(store_error)?;
    Ok(found.into_iter().map(|id| EmailId(Uuid::from_bytes(id))).collect())
}

/// Inserts or updates a thread.
pub(crate) fn save(ledger: &WriteSession<'_>, team: i64, thread: &Thread) -> Result<()> {
    let Thread { id, inbox, rev, last_activity_at: latest_at, details: about, .. } = thread;
    let row = params![id.0.as_bytes(), team, ordered_bits(inbox.0), rev, latest_at.0, to_json(about)?];
    ledger.execute(UPSERT, row).map(drop)
}

/// Adds an email to a thread, if it is not in it yet.
pub(crate) fn add_email(ledger: &WriteSession<'_>, id: ThreadId, email: EmailId) -> Result<()> {
    ledger.execute(ADD_EMAIL, params![id.0.as_bytes(), email.0.as_bytes()]).map(drop)
}

/// Applies a user's edit to a thread.
pub(crate) fn change(
    ledger: &WriteSession<'_>,
    (team, id): (TeamId, ThreadId),
    edit: ThreadEdit,
    now: Time,
) -> Result<Option<Thread>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(mut thread) = by_id(ledger.conn, (team, number), id)? else { return Ok(None) };
    thread.edit(edit, now);
    save(ledger, number, &thread)?;
    Ok(Some(thread))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{Sqlite, schema};

    #[test]
    fn threads_are_listed_by_an_index_and_not_sorted() {
        let home = tempfile::tempdir().unwrap();
        drop(Sqlite::open(home.path(), [7; 32]).unwrap());
        let conn = schema::open_reader(&home.path().join("ledger.db")).unwrap();
        for (which, index) in [(OF_TEAM, "threads_latest (team=?"), (OF_INBOX, "threads_inbox (inbox=?")] {
            let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {THREAD} {which}")).unwrap();
            let steps = explain.raw_query().mapped(|row| row.get::<_, String>(3)).collect::<Vec<_>>();
            let steps: Vec<String> = steps.into_iter().map(rusqlite::Result::unwrap).collect();
            assert!(steps[0].contains(index), "{steps:?}");
            assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:?}");
        }
    }
}
