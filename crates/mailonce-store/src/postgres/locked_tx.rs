//! Transactions that lock first: lock the keys in sorted order, lock the emails, load both, decide, write, commit.
//!
//! Every transaction that locks several rows takes them in this order, each kind sorted, which avoids deadlocks: keys,
//! emails, deliveries and inboxes, threads, budget counters, tallies of replies, recent content, contacts, and the audit
//! log. PostgreSQL may still abort a transaction; the call then retries it.

use deadpool_postgres::Transaction;
use mailonce_core::{
    commit_clock::CommitClock,
    id::{EmailId, TeamId},
    ports::store::StoreError,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};
use tokio_postgres::Row;

use super::{
    SharedState, durability,
    row::{KeyRow, KeyTarget, TeamKey, email_columns, email_joins, key_columns, read_emails, read_key, scope_columns},
    statements::{execute, query_rows},
    write::{email_ref_columns, write_unit_of_work},
};
use crate::postgres::{
    error::{TxError, TxResult},
    unit_of_work::{EmailRef, UnitOfWork},
};

/// Inserts the missing key rows and locks the existing ones, in one pass and in sorted order. `WHERE false` updates
/// nothing but still takes the row lock. A row inserted here has bind 0, which means unbound.
const LOCK_SCOPES: &str = "
    INSERT INTO keys (team, hash)
    SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS w (team, hash) ORDER BY team, hash
    ON CONFLICT (team, hash) DO UPDATE SET bind = keys.bind WHERE false";

/// Locks only the key rows that exist, in sorted order.
const LOCK_KEYS: &str = "
    SELECT FROM unnest($1::uuid[], $2::uuid[]) AS w (team, hash)
      JOIN keys k ON k.team = w.team AND k.hash = w.hash
     ORDER BY k.team, k.hash FOR UPDATE OF k";

const SELECT_KEYS: &str = concat!(
    "SELECT ",
    key_columns!(),
    " FROM unnest($1::uuid[], $2::uuid[]) AS w (team, hash) JOIN keys k ON k.team = w.team AND k.hash = w.hash"
);

const LOCK_EMAILS: &str = "
    SELECT FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)
      JOIN emails e ON e.team = w.team AND e.id = w.id
     ORDER BY e.team, e.id FOR UPDATE OF e";

const LOCK_AVAILABLE_EMAILS: &str = "
    SELECT e.team, e.id FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)
      JOIN emails e ON e.team = w.team AND e.id = w.id
     ORDER BY e.team, e.id FOR UPDATE OF e SKIP LOCKED";

const SELECT_EMAILS: &str = concat!(
    "SELECT ",
    email_columns!(),
    " FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id) JOIN emails e ON e.team = w.team AND e.id = w.id ",
    email_joins!(),
    " ORDER BY e.team, e.id, h.number"
);

/// Locks the rows of all scopes. Missing rows are inserted.
pub(crate) async fn lock_scopes(tx: &Transaction<'_>, scopes: &BTreeSet<TeamKey>) -> TxResult<()> {
    if !scopes.is_empty() {
        let (teams, hashes) = scope_columns(scopes);
        execute(tx, LOCK_SCOPES, &[&teams, &hashes]).await?;
    }
    Ok(())
}

/// Locks the rows of those scopes that have one.
pub(crate) async fn lock_existing_keys(tx: &Transaction<'_>, scopes: &BTreeSet<TeamKey>) -> TxResult<()> {
    if !scopes.is_empty() {
        let (teams, hashes) = scope_columns(scopes);
        query_rows(tx, LOCK_KEYS, &[&teams, &hashes]).await?;
    }
    Ok(())
}

/// Locks the emails that no other transaction has locked, without waiting (`SKIP LOCKED`). Returns the locked ones.
pub(crate) async fn lock_available_emails(
    tx: &Transaction<'_>,
    emails: &BTreeSet<EmailRef>,
) -> TxResult<BTreeSet<EmailRef>> {
    let (teams, ids) = email_ref_columns(emails.iter().copied());
    let rows = query_rows(tx, LOCK_AVAILABLE_EMAILS, &[&teams, &ids]).await?;
    rows.iter().map(|row| Ok((TeamId(row.try_get(0)?), EmailId(row.try_get(1)?)))).collect()
}

/// Locks emails, in sorted order.
pub(crate) async fn lock_emails(tx: &Transaction<'_>, emails: &BTreeSet<EmailRef>) -> TxResult<()> {
    if !emails.is_empty() {
        let (teams, ids) = email_ref_columns(emails.iter().copied());
        query_rows(tx, LOCK_EMAILS, &[&teams, &ids]).await?;
    }
    Ok(())
}

