//! Sweeping: rows of suppressed deliveries, keys whose time has come, and what removed inboxes left.

use deadpool_postgres::Transaction;
use mailonce_core::{limits, time::Time};
use uuid::Uuid;

use super::delivery::let_go;
use crate::postgres::{
    trouble::Tried,
    write::{ask, run},
};

/// Keys that go at a time.
const KEYS: i64 = 10_000;

const DROP_SUPPRESSED: &str = "
    DELETE FROM deliveries d
     USING (SELECT team, id FROM deliveries WHERE state IN ('duplicate', 'refused') AND received_at <= $1
             ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED) due
     WHERE d.team = due.team AND d.id = due.id";
const DROP_KEYS: &str = "
    DELETE FROM delivery_keys k
     USING (SELECT team, key FROM delivery_keys WHERE known_until <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) due
     WHERE k.team = due.team AND k.key = due.key";

/// An inbox that was removed, and that nobody else empties.
const REMOVED: &str = "
    SELECT team, id FROM inboxes WHERE removed_at IS NOT NULL ORDER BY removed_at LIMIT 1 FOR UPDATE SKIP LOCKED";
const DROP_DELIVERIES: &str = "
    DELETE FROM deliveries d
     USING (SELECT team, id FROM deliveries WHERE team = $1 AND inbox = $2
             ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED) due
     WHERE d.team = due.team AND d.id = due.id RETURNING d.raw";
const DROP_MESSAGES: &str = "
    DELETE FROM messages WHERE (team, inbox, seq) IN (
        SELECT team, inbox, seq FROM messages WHERE team = $1 AND inbox = $2 ORDER BY seq LIMIT $3)";
const DROP_NAMES: &str = "
    DELETE FROM thread_names WHERE (team, inbox, name) IN (
        SELECT team, inbox, name FROM thread_names WHERE team = $1 AND inbox = $2 LIMIT $3)";
const DROP_ARTIFACTS: &str = "
    DELETE FROM artifacts WHERE (team, id) IN (
        SELECT team, id FROM artifacts WHERE team = $1 AND inbox = $2 LIMIT $3)";
const DROP_WATCHES: &str = "
    DELETE FROM watches WHERE (team, id) IN (
        SELECT team, id FROM watches WHERE team = $1 AND inbox = $2 LIMIT $3)";
const DROP_INBOX: &str = "
    DELETE FROM inboxes i WHERE i.team = $1 AND i.id = $2
       AND NOT EXISTS (SELECT FROM deliveries d WHERE d.team = i.team AND d.inbox = i.id)";

/// Removes what is due, in a bounded piece. How many rows of deliveries there were.
pub(in crate::postgres) async fn sweep_arrivals(tx: &Transaction<'_>, max: usize, now: Time) -> Tried<usize> {
    let most = max as i64;
    let suppressed = run(tx, DROP_SUPPRESSED, &[&(now.0 - limits::DUPLICATE_KEPT_MS), &most]).await?;
    run(tx, DROP_KEYS, &[&now.0, &KEYS]).await?;
    Ok(suppressed as usize + empty_removed(tx, most).await?)
}

/// Empties one removed inbox a little further. Its row goes when nothing is left that names it.
async fn empty_removed(tx: &Transaction<'_>, most: i64) -> Tried<usize> {
    let rows = ask(tx, REMOVED, &[]).await?;
    let Some(row) = rows.first() else { return Ok(0) };
    let (team, inbox): (Uuid, Uuid) = (row.try_get(0)?, row.try_get(1)?);
    let dropped = ask(tx, DROP_DELIVERIES, &[&team, &inbox, &most]).await?;
    let raws = dropped.iter().map(|row| Ok(row.try_get(0)?)).collect::<Tried<Vec<Option<Uuid>>>>()?;
    let_go(tx, raws.into_iter().flatten()).await?;
    let mut others = 0;
    for sql in [DROP_MESSAGES, DROP_NAMES, DROP_ARTIFACTS, DROP_WATCHES] {
        others += run(tx, sql, &[&team, &inbox, &most]).await?;
    }
    if dropped.is_empty() && others == 0 {
        run(tx, DROP_INBOX, &[&team, &inbox]).await?;
    }
    Ok(dropped.len())
}
