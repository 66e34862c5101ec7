//! Claims: implements `ClaimStore` for [`Sqlite`]. All writes share one thread, so of concurrent callers one wins, and a
//! stop is a barrier once it is committed.

use async_trait::async_trait;
use mailonce_core::{
    claims::{
        Claim, ClaimChange, ClaimClock, ClaimQuery, ClaimState,
        acquire::{AcquireAnswer, AcquireResult, NewClaim},
        action::{ClaimAction, ClaimActionResult, ClaimActionStatus},
        offer::{NewOffer, OfferResult},
    },
    control::{erasure::AddressEraser, stop::Stops},
    id::{ClaimId, TeamId},
    key::KeyHash,
    limits,
    operation::{IdempotentResult, KeyedOperation},
    ports::{claim_store::ClaimStore, erasure_store::EraseClaimResult, store::Result},
    time::Time,
};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};
use uuid::Uuid;

use super::Sqlite;
use crate::sqlite::{
    control::{audit, stops},
    outbound::key_bindings::{self, unknown_team_error},
    rows::to_json,
    schema::store_error,
    write_session::WriteSession,
};

const BY_KEY: &str = "SELECT claim FROM claims WHERE team = ?1 AND key = ?2";
const BY_ID: &str = "SELECT claim FROM claims WHERE team = ?1 AND id = ?2";
const RESULT: &str = "SELECT result FROM claims WHERE id = ?1";
const PAYLOAD: &str = "SELECT payload FROM claims WHERE id = ?1";
const PAYLOAD_OF_TEAM: &str = "SELECT payload FROM claims WHERE team = ?1 AND id = ?2";
const LIST: &str = "SELECT claim FROM claims WHERE team = ?1 AND id < ?2 AND (?3 IS NULL OR state = ?3) \
     AND (?4 IS NULL OR key = ?4) ORDER BY id DESC LIMIT ?5";
const DUE: &str = "SELECT claim FROM claims WHERE due_at <= ?1 AND (state <> 'unknown' OR due_at <= ?3) \
     ORDER BY due_at, id LIMIT ?2";
const HAS_EXPIRED: &str = "SELECT 1 FROM claims WHERE forget_at <= ?1 \
     UNION ALL SELECT 1 FROM claim_tombstones WHERE forgotten_at <= ?2 LIMIT 1";
const UNKNOWN: &str = "SELECT claim FROM claims WHERE state = 'unknown' AND id > ?1 ORDER BY id LIMIT ?2";
const EXPIRED: &str = "SELECT claim FROM claims WHERE forget_at <= ?1 ORDER BY forget_at, id LIMIT ?2";
const SAVE: &str = "INSERT INTO claims (id, team, key, state, due_at, forget_at, claim, result, payload) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO UPDATE \
     SET state = ?4, due_at = ?5, forget_at = ?6, claim = ?7, result = COALESCE(?8, result), \
         payload = COALESCE(?9, payload)";
const ERASE: &str = "UPDATE claims SET claim = ?2, result = NULL, payload = NULL WHERE id = ?1";
const REMOVE: &str = "DELETE FROM claims WHERE id = ?1";
const BINDS: &str = "SELECT binds FROM claim_tombstones WHERE team = ?1 AND key = ?2";
const ADD_TOMBSTONE: &str = "INSERT INTO claim_tombstones (team, key, binds, forgotten_at) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (team, key) DO UPDATE SET binds = ?3, forgotten_at = ?4";
const REMOVE_TOMBSTONES: &str = "DELETE FROM claim_tombstones WHERE forgotten_at <= ?1";

fn read_claim(row: &Row<'_>) -> rusqlite::Result<Claim> {
    serde_json::from_str(row.get_ref(0)?.as_str()?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error)))
}

fn find(conn: &Connection, sql: &str, params: impl Params) -> Result<Option<Claim>> {
    let mut statement = conn.prepare_cached(sql).map_err(store_error)?;
    statement.query_row(params, read_claim).optional().map_err(store_error)
}

