//! Answers: a reply or a forward passes its guards and is accepted with them in one step.

use mailonce_core::{
    conversation::{
        answer::{self, AnswerWish, Answered, Ground, Judged},
        caps::Tally,
    },
    email::Email,
    event::NewEvent,
    id::{EmailId, TeamId},
    port::store::{Accept, Result},
    time::Time,
};
use rusqlite::{OptionalExtension as _, params};

use super::{
    accept::{self, Prepared, no_team},
    ledger::Ledger,
    message,
    rows::{self, damaged, to_json},
    schema::told,
    thread,
};

const TALLY: &str = "SELECT times FROM tallies WHERE team = ?1 AND person = ?2";
const COUNT: &str = "INSERT INTO tallies (team, person, latest_at, times) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT DO UPDATE SET latest_at = MAX(latest_at, ?3), times = ?4";

/// Accepts an answer with every guard, or says which refused it.
pub(super) fn answer(ledger: &mut Ledger<'_>, wish: &AnswerWish, now: Time) -> Result<Answered> {
    let id = wish.wish.team;
    let team = ledger.team_number(id).ok_or_else(|| no_team(id))?;
    if let Some(key) = wish.wish.key
        && let Some(bound) = accept::bound(ledger, (id, team), key, now)?
    {
        return Ok(Answered::Bound(bound));
    }
    let Some(ground) = ground(ledger, team, wish, now)? else { return Ok(Answered::Missing) };
    match wish.judge(&ground, now) {
        Judged::Refuse(guard, newer) => {
            ledger.emit(team, &wish.refused(guard, &ground, now));
            Ok(Answered::Refused(guard, newer, ground.message, ground.thread))
        }
        Judged::Already(id) => Ok(Answered::Already(id, ground.before, ground.thread)),
        Judged::Accept(guard) => {
            let mut inner = wish.wish.clone();
            inner.care.hold = guard.or(inner.care.hold);
            let mut prepared = Prepared::new(inner, now)?;
            let said = accept::accept(ledger, &mut prepared, now)?;
            match prepared.answer(said) {
                Accept::First(email) => answered(ledger, team, wish, ground, email, now),
                Accept::Bound(bound) => Ok(Answered::Bound(bound)),
                Accept::OverBudget(exceeded) => Ok(Answered::OverBudget(exceeded)),
            }
        }
    }
}

/// What the ledger has to say about an answer. `None` when the team has no such message.
fn ground(ledger: &Ledger<'_>, team: i64, wish: &AnswerWish, now: Time) -> Result<Option<Ground>> {
    let id = wish.wish.team;
    let Some(message) = message::one(ledger.conn, id, team, wish.message)? else { return Ok(None) };
    let thread = thread::of_message(ledger.conn, team, &message, now)?;
    let taken = message.marks.turn.answered_by(&wish.slot);
    let before = taken.map(|email| standing_version(ledger, (id, team), email)).transpose()?.flatten();
    let person = wish.person.map(|person| tally(ledger, team, person)).transpose()?.unwrap_or_default();
    Ok(Some(Ground { message, thread, before, person }))
}

/// The email, or what it was sent again as, whichever counts.
fn standing_version(ledger: &Ledger<'_>, (id, team): (TeamId, i64), first: EmailId) -> Result<Option<Email>> {
    let Some(mut found) = rows::email_by_id(ledger.conn, id, team, first)? else { return Ok(None) };
    let mut next = found.resent_as;
    while let Some(email) = next.map(|next| rows::email_by_id(ledger.conn, id, team, next)).transpose()?.flatten() {
        next = email.resent_as;
        found = answer::standing(found, email);
    }
    Ok(Some(found))
}

/// Whether an email is still a version of what answered its message. True when it answers none.
pub(super) fn still_answers(ledger: &Ledger<'_>, team: i64, email: &Email) -> Result<bool> {
    let Some(id) = email.head.answers else { return Ok(true) };
    let Some(message) = message::one(ledger.conn, email.team, team, id)? else { return Ok(true) };
    for (_, first) in &message.marks.turn.answers {
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

/// Whose turn the message is that an email answers, now that the email is another. The email is written already.
pub(super) fn turn_over(ledger: &mut Ledger<'_>, team: i64, before: &Email, after: &Email, now: Time) -> Result<()> {
    let Some(id) = answer::turns(before, after) else { return Ok(()) };
    let Some(mut message) = message::one(ledger.conn, after.team, team, id)? else { return Ok(()) };
    if let Some(person) = answer::counts_now(&message, before, after) {
        let mut thread = thread::of_message(ledger.conn, team, &message, now)?;
        thread.let_go(now);
        thread::save(ledger, team, &thread)?;
        if let Some(person) = person {
            let mut answered = tally(ledger, team, person)?;
            answered.count(now);
            ledger.execute(COUNT, params![team, person, now.0, to_json(&answered)?])?;
        }
    }
    let replies = message.marks.turn.replies().map(|id| standing_version(ledger, (after.team, team), id));
    let answers = replies.collect::<Result<Vec<_>>>()?;
    if let Some(event) = answer::weigh(&mut message, &answers, after.id, now) {
        message::save(ledger, &message)?;
        ledger.emit(team, &event);
    }
    Ok(())
}

/// When a person was answered.
fn tally(ledger: &Ledger<'_>, team: i64, person: [u8; 16]) -> Result<Tally> {
    let mut statement = ledger.conn.prepare_cached(TALLY).map_err(told)?;
    let times: Option<String> =
        statement.query_row(params![team, person], |row| row.get(0)).optional().map_err(told)?;
    let Some(times) = times else { return Ok(Tally::default()) };
    serde_json::from_str(&times).map_err(|e| damaged(&format!("a tally: {e}")))
}

/// Writes what an accepted answer changes besides its own rows.
fn answered(
    ledger: &mut Ledger<'_>,
    team: i64,
    wish: &AnswerWish,
    mut ground: Ground,
    email: Email,
    now: Time,
) -> Result<Answered> {
    let before = ground.person.clone();
    let events: Vec<NewEvent> = wish.apply(&mut ground, &email, now);
    message::save(ledger, &ground.message)?;
    thread::save(ledger, team, &ground.thread)?;
    thread::add_email(ledger, ground.thread.id, email.id)?;
    if let Some(person) = wish.person.filter(|_| ground.person != before) {
        ledger.execute(COUNT, params![team, person, now.0, to_json(&ground.person)?])?;
    }
    events.iter().for_each(|event| ledger.emit(team, event));
    ledger.note_changed(email.clone());
    Ok(Answered::First(email, ground.thread))
}
