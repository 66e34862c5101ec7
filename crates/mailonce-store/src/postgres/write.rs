//! Writing: each kind of row is written with one set-based statement, however many rows there are.

use deadpool_postgres::Transaction;
use mailonce_core::{
    events::event::NewEvent,
    handoff::{AttemptDetails, HandoffProgress},
    id::EmailId,
    outbound::email::Email,
    time::Time,
};
use std::sync::Arc;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::row::{KeyTarget, scope_columns, write_json};
use crate::postgres::{
    control::audit_chain,
    error::{TxError, TxResult},
    events::pending_events::write_events,
    outbound::email_insert::{EmailInsert, insert_emails},
    statements::execute,
    unit_of_work::{EmailRef, UnitOfWork},
};

const UPDATE_EMAILS: &str = "
    UPDATE emails e
       SET rev = w.rev, ttl = w.ttl, settled_at = w.settled_at, sweep_at = w.sweep_at, resent_as = w.resent_as,
           guard = w.guard, holds = w.holds
      FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::bigint[], $5::bigint[], $6::bigint[], $7::uuid[], $8::text[],
                  $9::text[])
        AS w (team, id, rev, ttl, settled_at, sweep_at, resent_as, guard, holds)
     WHERE e.team = w.team AND e.id = w.id";

const UPDATE_HANDOFFS: &str = "
    UPDATE handoffs h
       SET state = w.state, due_at = w.due_at, attempts = w.attempts, fence = w.fence, transport = w.transport,
           holder = w.holder, work = w.work, parked_by = w.parked_by
      FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::text[], $5::bigint[], $6::int[], $7::bigint[], $8::text[],
                  $9::uuid[], $10::text[], $11::uuid[])
        AS w (team, email, number, state, due_at, attempts, fence, transport, holder, work, parked_by)
     WHERE h.team = w.team AND h.email = w.email AND h.number = w.number
       AND (h.state, h.due_at, h.attempts, h.fence, h.transport, h.holder, h.work, h.parked_by) IS DISTINCT FROM
           (w.state, w.due_at, w.attempts, w.fence, w.transport, w.holder, w.work, w.parked_by)";

const UPDATE_KEYS: &str = "
    UPDATE keys k
       SET bind = w.bind, email = w.email, digest = w.digest, answer = w.answer, expires_at = w.expires_at,
           slot = w.slot, forgotten_at = w.forgotten_at
      FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::uuid[], $5::bytea[], $6::bytea[], $7::bigint[], $8::uuid[],
                  $9::bigint[])
        AS w (team, hash, bind, email, digest, answer, expires_at, slot, forgotten_at)
     WHERE k.team = w.team AND k.hash = w.hash";

const DELETE_KEYS: &str = "
    DELETE FROM keys k USING unnest($1::uuid[], $2::uuid[]) AS w (team, hash)
     WHERE k.team = w.team AND k.hash = w.hash";

const UPSERT_ATTEMPTS: &str = "
    INSERT INTO attempts (team, email, handoff, number, at, outcome, reply, ended_at, remote_id, about)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::int[], $5::bigint[], $6::text[], $7::text[],
                         $8::bigint[], $9::text[], $10::text[])
    ON CONFLICT (team, email, handoff, number) DO UPDATE
       SET at = excluded.at, outcome = excluded.outcome, reply = excluded.reply, ended_at = excluded.ended_at,
           remote_id = excluded.remote_id, about = excluded.about";

const INSERT_HANDOFFS: &str = "
    INSERT INTO handoffs (team, email, number, attempts, fence, due_at, state, transport, recipients)
    SELECT team, email, number, 0, 0, due_at, state, transport, recipients
      FROM unnest($1::uuid[], $2::uuid[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::text[])
        AS w (team, email, number, due_at, state, transport, recipients)";

const INSERT_EVIDENCE: &str = "
    INSERT INTO evidence (team, email, once, fact)
    SELECT team, email, once, fact
      FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) WITH ORDINALITY AS w (team, email, once, fact, place)
     ORDER BY place";

const INSERT_WIRES: &str = "
    INSERT INTO wires (team, email, transport, bytes)
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[]) ON CONFLICT DO NOTHING";

/// Writes the inserts and updates of a unit of work. The sweep does the deletions (`drop_rows`). The caller commits.
pub(crate) async fn write_unit_of_work(tx: &Transaction<'_>, work: &UnitOfWork) -> TxResult<()> {
    write_new_emails(tx, work).await?;
    write_keys(tx, work).await?;
    write_new_handoffs(tx, work).await?;
    write_changed_emails(tx, work).await?;
    write_attempts(tx, work).await?;
    write_evidence(tx, work).await?;
    work.conversations.write(tx).await?;
    work.budgets.write(tx).await?;
    work.contacts.write(tx).await?;
    write_events(tx, &work.events).await?;
    for (act, now) in &work.acts {
        audit_chain::record_act(tx, Some(act), *now).await?;
    }
    Ok(())
}

