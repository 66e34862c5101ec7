//! Accepting: a round of plain wishes is one statement; whatever that cannot decide is decided under locks.
//!
//! A plain wish wins by inserting the row of its key: nobody else can insert it, and everybody who wants more than
//! that row (an intent with several recipients, a rebound key) has to lock or insert the same row first. A wish that
//! loses is read in a following statement, which sees what the winner committed.

use deadpool_postgres::Client;
use mailonce_core::{
    id::EmailId,
    port::store::{Accept, AcceptBatch, BatchWish, Bound, Once, Result, StoreError, Wish},
    time::Time,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Instant,
};

use super::{
    Ledger,
    careful::{load, lock_scopes},
    control::budget,
    conversation::likeness,
    draft::insert,
    durability,
    ground::{Ground, bound_to, scopes_of_wish},
    lanes::{Became, Round, Waiting},
    row::{
        KEY_COLUMNS, KeyRow, Scope, email_columns, email_joins, hash_column, key_columns, read_emails, read_key,
        scope_columns,
    },
    trouble::{Tried, Trouble, insist},
    write::ask,
};

/// Keys and the emails they are bound to, of one moment.
const BOUND: &str = concat!(
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
pub(super) type Found = BTreeMap<Scope, (KeyRow, Option<mailonce_core::email::Email>)>;

/// Reads keys and their emails without a lock.
pub(super) async fn find(client: &Client, scopes: &BTreeSet<Scope>) -> Tried<Found> {
    let (teams, hashes) = scope_columns(scopes);
    let rows = ask(client, BOUND, &[&teams, &hashes]).await?;
    let mut found = Found::new();
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

/// What a key that was read is bound to at `now`.
pub(super) fn bound_in(found: &Found, scope: Scope, now: Time) -> Option<Bound> {
    let (key, email) = found.get(&scope)?;
    bound_to(key.target.as_ref(), |_| email.as_ref(), now)
}

impl Ledger {
    /// Gets in line and waits for the answer.
    pub(super) async fn accept(&self, wish: Wish, now: Time) -> Result<Accept> {
        let (waiting, answered) = Waiting::new(wish, now)?;
        self.lanes.join(waiting);
        let answer = answered.await.unwrap_or_else(|_gone| Err(StoreError::Unknown("the lane ended".into())))?;
        if matches!(answer, Accept::First(_)) {
            durability::note_proven();
        }
        Ok(answer)
    }

    /// Answers every wish of a round.
    pub(super) async fn answer(&self, round: Round) {
        let Round { plain, followers, mut careful, .. } = round;
        let (became, lost) = self.answer_plain(plain, !followers.is_empty()).await;
        let mut open = lost;
        for follower in followers {
            match follower.key().and_then(|key| became.get(&key)) {
                Some(answer) => follower.answer(answer.clone()),
                None => open.push(follower),
            }
        }
        careful.extend(self.answer_bound(open).await);
        self.answer_careful(careful).await;
    }

    /// Gives back what the keys became, if there are followers, and the wishes whose key was not free.
    async fn answer_plain(&self, plain: Vec<Waiting>, followed: bool) -> (Became, Vec<Waiting>) {
        let (mut became, mut lost) = (HashMap::new(), Vec::new());
        if plain.is_empty() {
            return (became, lost);
        }
        let won = match insist!(self.bind_plain(&plain)) {
            Ok(won) => won,
            // One wish that the database cannot take must not spoil the others: each is decided alone.
            Err(Trouble::Refused(_)) if plain.len() > 1 => {
                self.answer_alone(plain, &mut became).await;
                return (became, lost);
            }
            Err(trouble) => {
                let error = StoreError::from(trouble);
                for waiting in plain {
                    became.extend(waiting.key().map(|key| (key, Err(error.clone()))));
                    waiting.answer(Err(error.clone()));
                }
                return (became, lost);
            }
        };
        for waiting in plain {
            let email = &waiting.draft.email;
            if waiting.key_hash.is_some() && !won.contains(&email.id) {
                lost.push(waiting);
                continue;
            }
            if followed {
                became.extend(waiting.key().map(|key| (key, Ok(Accept::Bound(Bound::Email(email.clone()))))));
            }
            waiting.answer_first();
        }
        (became, lost)
    }

    async fn answer_alone(&self, plain: Vec<Waiting>, became: &mut Became) {
        for waiting in plain {
            let answers = insist!(self.decide(vec![(waiting.wish(), waiting.now)]));
            let answer = answers.map_err(StoreError::from).and_then(|mut answers| answers.pop().ok_or_else(no_answer));
            let told = answer.clone().map(|accept| match accept {
                Accept::First(email) => Accept::Bound(Bound::Email(email)),
                other => other,
            });
            became.extend(waiting.key().map(|key| (key, told)));
            waiting.answer(answer);
        }
    }

    /// One statement, its own commit. The emails whose key was free.
    async fn bind_plain(&self, plain: &[Waiting]) -> Tried<HashSet<EmailId>> {
        let client = self.link.lane().await?;
        let (warnings, begun) = (self.link.warnings(), Instant::now());
        let drafts = plain.iter().map(|waiting| (&waiting.draft, waiting.key_hash.map(hash_column)));
        mailonce_core::failpoint!("postgres-before-round");
        let won = match insert(&client, drafts).await {
            Err(trouble @ Trouble::Store(_)) => {
                // The next round must not inherit a dying session.
                drop(Client::take(client));
                return Err(trouble);
            }
            other => other?,
        };
        mailonce_core::failpoint!("postgres-after-round");
        self.committed(plain.len(), warnings, begun)?;
        Ok(won.into_iter().collect())
    }

    /// Answers those whose key is bound and remembered. Gives back the others: their key is forgotten, or a slot.
    async fn answer_bound(&self, open: Vec<Waiting>) -> Vec<Waiting> {
        if open.is_empty() {
            return open;
        }
        let scopes: BTreeSet<Scope> = open.iter().filter_map(Waiting::key).collect();
        let found = match self.find_on_lane(&scopes).await {
            Ok(found) => found,
            Err(trouble) => {
                let error = StoreError::from(trouble);
                for waiting in open {
                    waiting.answer(Err(error.clone()));
                }
                return Vec::new();
            }
        };
        let mut careful = Vec::new();
        for waiting in open {
            match waiting.key().and_then(|key| bound_in(&found, key, self.time.forget_by(waiting.now))) {
                Some(bound) => waiting.answer(Ok(Accept::Bound(bound))),
                None => careful.push(waiting),
            }
        }
        careful
    }

    async fn find_on_lane(&self, scopes: &BTreeSet<Scope>) -> Tried<Found> {
        find(&self.link.lane().await?, scopes).await
    }

    async fn answer_careful(&self, careful: Vec<Waiting>) {
        if careful.is_empty() {
            return;
        }
        let wishes: Vec<(Wish, Time)> = careful.iter().map(|waiting| (waiting.wish(), waiting.now)).collect();
        match insist!(self.decide(wishes.clone())) {
            Ok(answers) => {
                for (waiting, answer) in careful.into_iter().zip(answers) {
                    waiting.answer(Ok(answer));
                }
            }
            Err(Trouble::Refused(_)) if careful.len() > 1 => {
                self.answer_alone(careful, &mut HashMap::new()).await;
            }
            Err(trouble) => {
                let error = StoreError::from(trouble);
                for waiting in careful {
                    waiting.answer(Err(error.clone()));
                }
            }
        }
    }

    /// Decides wishes one after the other, with all of their scopes locked, in one transaction.
    async fn decide(&self, wishes: Vec<(Wish, Time)>) -> Tried<Vec<Accept>> {
        let scopes: BTreeSet<Scope> = wishes.iter().flat_map(|(wish, _)| scopes_of_wish(wish)).collect();
        let verbs = wishes.len();
        let mut client = self.link.lane().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        let mut ground = load(&tx, &self.time, &scopes, &[]).await?;
        likeness::hold(&tx, &mut ground, wishes.iter().map(|(wish, _)| wish)).await?;
        budget::lock(&tx, &mut ground, wishes.iter().map(|(wish, _)| wish)).await?;
        let answers = wishes.into_iter().map(|(wish, now)| ground.accept(wish, now)).collect();
        self.settle(tx, &ground, verbs).await?;
        Ok(answers)
    }

    /// Accepts every item of a batch, or none.
    pub(super) async fn accept_batch(&self, batch: BatchWish, now: Time) -> Result<AcceptBatch> {
        Ok(insist!(self.try_accept_batch(&batch, now))?)
    }

    async fn try_accept_batch(&self, batch: &BatchWish, now: Time) -> Tried<AcceptBatch> {
        let mut scopes: BTreeSet<Scope> = batch.items.iter().flat_map(scopes_of_wish).collect();
        scopes.extend(batch.operation.iter().map(|operation| (operation.team, operation.key)));
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        let mut ground = load(&tx, &self.time, &scopes, &[]).await?;
        likeness::hold(&tx, &mut ground, batch.items.iter()).await?;
        budget::lock(&tx, &mut ground, batch.items.iter()).await?;
        let answer = decide_batch(&mut ground, batch, now);
        self.settle(tx, &ground, 1).await?;
        Ok(answer)
    }
}

fn decide_batch(ground: &mut Ground, batch: &BatchWish, now: Time) -> AcceptBatch {
    for (index, wish) in batch.items.iter().enumerate().filter(|_| batch.strict) {
        let bound = wish.key.and_then(|key| ground.bound(wish.team, key, now));
        if let Some(bound) = bound.filter(|bound| wish.contradicts(bound)) {
            return AcceptBatch::Contradiction(index, bound);
        }
    }
    let repeat = batch.operation.as_ref().and_then(|operation| ground.repeat_of::<()>(operation, now));
    if let Some(Once::Mismatch(bound)) = repeat {
        return AcceptBatch::Mismatch(bound);
    }
    if batch.strict
        && let Some((index, exceeded)) = ground.batch_over_budget(batch, now)
    {
        return AcceptBatch::OverBudget(index, exceeded);
    }
    if let Some(operation) = batch.operation.as_ref().filter(|_| repeat.is_none()) {
        ground.bind_operation(operation);
    }
    AcceptBatch::Items(batch.items.iter().map(|wish| ground.accept(wish.clone(), now)).collect())
}

fn no_answer() -> StoreError {
    StoreError::Corrupt("a wish was decided without an answer".into())
}
