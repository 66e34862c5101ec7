//! Answers: a reply or a forward, its guards and everything it changes, in one transaction.
//!
//! The key is locked first and the thread then. Two answers to one message, or in one thread, on one node or on two,
//! wait for each other there, and the second is judged by what the first left.

use deadpool_postgres::Transaction;
use mailonce_core::{
    conversation::{
        answer::{self, AnswerWish, Answered, Judged},
        caps::Tally,
    },
    email::Email,
    id::{EmailId, TeamId},
    port::store::Accept,
    time::Time,
};
use std::collections::BTreeSet;

use super::{likeness, row::hold, talk::hold_tally};
use crate::postgres::{
    Ledger,
    careful::{load, load_more, lock_scopes},
    control::budget,
    ground::{Ground, scopes_of_wish},
    row::Scope,
    trouble::Tried,
};

impl Ledger {
    /// Accepts a reply or a forward with every guard, or says which refused it.
    pub(super) async fn answer_message(&self, wish: &AnswerWish, now: Time) -> Tried<Answered> {
        let inner = &wish.wish;
        let scopes: BTreeSet<Scope> = scopes_of_wish(inner).collect();
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        let mut ground = load(&tx, &self.time, &scopes, &[]).await?;
        if let Some(bound) = inner.key.and_then(|key| ground.bound(inner.team, key, now)) {
            tx.rollback().await?;
            return Ok(Answered::Bound(bound));
        }
        let Some(mut met) = meet(&tx, &mut ground, wish).await? else {
            tx.rollback().await?;
            return Ok(Answered::Missing);
        };
        let answer = judged(&mut ground, &mut met, wish, now);
        self.settle(tx, &ground, 1).await?;
        Ok(answer)
    }
}

/// Locks and reads what the guards ask about. `None` when the team has no such message.
async fn meet(tx: &Transaction<'_>, ground: &mut Ground, wish: &AnswerWish) -> Tried<Option<answer::Ground>> {
    let team = wish.wish.team;
    let Some((message, thread)) = hold(tx, team, wish.message).await? else { return Ok(None) };
    let before = match message.marks.turn.answered_by(&wish.slot) {
        Some(id) => standing_version(tx, ground, team, id).await?,
        None => None,
    };
    let person = match wish.person {
        Some(person) => hold_tally(tx, team, person).await?,
        None => Tally::default(),
    };
    likeness::hold(tx, ground, std::iter::once(&wish.wish)).await?;
    budget::lock(tx, ground, std::iter::once(&wish.wish)).await?;
    Ok(Some(answer::Ground { message, thread, before, person }))
}

/// The email, or what it was sent again as, whichever counts.
async fn standing_version(
    tx: &Transaction<'_>,
    ground: &mut Ground,
    team: TeamId,
    mut id: EmailId,
) -> Tried<Option<Email>> {
    let mut found: Option<Email> = None;
    loop {
        load_more(tx, ground, std::iter::once((team, id))).await?;
        let Some(email) = ground.of_team(team, id) else { return Ok(found) };
        let next = email.resent_as;
        found = Some(match found {
            Some(earlier) => answer::standing(earlier, email),
            None => email,
        });
        match next {
            Some(next) => id = next,
            None => return Ok(found),
        }
    }
}

/// Whether an email is still a version of what answered its message. True when it answers none. Holds the message's
/// thread, so that nothing else answers it meanwhile.
pub(in crate::postgres) async fn still_answers(
    tx: &Transaction<'_>,
    ground: &mut Ground,
    email: &Email,
) -> Tried<bool> {
    let Some(id) = email.head.answers else { return Ok(true) };
    let Some((message, _)) = hold(tx, email.team, id).await? else { return Ok(true) };
    for (_, first) in &message.marks.turn.answers {
        let mut version = Some(*first);
        while let Some(id) = version {
            if id == email.id {
                return Ok(true);
            }
            load_more(tx, ground, std::iter::once((email.team, id))).await?;
            version = ground.of_team(email.team, id).and_then(|email| email.resent_as);
        }
    }
    Ok(false)
}

/// Whose turn the message is that an email answers, now that the email is another. The ground holds the email as it is
/// to be.
pub(in crate::postgres) async fn turn_over(
    tx: &Transaction<'_>,
    ground: &mut Ground,
    (before, after): (&Email, &Email),
    now: Time,
) -> Tried<()> {
    let Some(id) = answer::turns(before, after) else { return Ok(()) };
    let Some((mut message, mut thread)) = hold(tx, after.team, id).await? else { return Ok(()) };
    if let Some(person) = answer::counts_now(&message, before, after) {
        thread.let_go(now);
        ground.talk.threads.insert(thread.id, thread);
        if let Some(person) = person {
            let mut tally = hold_tally(tx, after.team, person).await?;
            tally.count(now);
            ground.talk.tally = Some((after.team, person, tally, now));
        }
    }
    let mut answers = Vec::new();
    for id in message.marks.turn.replies().collect::<Vec<_>>() {
        answers.push(standing_version(tx, ground, after.team, id).await?);
    }
    if let Some(event) = answer::weigh(&mut message, &answers, after.id, now) {
        ground.events.push((after.team, event));
        ground.talk.messages.insert(message.id, message);
    }
    Ok(())
}

/// What the guards say, and what comes of it.
fn judged(ground: &mut Ground, met: &mut answer::Ground, wish: &AnswerWish, now: Time) -> Answered {
    let team = wish.wish.team;
    match wish.judge(met, now) {
        Judged::Refuse(guard, newer) => {
            ground.events.push((team, wish.refused(guard, met, now)));
            Answered::Refused(guard, newer, met.message.clone(), met.thread.clone())
        }
        Judged::Already(id) => Answered::Already(id, met.before.clone(), met.thread.clone()),
        Judged::Accept(guard) => {
            let mut inner = wish.wish.clone();
            inner.care.hold = guard.or(inner.care.hold);
            match ground.accept(inner, now) {
                Accept::First(email) => answered(ground, met, wish, email, now),
                Accept::Bound(bound) => Answered::Bound(bound),
                Accept::OverBudget(exceeded) => Answered::OverBudget(exceeded),
            }
        }
    }
}

/// Notes what an accepted answer changes besides its own rows.
fn answered(ground: &mut Ground, met: &mut answer::Ground, wish: &AnswerWish, email: Email, now: Time) -> Answered {
    let team = wish.wish.team;
    let before = met.person.clone();
    let events = wish.apply(met, &email, now);
    ground.events.extend(events.into_iter().map(|event| (team, event)));
    let talk = &mut ground.talk;
    talk.messages.insert(met.message.id, met.message.clone());
    talk.threads.insert(met.thread.id, met.thread.clone());
    talk.joined.push((team, met.thread.id, email.id));
    let counted = wish.person.filter(|_| met.person != before);
    talk.tally = counted.map(|person| (team, person, met.person.clone(), now));
    Answered::First(email, met.thread.clone())
}