async fn write_new_emails(tx: &Transaction<'_>, work: &UnitOfWork) -> TxResult<()> {
    let draft = |(id, body, event): &(EmailId, Arc<[u8]>, NewEvent)| {
        let email = work.emails.get(id).ok_or_else(|| TxError::corrupt("an email that was just made"))?;
        EmailInsert::new(email.clone(), body.clone(), event)
    };
    let drafts = work.new_emails.iter().map(draft).collect::<TxResult<Vec<EmailInsert>>>()?;
    // A batch may be large; insert it in chunks, within the same transaction.
    for piece in drafts.chunks(256) {
        insert_emails(tx, piece.iter().map(|draft| (draft, None))).await.map_err(TxError::into_not_committed)?;
    }
    Ok(())
}

async fn write_keys(tx: &Transaction<'_>, work: &UnitOfWork) -> TxResult<()> {
    let changed =
        || work.keys.iter().filter(|(scope, row)| !row.is_empty() && work.loaded_keys.get(scope) != Some(row));
    let (teams, hashes) = scope_columns(changed().map(|(scope, _)| scope));
    if !teams.is_empty() {
        let (mut email, mut digest, mut answer, mut expires_at) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (_, row) in changed() {
            let (id, operation) = match &row.target {
                Some(KeyTarget::Email(id)) => (Some(id.0), None),
                Some(KeyTarget::Operation { digest, answer, expires_at }) => {
                    (None, Some((digest, answer, expires_at.0)))
                }
                None => (None, None),
            };
            email.push(id);
            digest.push(operation.map(|(digest, _, _)| digest.as_slice()));
            answer.push(operation.map(|(_, answer, _)| answer.as_slice()));
            expires_at.push(operation.map(|(_, _, at)| at).or(row.tombstone_until.map(|at| at.0)));
        }
        let bind: Vec<i32> = changed().map(|(_, row)| row.bind_number as i32).collect();
        let slot: Vec<Option<Uuid>> = changed().map(|(_, row)| row.slot.map(|id| id.0)).collect();
        let forgotten_at: Vec<Option<i64>> = changed().map(|(_, row)| row.forgotten_at.map(|at| at.0)).collect();
        let params: [&(dyn ToSql + Sync); 9] =
            [&teams, &hashes, &bind, &email, &digest, &answer, &expires_at, &slot, &forgotten_at];
        execute(tx, UPDATE_KEYS, &params).await?;
    }
    // Delete keys that bind nothing: rows that were inserted only to be locked, and rows whose binding is gone.
    let (teams, hashes) = scope_columns(work.keys.iter().filter(|(_, row)| row.is_empty()).map(|(scope, _)| scope));
    if !teams.is_empty() {
        execute(tx, DELETE_KEYS, &[&teams, &hashes]).await?;
    }
    Ok(())
}

async fn write_new_handoffs(tx: &Transaction<'_>, work: &UnitOfWork) -> TxResult<()> {
    let all = &work.new_handoffs;
    if all.is_empty() {
        return Ok(());
    }
    let (team, email) = email_ref_columns(all.iter().map(|(scoped, _)| *scoped));
    let number: Vec<i32> = all.iter().map(|(_, handoff)| i32::from(handoff.number)).collect();
    let due_at: Vec<Option<i64>> = all.iter().map(|(_, handoff)| handoff.due_at.map(|at| at.0)).collect();
    let state: Vec<&str> = all.iter().map(|(_, handoff)| handoff.state.as_str()).collect();
    let transport: Vec<&str> = all.iter().map(|(_, handoff)| handoff.transport.as_str()).collect();
    let recipients =
        all.iter().map(|(_, handoff)| write_json(&handoff.recipients)).collect::<TxResult<Vec<String>>>()?;
    execute(tx, INSERT_HANDOFFS, &[&team, &email, &number, &due_at, &state, &transport, &recipients]).await?;
    Ok(())
}

