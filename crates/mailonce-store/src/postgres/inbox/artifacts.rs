//! Artifacts: queries, and consuming each once.

use deadpool_postgres::GenericClient;
use mailonce_core::{
    events::event::EventKind,
    id::{ArtifactId, InboxId, TeamId},
    inbox::artifact::{Artifact, ArtifactKind, ConsumeRequest, ConsumeResult, MarkAppliedResult},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use tokio_postgres::types::ToSql;

use crate::postgres::{
    SharedState,
    error::TxResult,
    events::pending_events::write_events,
    inbound::row::{artifact_columns, read_artifact, read_first},
    operation_keys::bind_or_replay,
    row::write_json,
    statements::{execute, query_rows},
};

macro_rules! artifacts {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            artifact_columns!(),
            " FROM artifacts a JOIN inboxes i ON i.team = a.team AND i.id = a.inbox AND i.removed_at IS NULL WHERE ",
            $rest
        )
    };
}

const BY_ID: &str = artifacts!("a.team = $1 AND a.id = $2");
const BY_ID_LOCKED: &str = artifacts!("a.team = $1 AND a.id = $2 FOR UPDATE OF a");
const LATEST: &str = artifacts!(
    "a.team = $1 AND a.inbox = $2 AND a.seq > $3 AND ($4::text IS NULL OR a.kind = $4)
     ORDER BY a.seq DESC, a.id LIMIT $5"
);
const HELD: &str = artifacts!(
    "a.team = $1 AND a.inbox = $2 AND a.seq > $3 AND a.kind = $4 AND a.consumed IS NOT NULL
     AND a.consumed::jsonb ->> 'for' = $5 ORDER BY a.seq DESC, a.id"
);
/// Calls of one consumer at an inbox take turns, because what it may take depends on what it has.
const LOCK_CONSUMER: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1::uuid::text || $2, 7883366254))";
const UPDATE: &str = "UPDATE artifacts SET rev = $3, consumed = $4, applied_at = $5 WHERE team = $1 AND id = $2";

/// One artifact.
pub(crate) async fn artifact(shared: &SharedState, team: TeamId, id: ArtifactId) -> TxResult<Option<Artifact>> {
    read_first(&query_rows(&shared.connections.client().await?, BY_ID, &[&team.0, &id.0]).await?, read_artifact)
}

/// Artifacts of an inbox, latest messages first.
pub(crate) async fn artifacts(
    shared: &SharedState,
    (team, inbox): (TeamId, InboxId),
    kind: Option<ArtifactKind>,
    after: u64,
    limit: usize,
) -> TxResult<Vec<Artifact>> {
    let (after, limit) = (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
    let kind = kind.map(ArtifactKind::as_str);
    let client = shared.connections.client().await?;
    query_rows(&client, LATEST, &[&team.0, &inbox.0, &after, &kind, &limit]).await?.iter().map(read_artifact).collect()
}

/// Artifacts of an inbox that a consumer has, latest messages first.
pub(crate) async fn held_artifacts(
    shared: &SharedState,
    place: (TeamId, InboxId),
    kind: ArtifactKind,
    after: u64,
    purpose: &str,
) -> TxResult<Vec<Artifact>> {
    held(&shared.connections.client().await?, place, kind, after, purpose).await
}

async fn held(
    client: &(impl GenericClient + ?Sized),
    (team, inbox): (TeamId, InboxId),
    kind: ArtifactKind,
    after: u64,
    purpose: &str,
) -> TxResult<Vec<Artifact>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let asked: &[&(dyn ToSql + Sync)] = &[&team.0, &inbox.0, &after, &kind.as_str(), &purpose];
    query_rows(client, HELD, asked).await?.iter().map(read_artifact).collect()
}

/// The artifact that a concurrent call of the consumer took after this one was chosen. Later calls of the consumer wait
/// until this transaction ends.
async fn concurrently_taken(
    tx: &deadpool_postgres::Transaction<'_>,
    chosen: &Artifact,
    taking: &ConsumeRequest,
) -> TxResult<Option<Artifact>> {
    let Some(held_before) = &taking.held_before else { return Ok(None) };
    query_rows(tx, LOCK_CONSUMER, &[&chosen.inbox.0, &taking.purpose]).await?;
    let held = held(tx, (chosen.team, chosen.inbox), chosen.kind, held_before.after, &taking.purpose).await?;
    Ok(held_before.concurrently_taken(held))
}

/// Consumes an artifact for its first consumer.
pub(crate) async fn consume_artifact(
    shared: &SharedState,
    team: TeamId,
    id: ArtifactId,
    taking: &ConsumeRequest,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<ConsumeResult>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    if let Some(answer) = bind_or_replay(&tx, &shared.time, operation, now).await? {
        tx.rollback().await?;
        return Ok(answer);
    }
    let found = read_first(&query_rows(&tx, BY_ID_LOCKED, &[&team.0, &id.0]).await?, read_artifact)?;
    let taken = match found {
        None => ConsumeResult::Missing,
        Some(artifact) => match concurrently_taken(&tx, &artifact, taking).await? {
            Some(other) => ConsumeResult::TookMeanwhile(other),
            None => artifact.into_consume_result(taking.clone(), now),
        },
    };
    match &taken {
        ConsumeResult::First(artifact) => {
            save_consumption(&tx, artifact).await?;
            write_events(&tx, &[(team, artifact.to_event(EventKind::ArtifactConsumed, now))]).await?;
            shared.commit(tx, 1).await?;
        }
        // A replay changes no artifact. Only the key of the operation has to be written.
        ConsumeResult::Replayed(_) if operation.is_some() => shared.commit(tx, 1).await?,
        ConsumeResult::Replayed(_)
        | ConsumeResult::ConsumedByOther(_)
        | ConsumeResult::TookMeanwhile(_)
        | ConsumeResult::Missing => tx.rollback().await?,
    }
    Ok(IdempotentResult::Done(taken))
}

/// Records that the consumer of an artifact has used it.
pub(crate) async fn mark_artifact_applied(
    shared: &SharedState,
    team: TeamId,
    id: ArtifactId,
    purpose: &str,
    now: Time,
) -> TxResult<MarkAppliedResult> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let found = read_first(&query_rows(&tx, BY_ID_LOCKED, &[&team.0, &id.0]).await?, read_artifact)?;
    let (answer, changed) =
        found.map_or((MarkAppliedResult::Missing, false), |artifact| artifact.mark_applied(purpose, now));
    match &answer {
        MarkAppliedResult::Done(artifact) if changed => {
            save_consumption(&tx, artifact).await?;
            write_events(&tx, &[(team, artifact.to_event(EventKind::ArtifactApplied, now))]).await?;
            shared.commit(tx, 1).await?;
        }
        _ => tx.rollback().await?,
    }
    Ok(answer)
}

/// Writes who consumed the artifact and when it was applied.
async fn save_consumption(tx: &deadpool_postgres::Transaction<'_>, artifact: &Artifact) -> TxResult<()> {
    let consumed = artifact.consumption.as_ref().map(write_json).transpose()?;
    let (rev, applied_at) = (artifact.rev as i32, artifact.applied_at.map(|at| at.0));
    execute(tx, UPDATE, &[&artifact.team.0, &artifact.id.0, &rev, &consumed, &applied_at]).await.map(drop)
}
