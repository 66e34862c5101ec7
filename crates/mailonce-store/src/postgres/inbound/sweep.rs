//! Sweep of received mail: suppressed deliveries, expired deduplication keys, and the rows of removed inboxes.

use deadpool_postgres::Transaction;
use mailonce_core::{id::ordered_bits, limits, time::Time};
use uuid::Uuid;

use crate::postgres::inbound::deliveries::release_raws;
use crate::postgres::{
    error::TxResult,
    statements::{execute, query_rows},
};

/// How many keys are deleted at a time.
const KEYS_PER_SWEEP: i64 = 10_000;
/// How many removed inboxes are swept at a time.
const INBOXES_PER_SWEEP: i64 = 100;

const DROP_SUPPRESSED: &str = "
    DELETE FROM deliveries d
     USING (SELECT team, id FROM deliveries WHERE state IN ('duplicate', 'refused') AND received_at <= $1
             ORDER BY received_at, id LIMIT $2 FOR UPDATE SKIP LOCKED) due
     WHERE d.team = due.team AND d.id = due.id RETURNING d.id";
const DROP_KEYS: &str = "
    DELETE FROM delivery_keys k
     USING (SELECT team, key FROM delivery_keys WHERE known_until <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) due
     WHERE k.team = due.team AND k.key = due.key";

/// Removed inboxes that may have rows left, the longest waiting first, skipping those that another node is sweeping.
const REMOVED_INBOXES: &str = "
    SELECT team, id FROM inboxes WHERE sweep_at IS NOT NULL ORDER BY sweep_at LIMIT $1 FOR UPDATE SKIP LOCKED";
/// Waiting deliveries stay: a worker will refuse them, so that none disappears without a record.
const DROP_DELIVERIES: &str = "
    DELETE FROM deliveries d
     USING (SELECT d.team, d.id FROM unnest($1::uuid[], $2::uuid[]) AS i (team, id)
              JOIN deliveries d ON d.team = i.team AND d.inbox = i.id
             WHERE d.state <> 'waiting' LIMIT $3 FOR UPDATE OF d SKIP LOCKED) due
     WHERE d.team = due.team AND d.id = due.id RETURNING d.id, d.raw";
/// Deletes rows of removed inboxes. A row that is being updated concurrently stays until the next sweep.
macro_rules! drop_from {
    ($table:literal, $returning:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " WHERE ctid = ANY (ARRAY(SELECT x.ctid FROM unnest($1::uuid[], $2::uuid[]) AS i (team, id) JOIN ",
            $table,
            " x ON x.team = i.team AND x.inbox = i.id LIMIT $3)) RETURNING ",
            $returning
        )
    };
}
const DROP_MESSAGES: &str = drop_from!("messages", "greatest(id, thread)");
const DROP_THREAD_EMAILS: &str = "
    DELETE FROM thread_emails
     WHERE ctid = ANY (ARRAY(
         SELECT x.ctid FROM unnest($1::uuid[], $2::uuid[]) AS i (team, id)
           JOIN threads t ON t.team = i.team AND t.inbox = i.id
           JOIN thread_emails x ON x.team = t.team AND x.thread = t.id LIMIT $3)) RETURNING email";
/// A thread is deleted after its last email link, because those links are found through the thread.
const DROP_THREADS: &str = "
    DELETE FROM threads
     WHERE ctid = ANY (ARRAY(
         SELECT t.ctid FROM unnest($1::uuid[], $2::uuid[]) AS i (team, id)
           JOIN threads t ON t.team = i.team AND t.inbox = i.id
          WHERE NOT EXISTS (SELECT FROM thread_emails x WHERE x.team = t.team AND x.thread = t.id) LIMIT $3))
    RETURNING id";
const DROP_MESSAGE_IDS: &str = drop_from!("thread_names", "thread");
const DROP_ARTIFACTS: &str = drop_from!("artifacts", "id");
const DROP_WATCHES: &str = drop_from!("watches", "id");

