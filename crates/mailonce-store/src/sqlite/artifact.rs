//! Artifacts: their rows, and taking them.

use mailonce_core::{
    artifact::{Applied, Artifact, ArtifactKind, Consumed, Taken, Taking},
    event::Kind,
    filing::FiledArtifact,
    id::{ArtifactId, InboxId, MessageId, TeamId, ordered_bits, tail_bits},
    message::NewMessage,
    port::store::{Once, Operation, Result},
    time::Time,
};
use rusqlite::{Connection, Params, Row, params};

use super::{
    accept,
    ledger::Ledger,
    rows::{json, maybe_json, maybe_time, split_id, to_json, whole_id, word},
    schema::told,
};

/// A row of an artifact whose inbox is there.
const ARTIFACT: &str = "SELECT a.artifact, a.tail, i.inbox, i.tail, a.message, a.rev, a.kind, a.found, a.sender, \
     a.found_at, a.seq, a.authenticated, a.consumed, a.applied_at \
     FROM artifacts a JOIN inboxes i ON i.inbox = a.inbox WHERE i.removed IS NULL AND a.team = ?1";
const KNOWN: &str = "AND a.inbox = ?2 AND a.hash = ?3 AND a.kind = ?4 AND a.sender = ?5 \
     ORDER BY a.found_at DESC, a.artifact DESC LIMIT 1";
const LATEST: &str = "AND a.inbox = ?2 AND a.seq > ?3 AND (?4 IS NULL OR a.kind = ?4) \
     ORDER BY a.seq DESC, a.artifact LIMIT ?5";
const MAKE: &str = "INSERT INTO artifacts (artifact, tail, team, inbox, message, rev, kind, hash, found, sender, found_at, \
     seq, authenticated) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
const SAVE: &str = "UPDATE artifacts SET rev = ?2, seq = ?3, authenticated = ?4, consumed = ?5, applied_at = ?6 \
     WHERE artifact = ?1";

fn artifact_row(row: &Row<'_>, team: TeamId) -> Result<Artifact> {
    Ok(Artifact {
        id: ArtifactId(split_id(row, 0)?),
        team,
        inbox: InboxId(split_id(row, 2)?),
        message: MessageId(whole_id(row, 4)?),
        rev: row.get(5).map_err(told)?,
        kind: word(row, 6, ArtifactKind::parse)?,
        found: json(row, 7)?,
        sender: row.get(8).map_err(told)?,
        found_at: Time(row.get(9).map_err(told)?),
        seq: row.get::<_, i64>(10).map_err(told)? as u64,
        authenticated: row.get(11).map_err(told)?,
        consumed: maybe_json::<Consumed>(row, 12)?,
        applied_at: maybe_time(row, 13)?,
    })
}

fn find(conn: &Connection, team: TeamId, which: &str, asked: impl Params) -> Result<Vec<Artifact>> {
    let mut statement = conn.prepare_cached(&format!("{ARTIFACT} {which}")).map_err(told)?;
    let mut rows = statement.query(asked).map_err(told)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(told)? {
        found.push(artifact_row(row, team)?);
    }
    Ok(found)
}

/// One artifact of a team.
pub(super) fn one(conn: &Connection, team: TeamId, number: i64, id: ArtifactId) -> Result<Option<Artifact>> {
    let found = find(conn, team, "AND a.artifact = ?2", params![number, ordered_bits(id.0)])?;
    Ok(found.into_iter().find(|artifact| artifact.id == id))
}

/// For each value of a message, the latest artifact of its inbox with the same kind, value and sender.
pub(super) fn known(
    conn: &Connection,
    number: i64,
    inbox: InboxId,
    message: &NewMessage,
    team: TeamId,
) -> Result<Vec<Option<Artifact>>> {
    let look = |new: &mailonce_core::artifact::NewArtifact| {
        let asked = params![number, ordered_bits(inbox.0), new.hash, new.kind.word(), message.sender()];
        Ok(find(conn, team, KNOWN, asked)?.pop())
    };
    message.artifacts.iter().map(look).collect()
}

/// Artifacts of an inbox found after a message's number, those of the latest messages first.
pub(super) fn list(
    conn: &Connection,
    (team, number): (TeamId, i64),
    (inbox, kind): (InboxId, Option<ArtifactKind>),
    after: u64,
    limit: usize,
) -> Result<Vec<Artifact>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let asked = params![number, ordered_bits(inbox.0), after, kind.map(ArtifactKind::word), limit as i64];
    let found = find(conn, team, LATEST, asked)?;
    Ok(found.into_iter().filter(|artifact| artifact.inbox == inbox).collect())
}

/// Writes an artifact of a message that is filed.
pub(super) fn save(ledger: &mut Ledger<'_>, team: i64, filed: &FiledArtifact) -> Result<()> {
    let FiledArtifact { artifact, hash, is_new } = filed;
    if !is_new {
        return update(ledger, artifact);
    }
    let Artifact { id, rev, sender, seq, authenticated, .. } = artifact;
    let (bits, tail, inbox) = (ordered_bits(id.0), tail_bits(id.0), ordered_bits(artifact.inbox.0));
    let (message, kind, found) = (artifact.message.0.as_bytes(), artifact.kind.word(), to_json(&artifact.found)?);
    let (found_at, seq) = (artifact.found_at.0, *seq as i64);
    let row = params![bits, tail, team, inbox, message, rev, kind, hash, found, sender, found_at, seq, authenticated];
    ledger.execute(MAKE, row)?;
    ledger.note_id(id.0);
    Ok(())
}

fn update(ledger: &Ledger<'_>, artifact: &Artifact) -> Result<()> {
    let Artifact { id, rev, seq, authenticated, consumed, applied_at, .. } = artifact;
    let consumed = consumed.as_ref().map(to_json).transpose()?;
    let row = params![ordered_bits(id.0), rev, *seq as i64, authenticated, consumed, applied_at.map(|at| at.0)];
    ledger.execute(SAVE, row).map(drop)
}

/// Takes an artifact for its first consumer.
pub(super) fn consume(
    ledger: &mut Ledger<'_>,
    (team, id): (TeamId, ArtifactId),
    taking: Taking,
    operation: Option<&Operation>,
    now: Time,
) -> Result<Once<Taken>> {
    let Some(number) = ledger.team_number(team) else { return Ok(Once::Done(Taken::Missing)) };
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(artifact) = one(ledger.conn, team, number, id)? else { return Ok(Once::Done(Taken::Missing)) };
    let taken = artifact.taken(taking, now);
    if let Taken::First(artifact) = &taken {
        update(ledger, artifact)?;
        ledger.emit(number, &artifact.told(Kind::ArtifactConsumed, now));
    }
    if let (Some(operation), Taken::First(_) | Taken::Again(_)) = (operation, &taken) {
        accept::bind_operation(ledger, operation)?;
    }
    Ok(Once::Done(taken))
}

/// Notes that an artifact was used by the one who took it.
pub(super) fn apply(
    ledger: &mut Ledger<'_>,
    (team, id): (TeamId, ArtifactId),
    purpose: &str,
    now: Time,
) -> Result<Applied> {
    let Some(number) = ledger.team_number(team) else { return Ok(Applied::Missing) };
    let Some(artifact) = one(ledger.conn, team, number, id)? else { return Ok(Applied::Missing) };
    let (applied, changed) = artifact.apply(purpose, now);
    if let (Applied::Done(artifact), true) = (&applied, changed) {
        update(ledger, artifact)?;
        ledger.emit(number, &artifact.told(Kind::ArtifactApplied, now));
    }
    Ok(applied)
}
