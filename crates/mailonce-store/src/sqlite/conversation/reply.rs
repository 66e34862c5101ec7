//! Replies: the guards of a reply or a forward are checked in the transaction that accepts it.

use mailonce_core::{
    conversation::reply_guards::{NewReply, ReplyContext, ReplyResult, ReplyVerdict},
    events::event::NewEvent,
    outbound::{accept::AcceptResult, email::Email, key_binding::KeyBinding},
    ports::store::Result,
    time::Time,
};
use rusqlite::params;

use crate::sqlite::{
    conversation::{
        message_progress::{SAVE_TALLY, effective_version, load_tally},
        threads,
    },
    inbox::messages,
    outbound::{
        accept::{self, PreparedEmail},
        key_bindings::{self, unknown_team_error},
    },
    rows::to_json,
    write_session::WriteSession,
};

/// Accepts a reply if all guards allow it. Otherwise returns the guard that refused it.
pub(crate) fn accept_reply(ledger: &mut WriteSession<'_>, new_reply: &NewReply, now: Time) -> Result<ReplyResult> {
    let id = new_reply.email.team;
    let team = ledger.team_number(id).ok_or_else(|| unknown_team_error(id))?;
    if let Some(key) = new_reply.email.key
        && let Some(bound) = key_bindings::key_binding(ledger, (id, team), key, now)?
    {
        return Ok(ReplyResult::KeyBound(bound));
    }
    let Some(context) = load_reply_context(ledger, team, new_reply, now)? else { return Ok(ReplyResult::Missing) };
    match new_reply.check_guards(&context, now) {
        ReplyVerdict::Refuse(guard, newer) => {
            ledger.emit(team, &new_reply.refusal_event(guard, &context, now));
            Ok(ReplyResult::Refused(guard, newer, context.message, context.thread))
        }
        ReplyVerdict::AlreadyAnswered(id) => {
            Ok(ReplyResult::AlreadyAnswered(id, context.previous_reply, context.thread))
        }
        ReplyVerdict::Accept(guard) => {
            let mut inner = new_reply.email.clone();
            inner.guard_input.holds = inner.guard_input.holds.union(guard.into());
            let mut prepared = PreparedEmail::new(inner, now)?;
            let said = accept::accept(ledger, &mut prepared, now)?;
            match prepared.into_accept(said) {
                AcceptResult::First(email) => save_reply_effects(ledger, team, new_reply, context, email, now),
                AcceptResult::KeyBound(bound) => Ok(ReplyResult::KeyBound(bound)),
                // A reply is recognized by its slot and is never asked for identical emails.
                AcceptResult::Identical(email) => Ok(ReplyResult::KeyBound(KeyBinding::Email(email))),
                AcceptResult::OverBudget(exceeded) => Ok(ReplyResult::OverBudget(exceeded)),
            }
        }
    }
}

/// Loads what the guards need to know about a reply. `None` when the team has no such message.
fn load_reply_context(
    ledger: &WriteSession<'_>,
    team: i64,
    new_reply: &NewReply,
    now: Time,
) -> Result<Option<ReplyContext>> {
    let id = new_reply.email.team;
    let Some(message) = messages::by_id(ledger.conn, id, team, new_reply.message)? else { return Ok(None) };
    let thread = threads::of_message(ledger.conn, team, &message, now)?;
    let taken = message.annotations.progress.answered_by(&new_reply.slot);
    let before = taken.map(|email| effective_version(ledger, (id, team), email)).transpose()?.flatten();
    let person =
        new_reply.recipient_hash.map(|person| load_tally(ledger, team, person)).transpose()?.unwrap_or_default();
    Ok(Some(ReplyContext { message, thread, previous_reply: before, recipient_tally: person }))
}

/// Saves what an accepted reply changes besides its own rows: the message, the thread and the recipient's tally.
fn save_reply_effects(
    ledger: &mut WriteSession<'_>,
    team: i64,
    new_reply: &NewReply,
    mut context: ReplyContext,
    email: Email,
    now: Time,
) -> Result<ReplyResult> {
    let before = context.recipient_tally.clone();
    let events: Vec<NewEvent> = new_reply.apply(&mut context, &email, now);
    messages::save(ledger, &context.message)?;
    threads::save(ledger, team, &context.thread)?;
    threads::add_email(ledger, context.thread.id, email.id)?;
    if let Some(person) = new_reply.recipient_hash.filter(|_| context.recipient_tally != before) {
        ledger.execute(SAVE_TALLY, params![team, person, now.0, to_json(&context.recipient_tally)?])?;
    }
    events.iter().for_each(|event| ledger.emit(team, event));
    ledger.queue_changed_email(email.clone());
    Ok(ReplyResult::First(email, context.thread))
}