/// An empty inbox is not swept again; the others move to the end of the queue.
const RESCHEDULE_SWEPT_INBOXES: &str = "
    UPDATE inboxes i
       SET sweep_at = CASE WHEN left_over.more THEN greatest(i.sweep_at, $3) END,
           client_id = NULL, about = '{}'
      FROM (SELECT w.team, w.id,
                   EXISTS (SELECT FROM deliveries x WHERE x.team = w.team AND x.inbox = w.id)
                OR EXISTS (SELECT FROM messages x WHERE x.team = w.team AND x.inbox = w.id)
                OR EXISTS (SELECT FROM thread_names x WHERE x.team = w.team AND x.inbox = w.id)
                OR EXISTS (SELECT FROM threads x WHERE x.team = w.team AND x.inbox = w.id)
                OR EXISTS (SELECT FROM artifacts x WHERE x.team = w.team AND x.inbox = w.id)
                OR EXISTS (SELECT FROM watches x WHERE x.team = w.team AND x.inbox = w.id) AS more
              FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)) AS left_over
     WHERE i.team = left_over.team AND i.id = left_over.id";
/// Schedules another sweep of inboxes that were removed, because one of their deliveries has finished.
pub(crate) const RESWEEP_INBOXES: &str = "
    UPDATE inboxes i SET sweep_at = coalesce(i.sweep_at, $3) FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)
     WHERE i.team = w.team AND i.id = w.id AND i.removed_at IS NOT NULL";
const SAVE_LAST_ID: &str = "UPDATE install SET last_id = greatest(last_id, $1)";

/// Deletes expired rows, up to a limit. Returns how many deliveries were deleted.
pub(crate) async fn sweep_inbound(tx: &Transaction<'_>, max: usize, now: Time) -> TxResult<usize> {
    let most = max as i64;
    let rows = query_rows(tx, DROP_SUPPRESSED, &[&(now.0 - limits::SUPPRESSED_DELIVERY_RETENTION_MS), &most]).await?;
    let mut gone = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<TxResult<Vec<Uuid>>>()?;
    execute(tx, DROP_KEYS, &[&now.0, &KEYS_PER_SWEEP]).await?;
    let suppressed = gone.len();
    let from_removed_inboxes = empty_removed_inboxes(tx, max - suppressed.min(max), now, &mut gone).await?;
    // Ids must never be reused, even after all their rows are deleted.
    if let Some(highest) = gone.into_iter().map(ordered_bits).max() {
        execute(tx, SAVE_LAST_ID, &[&highest]).await?;
    }
    Ok(suppressed + from_removed_inboxes)
}

/// Deletes rows of removed inboxes, up to a limit. Returns how many deliveries were deleted; adds all deleted ids to
/// `gone`.
async fn empty_removed_inboxes(tx: &Transaction<'_>, max: usize, now: Time, gone: &mut Vec<Uuid>) -> TxResult<usize> {
    let (mut teams, mut ids): (Vec<Uuid>, Vec<Uuid>) = (Vec::new(), Vec::new());
    for row in query_rows(tx, REMOVED_INBOXES, &[&INBOXES_PER_SWEEP]).await? {
        teams.push(row.try_get(0)?);
        ids.push(row.try_get(1)?);
    }
    if teams.is_empty() || max == 0 {
        return Ok(0);
    }
    let most = max as i64;
    let deliveries = query_rows(tx, DROP_DELIVERIES, &[&teams, &ids, &most]).await?;
    let mut raws: Vec<Uuid> = Vec::new();
    for row in &deliveries {
        gone.push(row.try_get(0)?);
        raws.extend(row.try_get::<_, Option<Uuid>>(1)?);
    }
    release_raws(tx, raws.into_iter()).await?;
    for sql in [DROP_MESSAGES, DROP_THREAD_EMAILS, DROP_THREADS, DROP_MESSAGE_IDS, DROP_ARTIFACTS, DROP_WATCHES] {
        for row in query_rows(tx, sql, &[&teams, &ids, &most]).await? {
            gone.push(row.try_get(0)?);
        }
    }
    execute(tx, RESCHEDULE_SWEPT_INBOXES, &[&teams, &ids, &now.0]).await?;
    Ok(deliveries.len())
}
