//! Pending changes to threads and messages, and the set-based statements that write them.

use deadpool_postgres::Transaction;
use mailonce_core::{
    conversation::{caps::RecentReplyTimes, thread::Thread},
    id::{EmailId, MessageId, TeamId, ThreadId},
    inbox::message::Message,
    time::Time,
};
use std::collections::BTreeMap;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::postgres::outbound::recent_content::{ContactPair, RecentContent};
use crate::postgres::{
    error::TxResult,
    row::{read_json, write_json},
    statements::{BoundStatement, execute, query_pipelined},
};

/// How long a tally is kept after its last reply: longer than any cap counts.
const TALLY_KEPT_MS: i64 = 2 * 86_400_000;

/// Inserts the missing row or locks the existing one, as for keys.
const LOCK_TALLY: &str = "
    INSERT INTO tallies (team, person) VALUES ($1, $2)
    ON CONFLICT (team, person) DO UPDATE SET times = tallies.times WHERE false";
const READ_TALLY: &str = "SELECT times FROM tallies WHERE team = $1 AND person = $2";
const WRITE_TALLY: &str = "UPDATE tallies SET times = $3, kept_until = $4 WHERE team = $1 AND person = $2";

const WRITE_THREADS: &str = "
    INSERT INTO threads (team, id, inbox, rev, latest_at, leased_until, about)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::bigint[], $6::bigint[], $7::text[])
    ON CONFLICT (team, id) DO UPDATE
       SET rev = excluded.rev, latest_at = excluded.latest_at, leased_until = excluded.leased_until,
           about = excluded.about";
const JOIN_EMAILS: &str = "
    INSERT INTO thread_emails (team, thread, email)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) ON CONFLICT DO NOTHING";
const CHANGE_MESSAGES: &str = "
    UPDATE messages m SET rev = w.rev, state = w.state, marks = w.marks, not_before = w.not_before
      FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::text[], $6::bigint[])
        AS w (team, id, rev, state, marks, not_before)
     WHERE m.team = w.team AND m.id = w.id";

/// How many rows of guard state are deleted at a time.
const ROWS_PER_SWEEP: i64 = 10_000;
const DROP_TALLIES: &str = "
    DELETE FROM tallies x
     USING (SELECT team, person FROM tallies WHERE kept_until <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) due
     WHERE x.team = due.team AND x.person = due.person";
const DROP_LIKENESSES: &str = "
    DELETE FROM likenesses x
     USING (SELECT team, pair FROM likenesses WHERE kept_until <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) due
     WHERE x.team = due.team AND x.pair = due.pair";

/// Deletes guard state that no guard needs any more, and rows that were inserted only to be locked.
pub(crate) async fn sweep_guard_state(tx: &Transaction<'_>, now: Time) -> TxResult<()> {
    for sql in [DROP_TALLIES, DROP_LIKENESSES] {
        execute(tx, sql, &[&now.0, &ROWS_PER_SWEEP]).await?;
    }
    Ok(())
}

/// The pending changes of one transaction.
#[derive(Default)]
pub(crate) struct ConversationChanges {
    /// Threads in their new state. Their rows are locked, or new.
    pub threads: BTreeMap<ThreadId, Thread>,
    /// Messages that changed. The rows of their threads are locked.
    pub messages: BTreeMap<MessageId, Message>,
    /// Emails that joined a thread.
    pub joined_emails: Vec<(TeamId, ThreadId, EmailId)>,
    /// The tally of a recipient who got one more reply, with the time of that reply.
    pub tally: Option<(TeamId, [u8; 16], RecentReplyTimes, Time)>,
    /// Recent content per contact pair: as loaded under its row lock, plus what was added.
    pub recent_content: BTreeMap<ContactPair, RecentContent>,
}

