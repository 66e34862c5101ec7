//! Queries: emails, statistics and keys. Concurrent key lookups share one statement.

use mailonce_core::{
    handoff::{Attempt, AttemptDetails, HandoffState, Outcome},
    id::{EmailId, TeamId},
    key::KeyHash,
    outbound::{
        email::Email,
        email_query::{EmailDetail, EmailStats},
        key_binding::{KeyBinding, KeyView},
        suppressed_call::SuppressedCall,
    },
    ports::store::{Result, StoreError},
    time::Time,
};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

use super::accept::{LoadedKeys, binding_in, load_keys};
use crate::postgres::{
    SharedState,
    error::{TxError, TxResult},
    row::{KeyTarget, TeamKey, email_columns, email_joins, read_emails, read_json, read_suppressed_calls},
    statements::query_rows,
};

/// The maximum number of keys in one lookup.
const MAX_LOOKUP_KEYS: usize = 256;

const EMAIL_BY_ID: &str = concat!(
    "SELECT ",
    email_columns!(),
    " FROM emails e ",
    email_joins!(),
    " WHERE e.team = $1 AND e.id = $2 ORDER BY h.number"
);
pub(crate) const SELECT_BODY: &str = "SELECT body FROM emails WHERE team = $1 AND id = $2 AND body IS NOT NULL";
const SELECT_ATTEMPTS: &str = "
    SELECT handoff, number, at, outcome, reply, ended_at, about FROM attempts WHERE team = $1 AND email = $2
     ORDER BY handoff, number";
const SELECT_EVIDENCE: &str = "SELECT fact FROM evidence WHERE team = $1 AND email = $2 ORDER BY n";
const SELECT_SUPPRESSED: &str = "SELECT latest FROM suppressed WHERE team = $1 AND email = $2";
const COUNT_EMAILS: &str = "SELECT count(*) FROM emails WHERE team = $1 AND id >= $2 AND id < $3";

const COUNT_DUPLICATES: &str =
    "SELECT COALESCE(sum(count), 0)::bigint FROM suppressed WHERE team = $1 AND email >= $2 AND email < $3";
const COUNT_HANDOFFS: &str =
    "SELECT state, count(*) FROM handoffs WHERE team = $1 AND email >= $2 AND email < $3 GROUP BY state";

const HELD_OR_UNKNOWN_EMAILS: &str = concat!(
    "SELECT ",
    email_columns!(),
    " FROM (SELECT DISTINCT team, email FROM handoffs
             WHERE state IN ('held', 'unknown') AND (team, email) > ($1, $2) ORDER BY team, email LIMIT $3) w
       JOIN emails e ON e.team = w.team AND e.id = w.email ",
    email_joins!(),
    " ORDER BY e.team, e.id, h.number"
);

/// A pending lookup of one key.
pub(crate) struct KeyLookupRequest {
    scope: TeamKey,
    now: Time,
    answer: oneshot::Sender<Result<Option<KeyBinding>>>,
}

/// Looks up keys until the store closes.
pub(crate) async fn run_key_lookups(
    ledger: Arc<SharedState>,
    mut asked: mpsc::UnboundedReceiver<KeyLookupRequest>,
    mut closing: watch::Receiver<bool>,
) {
    let mut together = Vec::new();
    loop {
        tokio::select! {
            count = asked.recv_many(&mut together, MAX_LOOKUP_KEYS) => if count == 0 { return },
            _ = closing.wait_for(|closing| *closing) => return,
        }
        let scopes: BTreeSet<TeamKey> = together.iter().map(|look| look.scope).collect();
        let found = read_keys(&ledger, &scopes).await.map_err(StoreError::from);
        for look in together.drain(..) {
            let answer = found
                .as_ref()
                .map(|found| binding_in(found, look.scope, ledger.time.expiry_cutoff(look.now)))
                .map_err(StoreError::clone);
            look.answer.send(answer).ok();
        }
    }
}

async fn read_keys(shared: &SharedState, scopes: &BTreeSet<TeamKey>) -> TxResult<LoadedKeys> {
    load_keys(&shared.connections.client().await?, scopes).await
}

/// Loads one key without locking it.
pub(crate) async fn load_key(shared: &SharedState, team: TeamId, key: KeyHash) -> TxResult<LoadedKeys> {
    read_keys(shared, &BTreeSet::from([(team, key)])).await
}

/// What a key is bound to, unless that has expired.
pub(crate) async fn key_binding(
    shared: &SharedState,
    team: TeamId,
    key: KeyHash,
    now: Time,
) -> Result<Option<KeyBinding>> {
    let (answer, answered) = oneshot::channel();
    shared.key_lookups.send(KeyLookupRequest { scope: (team, key), now, answer }).ok();
    answered.await.unwrap_or_else(|_gone| Err(StoreError::Unreachable("the store is closed".into())))
}

/// One email.
pub(crate) async fn email(shared: &SharedState, team: TeamId, id: EmailId) -> TxResult<Option<Email>> {
    let client = shared.connections.client().await?;
    Ok(read_emails(&query_rows(&client, EMAIL_BY_ID, &[&team.0, &id.0]).await?, 0)?.pop())
}

/// Held or unknown emails of all teams, ordered by team and id.
pub(crate) async fn held_or_unknown_emails(
    shared: &SharedState,
    after: Option<(TeamId, EmailId)>,
    limit: usize,
) -> TxResult<Vec<Email>> {
    let (team, id) = after.map_or((Uuid::nil(), Uuid::nil()), |(team, id)| (team.0, id.0));
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    read_emails(
        &query_rows(&shared.connections.client().await?, HELD_OR_UNKNOWN_EMAILS, &[&team, &id, &most]).await?,
        0,
    )
}

