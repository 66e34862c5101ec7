//! Commands on emails: cancel, reschedule, resend, capture into the sandbox, and changes to keys.

use deadpool_postgres::Transaction;
use mailonce_core::{
    control::audit::act::Act,
    events::event::NewEvent,
    id::{EmailId, TeamId},
    key::KeyHash,
    operation::{IdempotentResult, KeyedOperation},
    outbound::{
        accept::NewEmail,
        email::{Email, EmailChangeRefusal},
        email_commands::{EmailChangeResult, EmailResendResult, RescheduleRequest},
        key_binding::{KeyBinding, KeyChangeResult},
    },
    time::Time,
    ttl::Ttl,
};
use std::collections::BTreeSet;

use super::accept::binding_in;
use crate::postgres::{
    SharedState,
    control::{budgets, stops},
    conversation::{is_current_reply, update_message_progress},
    error::{TxError, TxResult},
    handoff::handoff_rows::{load_locked_emails, read_handoff_ref},
    locked_tx::{load_more_emails, load_unit_of_work, lock_emails, lock_scopes},
    outbound::{content_guard, queries},
    row::TeamKey,
    statements::query_rows,
    unit_of_work::{EmailRef, UnitOfWork, keys_of_email, keys_to_lock},
};

/// Due handoffs in order, skipping emails that other workers have locked. The email's row lock covers its handoffs.
/// They are read again under the lock, because this statement may have read older versions.
const DUE: &str = "
    SELECT h.team, h.email, h.number
      FROM handoffs h JOIN emails e ON e.team = h.team AND e.id = h.email
     WHERE h.transport = $1 AND h.state IN ('queued', 'scheduled') AND h.due_at IS NOT NULL AND h.due_at <= $2
       AND h.parked_by IS NULL AND (h.state = 'queued' OR h.due_at <= $4::bigint)
     ORDER BY h.due_at, h.email, h.number LIMIT $3
       FOR UPDATE OF e SKIP LOCKED";

const NEXT_DUE: &str = "
    SELECT due_at FROM handoffs
     WHERE transport = $1 AND state IN ('queued', 'scheduled') AND due_at IS NOT NULL AND parked_by IS NULL
     ORDER BY due_at LIMIT 1";

/// What a rule of the core decides about an email.
type RuleResult = Result<Option<NewEvent>, EmailChangeRefusal>;

/// Binds the key of an operation that changes nothing else, once.
pub(crate) async fn bind_operation_once(
    shared: &SharedState,
    operation: &KeyedOperation,
    now: Time,
) -> TxResult<IdempotentResult<()>> {
    let scopes: BTreeSet<TeamKey> = BTreeSet::from([(operation.team, operation.key)]);
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    lock_scopes(&tx, &scopes).await?;
    let mut work = load_unit_of_work(&tx, &shared.time, &scopes, &[]).await?;
    let answer = work.find_replay(operation, now);
    if answer.is_none() {
        work.bind_operation(operation);
    }
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(answer.unwrap_or(IdempotentResult::Done(())))
}

/// Cancels an email.
pub(crate) async fn cancel(
    shared: &SharedState,
    team: TeamId,
    id: EmailId,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<EmailChangeResult>> {
    change_email(shared, team, id, operation, now, |email| email.cancel(shared.time.commit_time(now))).await
}

/// Moves a scheduled email to another time, together with its budget charges.
pub(crate) async fn reschedule(
    shared: &SharedState,
    team: TeamId,
    id: EmailId,
    new: &RescheduleRequest,
    now: Time,
) -> TxResult<EmailChangeResult> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    lock_emails(&tx, &BTreeSet::from([(team, id)])).await?;
    let mut work = load_unit_of_work(&tx, &shared.time, &BTreeSet::new(), &[(team, id)]).await?;
    let answer = match work.email_of_team(team, id) {
        Some(email) => apply_reschedule(&tx, &mut work, email, new, now).await?,
        None => EmailChangeResult::Missing,
    };
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(answer)
}

/// Changes one email by a rule of the core, under the idempotency key of an operation if there is one.
async fn change_email(
    shared: &SharedState,
    team: TeamId,
    id: EmailId,
    operation: Option<&KeyedOperation>,
    now: Time,
    rule: impl FnOnce(&mut Email) -> RuleResult + Send,
) -> TxResult<IdempotentResult<EmailChangeResult>> {
    let scopes: BTreeSet<TeamKey> = operation.iter().map(|operation| (operation.team, operation.key)).collect();
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    lock_scopes(&tx, &scopes).await?;
    lock_emails(&tx, &BTreeSet::from([(team, id)])).await?;
    let mut work = load_unit_of_work(&tx, &shared.time, &scopes, &[(team, id)]).await?;
    let before = work.email_of_team(team, id);
    let answer = apply_change(&mut work, (team, id), operation, now, rule);
    if let (Some(before), IdempotentResult::Done(EmailChangeResult::Changed(email))) = (&before, &answer) {
        update_message_progress(&tx, &mut work, (before, email), shared.time.commit_time(now)).await?;
        budgets::refund_if_unsent(&tx, &mut work, before, email).await?;
    }
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(answer)
}

