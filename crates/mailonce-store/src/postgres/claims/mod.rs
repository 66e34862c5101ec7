//! Claims: implements `ClaimStore` for [`Postgres`].
//!
//! A transaction in which a claim may begin first excludes new stops, like that of a marker, then locks the row of the
//! claim. Of two transactions that insert the same key, the second waits for the first, inserts nothing and starts over.

use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Transaction};
use mailonce_core::{
    claims::{
        Claim, ClaimChange, ClaimClock, ClaimQuery, ClaimState,
        acquire::{AcquireAnswer, AcquireResult, NewClaim},
        action::{ClaimAction, ClaimActionResult, ClaimActionStatus},
        offer::{NewOffer, OfferResult},
    },
    control::{erasure::AddressEraser, stop::Stops},
    events::event::NewEvent,
    id::{ClaimId, TeamId},
    key::KeyHash,
    limits,
    operation::{IdempotentResult, KeyedOperation},
    ports::{claim_store::ClaimStore, erasure_store::EraseClaimResult, store::Result},
    time::Time,
};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::{Postgres, SharedState, into_store_result, when_durable};
use crate::postgres::{
    control::{audit_chain, stops},
    error::{TxError, TxResult, call_until_final},
    events::pending_events::write_events,
    operation_keys::bind_or_replay,
    row::{hash_column, read_json, write_json},
    statements::{execute, query_rows},
};

const BY_KEY_LOCKED: &str = "SELECT claim FROM claims WHERE team = $1 AND key = $2 FOR UPDATE";
const BY_ID_LOCKED: &str = "SELECT claim FROM claims WHERE team = $1 AND id = $2 FOR UPDATE";
const BY_ID: &str = "SELECT claim, result FROM claims WHERE team = $1 AND id = $2";
const RESULT: &str = "SELECT result FROM claims WHERE id = $1";
const PAYLOAD: &str = "SELECT payload FROM claims WHERE id = $1";
const PAYLOAD_OF_TEAM: &str = "SELECT payload FROM claims WHERE team = $1 AND id = $2";
const LIST: &str = "
    SELECT claim FROM claims
     WHERE team = $1 AND id < $2 AND ($3::text IS NULL OR state = $3) AND ($4::uuid IS NULL OR key = $4)
     ORDER BY id DESC LIMIT $5";
const HAS_DUE: &str = "SELECT FROM claims WHERE due_at <= $1 AND (state <> 'unknown' OR due_at <= $2) LIMIT 1";
/// Rows that a caller is changing are left to that caller, who notices the end of the lease too.
const DUE_LOCKED: &str = "
    SELECT claim FROM claims WHERE due_at <= $1 AND (state <> 'unknown' OR due_at <= $2)
     ORDER BY due_at, id LIMIT $3 FOR UPDATE SKIP LOCKED";
const UNKNOWN: &str = "SELECT claim FROM claims WHERE state = 'unknown' AND id > $1 ORDER BY id LIMIT $2";
const EXPIRED_LOCKED: &str = "
    SELECT claim FROM claims WHERE forget_at <= $1 ORDER BY forget_at, id LIMIT $2 FOR UPDATE SKIP LOCKED";
const INSERT: &str = "
    INSERT INTO claims (id, team, key, state, due_at, forget_at, claim, payload) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (team, key) DO NOTHING";
const UPDATE: &str = "
    UPDATE claims SET state = $2, due_at = $3, forget_at = $4, claim = $5, result = COALESCE($6, result),
           payload = COALESCE($7, payload)
     WHERE id = $1";
