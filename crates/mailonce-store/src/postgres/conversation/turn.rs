//! Turns: messages that nobody works on are given to agents, and agents say what became of them.

use deadpool_postgres::Transaction;
use mailonce_core::{
    conversation::{
        thread::{LeaseAsk, Leasing, NextAsk, Offer, Settled, Thread},
        turn::{Held, Settling},
    },
    id::TeamId,
    message::Message,
    port::store::{Once, Operation},
    time::Time,
};
use std::collections::BTreeSet;
use uuid::Uuid;

use super::row::{READ, hold, messages_of_threads, read_pair};
use crate::postgres::{
    Ledger,
    careful::{load, lock_scopes},
    ground::Ground,
    row::Scope,
    trouble::Tried,
    write::ask,
};

/// The oldest messages that may be offered, and whose thread nobody holds or is about to hold. They are read again
/// once the threads are locked, because this statement may have seen them as they were before.
const WAITING: &str = messages_of_threads!(
    "m.id, m.seq",
    "WHERE m.team = $1 AND m.inbox = $2 AND m.state = 'unanswered' AND m.seq > $4
       AND (m.not_before IS NULL OR m.not_before <= $3) AND (t.leased_until IS NULL OR t.leased_until <= $3)
       AND t.id <> ALL ($5)
     ORDER BY m.seq LIMIT $6 FOR UPDATE OF t SKIP LOCKED"
);

impl Ledger {
    /// Gives the oldest unanswered messages of an inbox to an agent.
    pub(super) async fn next_messages(
        &self,
        team: TeamId,
        wanted: &NextAsk,
        operation: Option<&Operation>,
        now: Time,
    ) -> Tried<Once<Vec<Offer>>> {
        let scopes: BTreeSet<Scope> = operation.iter().map(|operation| (operation.team, operation.key)).collect();
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        lock_scopes(&tx, &scopes).await?;
        let mut ground = load(&tx, &self.time, &scopes, &[]).await?;
        if let Some(answer) = operation.and_then(|operation| ground.repeat_of(operation, now)) {
            tx.rollback().await?;
            return Ok(answer);
        }
        let offers = offer_all(&tx, &mut ground, team, wanted, now).await?;
        if let Some(operation) = operation.filter(|_| !offers.is_empty()) {
            ground.bind_operation(operation);
        }
        self.settle(tx, &ground, 1).await?;
        Ok(Once::Done(offers))
    }

    /// What an agent says about a message that it holds.
    pub(super) async fn settle_message(&self, team: TeamId, held: &Held, how: Settling, now: Time) -> Tried<Settled> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        let mut ground = Ground::default();
        let answer = match hold(&tx, team, held.message).await? {
            Some((message, thread)) => settled(&mut ground, message, thread, held, how, now),
            None => Settled::Missing,
        };
        self.settle(tx, &ground, 1).await?;
        Ok(answer)
    }
}

/// Offers messages until there are enough or no more. A thread that was given is passed over from then on.
async fn offer_all(
    tx: &Transaction<'_>,
    ground: &mut Ground,
    team: TeamId,
    wanted: &NextAsk,
    now: Time,
) -> Tried<Vec<Offer>> {
    let (mut offers, mut given, mut after) = (Vec::<Offer>::new(), Vec::<Uuid>::new(), 0_i64);
    while offers.len() < wanted.tokens.len() {
        let most = (wanted.tokens.len() - offers.len()) as i64;
        let rows = ask(tx, WAITING, &[&team.0, &wanted.inbox.0, &now.0, &after, &given, &most]).await?;
        let Some(last) = rows.last() else { break };
        after = last.try_get(1)?;
        let ids = rows.iter().map(|row| Ok(row.try_get(0)?)).collect::<Tried<Vec<Uuid>>>()?;
        for row in ask(tx, READ, &[&team.0, &ids]).await? {
            let (message, thread) = read_pair(&row)?;
            if given.contains(&thread.id.0) || !message.may_be_offered(now) || thread.lease_at(now).is_some() {
                continue;
            }
            if let Some(offer) = offer(ground, message, thread, wanted, offers.len(), now) {
                given.push(offer.thread.id.0);
                offers.push(offer);
            }
        }
    }
    Ok(offers)
}

/// Offers a message. `None` when it was offered too often, and is skipped for good.
fn offer(
    ground: &mut Ground,
    mut message: Message,
    thread: Thread,
    wanted: &NextAsk,
    token: usize,
    now: Time,
) -> Option<Offer> {
    let ended = message.offer(now);
    ground.talk.messages.insert(message.id, message.clone());
    if let Some(ended) = ended {
        ground.events.push((message.team, ended));
        return None;
    }
    let NextAsk { holder, ttl_ms, tokens, .. } = wanted;
    let lease = LeaseAsk { renew: None, token: tokens.get(token)?.clone(), holder: holder.clone(), ttl_ms: *ttl_ms };
    let (Leasing::Taken(thread), event) = thread.lease(&lease, Some(message.id), now) else { return None };
    ground.events.extend(event.map(|event| (message.team, event)));
    ground.talk.threads.insert(thread.id, thread.clone());
    Some(Offer { message, thread, token })
}

/// What becomes of a message about which an agent said something.
fn settled(
    ground: &mut Ground,
    mut message: Message,
    mut thread: Thread,
    held: &Held,
    how: Settling,
    now: Time,
) -> Settled {
    let Some(events) = thread.settle(&mut message, &held.token, how, now) else {
        return Settled::Stale(message, thread);
    };
    ground.events.extend(events.into_iter().map(|event| (message.team, event)));
    ground.talk.messages.insert(message.id, message.clone());
    ground.talk.threads.insert(thread.id, thread.clone());
    Settled::Done(message, thread)
}
