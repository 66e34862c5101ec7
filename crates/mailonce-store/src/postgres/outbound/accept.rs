//! Accepting emails: one statement accepts a round of simple emails; all others are decided under row locks.
//!
//! A simple email wins by inserting the row of its key, which only one transaction can do. A transaction that needs
//! more than that row (an intent with several recipients, a rebound key) must lock or insert the same row first. The
//! key of a losing email is read by a later statement, which sees what the winner committed.

use deadpool_postgres::Client;
use mailonce_core::{
    id::EmailId,
    outbound::{
        accept::{AcceptResult, BatchAcceptResult, NewBatch, NewEmail},
        key_binding::KeyBinding,
    },
    ports::store::{Result, StoreError},
    time::Time,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Instant,
};

use crate::postgres::{
    SharedState,
    control::budgets,
    durability,
    error::{TxError, TxResult, call_until_final},
    locked_tx::{load_unit_of_work, lock_scopes},
    outbound::{
        accept_batcher::{AcceptRound, KeyOutcomes, QueuedAccept},
        content_guard,
        email_insert::insert_emails,
    },
    row::{
        KEY_COLUMNS, KeyRow, TeamKey, email_columns, email_joins, hash_column, key_columns, read_emails, read_key,
        scope_columns,
    },
    statements::query_rows,
    unit_of_work::{binding_of_target, keys_to_lock},
};

/// Keys and the emails they are bound to, from one snapshot.
const SELECT_BINDINGS: &str = concat!(
    "SELECT ",
    key_columns!(),
    ", ",
    email_columns!(),
    " FROM unnest($1::uuid[], $2::uuid[]) AS w (team, hash) JOIN keys k ON k.team = w.team AND k.hash = w.hash",
    " LEFT JOIN emails e ON e.team = k.team AND e.id = k.email ",
    email_joins!(),
    " ORDER BY k.team, k.hash, h.number"
);

/// Keys as they were read, each with its email.
pub(crate) type LoadedKeys = BTreeMap<TeamKey, (KeyRow, Option<mailonce_core::outbound::email::Email>)>;

/// Reads keys and their emails without locking them.
pub(crate) async fn load_keys(client: &Client, scopes: &BTreeSet<TeamKey>) -> TxResult<LoadedKeys> {
    let (teams, hashes) = scope_columns(scopes);
    let rows = query_rows(client, SELECT_BINDINGS, &[&teams, &hashes]).await?;
    let mut found = LoadedKeys::new();
    for same in rows.chunk_by(same_key) {
        if let Some(first) = same.first() {
            let (scope, key) = read_key(first)?;
            found.insert(scope, (key, read_emails(same, KEY_COLUMNS)?.pop()));
        }
    }
    Ok(found)
}

fn same_key(a: &tokio_postgres::Row, b: &tokio_postgres::Row) -> bool {
    let scope = |row: &tokio_postgres::Row| -> Option<(uuid::Uuid, uuid::Uuid)> {
        Some((row.try_get(0).ok()?, row.try_get(1).ok()?))
    };
    scope(a) == scope(b)
}

/// What a loaded key is bound to at `now`.
pub(crate) fn binding_in(found: &LoadedKeys, scope: TeamKey, now: Time) -> Option<KeyBinding> {
    let (key, email) = found.get(&scope)?;
    binding_of_target(key.target.as_ref(), |_| email.as_ref(), now)
}