const ERASE: &str = "UPDATE claims SET claim = $2, result = NULL, payload = NULL WHERE id = $1";
const REMOVE: &str = "DELETE FROM claims WHERE id = $1";
const BINDS: &str = "SELECT binds FROM claim_tombstones WHERE team = $1 AND key = $2";
const ADD_TOMBSTONE: &str = "
    INSERT INTO claim_tombstones (team, key, binds, forgotten_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (team, key) DO UPDATE SET binds = $3, forgotten_at = $4";
const REMOVE_TOMBSTONES: &str = "DELETE FROM claim_tombstones WHERE forgotten_at <= $1";

fn read_claim(row: &Row) -> TxResult<Claim> {
    read_json(row.try_get(0)?, "a claim")
}

async fn list(
    client: &(impl GenericClient + ?Sized),
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> TxResult<Vec<Claim>> {
    query_rows(client, sql, params).await?.iter().map(read_claim).collect()
}

fn limit_column(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Inserts a new claim. Another caller may have inserted one with the same key in the meantime.
async fn insert(tx: &Transaction<'_>, claim: &Claim, payload: Option<&[u8]>) -> TxResult<()> {
    let (due_at, forget_at) = (claim.due_at().map(|at| at.0), claim.forget_at().map(|at| at.0));
    let (key, state, json) = (hash_column(claim.key_hash()), claim.state.as_str(), write_json(claim)?);
    let row: [&(dyn ToSql + Sync); 8] =
        [&claim.id.0, &claim.team.0, &key, &state, &due_at, &forget_at, &json, &payload];
    match execute(tx, INSERT, &row).await? {
        1 => Ok(()),
        _ => Err(TxError::Conflict("another caller made the claim meanwhile".into())),
    }
}

/// The result and the payload to store beside a claim. `None` keeps what is stored.
type ResultAndPayload<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

async fn update(tx: &Transaction<'_>, claim: &Claim, (result, payload): ResultAndPayload<'_>) -> TxResult<()> {
    let (due_at, forget_at) = (claim.due_at().map(|at| at.0), claim.forget_at().map(|at| at.0));
    let (state, json) = (claim.state.as_str(), write_json(claim)?);
    execute(tx, UPDATE, &[&claim.id.0, &state, &due_at, &forget_at, &json, &result, &payload]).await.map(drop)
}

async fn emit(tx: &Transaction<'_>, team: TeamId, events: &[NewEvent]) -> TxResult<()> {
    let events: Vec<_> = events.iter().map(|event| (team, event.clone())).collect();
    write_events(tx, &events).await
}

async fn forget(tx: &Transaction<'_>, claim: &Claim, now: Time) -> TxResult<()> {
    execute(tx, REMOVE, &[&claim.id.0]).await?;
    let (key, binds) = (hash_column(claim.key_hash()), claim.bind_number as i32);
    execute(tx, ADD_TOMBSTONE, &[&claim.team.0, &key, &binds, &now.0]).await.map(drop)
}

async fn load_stops(tx: &Transaction<'_>, team: TeamId) -> TxResult<Stops> {
    stops::lock_shared(tx).await?;
    stops::load_of_team(tx, team).await
}

/// The claim with a key, locked, and how often the key was bound before. Forgets one whose memory has ended.
async fn claim_of_key(
    tx: &Transaction<'_>,
    (team, key): (TeamId, KeyHash),
    cutoff: Time,
    now: Time,
) -> TxResult<(Option<Claim>, u32)> {
    let key = hash_column(key);
    let mut existing = list(tx, BY_KEY_LOCKED, &[&team.0, &key]).await?.pop();
    if let Some(old) = existing.take_if(|claim| claim.is_forgotten(cutoff)) {
        forget(tx, &old, now).await?;
    }
    let mut binds = 0;
    if existing.is_none()
        && let Some(row) = query_rows(tx, BINDS, &[&team.0, &key]).await?.first()
    {
        binds = row.try_get::<_, i32>(0)? as u32;
    }
    Ok((existing, binds))
}

/// Saves the claim of a key and its events.
async fn save_change<T>(tx: &Transaction<'_>, is_new: bool, change: &ClaimChange<T>) -> TxResult<()> {
    let Some(claim) = change.claim.as_ref().filter(|_| change.is_changed) else { return Ok(()) };
    if is_new {
        insert(tx, claim, change.new_payload.as_deref()).await?;
    } else {
        update(tx, claim, (change.new_result.as_deref(), change.new_payload.as_deref())).await?;
    }
    emit(tx, claim.team, &change.events).await
}

/// Loads a result or a payload.
async fn load_bytes(
    client: &(impl GenericClient + ?Sized),
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> TxResult<Option<Vec<u8>>> {
    let rows = query_rows(client, sql, params).await?;
    rows.first().map_or(Ok(None), |row| Ok(row.try_get(0)?))
}

async fn acquire(shared: &SharedState, new: &NewClaim, clock: ClaimClock) -> TxResult<AcquireResult> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let stops = load_stops(&tx, new.team).await?;
    let cutoff = shared.time.expiry_cutoff(clock.now);
    let clock = ClaimClock { now: shared.time.commit_time(clock.now), ..clock };
    let (existing, binds) = claim_of_key(&tx, (new.team, new.key_hash()), cutoff, clock.now).await?;
    let is_new = existing.is_none();
    let change = new.decide(existing, binds, &stops, clock);
    save_change(&tx, is_new, &change).await?;
    let (result, payload) = match (&change.answer, &change.claim) {
        (AcquireAnswer::Ended, Some(claim)) => (load_bytes(&tx, RESULT, &[&claim.id.0]).await?, None),
        (AcquireAnswer::Won(_), Some(claim)) if claim.offer.is_some() => {
            (None, load_bytes(&tx, PAYLOAD, &[&claim.id.0]).await?)
        }
        _ => (None, None),
    };
    shared.commit(tx, 1).await?;
    Ok(AcquireResult { answer: change.answer, claim: change.claim, result, payload })
}

async fn offer(shared: &SharedState, new: &NewOffer, clock: ClaimClock) -> TxResult<OfferResult> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let stops = load_stops(&tx, new.team).await?;
    let cutoff = shared.time.expiry_cutoff(clock.now);
    let clock = ClaimClock { now: shared.time.commit_time(clock.now), ..clock };
    let (existing, binds) = claim_of_key(&tx, (new.team, new.key_hash()), cutoff, clock.now).await?;
    let is_new = existing.is_none();
    let change = new.decide(existing, binds, &stops, clock);
    save_change(&tx, is_new, &change).await?;
    shared.commit(tx, 1).await?;
    Ok(OfferResult { answer: change.answer, claim: change.claim })
}

async fn read_payload(shared: &SharedState, team: TeamId, id: ClaimId) -> TxResult<Option<Vec<u8>>> {
    load_bytes(&shared.connections.client().await?, PAYLOAD_OF_TEAM, &[&team.0, &id.0]).await
}

async fn apply(
    shared: &SharedState,
    (team, id): (TeamId, ClaimId),
    action: &ClaimAction,
    operation: Option<&KeyedOperation>,
    clock: ClaimClock,
) -> TxResult<IdempotentResult<ClaimActionResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let stops = if action.is_stoppable() { load_stops(&tx, team).await? } else { Stops::default() };
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, clock.now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let Some(claim) = list(&tx, BY_ID_LOCKED, &[&team.0, &id.0]).await?.pop() else {
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(ClaimActionResult::Missing));
    };
    let clock = ClaimClock { now: shared.time.commit_time(clock.now), ..clock };
    let act = action.act(&claim);
    let change = claim.apply(action.clone(), &stops, clock);
    let Some(claim) = change.claim else { return Ok(IdempotentResult::Done(ClaimActionResult::Missing)) };
    let is_applied = change.answer == ClaimActionStatus::Applied;
    if operation.is_some() && !is_applied {
        // The key must stay free. The end of a lease that this call noticed is noticed again by the next one.
        tx.rollback().await?;
        return Ok(IdempotentResult::Done(ClaimActionResult::Done(change.answer, Box::new(claim))));
    }
    if change.is_changed {
        update(&tx, &claim, (change.new_result.as_deref(), None)).await?;
        emit(&tx, team, &change.events).await?;
    }
    audit_chain::record_act(&tx, act.as_ref().filter(|_| is_applied), clock.now).await?;
    shared.commit(tx, 1).await?;
    Ok(IdempotentResult::Done(ClaimActionResult::Done(change.answer, Box::new(claim))))
}

