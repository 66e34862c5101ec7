//! The agents' work queue: leasing unanswered messages to agents, and their acknowledgements.

use deadpool_postgres::Transaction;
use mailonce_core::{
    conversation::{
        message_progress::{Acknowledgement, MessageLeaseRef},
        thread::{AcknowledgeResult, MessageLeaseSpec, MessageOffer, Thread, ThreadLeaseResult, ThreadLeaseSpec},
    },
    id::TeamId,
    inbox::message::Message,
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use std::collections::BTreeSet;
use uuid::Uuid;

use super::row::{READ_MESSAGES, lock_message_and_thread, messages_of_threads, read_message_and_thread};
use crate::postgres::{
    SharedState,
    error::TxResult,
    locked_tx::{load_unit_of_work, lock_scopes},
    row::TeamKey,
    statements::query_rows,
    unit_of_work::UnitOfWork,
};

/// The oldest messages that may be offered and whose thread is neither leased nor locked. They are read again once
/// the threads are locked, because this statement may have read older versions.
const OFFERABLE_MESSAGES: &str = messages_of_threads!(
    "m.id, m.seq",
    "WHERE m.team = $1 AND m.inbox = $2 AND m.state = 'unanswered' AND m.seq > $4
       AND (m.not_before IS NULL OR m.not_before <= $3) AND (t.leased_until IS NULL OR t.leased_until <= $3)
       AND t.id <> ALL ($5)
     ORDER BY m.seq LIMIT $6 FOR UPDATE OF t SKIP LOCKED"
);

/// Leases the oldest unanswered messages of an inbox to an agent.
pub(crate) async fn lease_messages(
    shared: &SharedState,
    team: TeamId,
    wanted: &MessageLeaseSpec,
    operation: Option<&KeyedOperation>,
    now: Time,
) -> TxResult<IdempotentResult<Vec<MessageOffer>>> {
    let scopes: BTreeSet<TeamKey> = operation.iter().map(|operation| (operation.team, operation.key)).collect();
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    lock_scopes(&tx, &scopes).await?;
    let mut work = load_unit_of_work(&tx, &shared.time, &scopes, &[]).await?;
    if let Some(answer) = operation.and_then(|operation| work.find_replay(operation, now)) {
        tx.rollback().await?;
        return Ok(answer);
    }
    let offers = offer_messages(&tx, &mut work, team, wanted, now).await?;
    if let Some(operation) = operation.filter(|_| !offers.is_empty()) {
        work.bind_operation(operation);
    }
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(IdempotentResult::Done(offers))
}

/// Applies an agent's acknowledgement of a message that it has leased.
pub(crate) async fn acknowledge_message(
    shared: &SharedState,
    team: TeamId,
    held: &MessageLeaseRef,
    how: Acknowledgement,
    now: Time,
) -> TxResult<AcknowledgeResult> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let mut work = UnitOfWork::default();
    let answer = match lock_message_and_thread(&tx, team, held.message).await? {
        Some((message, thread)) => apply_acknowledgement(&mut work, message, thread, held, how, now),
        None => AcknowledgeResult::Missing,
    };
    shared.write_and_commit(tx, &work, 1).await?;
    Ok(answer)
}

/// Offers messages until there are enough or no more. Threads that were leased in this call are skipped.
async fn offer_messages(
    tx: &Transaction<'_>,
    work: &mut UnitOfWork,
    team: TeamId,
    wanted: &MessageLeaseSpec,
    now: Time,
) -> TxResult<Vec<MessageOffer>> {
    let (mut offers, mut given, mut after) = (Vec::<MessageOffer>::new(), Vec::<Uuid>::new(), 0_i64);
    while offers.len() < wanted.tokens.len() {
        let most = (wanted.tokens.len() - offers.len()) as i64;
        let rows =
            query_rows(tx, OFFERABLE_MESSAGES, &[&team.0, &wanted.inbox.0, &now.0, &after, &given, &most]).await?;
        let Some(last) = rows.last() else { break };
        after = last.try_get(1)?;
        let ids = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<TxResult<Vec<Uuid>>>()?;
        for row in query_rows(tx, READ_MESSAGES, &[&team.0, &ids]).await? {
            let (message, thread) = read_message_and_thread(&row)?;
            if given.contains(&thread.id.0) || !message.may_be_offered(now) || thread.active_lease(now).is_some() {
                continue;
            }
            if let Some(offer) = offer_message(work, message, thread, wanted, offers.len(), now) {
                given.push(offer.thread.id.0);
                offers.push(offer);
            }
        }
    }
    Ok(offers)
}

/// Offers a message. `None` when it was offered too often; it is then skipped for good.
fn offer_message(
    work: &mut UnitOfWork,
    mut message: Message,
    thread: Thread,
    wanted: &MessageLeaseSpec,
    token: usize,
    now: Time,
) -> Option<MessageOffer> {
    let ended = message.record_offer(now);
    work.conversations.messages.insert(message.id, message.clone());
    if let Some(ended) = ended {
        work.events.push((message.team, ended));
        return None;
    }
    let MessageLeaseSpec { holder, ttl_ms, tokens, .. } = wanted;
    let lease =
        ThreadLeaseSpec { renew: None, token: tokens.get(token)?.clone(), holder: holder.clone(), ttl_ms: *ttl_ms };
    let (ThreadLeaseResult::Leased(thread), event) = thread.lease(&lease, Some(message.id), now) else { return None };
    work.events.extend(event.map(|event| (message.team, event)));
    work.conversations.threads.insert(thread.id, thread.clone());
    Some(MessageOffer { message, thread, token_index: token })
}

/// Applies an acknowledgement to a locked message and its thread.
fn apply_acknowledgement(
    work: &mut UnitOfWork,
    mut message: Message,
    mut thread: Thread,
    held: &MessageLeaseRef,
    how: Acknowledgement,
    now: Time,
) -> AcknowledgeResult {
    let Some(events) = thread.acknowledge(&mut message, &held.token_hash, how, now) else {
        return AcknowledgeResult::Stale(message, thread);
    };
    work.events.extend(events.into_iter().map(|event| (message.team, event)));
    work.conversations.messages.insert(message.id, message.clone());
    work.conversations.threads.insert(thread.id, thread.clone());
    AcknowledgeResult::Done(message, thread)
}
