//! Changes of accepted emails: cancel, reschedule, capture, and the lifetime of keys.

use mailonce_core::{
    control::audit::act::Act,
    events::event::{EventKind, NewEvent},
    id::{EmailId, TeamId, ordered_bits},
    key::KeyHash,
    limits,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        email::{Email, EmailChangeRefusal},
        email_commands::{EmailChangeResult, RescheduleRequest},
        key_binding::{KeyBinding, KeyChangeResult},
        suppressed_call::SuppressedCalls,
    },
    ports::store::Result,
    time::Time,
    ttl::Ttl,
};
use rusqlite::{OptionalExtension as _, params};

use crate::sqlite::{
    control::{audit, budgets, stops},
    conversation::message_progress::update_message_progress,
    handoff::handoffs,
    outbound::{
        email_rows::{HandoffRef, save_email_and_handoffs, save_handoff},
        key_bindings,
    },
    rows,
    schema::store_error,
    write_session::WriteSession,
};

const SAVE_SUPPRESSED: &str = "INSERT INTO suppressed (email, count, latest) VALUES (?1, ?2, ?3) \
     ON CONFLICT DO UPDATE SET count = ?2, latest = ?3";
const DUE: &str = "SELECT team, email, number FROM handoffs WHERE state IN ('queued', 'scheduled') AND parked_by IS NULL \
     AND due_at <= ?1 AND transport = ?2 AND (state = 'queued' OR due_at <= ?4) ORDER BY due_at, email, number LIMIT ?3";
/// How often one commit looks for handoffs that are not stopped. Other writers wait for it.
const MAX_CAPTURE_ROUNDS: usize = 8;
const NEXT_DUE: &str = "SELECT due_at FROM handoffs WHERE state IN ('queued', 'scheduled') AND parked_by IS NULL \
     AND due_at IS NOT NULL AND transport = ?1 ORDER BY due_at LIMIT 1";

/// Saves a changed email with its event, and queues the notification of subscribers.
fn save_and_publish(ledger: &mut WriteSession<'_>, team: i64, email: Email, event: NewEvent) -> Result<()> {
    save_email_and_handoffs(ledger, team, &email)?;
    ledger.emit(team, &event);
    ledger.queue_changed_email(email);
    Ok(())
}

/// Applies a rule of the core to one email.
pub(crate) fn change_email(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    id: EmailId,
    rule: impl FnOnce(&mut Email) -> std::result::Result<Option<NewEvent>, EmailChangeRefusal>,
) -> Result<EmailChangeResult> {
    let Some(number) = ledger.team_number(team) else { return Ok(EmailChangeResult::Missing) };
    let Some(before) = rows::email_by_id(ledger.conn, team, number, id)? else { return Ok(EmailChangeResult::Missing) };
    let mut email = before.clone();
    match rule(&mut email) {
        Ok(event) => {
            if let Some(event) = event {
                let at = event.at;
                save_and_publish(ledger, number, email.clone(), event)?;
                budgets::refund_if_unsent(ledger, number, &before, &email)?;
                update_message_progress(ledger, number, &before, &email, at)?;
            }
            Ok(EmailChangeResult::Changed(email))
        }
        Err(refusal) => Ok(EmailChangeResult::Refused(refusal, email)),
    }
}

/// Moves a scheduled email to another time, together with its budget charges.
pub(crate) fn reschedule(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    id: EmailId,
    new: &RescheduleRequest,
    now: Time,
) -> Result<EmailChangeResult> {
    let Some(number) = ledger.team_number(team) else { return Ok(EmailChangeResult::Missing) };
    // An email that cannot be rescheduled returns that refusal, even if a budget would be exceeded too.
    if let Some(email) = rows::email_by_id(ledger.conn, team, number, id)?
        && email.clone().reschedule(new.due_at, now).is_ok()
        && let Some(exceeded) = budgets::move_charges(ledger, number, &email, &new.charges, now)?
    {
        return Ok(EmailChangeResult::OverBudget(exceeded));
    }
    change_email(ledger, team, id, |email| email.reschedule(new.due_at, now).map(Some))
}