fn list(conn: &Connection, sql: &str, params: impl Params) -> Result<Vec<Claim>> {
    let mut statement = conn.prepare_cached(sql).map_err(store_error)?;
    let rows = statement.query_map(params, read_claim);
    rows.and_then(Iterator::collect).map_err(store_error)
}

/// Loads a result or a payload.
fn load_bytes(conn: &Connection, sql: &str, params: impl Params) -> Result<Option<Vec<u8>>> {
    let mut statement = conn.prepare_cached(sql).map_err(store_error)?;
    let bytes = statement.query_row(params, |row| row.get(0)).optional();
    bytes.map(Option::flatten).map_err(store_error)
}

fn load_result(conn: &Connection, id: ClaimId) -> Result<Option<Vec<u8>>> {
    load_bytes(conn, RESULT, [id.0.as_bytes()])
}

fn earlier_binds(conn: &Connection, team: i64, key: KeyHash) -> Result<u32> {
    let mut statement = conn.prepare_cached(BINDS).map_err(store_error)?;
    let binds = statement.query_row(params![team, key.0], |row| row.get(0)).optional();
    binds.map(Option::unwrap_or_default).map_err(store_error)
}

/// The result and the payload to store beside a claim. `None` keeps what is stored.
type ResultAndPayload<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

fn save(ledger: &WriteSession<'_>, claim: &Claim, (result, payload): ResultAndPayload<'_>) -> Result<()> {
    let team = ledger.team_number(claim.team).ok_or_else(|| unknown_team_error(claim.team))?;
    let json = serde_json::to_string(claim).unwrap_or_default();
    let (due_at, forget_at) = (claim.due_at().map(|at| at.0), claim.forget_at().map(|at| at.0));
    let (id, key, state) = (claim.id.0.as_bytes(), claim.key_hash().0, claim.state.as_str());
    ledger.execute(SAVE, params![id, team, key, state, due_at, forget_at, json, result, payload]).map(drop)
}

fn save_change<T>(ledger: &mut WriteSession<'_>, team: i64, change: &ClaimChange<T>) -> Result<()> {
    let Some(claim) = change.claim.as_ref().filter(|_| change.is_changed) else { return Ok(()) };
    save(ledger, claim, (change.new_result.as_deref(), change.new_payload.as_deref()))?;
    change.events.iter().for_each(|event| ledger.emit(team, event));
    Ok(())
}

fn forget(ledger: &WriteSession<'_>, claim: &Claim, now: Time) -> Result<()> {
    let team = ledger.team_number(claim.team).ok_or_else(|| unknown_team_error(claim.team))?;
    ledger.execute(REMOVE, [claim.id.0.as_bytes()])?;
    ledger.execute(ADD_TOMBSTONE, params![team, claim.key_hash().0, claim.bind_number, now.0]).map(drop)
}

/// The claim with a key, and how often the key was bound before. Forgets one whose memory has ended.
fn claim_of_key(
    ledger: &WriteSession<'_>,
    (team, key): (i64, KeyHash),
    cutoff: Time,
    now: Time,
) -> Result<(Option<Claim>, u32)> {
    let mut existing = find(ledger.conn, BY_KEY, params![team, key.0])?;
    if let Some(old) = existing.take_if(|claim| claim.is_forgotten(cutoff)) {
        forget(ledger, &old, now)?;
    }
    let binds = if existing.is_none() { earlier_binds(ledger.conn, team, key)? } else { 0 };
    Ok((existing, binds))
}

fn acquire(ledger: &mut WriteSession<'_>, new: &NewClaim, clock: ClaimClock) -> Result<AcquireResult> {
    let team = ledger.team_number(new.team).ok_or_else(|| unknown_team_error(new.team))?;
    let cutoff = ledger.time.expiry_cutoff(clock.now);
    let clock = ClaimClock { now: ledger.time.commit_time(clock.now), ..clock };
    let (existing, binds) = claim_of_key(ledger, (team, new.key_hash()), cutoff, clock.now)?;
    let change = new.decide(existing, binds, &stops::load(ledger.conn)?, clock);
    save_change(ledger, team, &change)?;
    let (result, payload) = match (&change.answer, &change.claim) {
        (AcquireAnswer::Ended, Some(claim)) => (load_result(ledger.conn, claim.id)?, None),
        (AcquireAnswer::Won(_), Some(claim)) if claim.offer.is_some() => {
            (None, load_bytes(ledger.conn, PAYLOAD, [claim.id.0.as_bytes()])?)
        }
        _ => (None, None),
    };
    Ok(AcquireResult { answer: change.answer, claim: change.claim, result, payload })
}