/// Accepts the next version of an email, once.
pub(crate) async fn resend(
    shared: &SharedState,
    new_email: &NewEmail,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<EmailResendResult>> {
    let Some(previous) = new_email.head.resend_of else {
        return Ok(IdempotentResult::Done(EmailResendResult::Missing));
    };
    let mut scopes: BTreeSet<TeamKey> = keys_to_lock(new_email).collect();
    scopes.extend(operation.iter().map(|operation| (operation.team, operation.key)));
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    lock_scopes(&tx, &scopes).await?;
    lock_emails(&tx, &BTreeSet::from([(new_email.team, previous)])).await?;
    let mut work = load_unit_of_work(&tx, &shared.time, &scopes, &[(new_email.team, previous)]).await?;
    let next = work.emails.get(&previous).and_then(|email| email.resent_as);
    load_more_emails(&tx, &mut work, next.map(|id| (new_email.team, id)).into_iter()).await?;
    let before = work.email_of_team(new_email.team, previous);
    let replaced = match &before {
        Some(email) => !is_current_reply(&tx, &mut work, email).await?,
        None => false,
    };
    budgets::lock(&tx, &mut work, std::iter::once(new_email)).await?;
    content_guard::lock_recent_content(&tx, &mut work, std::iter::once(new_email)).await?;
    let answer = work.resend(new_email.clone(), operation, replaced, now);
    if let (Some(before), IdempotentResult::Done(EmailResendResult::First(email))) = (&before, &answer) {
        update_message_progress(&tx, &mut work, (before, email), now).await?;
    }
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(answer)
}

/// Captures up to `max` due handoffs in the sandbox. Returns how many. Stopped handoffs are parked and leave the queue,
/// so another round finds others.
pub(crate) async fn capture(
    shared: &SharedState,
    transport: &str,
    max: usize,
    scheduled_by: Option<Time>,
    now: Time,
) -> TxResult<usize> {
    loop {
        let (captured, parked) = capture_or_park(shared, transport, max, scheduled_by, now).await?;
        if parked == 0 || captured > 0 {
            return Ok(captured);
        }
    }
}

/// One round of captures, in one commit. Returns how many handoffs were captured, and how many were parked.
async fn capture_or_park(
    shared: &SharedState,
    transport: &str,
    max: usize,
    scheduled_by: Option<Time>,
    now: Time,
) -> TxResult<(usize, usize)> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    // A capture is marker and outcome in one.
    stops::lock_shared(&tx).await?;
    let scheduled_by = scheduled_by.map(|at| at.0);
    let rows = query_rows(&tx, DUE, &[&transport, &now.0, &(max as i64), &scheduled_by]).await?;
    let due = rows.iter().map(read_handoff_ref).collect::<TxResult<Vec<_>>>()?;
    let held: BTreeSet<EmailRef> = due.iter().map(|(scoped, _)| *scoped).collect();
    let stops = stops::load(&tx, &held).await?;
    let mut work = load_locked_emails(&tx, &held).await?;
    let (mut captured, mut parked) = (0, 0);
    let at = shared.time.commit_time(now);
    for ((team, id), number) in due {
        let Some(mut email) = work.email_of_team(team, id) else { continue };
        // The handoff may have changed before its email was locked.
        if email.park_if_stopped(number, &stops) {
            work.changed_emails.insert(id, Time(i64::MIN));
            work.emails.insert(id, email);
            parked += 1;
        } else if let Some((attempt, event)) = email.capture(number, at) {
            work.attempts.push((team, id, attempt));
            work.save(&email, event);
            captured += 1;
        }
    }
    shared.write_and_commit(tx, &work, 1).await?;
    Ok((captured, parked))
}

/// When the next handoff for a transport is due.
pub(crate) async fn next_handoff_due(shared: &SharedState, transport: &str) -> TxResult<Option<Time>> {
    let rows = query_rows(&shared.connections.client().await?, NEXT_DUE, &[&transport]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?.map(Time))
}

