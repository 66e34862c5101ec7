//! Replies: the guards of a reply or a forward are checked in the transaction that accepts it.

use mailonce_core::{
    conversation::{
        caps::ReplyTally,
        reply_guards::{self, NewReply, ReplyContext, ReplyResult, ReplyVerdict},
    },
    events::event::NewEvent,
    id::{EmailId, TeamId},
    outbound::{accept::AcceptResult, email::Email, key_binding::KeyBinding},
    ports::store::Result,
    time::Time,
};
use rusqlite::{OptionalExtension as _, params};

use crate::sqlite::{
    conversation::threads,
    inbox::messages,
    outbound::accept::{self, PreparedEmail, unknown_team_error},
    rows::{self, corrupt_row, to_json},
    schema::store_error,
    write_session::WriteSession,
};

const SELECT_TALLY: &str = "SELECT times FROM tallies WHERE team = ?1 AND person = ?2";
const SAVE_TALLY: &str = "INSERT INTO tallies (team, person, latest_at, times) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT DO UPDATE SET latest_at = MAX(latest_at, ?3), times = ?4";

/// Accepts a reply if all guards allow it. Otherwise returns the guard that refused it.
pub(crate) fn accept_reply(ledger: &mut WriteSession<'_>, new_reply: &NewReply, now: Time) -> Result<ReplyResult> {
    let id = new_reply.email.team;
    let team = ledger.team_number(id).ok_or_else(|| unknown_team_error(id))?;
    if let Some(key) = new_reply.email.key
        && let Some(bound) = accept::key_binding(ledger, (id, team), key, now)?
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
    let taken = message.annotations.turn.answered_by(&new_reply.slot);
    let before = taken.map(|email| effective_version(ledger, (id, team), email)).transpose()?.flatten();
    let person =
        new_reply.recipient_hash.map(|person| load_tally(ledger, team, person)).transpose()?.unwrap_or_default();
    Ok(Some(ReplyContext { message, thread, previous_reply: before, recipient_tally: person }))
}

/// The version of an email that counts: the email itself, or one of its resends.
fn effective_version(ledger: &WriteSession<'_>, (id, team): (TeamId, i64), first: EmailId) -> Result<Option<Email>> {
    let Some(mut found) = rows::email_by_id(ledger.conn, id, team, first)? else { return Ok(None) };
    let mut next = found.resent_as;
    while let Some(email) = next.map(|next| rows::email_by_id(ledger.conn, id, team, next)).transpose()?.flatten() {
        next = email.resent_as;
        found = reply_guards::effective_version(found, email);
    }
    Ok(Some(found))
}

/// Whether an email is a version of a current reply to its message. True when it is not a reply.
pub(crate) fn is_current_reply(ledger: &WriteSession<'_>, team: i64, email: &Email) -> Result<bool> {
    let Some(id) = email.head.answers else { return Ok(true) };
    let Some(message) = messages::by_id(ledger.conn, email.team, team, id)? else { return Ok(true) };
    for (_, first) in &message.annotations.turn.answers {
        let mut version = Some(*first);
        while let Some(id) = version {
            if id == email.id {
                return Ok(true);
            }
            version = rows::email_by_id(ledger.conn, email.team, team, id)?.and_then(|email| email.resent_as);
        }
    }
    Ok(false)
}

/// Updates the state of the message that an email replies to, after the email changed. The email is already saved.
pub(crate) fn update_message_progress(
    ledger: &mut WriteSession<'_>,
    team: i64,
    before: &Email,
    after: &Email,
    now: Time,
) -> Result<()> {
    let Some(id) = reply_guards::message_to_reassess(before, after) else { return Ok(()) };
    let Some(mut message) = messages::by_id(ledger.conn, after.team, team, id)? else { return Ok(()) };
    if let Some(person) = reply_guards::recipient_counted_on_release(&message, before, after) {
        let mut thread = threads::of_message(ledger.conn, team, &message, now)?;
        thread.count_released_reply(now);
        threads::save(ledger, team, &thread)?;
        if let Some(person) = person {
            let mut answered = load_tally(ledger, team, person)?;
            answered.record(now);
            ledger.execute(SAVE_TALLY, params![team, person, now.0, to_json(&answered)?])?;
        }
    }
    let replies = message.annotations.turn.replies().map(|id| effective_version(ledger, (after.team, team), id));
    let answers = replies.collect::<Result<Vec<_>>>()?;
    if let Some(event) = reply_guards::reassess_message(&mut message, &answers, after.id, now) {
        messages::save(ledger, &message)?;
        ledger.emit(team, &event);
    }
    Ok(())
}

/// The times at which a person received replies.
fn load_tally(ledger: &WriteSession<'_>, team: i64, person: [u8; 16]) -> Result<ReplyTally> {
    let mut statement = ledger.conn.prepare_cached(SELECT_TALLY).map_err(store_error)?;
    let times: Option<String> =
        statement.query_row(params![team, person], |row| row.get(0)).optional().map_err(store_error)?;
    let Some(times) = times else { return Ok(ReplyTally::default()) };
    serde_json::from_str(&times).map_err(|e| corrupt_row(&format!("a tally: {e}")))
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
