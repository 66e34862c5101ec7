//! Threads: queries, changes, and the lease that lets one agent at a time work on a thread.

use deadpool_postgres::Transaction;
use mailonce_core::{
    conversation::thread::{Thread, ThreadEdit, ThreadLeaseResult, ThreadLeaseSpec, ThreadQuery},
    id::{EmailId, TeamId, ThreadId},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use std::collections::BTreeSet;
use uuid::Uuid;

use super::row::{read_thread, thread_columns};
use crate::postgres::{
    SharedState,
    error::TxResult,
    locked_tx::{load_unit_of_work, lock_scopes},
    row::TeamKey,
    statements::query_rows,
    unit_of_work::UnitOfWork,
};

/// How many threads a list reads at a time.
const THREADS_PER_READ: usize = 500;

/// Excludes threads in removed inboxes.
macro_rules! threads {
    ($columns:expr, $rest:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM threads t JOIN inboxes i ON i.team = t.team AND i.id = t.inbox AND i.removed_at IS NULL ",
            $rest
        )
    };
}

const BY_ID: &str = threads!(thread_columns!(), "WHERE t.team = $1 AND t.id = $2");
const BY_ID_LOCKED: &str = threads!(thread_columns!(), "WHERE t.team = $1 AND t.id = $2 FOR UPDATE OF t");
const LIST: &str = threads!(
    thread_columns!(),
    "WHERE t.team = $1 AND (t.latest_at, t.id) < ($2, $3) ORDER BY t.latest_at DESC, t.id DESC LIMIT $4"
);
const LIST_OF_INBOX: &str = threads!(
    thread_columns!(),
    "WHERE t.team = $1 AND (t.latest_at, t.id) < ($2, $3) AND t.inbox = $5
     ORDER BY t.latest_at DESC, t.id DESC LIMIT $4"
);
const EMAILS: &str = threads!(
    "x.email",
    "JOIN thread_emails x ON x.team = t.team AND x.thread = t.id
     WHERE t.team = $1 AND t.id = $2 AND x.email > $3 ORDER BY x.email LIMIT $4"
);

/// Locks a thread and reads it.
async fn lock_thread(tx: &Transaction<'_>, team: TeamId, id: ThreadId) -> TxResult<Option<Thread>> {
    let rows = query_rows(tx, BY_ID_LOCKED, &[&team.0, &id.0]).await?;
    rows.first().map(|row| read_thread(row, 0)).transpose()
}

/// One thread.
pub(crate) async fn thread(shared: &SharedState, team: TeamId, id: ThreadId) -> TxResult<Option<Thread>> {
    let rows = query_rows(&shared.connections.client().await?, BY_ID, &[&team.0, &id.0]).await?;
    rows.first().map(|row| read_thread(row, 0)).transpose()
}

/// Threads, latest activity first.
pub(crate) async fn threads(shared: &SharedState, team: TeamId, query: &ThreadQuery) -> TxResult<Vec<Thread>> {
    let client = shared.connections.client().await?;
    let (mut page, mut at) = (Vec::new(), query.before.map_or((i64::MAX, Uuid::max()), |(at, id)| (at.0, id.0)));
    let mut chunk = query.limit.min(THREADS_PER_READ);
    while page.len() < query.limit {
        let most = chunk as i64;
        let rows = match query.inbox {
            Some(inbox) => query_rows(&client, LIST_OF_INBOX, &[&team.0, &at.0, &at.1, &most, &inbox.0]).await?,
            None => query_rows(&client, LIST, &[&team.0, &at.0, &at.1, &most]).await?,
        };
        for row in &rows {
            let thread = read_thread(row, 0)?;
            at = (thread.last_activity_at.0, thread.id.0);
            if query.matches(&thread) {
                page.push(thread);
            }
        }
        if rows.len() < chunk {
            break;
        }
        // Few rows match, so read larger chunks from here on.
        chunk = THREADS_PER_READ;
    }
    page.truncate(query.limit);
    Ok(page)
}

/// The emails of a thread, oldest first.
pub(crate) async fn thread_emails(
    shared: &SharedState,
    team: TeamId,
    id: ThreadId,
    after: Option<EmailId>,
    limit: usize,
) -> TxResult<Vec<EmailId>> {
    let (after, most) = (after.map_or(Uuid::nil(), |id| id.0), i64::try_from(limit).unwrap_or(i64::MAX));
    let rows = query_rows(&shared.connections.client().await?, EMAILS, &[&team.0, &id.0, &after, &most]).await?;
    rows.iter().map(|row| Ok(EmailId(row.try_get(0)?))).collect()
}

/// Applies an edit by a user.
pub(crate) async fn change_thread(
    shared: &SharedState,
    team: TeamId,
    id: ThreadId,
    edit: &ThreadEdit,
    now: Time,
) -> TxResult<Option<Thread>> {
    edit_thread(shared, team, id, |thread| {
        thread.edit(edit.clone(), now);
        true
    })
    .await
}

/// Releases a lease. A lease with another token stays.
pub(crate) async fn release_thread(
    shared: &SharedState,
    team: TeamId,
    id: ThreadId,
    token: &str,
) -> TxResult<Option<Thread>> {
    edit_thread(shared, team, id, |thread| thread.release_lease(token)).await
}

/// Changes a thread by a rule that returns whether it changed anything.
async fn edit_thread(
    shared: &SharedState,
    team: TeamId,
    id: ThreadId,
    rule: impl FnOnce(&mut Thread) -> bool + Send,
) -> TxResult<Option<Thread>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let mut thread = lock_thread(&tx, team, id).await?;
    let mut work = UnitOfWork::default();
    if let Some(thread) = &mut thread
        && rule(thread)
    {
        work.conversations.threads.insert(id, thread.clone());
    }
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(thread)
}

/// Takes or renews the lease of a thread.
pub(crate) async fn lease_thread(
    shared: &SharedState,
    (team, id): (TeamId, ThreadId),
    wanted: &ThreadLeaseSpec,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<ThreadLeaseResult>> {
    let scopes: BTreeSet<TeamKey> = operation.iter().map(|operation| (operation.team, operation.key)).collect();
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    lock_scopes(&tx, &scopes).await?;
    let mut work = load_unit_of_work(&tx, &shared.time, &scopes, &[]).await?;
    let thread = lock_thread(&tx, team, id).await?;
    let answer = apply_lease(&mut work, thread, wanted, operation, now);
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(answer)
}

/// Leases a thread if it is free, and binds the key of the operation if that succeeds.
fn apply_lease(
    work: &mut UnitOfWork,
    thread: Option<Thread>,
    wanted: &ThreadLeaseSpec,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> IdempotentResult<ThreadLeaseResult> {
    let Some(thread) = thread else { return IdempotentResult::Done(ThreadLeaseResult::Missing) };
    if let Some(answer) = operation.and_then(|operation| work.find_replay(operation, now)) {
        return answer;
    }
    let (leasing, event) = thread.lease(wanted, None, now);
    if let ThreadLeaseResult::Leased(thread) = &leasing {
        work.events.extend(event.map(|event| (thread.team, event)));
        work.conversations.threads.insert(thread.id, thread.clone());
        if let Some(operation) = operation {
            work.bind_operation(operation);
        }
    }
    IdempotentResult::Done(leasing)
}