/// Changes how long a key is remembered.
pub(crate) async fn extend_key(
    shared: &SharedState,
    team: TeamId,
    key: KeyHash,
    ttl: Ttl,
    now: Time,
) -> TxResult<KeyChangeResult> {
    let act = |id| Act::of_extended_key(team, id, ttl);
    change_key(shared, (team, key), now, act, |email| Some(email.extend_key(ttl, now))).await
}

/// Forgets a key now, if its email is terminal.
pub(crate) async fn forget_key(
    shared: &SharedState,
    team: TeamId,
    key: KeyHash,
    now: Time,
) -> TxResult<KeyChangeResult> {
    let act = |id| Act::of_forgotten_key(team, id);
    let rule = |email: &mut Email| email.state().is_terminal().then(|| email.forget_key(now));
    change_key(shared, (team, key), now, act, rule).await
}

/// Changes how long a key is remembered. All keys of its email are locked, so that concurrent accepts see either
/// the old expiry or the new one.
async fn change_key(
    shared: &SharedState,
    (team, key): TeamKey,
    now: Time,
    act: impl FnOnce(EmailId) -> Act + Send,
    rule: impl FnOnce(&mut Email) -> Option<NewEvent> + Send,
) -> TxResult<KeyChangeResult> {
    let found = queries::load_key(shared, team, key).await?;
    let Some(KeyBinding::Email(seen)) = binding_in(&found, (team, key), shared.time.expiry_cutoff(now)) else {
        return Ok(KeyChangeResult::Missing);
    };
    let mut scopes = keys_of_email(&seen);
    scopes.insert((team, key));
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    lock_scopes(&tx, &scopes).await?;
    lock_emails(&tx, &BTreeSet::from([(team, seen.id)])).await?;
    let mut work = load_unit_of_work(&tx, &shared.time, &scopes, &[]).await?;
    let answer = apply_key_change(&mut work, (team, key), seen.id, now, rule);
    if let Ok(KeyChangeResult::Done(email)) = &answer {
        work.acts.push((act(email.id), now));
    }
    shared.write_and_commit(tx, &work, 1).await?;
    answer
}

/// Applies a reschedule. Budgets are checked only if the email can be rescheduled at all.
async fn apply_reschedule(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    before: Email,
    new: &RescheduleRequest,
    now: Time,
) -> TxResult<EmailChangeResult> {
    let mut email = before.clone();
    let event = match email.reschedule(new.due_at, now) {
        Ok(event) => event,
        Err(refusal) => return Ok(EmailChangeResult::Refused(refusal, email)),
    };
    if let Some(exceeded) = budgets::move_charges(tx, work, &before, &new.charges, now).await? {
        return Ok(EmailChangeResult::OverBudget(exceeded));
    }
    work.save(&email, event);
    Ok(EmailChangeResult::Changed(email))
}

/// Changes an email under the key of an operation: answers a replay, else applies the change, and binds the key if that
/// succeeds.
fn apply_change(
    work: &mut UnitOfWork,
    (team, id): EmailRef,
    operation: Option<&KeyedOperation>,
    now: Time,
    rule: impl FnOnce(&mut Email) -> RuleResult,
) -> IdempotentResult<EmailChangeResult> {
    if let Some(answer) = operation.and_then(|operation| work.find_replay(operation, now)) {
        return answer;
    }
    let Some(mut email) = work.email_of_team(team, id) else {
        return IdempotentResult::Done(EmailChangeResult::Missing);
    };
    match rule(&mut email) {
        Ok(event) => {
            if let Some(event) = event {
                work.save(&email, event);
            }
            // Only a success is recorded under the key, because a refused change may succeed later.
            if let Some(operation) = operation {
                work.bind_operation(operation);
            }
            IdempotentResult::Done(EmailChangeResult::Changed(email))
        }
        Err(refusal) => IdempotentResult::Done(EmailChangeResult::Refused(refusal, email)),
    }
}

/// Applies a rule to the email of a key. Only the email `seen` is locked; another binding is a conflict.
fn apply_key_change(
    work: &mut UnitOfWork,
    (team, key): TeamKey,
    seen: EmailId,
    now: Time,
    rule: impl FnOnce(&mut Email) -> Option<NewEvent>,
) -> TxResult<KeyChangeResult> {
    let Some(KeyBinding::Email(mut email)) = work.key_binding(team, key, now) else {
        return Ok(KeyChangeResult::Missing);
    };
    if email.id != seen {
        return Err(TxError::Conflict("the key was bound to another email meanwhile".into()));
    }
    let Some(event) = rule(&mut email) else {
        return Ok(KeyChangeResult::NotTerminal(email));
    };
    work.save(&email, event);
    Ok(KeyChangeResult::Done(email))
}
