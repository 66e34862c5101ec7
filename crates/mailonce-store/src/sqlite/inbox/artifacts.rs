//! Artifacts (codes and links found in messages): their rows, and consuming them.

use mailonce_core::{
    events::event::EventKind,
    id::{ArtifactId, InboxId, MessageId, TeamId, ordered_bits, random_bits},
    inbound::filing::FiledArtifact,
    inbox::{
        artifact::{Artifact, ArtifactKind, ConsumeRequest, ConsumeResult, Consumption, MarkAppliedResult},
        message::NewMessage,
    },
    operation::{IdempotentResult, KeyedOperation},
    ports::store::Result,
    time::Time,
};
use rusqlite::{Connection, Params, Row, params};

use crate::sqlite::{
    outbound::key_bindings,
    rows::{id_column, json_column, optional_json, optional_time, parse_column, split_id, to_json},
    schema::store_error,
    write_session::WriteSession,
};

/// An artifact whose inbox was not removed.
const ARTIFACT: &str = "SELECT a.artifact, a.tail, i.inbox, i.tail, a.message, a.rev, a.kind, a.found, a.sender, \
     a.found_at, a.seq, a.authenticated, a.consumed, a.applied_at \
     FROM artifacts a JOIN inboxes i ON i.inbox = a.inbox WHERE i.removed IS NULL AND a.team = ?1";
const SAME_VALUE: &str = "AND a.inbox = ?2 AND a.hash = ?3 AND a.kind = ?4 AND a.sender = ?5 \
     ORDER BY a.found_at DESC, a.artifact DESC LIMIT 1";
const LATEST: &str = "AND a.inbox = ?2 AND a.seq > ?3 AND (?4 IS NULL OR a.kind = ?4) \
     ORDER BY a.seq DESC, a.artifact LIMIT ?5";
const HELD: &str = "AND a.inbox = ?2 AND a.seq > ?3 AND a.kind = ?4 AND a.consumed IS NOT NULL \
     AND json_extract(a.consumed, '$.for') = ?5 ORDER BY a.seq DESC, a.artifact";
const INSERT: &str = "INSERT INTO artifacts (artifact, tail, team, inbox, message, rev, kind, hash, found, sender, found_at, \
     seq, authenticated) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
const UPDATE: &str = "UPDATE artifacts SET rev = ?2, seq = ?3, authenticated = ?4, consumed = ?5, applied_at = ?6 \
     WHERE artifact = ?1";

fn artifact_row(row: &Row<'_>, team: TeamId) -> Result<Artifact> {
    Ok(Artifact {
        id: ArtifactId(split_id(row, 0)?),
        team,
        inbox: InboxId(split_id(row, 2)?),
        message: MessageId(id_column(row, 4)?),
        rev: row.get(5).map_err(store_error)?,
        kind: parse_column(row, 6, ArtifactKind::parse)?,
        extracted: json_column(row, 7)?,
        sender: row.get(8).map_err(store_error)?,
        found_at: Time(row.get(9).map_err(store_error)?),
        seq: row.get::<_, i64>(10).map_err(store_error)? as u64,
        authenticated: row.get(11).map_err(store_error)?,
        consumption: optional_json::<Consumption>(row, 12)?,
        applied_at: optional_time(row, 13)?,
    })
}

fn find(conn: &Connection, team: TeamId, which: &str, asked: impl Params) -> Result<Vec<Artifact>> {
    let mut statement = conn.prepare_cached(&format!("{ARTIFACT} {which}")).map_err(store_error)?;
    let mut rows = statement.query(asked).map_err(store_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(store_error)? {
        found.push(artifact_row(row, team)?);
    }
    Ok(found)
}

/// One artifact of a team.
pub(crate) fn by_id(conn: &Connection, team: TeamId, number: i64, id: ArtifactId) -> Result<Option<Artifact>> {
    let found = find(conn, team, "AND a.artifact = ?2", params![number, ordered_bits(id.0)])?;
    Ok(found.into_iter().find(|artifact| artifact.id == id))
}

/// For each new artifact of a message, the latest artifact of the inbox with the same kind, value and sender.
pub(crate) fn find_same(
    conn: &Connection,
    number: i64,
    inbox: InboxId,
    message: &NewMessage,
    team: TeamId,
) -> Result<Vec<Option<Artifact>>> {
    let look = |new: &mailonce_core::inbox::artifact::NewArtifact| {
        let asked = params![number, ordered_bits(inbox.0), new.hash, new.kind.as_str(), message.sender()];
        Ok(find(conn, team, SAME_VALUE, asked)?.pop())
    };
    message.artifacts.iter().map(look).collect()
}

/// Artifacts of an inbox from messages after a sequence number, latest messages first.
pub(crate) fn list(
    conn: &Connection,
    (team, number): (TeamId, i64),
    (inbox, kind): (InboxId, Option<ArtifactKind>),
    after: u64,
    limit: usize,
) -> Result<Vec<Artifact>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let asked = params![number, ordered_bits(inbox.0), after, kind.map(ArtifactKind::as_str), limit as i64];
    let found = find(conn, team, LATEST, asked)?;
    Ok(found.into_iter().filter(|artifact| artifact.inbox == inbox).collect())
}