async fn write_changed_emails(tx: &Transaction<'_>, work: &UnitOfWork) -> TxResult<()> {
    let changed: Vec<(&Email, Time)> =
        work.changed_emails.iter().filter_map(|(id, swept)| Some((work.emails.get(id)?, *swept))).collect();
    if changed.is_empty() {
        return Ok(());
    }
    let (team, id) = email_ref_columns(changed.iter().map(|(email, _)| (email.team, email.id)));
    let rev: Vec<i32> = changed.iter().map(|(email, _)| email.rev as i32).collect();
    let ttl: Vec<i64> = changed.iter().map(|(email, _)| email.ttl.0).collect();
    let settled_at: Vec<Option<i64>> = changed.iter().map(|(email, _)| email.settled_at.map(|at| at.0)).collect();
    let sweep_at: Vec<Option<i64>> =
        changed.iter().map(|(email, swept)| email.expiry().next_after(*swept).map(|at| at.0)).collect();
    let resent_as: Vec<Option<Uuid>> = changed.iter().map(|(email, _)| email.resent_as.map(|id| id.0)).collect();
    let guard: Vec<_> =
        changed.iter().map(|(email, _)| email.guard.map(mailonce_core::outbound::email::Guard::as_str)).collect();
    let holds: Vec<Option<String>> = changed.iter().map(|(email, _)| email.holds.to_column()).collect();
    execute(tx, UPDATE_EMAILS, &[&team, &id, &rev, &ttl, &settled_at, &sweep_at, &resent_as, &guard, &holds]).await?;

    let handoffs = || changed.iter().flat_map(|(email, _)| email.handoffs.iter().map(move |h| (*email, h)));
    let (team, id) = email_ref_columns(handoffs().map(|(email, _)| (email.team, email.id)));
    let number: Vec<i32> = handoffs().map(|(_, handoff)| i32::from(handoff.number)).collect();
    let state: Vec<_> = handoffs().map(|(_, handoff)| handoff.state.as_str()).collect();
    let due_at: Vec<Option<i64>> = handoffs().map(|(_, handoff)| handoff.due_at.map(|at| at.0)).collect();
    let attempts: Vec<i32> = handoffs().map(|(_, handoff)| handoff.attempts as i32).collect();
    let fence: Vec<i64> = handoffs().map(|(_, handoff)| handoff.fence as i64).collect();
    let transport: Vec<&str> = handoffs().map(|(_, handoff)| handoff.transport.as_str()).collect();
    let holder: Vec<Option<Uuid>> = handoffs().map(|(_, handoff)| handoff.holder.map(|node| node.0)).collect();
    let progress = handoffs()
        .map(
            |(_, h)| {
                if h.progress == HandoffProgress::default() { Ok(None) } else { write_json(&h.progress).map(Some) }
            },
        )
        .collect::<TxResult<Vec<Option<String>>>>()?;
    let parked_by: Vec<Option<Uuid>> = handoffs().map(|(_, handoff)| handoff.parked_by.map(|stop| stop.0)).collect();
    let params: [&(dyn ToSql + Sync); 11] =
        [&team, &id, &number, &state, &due_at, &attempts, &fence, &transport, &holder, &progress, &parked_by];
    execute(tx, UPDATE_HANDOFFS, &params).await?;
    Ok(())
}

async fn write_attempts(tx: &Transaction<'_>, work: &UnitOfWork) -> TxResult<()> {
    let all = &work.attempts;
    if all.is_empty() {
        return Ok(());
    }
    let (team, email) = email_ref_columns(all.iter().map(|(team, email, _)| (*team, *email)));
    let handoff: Vec<i32> = all.iter().map(|(_, _, attempt)| i32::from(attempt.handoff)).collect();
    let number: Vec<i32> = all.iter().map(|(_, _, attempt)| attempt.number as i32).collect();
    let at: Vec<i64> = all.iter().map(|(_, _, attempt)| attempt.at.0).collect();
    let outcome: Vec<_> = all.iter().map(|(_, _, a)| a.outcome.map(mailonce_core::handoff::Outcome::as_str)).collect();
    let reply: Vec<&str> = all.iter().map(|(_, _, attempt)| attempt.reply.as_str()).collect();
    let ended_at: Vec<Option<i64>> = all.iter().map(|(_, _, attempt)| attempt.ended_at.map(|at| at.0)).collect();
    let remote_id: Vec<Option<&str>> = all.iter().map(|(_, _, a)| a.details.remote_id.as_deref()).collect();
    let about = all
        .iter()
        .map(
            |(_, _, a)| {
                if a.details == AttemptDetails::default() { Ok(None) } else { write_json(&a.details).map(Some) }
            },
        )
        .collect::<TxResult<Vec<Option<String>>>>()?;
    let params: [&(dyn ToSql + Sync); 10] =
        [&team, &email, &handoff, &number, &at, &outcome, &reply, &ended_at, &remote_id, &about];
    execute(tx, UPSERT_ATTEMPTS, &params).await?;
    Ok(())
}

async fn write_evidence(tx: &Transaction<'_>, work: &UnitOfWork) -> TxResult<()> {
    let all = &work.evidence;
    if !all.is_empty() {
        let (team, email) = email_ref_columns(all.iter().map(|(team, email, _)| (*team, *email)));
        let once: Vec<Option<&str>> = all.iter().map(|(_, _, fact)| fact.dedup_key.as_deref()).collect();
        let fact = all.iter().map(|(_, _, fact)| write_json(fact)).collect::<TxResult<Vec<String>>>()?;
        execute(tx, INSERT_EVIDENCE, &[&team, &email, &once, &fact]).await?;
    }
    let all = &work.wires;
    if !all.is_empty() {
        let (team, email) = email_ref_columns(all.iter().map(|(scoped, _, _)| *scoped));
        let transport: Vec<&str> = all.iter().map(|(_, transport, _)| transport.as_str()).collect();
        let bytes: Vec<&[u8]> = all.iter().map(|(_, _, bytes)| bytes.as_ref()).collect();
        execute(tx, INSERT_WIRES, &[&team, &email, &transport, &bytes]).await?;
    }
    Ok(())
}

/// Splits emails into a column of teams and a column of ids.
pub(crate) fn email_ref_columns(emails: impl Iterator<Item = EmailRef>) -> (Vec<Uuid>, Vec<Uuid>) {
    emails.map(|(team, id)| (team.0, id.0)).unzip()
}