/// Erases a claim that nobody needs any more, with its result and its payload.
pub(crate) async fn erase(shared: &SharedState, eraser: &AddressEraser, id: ClaimId) -> TxResult<EraseClaimResult> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let Some(mut claim) = list(&tx, BY_ID_LOCKED, &[&eraser.team.0, &id.0]).await?.pop() else {
        return Ok(EraseClaimResult::Missing);
    };
    if !claim.erase(eraser) {
        return Ok(EraseClaimResult::NotEnded);
    }
    execute(&tx, ERASE, &[&id.0, &write_json(&claim)?]).await?;
    shared.commit(tx, 1).await?;
    Ok(EraseClaimResult::Erased)
}

async fn read(shared: &SharedState, team: TeamId, id: ClaimId) -> TxResult<Option<(Claim, Option<Vec<u8>>)>> {
    let rows = query_rows(&shared.connections.client().await?, BY_ID, &[&team.0, &id.0]).await?;
    rows.first().map(|row| Ok((read_claim(row)?, row.try_get(1)?))).transpose()
}

async fn read_list(shared: &SharedState, team: TeamId, query: &ClaimQuery) -> TxResult<Vec<Claim>> {
    // Greater than every UUIDv7.
    let before = query.before.map_or(Uuid::max(), |id| id.0);
    let (state, key) = (query.state.map(ClaimState::as_str), query.key.map(hash_column));
    let limit = limit_column(query.limit);
    list(&shared.connections.client().await?, LIST, &[&team.0, &before, &state, &key, &limit]).await
}

