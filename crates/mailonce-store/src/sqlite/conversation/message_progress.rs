//! What a change of a reply changes at its message: the progress of the message, and the counts of the guards.

use mailonce_core::{
    conversation::{caps::RecentReplyTimes, reply_guards},
    id::{EmailId, TeamId},
    outbound::email::Email,
    ports::store::Result,
    time::Time,
};
use rusqlite::{OptionalExtension as _, params};

use crate::sqlite::{
    conversation::threads,
    inbox::messages,
    rows::{self, corrupt_row, to_json},
    schema::store_error,
    write_session::WriteSession,
};

const SELECT_TALLY: &str = "SELECT times FROM tallies WHERE team = ?1 AND person = ?2";
pub(super) const SAVE_TALLY: &str = "INSERT INTO tallies (team, person, latest_at, times) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT DO UPDATE SET latest_at = MAX(latest_at, ?3), times = ?4";

/// The version of an email that counts: the email itself, or one of its resends.
pub(super) fn effective_version(
    ledger: &WriteSession<'_>,
    (id, team): (TeamId, i64),
    first: EmailId,
) -> Result<Option<Email>> {
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
    for (_, first) in &message.annotations.progress.answers {
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
    let replies = message.annotations.progress.replies().map(|id| effective_version(ledger, (after.team, team), id));
    let answers = replies.collect::<Result<Vec<_>>>()?;
    if let Some(event) = reply_guards::reassess_message(&mut message, &answers, after.id, now) {
        messages::save(ledger, &message)?;
        ledger.emit(team, &event);
    }
    Ok(())
}

/// The times at which a person received replies.
pub(super) fn load_tally(ledger: &WriteSession<'_>, team: i64, person: [u8; 16]) -> Result<RecentReplyTimes> {
    let mut statement = ledger.conn.prepare_cached(SELECT_TALLY).map_err(store_error)?;
    let times: Option<String> =
        statement.query_row(params![team, person], |row| row.get(0)).optional().map_err(store_error)?;
    let Some(times) = times else { return Ok(RecentReplyTimes::default()) };
    serde_json::from_str(&times).map_err(|e| corrupt_row(&format!("a tally: {e}")))
}