/// An email with its body, attempts, evidence and suppressed calls.
pub(crate) async fn email_detail(shared: &SharedState, team: TeamId, id: EmailId) -> TxResult<Option<EmailDetail>> {
    let mut client = shared.connections.client().await?;
    // One snapshot for all queries, so that an attempt is never shown without its outcome.
    let tx = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let Some(email) = read_emails(&query_rows(&tx, EMAIL_BY_ID, &[&team.0, &id.0]).await?, 0)?.pop() else {
        return Ok(None);
    };
    let params: [&(dyn ToSql + Sync); 2] = [&team.0, &id.0];
    let (bodies, attempts, evidence, suppressed) = tokio::try_join!(
        query_rows(&tx, SELECT_BODY, &params),
        query_rows(&tx, SELECT_ATTEMPTS, &params),
        query_rows(&tx, SELECT_EVIDENCE, &params),
        query_rows(&tx, SELECT_SUPPRESSED, &params)
    )?;
    Ok(Some(EmailDetail {
        email,
        body: bodies.first().map(|row| row.try_get(0)).transpose()?,
        attempts: attempts.iter().map(read_attempt).collect::<TxResult<_>>()?,
        evidence: evidence.iter().map(|row| read_json(row.try_get(0)?, "a fact")).collect::<TxResult<_>>()?,
        suppressed_calls: parse_suppressed_calls(suppressed.first())?,
    }))
}

/// How many emails of a team have ids in a range.
pub(crate) async fn count_emails(shared: &SharedState, team: TeamId, from: EmailId, to: EmailId) -> TxResult<u64> {
    let client = shared.connections.client().await?;
    let rows = query_rows(&client, COUNT_EMAILS, &[&team.0, &from.0, &to.0]).await?;
    let count: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
    Ok(count as u64)
}

/// Statistics of a team's emails with ids in a range.
pub(crate) async fn email_stats(
    shared: &SharedState,
    team: TeamId,
    from: EmailId,
    to: EmailId,
) -> TxResult<EmailStats> {
    let client = shared.connections.client().await?;
    let asked: [&(dyn ToSql + Sync); 3] = [&team.0, &from.0, &to.0];
    let (emails, duplicates, handoffs) = tokio::try_join!(
        query_rows(&client, COUNT_EMAILS, &asked),
        query_rows(&client, COUNT_DUPLICATES, &asked),
        query_rows(&client, COUNT_HANDOFFS, &asked)
    )?;
    let count = |rows: &[Row]| rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0)).map(|count| count as u64);
    let mut stats = EmailStats { accepted: count(&emails)?, duplicates: count(&duplicates)?, ..EmailStats::default() };
    for row in &handoffs {
        let state = HandoffState::parse(row.try_get(0)?).ok_or_else(|| TxError::corrupt("the state of a handoff"))?;
        stats.handoffs.insert(state, row.try_get::<_, i64>(1)? as u64);
    }
    Ok(stats)
}

/// A key's details, also after it has expired.
pub(crate) async fn key_view(shared: &SharedState, team: TeamId, key: KeyHash, now: Time) -> TxResult<Option<KeyView>> {
    let mut found = load_key(shared, team, key).await?;
    let bound = binding_in(&found, (team, key), shared.time.expiry_cutoff(now));
    let Some((row, email)) = found.remove(&(team, key)).filter(|(row, _)| row.bind_number > 0) else {
        return Ok(None);
    };
    let forgotten_at = match (&bound, &row.target) {
        (Some(_), _) => None,
        (None, Some(KeyTarget::Email(_))) => email.as_ref().and_then(Email::expires_at),
        (None, Some(KeyTarget::Operation { expires_at, .. })) => Some(*expires_at),
        (None, None) => row.forgotten_at,
    };
    let expires_at = match (&bound, &row.target) {
        (Some(KeyBinding::Email(email)), _) => email.expires_at(),
        (Some(_), Some(KeyTarget::Operation { expires_at, .. })) => Some(*expires_at),
        _ => None,
    };
    let suppressed = match &bound {
        Some(KeyBinding::Email(email)) => suppressed_calls(shared, team, email.id).await?,
        _ => Vec::new(),
    };
    Ok(Some(KeyView {
        bind_number: row.bind_number,
        binding: bound,
        expires_at,
        forgotten_at,
        suppressed_calls: suppressed,
    }))
}

async fn suppressed_calls(shared: &SharedState, team: TeamId, id: EmailId) -> TxResult<Vec<SuppressedCall>> {
    let client = shared.connections.client().await?;
    parse_suppressed_calls(query_rows(&client, SELECT_SUPPRESSED, &[&team.0, &id.0]).await?.first())
}

/// The suppressed calls in a row, newest first.
fn parse_suppressed_calls(row: Option<&Row>) -> TxResult<Vec<SuppressedCall>> {
    let latest: Option<&str> = row.map(|row| row.try_get(0)).transpose()?;
    Ok(read_suppressed_calls(latest)?.into_iter().rev().collect())
}

fn read_attempt(row: &Row) -> TxResult<Attempt> {
    let outcome: Option<&str> = row.try_get(3)?;
    let read = |word: &str| Outcome::parse(word).ok_or_else(|| TxError::corrupt("the outcome of an attempt"));
    Ok(Attempt {
        handoff: row.try_get::<_, i32>(0)? as u16,
        number: row.try_get::<_, i32>(1)? as u32,
        at: Time(row.try_get(2)?),
        outcome: outcome.map(read).transpose()?,
        reply: row.try_get(4)?,
        ended_at: row.try_get::<_, Option<i64>>(5)?.map(Time),
        details: match row.try_get::<_, Option<&str>>(6)? {
            Some(about) => read_json(about, "an attempt")?,
            None => AttemptDetails::default(),
        },
    })
}