/// Artifacts of an inbox from messages after a sequence number that a consumer has, latest messages first.
pub(crate) fn held(
    conn: &Connection,
    (team, number): (TeamId, i64),
    (inbox, kind): (InboxId, ArtifactKind),
    after: u64,
    purpose: &str,
) -> Result<Vec<Artifact>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let found = find(conn, team, HELD, params![number, ordered_bits(inbox.0), after, kind.as_str(), purpose])?;
    Ok(found.into_iter().filter(|artifact| artifact.inbox == inbox).collect())
}

/// Saves an artifact of a message that is being filed.
pub(crate) fn save(ledger: &mut WriteSession<'_>, team: i64, filed: &FiledArtifact) -> Result<()> {
    let FiledArtifact { artifact, hash, is_new } = filed;
    if !is_new {
        return update(ledger, artifact);
    }
    let Artifact { id, rev, sender, seq, authenticated, .. } = artifact;
    let (bits, tail, inbox) = (ordered_bits(id.0), random_bits(id.0), ordered_bits(artifact.inbox.0));
    let (message, kind, found) = (artifact.message.0.as_bytes(), artifact.kind.as_str(), to_json(&artifact.extracted)?);
    let (found_at, seq) = (artifact.found_at.0, *seq as i64);
    let row = params![bits, tail, team, inbox, message, rev, kind, hash, found, sender, found_at, seq, authenticated];
    ledger.execute(INSERT, row)?;
    ledger.reserve_id(id.0);
    Ok(())
}

fn update(ledger: &WriteSession<'_>, artifact: &Artifact) -> Result<()> {
    let Artifact { id, rev, seq, authenticated, consumption: consumed, applied_at, .. } = artifact;
    let consumed = consumed.as_ref().map(to_json).transpose()?;
    let row = params![ordered_bits(id.0), rev, *seq as i64, authenticated, consumed, applied_at.map(|at| at.0)];
    ledger.execute(UPDATE, row).map(drop)
}

/// Consumes an artifact: the first consumer gets it.
pub(crate) fn consume(
    ledger: &mut WriteSession<'_>,
    (team, id): (TeamId, ArtifactId),
    taking: ConsumeRequest,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<ConsumeResult>> {
    let Some(number) = ledger.team_number(team) else { return Ok(IdempotentResult::Done(ConsumeResult::Missing)) };
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let Some(artifact) = by_id(ledger.conn, team, number, id)? else {
        return Ok(IdempotentResult::Done(ConsumeResult::Missing));
    };
    if let Some(held_before) = &taking.held_before {
        let place = (artifact.inbox, artifact.kind);
        let held = held(ledger.conn, (team, number), place, held_before.after, &taking.purpose)?;
        if let Some(other) = held_before.concurrently_taken(held) {
            return Ok(IdempotentResult::Done(ConsumeResult::TookMeanwhile(other)));
        }
    }
    let taken = artifact.into_consume_result(taking, now);
    if let ConsumeResult::First(artifact) = &taken {
        update(ledger, artifact)?;
        ledger.emit(number, &artifact.to_event(EventKind::ArtifactConsumed, now));
    }
    if let (Some(operation), ConsumeResult::First(_) | ConsumeResult::Replayed(_)) = (operation, &taken) {
        key_bindings::bind_operation(ledger, operation)?;
    }
    Ok(IdempotentResult::Done(taken))
}

/// Marks an artifact as applied by its consumer.
pub(crate) fn mark_applied(
    ledger: &mut WriteSession<'_>,
    (team, id): (TeamId, ArtifactId),
    purpose: &str,
    now: Time,
) -> Result<MarkAppliedResult> {
    let Some(number) = ledger.team_number(team) else { return Ok(MarkAppliedResult::Missing) };
    let Some(artifact) = by_id(ledger.conn, team, number, id)? else { return Ok(MarkAppliedResult::Missing) };
    let (applied, changed) = artifact.mark_applied(purpose, now);
    if let (MarkAppliedResult::Done(artifact), true) = (&applied, changed) {
        update(ledger, artifact)?;
        ledger.emit(number, &artifact.to_event(EventKind::ArtifactApplied, now));
    }
    Ok(applied)
}