/// Cancels an email. The operation's key is bound only on success, because a refused cancel may succeed later.
pub(crate) fn cancel(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    id: EmailId,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<EmailChangeResult>> {
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let at = ledger.time.commit_time(now);
    let change = change_email(ledger, team, id, |email| email.cancel(at))?;
    if let (Some(operation), EmailChangeResult::Changed(_)) = (operation, &change) {
        key_bindings::bind_operation(ledger, operation)?;
    }
    Ok(IdempotentResult::Done(change))
}

/// Captures due handoffs of a sandbox transport instead of sending them. Returns how many were due and not stopped.
pub(crate) fn capture(
    ledger: &mut WriteSession<'_>,
    transport: &str,
    max: usize,
    scheduled_by: Option<Time>,
    now: Time,
) -> Result<usize> {
    let (at, stops) = (ledger.time.commit_time(now), stops::load(ledger.conn)?);
    let due_by = scheduled_by.map(|at| at.0);
    let mut captured = 0;
    // Parked handoffs leave the queue, so each round finds others.
    for _ in 0..MAX_CAPTURE_ROUNDS {
        let room = max - captured;
        let due: Vec<HandoffRef> = {
            let mut statement = ledger.conn.prepare_cached(DUE).map_err(store_error)?;
            let rows = statement.query_map(params![now.0, transport, room as i64, due_by], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            });
            rows.and_then(Iterator::collect).map_err(store_error)?
        };
        let mut parked = 0;
        for (team, bits, number) in &due {
            let id = ledger.team_id(*team)?;
            let Some(mut email) = rows::email_by_bits(ledger.conn, id, *team, *bits)? else { continue };
            if email.park_if_stopped(*number, &stops) {
                save_handoff(ledger, *team, *bits, &email.handoffs[usize::from(*number)])?;
                ledger.queue_changed_email(email);
                parked += 1;
            } else if let Some((attempt, event)) = email.capture(*number, at) {
                handoffs::save_attempt(ledger, *bits, &attempt)?;
                save_and_publish(ledger, *team, email, event)?;
            }
        }
        captured += due.len() - parked;
        if parked == 0 || captured == max {
            break;
        }
    }
    Ok(captured)
}

/// When the next handoff of a transport is due.
pub(crate) fn next_handoff_due(conn: &rusqlite::Connection, transport: &str) -> Result<Option<Time>> {
    let mut statement = conn.prepare_cached(NEXT_DUE).map_err(store_error)?;
    Ok(statement.query_row([transport], |row| row.get(0)).optional().map_err(store_error)?.map(Time))
}

/// Counts suppressed duplicate calls of emails, and keeps the latest ones.
pub(crate) fn record_suppressed_calls(
    ledger: &mut WriteSession<'_>,
    calls: Vec<SuppressedCalls>,
    now: Time,
) -> Result<()> {
    for note in calls {
        let Some(team) = ledger.team_number(note.team) else { continue };
        let Some(mut email) = rows::email_by_id(ledger.conn, note.team, team, note.email)? else { continue };
        let bits = ordered_bits(email.id.0);
        let (_, mut latest) = rows::suppressed(ledger.conn, bits)?;
        latest.extend(note.latest);
        latest.drain(..latest.len().saturating_sub(limits::SUPPRESSED_CALLS_KEPT));
        email.suppressed += note.count;
        let json = serde_json::to_string(&latest).unwrap_or_default();
        ledger.execute(SAVE_SUPPRESSED, params![bits, email.suppressed as i64, json])?;
        let mut event = email.event(EventKind::EmailDuplicate, now);
        event.data["call_count"] = note.count.into();
        ledger.emit(team, &event);
        ledger.queue_changed_email(email);
    }
    Ok(())
}

/// The email that a key is bound to. `None` when the key is free, expired, or bound to an operation.
fn bound_email(ledger: &WriteSession<'_>, team: TeamId, number: i64, key: KeyHash, now: Time) -> Result<Option<Email>> {
    match key_bindings::key_binding(ledger, (team, number), key, now)? {
        Some(KeyBinding::Email(email)) => Ok(Some(email)),
        Some(KeyBinding::Operation { .. }) | None => Ok(None),
    }
}

/// Changes how long a key is remembered.
pub(crate) fn extend_key(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    key: KeyHash,
    ttl: Ttl,
    now: Time,
) -> Result<KeyChangeResult> {
    let Some(number) = ledger.team_number(team) else { return Ok(KeyChangeResult::Missing) };
    let Some(mut email) = bound_email(ledger, team, number, key, now)? else { return Ok(KeyChangeResult::Missing) };
    let event = email.extend_key(ttl, now);
    save_and_publish(ledger, number, email.clone(), event)?;
    audit::record_act(ledger, Some(Act::of_extended_key(team, email.id, ttl)), now)?;
    Ok(KeyChangeResult::Done(email))
}

/// Forgets a key now, if its email is terminal.
pub(crate) fn forget_key(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    key: KeyHash,
    now: Time,
) -> Result<KeyChangeResult> {
    let Some(number) = ledger.team_number(team) else { return Ok(KeyChangeResult::Missing) };
    let Some(mut email) = bound_email(ledger, team, number, key, now)? else { return Ok(KeyChangeResult::Missing) };
    if !email.state().is_terminal() {
        return Ok(KeyChangeResult::NotTerminal(email));
    }
    let event = email.forget_key(now);
    save_and_publish(ledger, number, email.clone(), event)?;
    audit::record_act(ledger, Some(Act::of_forgotten_key(team, email.id)), now)?;
    Ok(KeyChangeResult::Done(email))
}
