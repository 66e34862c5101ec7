//! Watches: they start at an inbox's latest message number and have a budget of resends.

use mailonce_core::{
    id::{TeamId, WatchId},
    inbox::watch::{ImplicitWatch, SpendResendResult, Watch},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::postgres::{
    SharedState,
    error::{TxError, TxResult},
    inbound::row::{read_first, read_watch, watch_columns},
    operation_keys::bind_or_replay,
    statements::{execute, query_rows},
};

macro_rules! watches {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            watch_columns!(),
            " FROM watches w JOIN inboxes i ON i.team = w.team AND i.id = w.inbox AND i.removed_at IS NULL
              WHERE w.team = $1 AND w.id = $2",
            $rest
        )
    };
}

const BY_ID: &str = watches!("");
const BY_ID_LOCKED: &str = watches!(" FOR UPDATE OF w");
/// The row lock keeps messages from being filed between this read and the commit.
const INBOX_SEQ: &str = "SELECT seq FROM inboxes WHERE team = $1 AND id = $2 AND removed_at IS NULL FOR SHARE";
const INSERT: &str = "
    INSERT INTO watches (team, id, inbox, rev, started_at, after, deadline, budget, spent, require_auth)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING";
const SPEND: &str = "UPDATE watches SET rev = $3, spent = $4 WHERE team = $1 AND id = $2";

/// Of two calls that start the same watch, the second continues the first.
const TOUCH_IMPLICIT: &str = "
    INSERT INTO implicit_watches AS w (team, inbox, consumer, after_seq, ends_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (team, inbox, consumer) DO UPDATE
       SET after_seq = CASE WHEN w.ends_at > $6 THEN w.after_seq ELSE excluded.after_seq END,
           ends_at = excluded.ends_at
    RETURNING after_seq";
/// Each call removes more rows than it adds, so the table holds little more than the watches that go on.
const DELETE_ENDED_IMPLICIT: &str = "
    DELETE FROM implicit_watches x
     USING (SELECT team, inbox, consumer FROM implicit_watches
             WHERE ends_at <= $1 AND (team, inbox, consumer) <> ($2, $3, $4) LIMIT 10 FOR UPDATE SKIP LOCKED) ended
     WHERE x.team = ended.team AND x.inbox = ended.inbox AND x.consumer = ended.consumer";

/// Starts an implicit watch, or continues it.
pub(crate) async fn touch_implicit_watch(
    shared: &SharedState,
    watch: ImplicitWatch,
    now: Time,
) -> TxResult<ImplicitWatch> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let (team, inbox, consumer) = (watch.team.0, watch.inbox.0, Uuid::from_bytes(watch.consumer));
    let after = watch.after_seq as i64;
    let rows = query_rows(&tx, TOUCH_IMPLICIT, &[&team, &inbox, &consumer, &after, &watch.ends_at.0, &now.0]).await?;
    let row = rows.first().ok_or_else(|| TxError::Conflict("an implicit watch was not saved".into()))?;
    let after_seq = row.try_get::<_, i64>(0)? as u64;
    // After its own row, and without waiting: two calls that remove each other's row would wait for each other.
    execute(&tx, DELETE_ENDED_IMPLICIT, &[&now.0, &team, &inbox, &consumer]).await?;
    shared.commit(tx, 1).await?;
    Ok(ImplicitWatch { after_seq, ..watch })
}

/// Starts a watch.
pub(crate) async fn create_watch(
    shared: &SharedState,
    watch: &Watch,
    operation: Option<&KeyedOperation>,
) -> TxResult<IdempotentResult<Option<Watch>>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, watch.started_at).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let rows = query_rows(&tx, INBOX_SEQ, &[&watch.team.0, &watch.inbox.0]).await?;
    let Some(latest) = rows.first() else {
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(None));
    };
    let mut watch = watch.clone();
    watch.after_seq = latest.try_get::<_, i64>(0)? as u64;
    let (rev, budget, spent) = (watch.rev as i32, watch.resend_budget as i32, watch.resends_used as i32);
    let (after, started_at, deadline) = (watch.after_seq as i64, watch.started_at.0, watch.deadline.0);
    let auth = watch.require_auth;
    let params: [&(dyn ToSql + Sync); 10] =
        [&watch.team.0, &watch.id.0, &watch.inbox.0, &rev, &started_at, &after, &deadline, &budget, &spent, &auth];
    if execute(&tx, INSERT, &params).await? == 0 {
        let before = read_first(&query_rows(&tx, BY_ID, &[&watch.team.0, &watch.id.0]).await?, read_watch)?;
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(Some(
            before.ok_or_else(|| TxError::Conflict("a watch went meanwhile".into()))?,
        )));
    }
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(Some(watch)))
}

/// One watch.
pub(crate) async fn watch_of(shared: &SharedState, team: TeamId, id: WatchId) -> TxResult<Option<Watch>> {
    read_first(&query_rows(&shared.connections.client().await?, BY_ID, &[&team.0, &id.0]).await?, read_watch)
}

/// Uses one resend of a watch's budget.
pub(crate) async fn spend_resend(
    shared: &SharedState,
    team: TeamId,
    id: WatchId,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<SpendResendResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let found = read_first(&query_rows(&tx, BY_ID_LOCKED, &[&team.0, &id.0]).await?, read_watch)?;
    let spent = found.map_or(SpendResendResult::Missing, |watch| watch.spend_resend(now));
    match &spent {
        SpendResendResult::Spent(watch) => {
            execute(&tx, SPEND, &[&team.0, &id.0, &(watch.rev as i32), &(watch.resends_used as i32)]).await?;
            shared.commit(tx, 1).await?;
        }
        SpendResendResult::BudgetSpent(_) | SpendResendResult::WatchEnded(_) | SpendResendResult::Missing => {
            tx.rollback().await?
        }
    }
    Ok(IdempotentResult::Done(spent))
}
