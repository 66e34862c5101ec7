//! The work queue: thread leases, and messages that are offered to agents together with the lease of their thread.

use mailonce_core::{
    conversation::{
        message_progress::{Acknowledgement, MessageLeaseRef},
        thread::{AcknowledgeResult, MessageLeaseSpec, MessageOffer, Thread, ThreadLeaseResult, ThreadLeaseSpec},
    },
    id::{TeamId, ThreadId},
    inbox::message::Message,
    operation::{IdempotentResult, KeyedOperation},
    ports::store::Result,
    time::Time,
};

use crate::sqlite::{conversation::threads, inbox::messages, outbound::key_bindings, write_session::WriteSession};

/// Unanswered messages that are read per query.
const MESSAGES_PER_PAGE: usize = 64;

/// Takes or renews the lease on a thread.
pub(crate) fn lease_thread(
    ledger: &mut WriteSession<'_>,
    (team, id): (TeamId, ThreadId),
    ask: &ThreadLeaseSpec,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<ThreadLeaseResult>> {
    let Some(number) = ledger.team_number(team) else { return Ok(IdempotentResult::Done(ThreadLeaseResult::Missing)) };
    let Some(thread) = threads::by_id(ledger.conn, (team, number), id)? else {
        return Ok(IdempotentResult::Done(ThreadLeaseResult::Missing));
    };
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let (leasing, event) = thread.lease(ask, None, now);
    if let ThreadLeaseResult::Leased(thread) = &leasing {
        threads::save(ledger, number, thread)?;
        event.iter().for_each(|event| ledger.emit(number, event));
        if let Some(operation) = operation {
            key_bindings::bind_operation(ledger, operation)?;
        }
    }
    Ok(IdempotentResult::Done(leasing))
}

/// Releases the lease on a thread, if it belongs to this token.
pub(crate) fn release_thread(
    ledger: &WriteSession<'_>,
    team: TeamId,
    id: ThreadId,
    token: &str,
) -> Result<Option<Thread>> {
    let Some(number) = ledger.team_number(team) else { return Ok(None) };
    let Some(mut thread) = threads::by_id(ledger.conn, (team, number), id)? else { return Ok(None) };
    if thread.release_lease(token) {
        threads::save(ledger, number, &thread)?;
    }
    Ok(Some(thread))
}

/// Offers the oldest unanswered messages of an inbox to an agent, and leases their threads to it.
pub(crate) fn lease_messages(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    ask: &MessageLeaseSpec,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> Result<IdempotentResult<Vec<MessageOffer>>> {
    let Some(number) = ledger.team_number(team) else { return Ok(IdempotentResult::Done(Vec::new())) };
    if let Some(operation) = operation
        && let Some(answer) = key_bindings::find_replay(ledger, operation, now)?
    {
        return Ok(answer);
    }
    let offers = collect_offers(ledger, (team, number), ask, now)?;
    if let Some(operation) = operation.filter(|_| !offers.is_empty()) {
        key_bindings::bind_operation(ledger, operation)?;
    }
    Ok(IdempotentResult::Done(offers))
}

fn collect_offers(
    ledger: &mut WriteSession<'_>,
    place: (TeamId, i64),
    ask: &MessageLeaseSpec,
    now: Time,
) -> Result<Vec<MessageOffer>> {
    let (mut offers, mut after) = (Vec::new(), 0);
    loop {
        let waiting = messages::unanswered(ledger.conn, place, ask.inbox, after, MESSAGES_PER_PAGE)?;
        let is_last = waiting.len() < MESSAGES_PER_PAGE;
        for message in waiting {
            let Some(token) = ask.tokens.get(offers.len()) else { return Ok(offers) };
            after = message.seq;
            if message.may_be_offered(now) {
                let given = offer_message(ledger, place.1, message, ask, token, now)?;
                offers.extend(given.map(|(message, thread)| MessageOffer {
                    message,
                    thread,
                    token_index: offers.len(),
                }));
            }
        }
        if is_last {
            return Ok(offers);
        }
    }
}

/// Offers a message, unless its thread is leased or the message was offered too often.
fn offer_message(
    ledger: &mut WriteSession<'_>,
    team: i64,
    mut message: Message,
    ask: &MessageLeaseSpec,
    token: &str,
    now: Time,
) -> Result<Option<(Message, Thread)>> {
    let thread = threads::of_message(ledger.conn, team, &message, now)?;
    if thread.active_lease(now).is_some() {
        return Ok(None);
    }
    let ended = message.record_offer(now);
    messages::save(ledger, &message)?;
    if let Some(ended) = ended {
        ledger.emit(team, &ended);
        return Ok(None);
    }
    let (holder, ttl_ms) = (ask.holder.clone(), ask.ttl_ms);
    let spec = ThreadLeaseSpec { renew: None, token: token.to_owned(), holder, ttl_ms };
    let (ThreadLeaseResult::Leased(thread), event) = thread.lease(&spec, Some(message.id), now) else {
        return Ok(None);
    };
    threads::save(ledger, team, &thread)?;
    event.iter().for_each(|event| ledger.emit(team, event));
    Ok(Some((message, thread)))
}

/// Records an agent's acknowledgement of a message whose lease it holds.
pub(crate) fn acknowledge_message(
    ledger: &mut WriteSession<'_>,
    team: TeamId,
    held: &MessageLeaseRef,
    how: Acknowledgement,
    now: Time,
) -> Result<AcknowledgeResult> {
    let Some(number) = ledger.team_number(team) else { return Ok(AcknowledgeResult::Missing) };
    let found = messages::by_id(ledger.conn, team, number, held.message)?;
    let Some(mut message) = found else { return Ok(AcknowledgeResult::Missing) };
    let mut thread = threads::of_message(ledger.conn, number, &message, now)?;
    let Some(events) = thread.acknowledge(&mut message, &held.token_hash, how, now) else {
        return Ok(AcknowledgeResult::Stale(message, thread));
    };
    messages::save(ledger, &message)?;
    threads::save(ledger, number, &thread)?;
    events.iter().for_each(|event| ledger.emit(number, event));
    Ok(AcknowledgeResult::Done(message, thread))
}