fn offer(ledger: &mut WriteSession<'_>, offer: &NewOffer, clock: ClaimClock) -> Result<OfferResult> {
    let team = ledger.team_number(offer.team).ok_or_else(|| unknown_team_error(offer.team))?;
    let cutoff = ledger.time.expiry_cutoff(clock.now);
    let clock = ClaimClock { now: ledger.time.commit_time(clock.now), ..clock };
    let (existing, binds) = claim_of_key(ledger, (team, offer.key_hash()), cutoff, clock.now)?;
    let change = offer.decide(existing, binds, &stops::load(ledger.conn)?, clock);
    save_change(ledger, team, &change)?;
    Ok(OfferResult { answer: change.answer, claim: change.claim })
}

fn apply(
    ledger: &mut WriteSession<'_>,
    (team, id): (TeamId, ClaimId),
    action: ClaimAction,
    operation: Option<&KeyedOperation>,
    clock: ClaimClock,
) -> Result<IdempotentResult<ClaimActionResult>> {
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, clock.now)?
    {
        return Ok(answer);
    }
    let clock = ClaimClock { now: ledger.time.commit_time(clock.now), ..clock };
    let found = match ledger.team_number(team) {
        Some(number) => find(ledger.conn, BY_ID, params![number, id.0.as_bytes()])?.map(|claim| (number, claim)),
        None => None,
    };
    let Some((number, claim)) = found else { return Ok(IdempotentResult::Done(ClaimActionResult::Missing)) };
    let stops = if action.is_stoppable() { stops::load(ledger.conn)? } else { Stops::default() };
    let act = action.act(&claim);
    let change = claim.apply(action, &stops, clock);
    let is_applied = change.answer == ClaimActionStatus::Applied;
    // A refused call with a key changes nothing. The end of a lease that it noticed is noticed again by the next call.
    if is_applied || operation.is_none() {
        save_change(ledger, number, &change)?;
    }
    if is_applied {
        audit::record_act(ledger, act, clock.now)?;
        if let Some(operation) = operation {
            key_bindings::bind_operation(ledger, operation)?;
        }
    }
    let answer = change.answer;
    let done =
        change.claim.map_or(ClaimActionResult::Missing, |claim| ClaimActionResult::Done(answer, Box::new(claim)));
    Ok(IdempotentResult::Done(done))
}

/// Erases a claim that nobody needs any more, with its result and its payload.
pub(crate) fn erase(ledger: &WriteSession<'_>, eraser: &AddressEraser, id: ClaimId) -> Result<EraseClaimResult> {
    let Some(number) = ledger.team_number(eraser.team) else { return Ok(EraseClaimResult::Missing) };
    let Some(mut claim) = find(ledger.conn, BY_ID, params![number, id.0.as_bytes()])? else {
        return Ok(EraseClaimResult::Missing);
    };
    if !claim.erase(eraser) {
        return Ok(EraseClaimResult::NotEnded);
    }
    ledger.execute(ERASE, params![id.0.as_bytes(), to_json(&claim)?])?;
    Ok(EraseClaimResult::Erased)
}

/// Claims whose lease or policy's pause has ended. Policies wait while the time is not confirmed.
fn list_due(conn: &Connection, max: usize, clock: ClaimClock) -> Result<Vec<Claim>> {
    let policy = clock.policy.map_or(i64::MIN, |at| at.0);
    list(conn, DUE, params![clock.now.0, max as i64, policy])
}

fn has_expired(conn: &Connection, cutoff: Time) -> Result<bool> {
    let mut statement = conn.prepare_cached(HAS_EXPIRED).map_err(store_error)?;
    statement.exists([cutoff.0, cutoff.plus(-limits::TOMBSTONE_MS).0]).map_err(store_error)
}