impl SharedState {
    /// Queues an email and waits for its answer.
    pub(crate) async fn accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        let (waiting, answered) = QueuedAccept::new(new_email, now)?;
        self.accept_batcher.enqueue(waiting);
        let answer = answered.await.unwrap_or_else(|_gone| Err(StoreError::CommitUnknown("the lane ended".into())))?;
        if matches!(answer, AcceptResult::First(_)) {
            durability::mark_proven();
        }
        Ok(answer)
    }

    /// Answers every email of a round.
    pub(crate) async fn process_round(&self, round: AcceptRound) {
        let AcceptRound { simple, followers, mut needs_locks, .. } = round;
        let (outcomes, lost) = self.accept_simple(simple, !followers.is_empty()).await;
        let mut open = lost;
        for follower in followers {
            match follower.key().and_then(|key| outcomes.get(&key)) {
                Some(answer) => follower.answer(answer.clone()),
                None => open.push(follower),
            }
        }
        needs_locks.extend(self.answer_replays(open).await);
        self.accept_with_locks(needs_locks).await;
    }

    /// Accepts simple emails. Returns the outcome per key, if there are followers, and the emails whose key was
    /// taken.
    async fn accept_simple(&self, simple: Vec<QueuedAccept>, followed: bool) -> (KeyOutcomes, Vec<QueuedAccept>) {
        let (mut outcomes, mut lost) = (HashMap::new(), Vec::new());
        if simple.is_empty() {
            return (outcomes, lost);
        }
        let won = match call_until_final!(self.insert_simple(&simple)) {
            Ok(won) => won,
            // One email that the database rejects must not fail the others: decide each alone.
            Err(TxError::Rejected(_)) if simple.len() > 1 => {
                self.accept_individually(simple, &mut outcomes).await;
                return (outcomes, lost);
            }
            Err(error) => {
                let error = StoreError::from(error);
                for waiting in simple {
                    outcomes.extend(waiting.key().map(|key| (key, Err(error.clone()))));
                    waiting.answer(Err(error.clone()));
                }
                return (outcomes, lost);
            }
        };
        for waiting in simple {
            let email = &waiting.draft.email;
            if waiting.key_hash.is_some() && !won.contains(&email.id) {
                lost.push(waiting);
                continue;
            }
            if followed {
                outcomes.extend(
                    waiting.key().map(|key| (key, Ok(AcceptResult::KeyBound(KeyBinding::Email(email.clone()))))),
                );
            }
            waiting.answer_first();
        }
        (outcomes, lost)
    }

    async fn accept_individually(&self, accepts: Vec<QueuedAccept>, outcomes: &mut KeyOutcomes) {
        for waiting in accepts {
            let answers = call_until_final!(self.accept_locked(vec![(waiting.to_new_email(), waiting.now)]));
            let answer = answers
                .map_err(StoreError::from)
                .and_then(|mut answers| answers.pop().ok_or_else(missing_answer_error));
            let for_followers = answer.clone().map(|accept| match accept {
                AcceptResult::First(email) => AcceptResult::KeyBound(KeyBinding::Email(email)),
                other => other,
            });
            outcomes.extend(waiting.key().map(|key| (key, for_followers)));
            waiting.answer(answer);
        }
    }

    /// Inserts the round in one statement, which is its own commit. Returns the emails whose key was free.
    async fn insert_simple(&self, simple: &[QueuedAccept]) -> TxResult<HashSet<EmailId>> {
        let client = self.connections.accept_client().await?;
        let (warnings, begun) = (self.connections.commit_warnings(), Instant::now());
        let drafts = simple.iter().map(|waiting| (&waiting.draft, waiting.key_hash.map(hash_column)));
        mailonce_core::failpoint!("postgres-before-round");
        let won = match insert_emails(&client, drafts).await {
            Err(error @ TxError::Store(_)) => {
                // The session may be broken; the next round must not use it.
                drop(Client::take(client));
                return Err(error);
            }
            other => other?,
        };
        mailonce_core::failpoint!("postgres-after-round");
        self.record_commit(simple.len(), warnings, begun)?;
        Ok(won.into_iter().collect())
    }

    /// Answers the emails whose key is bound. Returns the others: their key has expired, or holds only a shadow key.
    async fn answer_replays(&self, open: Vec<QueuedAccept>) -> Vec<QueuedAccept> {
        if open.is_empty() {
            return open;
        }
        let scopes: BTreeSet<TeamKey> = open.iter().filter_map(QueuedAccept::key).collect();
        let found = match self.load_keys_for_accept(&scopes).await {
            Ok(found) => found,
            Err(error) => {
                let error = StoreError::from(error);
                for waiting in open {
                    waiting.answer(Err(error.clone()));
                }
                return Vec::new();
            }
        };
        let mut needs_locks = Vec::new();
        for waiting in open {
            match waiting.key().and_then(|key| binding_in(&found, key, self.time.expiry_cutoff(waiting.now))) {
                Some(bound) => waiting.answer(Ok(AcceptResult::KeyBound(bound))),
                None => needs_locks.push(waiting),
            }
        }
        needs_locks
    }

    async fn load_keys_for_accept(&self, scopes: &BTreeSet<TeamKey>) -> TxResult<LoadedKeys> {
        load_keys(&self.connections.accept_client().await?, scopes).await
    }

    async fn accept_with_locks(&self, needs_locks: Vec<QueuedAccept>) {
        if needs_locks.is_empty() {
            return;
        }
        let new_emails: Vec<(NewEmail, Time)> =
            needs_locks.iter().map(|waiting| (waiting.to_new_email(), waiting.now)).collect();
        match call_until_final!(self.accept_locked(new_emails.clone())) {
            Ok(answers) => {
                for (waiting, answer) in needs_locks.into_iter().zip(answers) {
                    waiting.answer(Ok(answer));
                }
            }
            Err(TxError::Rejected(_)) if needs_locks.len() > 1 => {
                self.accept_individually(needs_locks, &mut HashMap::new()).await;
            }
            Err(error) => {
                let error = StoreError::from(error);
                for waiting in needs_locks {
                    waiting.answer(Err(error.clone()));
                }
            }
        }
    }

    /// Decides emails one after the other in one transaction, with all their keys locked.
    async fn accept_locked(&self, new_emails: Vec<(NewEmail, Time)>) -> TxResult<Vec<AcceptResult>> {
        let scopes: BTreeSet<TeamKey> = new_emails.iter().flat_map(|(new_email, _)| keys_to_lock(new_email)).collect();
        let verbs = new_emails.len();
        let mut client = self.connections.accept_client().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        let mut work = load_unit_of_work(&tx, &self.time, &scopes, &[]).await?;
        budgets::lock(&tx, &mut work, new_emails.iter().map(|(new_email, _)| new_email)).await?;
        content_guard::lock_recent_content(&tx, &mut work, new_emails.iter().map(|(new_email, _)| new_email)).await?;
        let answers = new_emails.into_iter().map(|(new_email, now)| work.accept(new_email, now)).collect();
        self.write_and_commit(tx, &work, verbs).await?;
        Ok(answers)
    }

    /// Decides about an email as an accept would, and rolls back.
    pub(crate) async fn simulate_accept(&self, new_email: NewEmail, now: Time) -> Result<AcceptResult> {
        Ok(call_until_final!(self.try_simulate_accept(&new_email, now))?)
    }

    async fn try_simulate_accept(&self, new_email: &NewEmail, now: Time) -> TxResult<AcceptResult> {
        let scopes: BTreeSet<TeamKey> = keys_to_lock(new_email).collect();
        let mut client = self.connections.client().await?;
        let tx = client.transaction().await?;
        let mut work = load_unit_of_work(&tx, &self.time, &scopes, &[]).await?;
        budgets::lock(&tx, &mut work, std::iter::once(new_email)).await?;
        content_guard::lock_recent_content(&tx, &mut work, std::iter::once(new_email)).await?;
        tx.rollback().await?;
        Ok(work.accept(new_email.clone(), now))
    }

    /// Accepts every item of a batch, or none.
    pub(crate) async fn accept_batch(&self, batch: NewBatch, now: Time) -> Result<BatchAcceptResult> {
        Ok(call_until_final!(self.try_accept_batch(&batch, now))?)
    }

    async fn try_accept_batch(&self, batch: &NewBatch, now: Time) -> TxResult<BatchAcceptResult> {
        let mut scopes: BTreeSet<TeamKey> = batch.items.iter().flat_map(keys_to_lock).collect();
        scopes.extend(batch.operation.iter().map(|operation| (operation.team, operation.key)));
        let mut client = self.connections.client().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        let mut work = load_unit_of_work(&tx, &self.time, &scopes, &[]).await?;
        budgets::lock(&tx, &mut work, batch.items.iter()).await?;
        content_guard::lock_recent_content(&tx, &mut work, batch.items.iter()).await?;
        let answer = work.accept_batch(batch, now);
        self.write_and_commit(tx, &work, 1).await?;
        Ok(answer)
    }
}

fn missing_answer_error() -> StoreError {
    StoreError::Corrupt("an email was decided without an answer".into())
}
