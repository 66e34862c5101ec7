//! Artifacts: looking at them, and taking each once.

use mailonce_core::{
    artifact::{Applied, Artifact, ArtifactKind, Taken, Taking},
    event::Kind,
    id::{ArtifactId, InboxId, TeamId},
    port::store::{Once, Operation},
    time::Time,
};

use super::row::{artifact_columns, first, read_artifact};
use crate::postgres::{
    Ledger,
    record::bind,
    row::write_json,
    trouble::Tried,
    write::{ask, run, write_events},
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

const ONE: &str = artifacts!("a.team = $1 AND a.id = $2");
const ONE_LOCKED: &str = artifacts!("a.team = $1 AND a.id = $2 FOR UPDATE OF a");
const LATEST: &str = artifacts!(
    "a.team = $1 AND a.inbox = $2 AND a.seq > $3 AND ($4::text IS NULL OR a.kind = $4)
     ORDER BY a.seq DESC, a.id LIMIT $5"
);
const CHANGE: &str = "UPDATE artifacts SET rev = $3, consumed = $4, applied_at = $5 WHERE team = $1 AND id = $2";

impl Ledger {
    /// One artifact.
    pub(super) async fn artifact(&self, team: TeamId, id: ArtifactId) -> Tried<Option<Artifact>> {
        first(&ask(&self.link.client().await?, ONE, &[&team.0, &id.0]).await?, read_artifact)
    }

    /// Artifacts of an inbox, those of the latest messages first.
    pub(super) async fn artifacts(
        &self,
        (team, inbox): (TeamId, InboxId),
        kind: Option<ArtifactKind>,
        after: u64,
        limit: usize,
    ) -> Tried<Vec<Artifact>> {
        let (after, limit) = (i64::try_from(after).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
        let kind = kind.map(ArtifactKind::word);
        let client = self.link.client().await?;
        ask(&client, LATEST, &[&team.0, &inbox.0, &after, &kind, &limit]).await?.iter().map(read_artifact).collect()
    }

    /// Takes an artifact for its first consumer.
    pub(super) async fn consume(
        &self,
        team: TeamId,
        id: ArtifactId,
        taking: &Taking,
        operation: Option<&Operation>,
        now: Time,
    ) -> Tried<Once<Taken>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        if let Some(answer) = bind(&tx, &self.time, operation, now).await? {
            tx.rollback().await?;
            return Ok(answer);
        }
        let found = first(&ask(&tx, ONE_LOCKED, &[&team.0, &id.0]).await?, read_artifact)?;
        let taken = found.map_or(Taken::Missing, |artifact| artifact.taken(taking.clone(), now));
        match &taken {
            Taken::First(artifact) => {
                note(&tx, artifact).await?;
                write_events(&tx, &[(team, artifact.told(Kind::ArtifactConsumed, now))]).await?;
                self.commit(tx, 1).await?;
            }
            // The key of the operation is all there is to write.
            Taken::Again(_) if operation.is_some() => self.commit(tx, 1).await?,
            Taken::Again(_) | Taken::Gone(_) | Taken::Missing => tx.rollback().await?,
        }
        Ok(Once::Done(taken))
    }

    /// Notes that an artifact was used by the one who took it.
    pub(super) async fn apply(&self, team: TeamId, id: ArtifactId, purpose: &str, now: Time) -> Tried<Applied> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        let found = first(&ask(&tx, ONE_LOCKED, &[&team.0, &id.0]).await?, read_artifact)?;
        let (answer, changed) = found.map_or((Applied::Missing, false), |artifact| artifact.apply(purpose, now));
        match &answer {
            Applied::Done(artifact) if changed => {
                note(&tx, artifact).await?;
                write_events(&tx, &[(team, artifact.told(Kind::ArtifactApplied, now))]).await?;
                self.commit(tx, 1).await?;
            }
            _ => tx.rollback().await?,
        }
        Ok(answer)
    }
}

/// Writes who has it and what it was used for.
async fn note(tx: &deadpool_postgres::Transaction<'_>, artifact: &Artifact) -> Tried<()> {
    let consumed = artifact.consumed.as_ref().map(write_json).transpose()?;
    let (rev, applied_at) = (artifact.rev as i32, artifact.applied_at.map(|at| at.0));
    run(tx, CHANGE, &[&artifact.team.0, &artifact.id.0, &rev, &consumed, &applied_at]).await.map(drop)
}