fn apply_claim_deadlines(ledger: &mut WriteSession<'_>, max: usize, clock: ClaimClock) -> Result<Vec<Claim>> {
    let mut changed = Vec::new();
    for mut claim in list_due(ledger.conn, max, clock)? {
        let events = claim.apply_deadlines(clock);
        let Some(team) = ledger.team_number(claim.team).filter(|_| !events.is_empty()) else { continue };
        save(ledger, &claim, (None, None))?;
        events.iter().for_each(|event| ledger.emit(team, event));
        changed.push(claim);
    }
    Ok(changed)
}

fn forget_expired(ledger: &WriteSession<'_>, max: usize, cutoff: Time) -> Result<usize> {
    let expired = list(ledger.conn, EXPIRED, params![cutoff.0, max as i64])?;
    for claim in &expired {
        forget(ledger, claim, cutoff)?;
    }
    ledger.execute(REMOVE_TOMBSTONES, [cutoff.plus(-limits::TOMBSTONE_MS).0])?;
    Ok(expired.len())
}

#[async_trait]
impl ClaimStore for Sqlite {
    async fn acquire_claim(&self, new_claim: NewClaim, clock: ClaimClock) -> Result<AcquireResult> {
        self.run_write(move |ledger| acquire(ledger, &new_claim, clock)).await
    }

    async fn offer_claim(&self, new_offer: NewOffer, clock: ClaimClock) -> Result<OfferResult> {
        self.run_write(move |ledger| offer(ledger, &new_offer, clock)).await
    }

    async fn claim_payload(&self, team: TeamId, id: ClaimId) -> Result<Option<Vec<u8>>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| load_bytes(conn, PAYLOAD_OF_TEAM, params![number, id.0.as_bytes()])).await
    }

    async fn apply_claim_action(
        &self,
        team: TeamId,
        id: ClaimId,
        action: ClaimAction,
        operation: Option<KeyedOperation>,
        clock: ClaimClock,
    ) -> Result<IdempotentResult<ClaimActionResult>> {
        self.run_write(move |ledger| apply(ledger, (team, id), action, operation.as_ref(), clock)).await
    }

    async fn claim(&self, team: TeamId, id: ClaimId) -> Result<Option<(Claim, Option<Vec<u8>>)>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let read = move |conn: &Connection| match find(conn, BY_ID, params![number, id.0.as_bytes()])? {
            Some(claim) => Ok(Some((claim, load_result(conn, id)?))),
            None => Ok(None),
        };
        self.run_query(read).await
    }

    async fn claims(&self, team: TeamId, query: ClaimQuery) -> Result<Vec<Claim>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        // Greater than every UUIDv7.
        let before = query.before.map_or(Uuid::max(), |id| id.0);
        let (state, key) = (query.state.map(ClaimState::as_str), query.key.map(|key| key.0));
        let limit = query.limit as i64;
        self.run_query(move |conn| list(conn, LIST, params![number, before.as_bytes(), state, key, limit])).await
    }

    async fn apply_claim_deadlines(&self, max: usize, clock: ClaimClock) -> Result<Vec<Claim>> {
        // Usually nothing is due, and a write would delay others.
        let is_due = self.run_query(move |conn| list_due(conn, 1, clock)).await?;
        if is_due.is_empty() {
            return Ok(Vec::new());
        }
        self.run_write(move |ledger| apply_claim_deadlines(ledger, max, clock)).await
    }

    async fn unknown_claims(&self, after: Option<ClaimId>, limit: usize) -> Result<Vec<Claim>> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        self.run_query(move |conn| list(conn, UNKNOWN, params![after.as_bytes(), limit as i64])).await
    }

    async fn forget_claims(&self, max: usize, cutoff: Time) -> Result<usize> {
        if !self.run_query(move |conn| has_expired(conn, cutoff)).await? {
            return Ok(0);
        }
        self.run_write(move |ledger| ledger.with_secure_delete(|ledger| forget_expired(ledger, max, cutoff))).await
    }
}
