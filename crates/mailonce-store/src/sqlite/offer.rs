//! Who works on what: the leases of threads, and messages that are offered with them.

use mailonce_core::{
    conversation::{
        thread::{LeaseAsk, Leasing, NextAsk, Offer, Settled, Thread},
        turn::{Held, Settling},
    },
    id::{TeamId, ThreadId},
    message::Message,
    port::store::{Once, Operation, Result},
    time::Time,
};

use super::{accept, ledger::Ledger, message, thread};

/// Unanswered messages that are looked at in one go.
const PIECE: usize = 64;

/// Takes or renews the lease of a thread.
pub(super) fn lease(
    ledger: &mut Ledger<'_>,
    (team, id): (TeamId, ThreadId),
    ask: &LeaseAsk,
    operation: Option<&Operation>,
    now: Time,
) -> Result<Once<Leasing>> {
    let Some(number) = ledger.team_number(team) else { return Ok(Once::Done(Leasing::Missing)) };
    let Some(thread) = thread::one(ledger.conn, (team, number), id)? else { return Ok(Once::Done(Leasing::Missing)) };
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let (leasing, event) = thread.lease(ask, None, now);
    if let Leasing::Taken(thread) = &leasing {
        thread::save(ledger, number, thread)?;
        event.iter().for_each(|event| ledger.emit(number, event));
        if let Some(operation) = operation {
            accept::bind_operation(ledger, operation)?;
        }
    }
    Ok(Once::Done(leasing))
}

/// Gives a lease back, if it is this token's.
pub(super) fn release(ledger: &Ledger<'_>, team: TeamId, id: ThreadId, token: &str) -> Result<Option<Thread>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(mut thread) = thread::one(ledger.conn, (team, number), id)? else { return Ok(None) };
    if thread.release(token) {
        thread::save(ledger, number, &thread)?;
    }
    Ok(Some(thread))
}

/// Gives the oldest unanswered messages of an inbox to an agent.
pub(super) fn next(
    ledger: &mut Ledger<'_>,
    team: TeamId,
    ask: &NextAsk,
    operation: Option<&Operation>,
    now: Time,
) -> Result<Once<Vec<Offer>>> {
    let Some(number) = ledger.team_number(team) else { return Ok(Once::Done(Vec::new())) };
    if let Some(operation) = operation
        && let Some(answer) = accept::repeat_of(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let offers = offers(ledger, (team, number), ask, now)?;
    if let Some(operation) = operation.filter(|_| !offers.is_empty()) {
        accept::bind_operation(ledger, operation)?;
    }
    Ok(Once::Done(offers))
}

fn offers(ledger: &mut Ledger<'_>, place: (TeamId, i64), ask: &NextAsk, now: Time) -> Result<Vec<Offer>> {
    let (mut offers, mut after) = (Vec::new(), 0);
    loop {
        let waiting = message::unanswered(ledger.conn, place, ask.inbox, after, PIECE)?;
        let is_last = waiting.len() < PIECE;
        for message in waiting {
            let Some(token) = ask.tokens.get(offers.len()) else { return Ok(offers) };
            after = message.seq;
            if message.may_be_offered(now) {
                let given = offer(ledger, place.1, message, ask, token, now)?;
                offers.extend(given.map(|(message, thread)| Offer { message, thread, token: offers.len() }));
            }
        }
        if is_last {
            return Ok(offers);
        }
    }
}

/// Offers a message, unless somebody works on its thread or it was offered too often.
fn offer(
    ledger: &mut Ledger<'_>,
    team: i64,
    mut message: Message,
    ask: &NextAsk,
    token: &str,
    now: Time,
) -> Result<Option<(Message, Thread)>> {
    let thread = thread::of_message(ledger.conn, team, &message, now)?;
    if thread.lease_at(now).is_some() {
        return Ok(None);
    }
    let ended = message.offer(now);
    message::save(ledger, &message)?;
    if let Some(ended) = ended {
        ledger.emit(team, &ended);
        return Ok(None);
    }
    let (holder, ttl_ms) = (ask.holder.clone(), ask.ttl_ms);
    let wish = LeaseAsk { renew: None, token: token.to_owned(), holder, ttl_ms };
    let (Leasing::Taken(thread), event) = thread.lease(&wish, Some(message.id), now) else { return Ok(None) };
    thread::save(ledger, team, &thread)?;
    event.iter().for_each(|event| ledger.emit(team, event));
    Ok(Some((message, thread)))
}

/// Writes down what an agent says about a message that it holds.
pub(super) fn settle(ledger: &mut Ledger<'_>, team: TeamId, held: &Held, how: Settling, now: Time) -> Result<Settled> {
    let Some(number) = ledger.team_number(team) else { return Ok(Settled::Missing) };
    let found = message::one(ledger.conn, team, number, held.message)?;
    let Some(mut message) = found else { return Ok(Settled::Missing) };
    let mut thread = thread::of_message(ledger.conn, number, &message, now)?;
    let Some(events) = thread.settle(&mut message, &held.token, how, now) else {
        return Ok(Settled::Stale(message, thread));
    };
    message::save(ledger, &message)?;
    thread::save(ledger, number, &thread)?;
    events.iter().for_each(|event| ledger.emit(number, event));
    Ok(Settled::Done(message, thread))
}