/// Reads the current rows of emails.
pub(crate) async fn read_email_rows(tx: &Transaction<'_>, emails: &BTreeSet<EmailRef>) -> TxResult<Vec<Row>> {
    if emails.is_empty() {
        return Ok(Vec::new());
    }
    let (teams, ids) = email_ref_columns(emails.iter().copied());
    query_rows(tx, SELECT_EMAILS, &[&teams, &ids]).await
}

/// Loads locked keys, the emails they refer to, and the emails in `others`. `time` decides which keys have expired.
pub(crate) async fn load_unit_of_work(
    tx: &Transaction<'_>,
    time: &Arc<CommitClock>,
    scopes: &BTreeSet<TeamKey>,
    others: &[EmailRef],
) -> TxResult<UnitOfWork> {
    let mut read: BTreeMap<TeamKey, KeyRow> = BTreeMap::new();
    if !scopes.is_empty() {
        let (teams, hashes) = scope_columns(scopes);
        for row in query_rows(tx, SELECT_KEYS, &[&teams, &hashes]).await? {
            let (scope, key) = read_key(&row)?;
            read.insert(scope, key);
        }
    }
    let mut wanted: BTreeSet<EmailRef> = others.iter().copied().collect();
    for ((team, _), key) in &read {
        wanted.extend(target_emails(key).map(|id| (*team, id)));
    }
    let emails = read_emails(&read_email_rows(tx, &wanted).await?, 0)?;
    let mut work =
        UnitOfWork { keys: read.clone(), loaded_keys: read, time: Arc::clone(time), ..UnitOfWork::default() };
    work.emails = emails.into_iter().map(|email| (email.id, email)).collect();
    Ok(work)
}

/// Loads further emails into a unit of work.
pub(crate) async fn load_more_emails(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    wanted: impl Iterator<Item = EmailRef> + Send,
) -> TxResult<()> {
    let wanted = wanted.filter(|(_, id)| !work.emails.contains_key(id)).collect();
    let emails = read_emails(&read_email_rows(tx, &wanted).await?, 0)?;
    work.emails.extend(emails.into_iter().map(|email| (email.id, email)));
    Ok(())
}

/// The emails that a key's row refers to.
fn target_emails(key: &KeyRow) -> impl Iterator<Item = EmailId> {
    let bound = match key.target {
        Some(KeyTarget::Email(id)) => Some(id),
        _ => None,
    };
    bound.into_iter().chain(key.slot)
}

impl SharedState {
    /// Writes the changes and commits. A transaction without changes is rolled back instead: that removes the rows it
    /// inserted only to lock them, and what it answers was committed earlier.
    ///
    /// Every call ends its transaction explicitly, here or by itself. A transaction that is only dropped keeps its
    /// row locks for a moment after its caller has the answer.
    pub(crate) async fn write_and_commit(&self, tx: Transaction<'_>, work: &UnitOfWork, verbs: usize) -> TxResult<()> {
        if work.is_unchanged() {
            return Ok(tx.rollback().await?);
        }
        mailonce_core::failpoint!("postgres-locked");
        write_unit_of_work(&tx, work).await?;
        self.commit(tx, verbs).await
    }

    /// Commits. Callers must not answer before this returns, because only then is the commit known to be durable.
    pub(crate) async fn commit(&self, tx: Transaction<'_>, verbs: usize) -> TxResult<()> {
        let (warnings, begun) = (self.connections.commit_warnings(), Instant::now());
        mailonce_core::failpoint!("postgres-before-commit");
        tx.commit().await.map_err(|error| TxError::at_commit(&error))?;
        mailonce_core::failpoint!("postgres-after-commit");
        self.record_commit(verbs, warnings, begun)
    }

    /// Counts a commit, and fails if the server raised a warning about a commit in the meantime.
    pub(crate) fn record_commit(&self, verbs: usize, warnings: u64, begun: Instant) -> TxResult<()> {
        self.meter.record_commit(verbs, begun.elapsed());
        self.sequencer_wakeup.notify_one();
        if self.connections.commit_warnings() == warnings {
            durability::mark_proven();
            return Ok(());
        }
        let why = "the server warned during the commit; it may not be on every replica".into();
        Err(TxError::Store(StoreError::CommitUnknown(why)))
    }
}