impl ConversationChanges {
    /// Whether there is nothing to write.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.threads.is_empty()
            && self.messages.is_empty()
            && self.joined_emails.is_empty()
            && self.tally.is_none()
            && self.recent_content.values().all(|said| said.added_at.is_none())
    }

    /// Writes all changes. The caller commits.
    pub(crate) async fn write(&self, tx: &Transaction<'_>) -> TxResult<()> {
        self.write_threads(tx).await?;
        self.write_messages(tx).await?;
        if let Some((team, person, tally, now)) = &self.tally {
            let (person, until) = (Uuid::from_bytes(*person), now.plus(TALLY_KEPT_MS));
            execute(tx, WRITE_TALLY, &[&team.0, &person, &write_json(tally)?, &until.0]).await?;
        }
        crate::postgres::outbound::recent_content::write_recent_content(tx, &self.recent_content).await
    }

    async fn write_threads(&self, tx: &Transaction<'_>) -> TxResult<()> {
        if self.threads.is_empty() {
            return Ok(());
        }
        let all = || self.threads.values();
        let team: Vec<Uuid> = all().map(|thread| thread.team.0).collect();
        let id: Vec<Uuid> = all().map(|thread| thread.id.0).collect();
        let inbox: Vec<Uuid> = all().map(|thread| thread.inbox.0).collect();
        let rev: Vec<i32> = all().map(|thread| thread.rev as i32).collect();
        let latest_at: Vec<i64> = all().map(|thread| thread.last_activity_at.0).collect();
        let leased_until: Vec<Option<i64>> =
            all().map(|thread| thread.details.lease.as_ref().map(|lease| lease.expires_at.0)).collect();
        let about = all().map(|thread| write_json(&thread.details)).collect::<TxResult<Vec<String>>>()?;
        let threads: [&(dyn ToSql + Sync); 7] = [&team, &id, &inbox, &rev, &latest_at, &leased_until, &about];
        if self.joined_emails.is_empty() {
            return execute(tx, WRITE_THREADS, &threads).await.map(drop);
        }
        let of: Vec<Uuid> = self.joined_emails.iter().map(|(team, _, _)| team.0).collect();
        let thread: Vec<Uuid> = self.joined_emails.iter().map(|(_, thread, _)| thread.0).collect();
        let email: Vec<Uuid> = self.joined_emails.iter().map(|(_, _, email)| email.0).collect();
        let asked: [BoundStatement<'_>; 2] = [(WRITE_THREADS, &threads), (JOIN_EMAILS, &[&of, &thread, &email])];
        query_pipelined(tx, &asked).await.map(drop)
    }

    async fn write_messages(&self, tx: &Transaction<'_>) -> TxResult<()> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let all = || self.messages.values();
        let team: Vec<Uuid> = all().map(|message| message.team.0).collect();
        let id: Vec<Uuid> = all().map(|message| message.id.0).collect();
        let rev: Vec<i32> = all().map(|message| message.rev as i32).collect();
        let state: Vec<&str> = all().map(|message| message.state.as_str()).collect();
        let marks = all().map(|message| write_json(&message.annotations)).collect::<TxResult<Vec<String>>>()?;
        let not_before: Vec<Option<i64>> =
            all().map(|message| message.annotations.progress.not_before.map(|at| at.0)).collect();
        execute(tx, CHANGE_MESSAGES, &[&team, &id, &rev, &state, &marks, &not_before]).await.map(drop)
    }
}

/// Locks the reply tally of a recipient and reads it. A missing row is inserted.
pub(crate) async fn lock_tally(tx: &Transaction<'_>, team: TeamId, person: [u8; 16]) -> TxResult<RecentReplyTimes> {
    let person = Uuid::from_bytes(person);
    let params: [&(dyn ToSql + Sync); 2] = [&team.0, &person];
    let answers = query_pipelined(tx, &[(LOCK_TALLY, &params), (READ_TALLY, &params)]).await?;
    let row = answers.last().and_then(|rows| rows.first());
    row.map_or(Ok(RecentReplyTimes::default()), |row| read_json(row.try_get(0)?, "a tally"))
}