async fn apply_claim_deadlines(shared: &SharedState, max: usize, clock: ClaimClock) -> TxResult<Vec<Claim>> {
    let mut client = shared.connections.client().await?;
    // Policies wait while the time is not confirmed.
    let policy = clock.policy.map_or(i64::MIN, |at| at.0);
    if query_rows(&client, HAS_DUE, &[&clock.now.0, &policy]).await?.is_empty() {
        return Ok(Vec::new());
    }
    let tx = client.transaction().await?;
    let mut changed = Vec::new();
    for mut claim in list(&tx, DUE_LOCKED, &[&clock.now.0, &policy, &limit_column(max)]).await? {
        let events = claim.apply_deadlines(clock);
        if !events.is_empty() {
            update(&tx, &claim, (None, None)).await?;
            emit(&tx, claim.team, &events).await?;
            changed.push(claim);
        }
    }
    shared.commit(tx, 1).await?;
    Ok(changed)
}

async fn read_unknown(shared: &SharedState, after: Option<ClaimId>, limit: usize) -> TxResult<Vec<Claim>> {
    let after = after.map_or(Uuid::nil(), |id| id.0);
    list(&shared.connections.client().await?, UNKNOWN, &[&after, &limit_column(limit)]).await
}

async fn forget_expired(shared: &SharedState, max: usize, cutoff: Time) -> TxResult<usize> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let expired = list(&tx, EXPIRED_LOCKED, &[&cutoff.0, &limit_column(max)]).await?;
    for claim in &expired {
        forget(&tx, claim, cutoff).await?;
    }
    execute(&tx, REMOVE_TOMBSTONES, &[&cutoff.plus(-limits::TOMBSTONE_MS).0]).await?;
    shared.commit(tx, 1).await?;
    Ok(expired.len())
}

#[async_trait]
impl ClaimStore for Postgres {
    async fn acquire_claim(&self, new_claim: NewClaim, clock: ClaimClock) -> Result<AcquireResult> {
        when_durable!(self, call_until_final!(acquire(&self.shared, &new_claim, clock)))
    }

    async fn offer_claim(&self, new_offer: NewOffer, clock: ClaimClock) -> Result<OfferResult> {
        when_durable!(self, call_until_final!(offer(&self.shared, &new_offer, clock)))
    }

    async fn claim_payload(&self, team: TeamId, id: ClaimId) -> Result<Option<Vec<u8>>> {
        when_durable!(self, call_until_final!(read_payload(&self.shared, team, id)))
    }

    async fn apply_claim_action(
        &self,
        team: TeamId,
        id: ClaimId,
        action: ClaimAction,
        operation: Option<KeyedOperation>,
        clock: ClaimClock,
    ) -> Result<IdempotentResult<ClaimActionResult>> {
        when_durable!(self, call_until_final!(apply(&self.shared, (team, id), &action, operation.as_ref(), clock)))
    }

    async fn claim(&self, team: TeamId, id: ClaimId) -> Result<Option<(Claim, Option<Vec<u8>>)>> {
        when_durable!(self, call_until_final!(read(&self.shared, team, id)))
    }

    async fn claims(&self, team: TeamId, query: ClaimQuery) -> Result<Vec<Claim>> {
        when_durable!(self, call_until_final!(read_list(&self.shared, team, &query)))
    }

    async fn apply_claim_deadlines(&self, max: usize, clock: ClaimClock) -> Result<Vec<Claim>> {
        into_store_result(call_until_final!(apply_claim_deadlines(&self.shared, max, clock)))
    }

    async fn unknown_claims(&self, after: Option<ClaimId>, limit: usize) -> Result<Vec<Claim>> {
        when_durable!(self, call_until_final!(read_unknown(&self.shared, after, limit)))
    }

    async fn forget_claims(&self, max: usize, cutoff: Time) -> Result<usize> {
        into_store_result(call_until_final!(forget_expired(&self.shared, max, cutoff)))
    }
}
