//! Receiving: mails that arrive together are stored in one transaction, each delivery once.
//!
//! One statement inserts or locks the deduplication keys in sorted order and returns their owners. The first delivery
//! with a key owns it; later ones are duplicates.

use deadpool_postgres::Transaction;
use mailonce_core::{
    events::event::NewEvent,
    id::{DeliveryId, InboxId, MessageId, NodeId, TeamId},
    inbound::{
        delivery::{Delivery, InboundMail, NewDelivery, ReceiveResult},
        wake_up::InboundWakeUp,
    },
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use super::{
    row::{delivery_columns, read_delivery, read_hash},
    sweep::RESWEEP_INBOXES,
};
use crate::postgres::{
    SharedState,
    call_batcher::{BatchedCall, CallBatcher},
    error::{TxError, TxResult},
    events::pending_events::write_events,
    inbound::{
        delivery_insert::{DeliveryColumns, INSERT_DELIVERIES, NewDeliveryRow},
        wake_ups::NOTIFY,
    },
    statements::{BoundStatement, execute, query_pipelined, query_rows},
};

/// Inserts the missing keys and locks the others, in sorted order. The no-op update makes existing rows appear in
/// `RETURNING`, as they are once the lock is held. Only a newly inserted row has no `xmax`.
const LOCK_DELIVERY_KEYS: &str = "
    INSERT INTO delivery_keys (team, key, delivery, known_until)
    SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::uuid[], $4::bigint[]) AS w (team, key, delivery, known_until)
     ORDER BY team, key
    ON CONFLICT (team, key) DO UPDATE SET delivery = delivery_keys.delivery
    RETURNING team, key, delivery, known_until, xmax = 0";
const REBIND_KEYS: &str = "
    UPDATE delivery_keys k SET delivery = w.delivery, known_until = w.known_until
      FROM unnest($1::uuid[], $2::bytea[], $3::uuid[], $4::bigint[]) AS w (team, key, delivery, known_until)
     WHERE k.team = w.team AND k.key = w.key";
const BY_IDS: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    " FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id) JOIN deliveries d ON d.team = w.team AND d.id = w.id"
);
/// The inboxes that exist. `FOR KEY SHARE` keeps them from being removed before this commits, because removal locks
/// the row `FOR UPDATE`. It does not block filing, which only updates the message number.
const LOCK_INBOXES: &str = "
    SELECT i.team, i.id FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)
      JOIN inboxes i ON i.team = w.team AND i.id = w.id AND i.removed_at IS NULL
     ORDER BY i.team, i.id FOR KEY SHARE OF i";
/// An existing row has the same bytes: the same mail arrived again before all its rows were swept.
const INSERT_RAWS: &str = "
    INSERT INTO raws (id, users, bytes) SELECT * FROM unnest($1::uuid[], $2::int[], $3::bytea[])
    ON CONFLICT (id) DO UPDATE SET users = raws.users + excluded.users";

/// A received mail to be stored.
#[derive(Clone)]
pub(crate) struct ReceiveCall {
    pub arrival: InboundMail,
    pub now: Time,
}

/// The delivery that owns a key, and until when.
type KeyedDelivery = (DeliveryId, Time);
type DeliveryKey = (TeamId, [u8; 32]);

impl BatchedCall for ReceiveCall {
    type Answer = Vec<ReceiveResult>;

    fn size(&self) -> usize {
        self.arrival.raw.len() + 1024 * self.arrival.deliveries.len()
    }

    fn batcher(ledger: &SharedState) -> &CallBatcher<Self> {
        &ledger.receive_batcher
    }

    async fn run_batch(ledger: &SharedState, together: &[Self]) -> TxResult<Vec<Vec<ReceiveResult>>> {
        receive_all(ledger, together).await
    }
}

/// Deliveries whose inbox no longer exists.
type DeliveriesWithoutInbox = BTreeSet<(TeamId, DeliveryId)>;

/// The same mails with these deliveries refused.
fn refuse_deliveries(all: &[ReceiveCall], gone: &DeliveriesWithoutInbox) -> Vec<ReceiveCall> {
    let mut all = all.to_vec();
    for new_delivery in all.iter_mut().flat_map(|coming| &mut coming.arrival.deliveries) {
        if gone.contains(&(new_delivery.team, new_delivery.id)) {
            new_delivery.refuse_missing_inbox();
        }
    }
    all
}

/// The loaded rows and the pending changes of one receive transaction.
#[derive(Default)]
struct ReceiveBatch<'a> {
    keys: BTreeMap<DeliveryKey, KeyedDelivery>,
    /// Keys that were never seen before.
    new_keys: BTreeSet<DeliveryKey>,
    /// Expired keys that now belong to another delivery.
    rebound_keys: BTreeSet<DeliveryKey>,
    /// Deliveries that already exist: from an earlier try of the same call, or the originals of duplicates.
    existing: BTreeMap<(TeamId, DeliveryId), Delivery>,
    /// Inboxes that exist at least until this commits.
    inboxes: BTreeSet<(TeamId, InboxId)>,
    new_rows: Vec<NewDeliveryRow>,
    raws: Vec<(Uuid, i32, &'a [u8])>,
    events: Vec<(TeamId, NewEvent)>,
}

async fn receive_all(shared: &SharedState, all: &[ReceiveCall]) -> TxResult<Vec<Vec<ReceiveResult>>> {
    let mut gone = match try_receive(shared, all).await? {
        Ok(answers) => return Ok(answers),
        Err(gone) => gone,
    };
    // Keys of refused deliveries must not be bound, so start again. An inbox that is gone stays gone, so this
    // ends.
    loop {
        match try_receive(shared, &refuse_deliveries(all, &gone)).await? {
            Ok(answers) => return Ok(answers),
            Err(more) => gone.extend(more),
        }
    }
}

/// Receives the mails. If inboxes no longer exist, writes nothing and returns the deliveries for them.
async fn try_receive(
    shared: &SharedState,
    all: &[ReceiveCall],
) -> TxResult<Result<Vec<Vec<ReceiveResult>>, DeliveriesWithoutInbox>> {
    let mut client = shared.connections.client().await?;
    let tx = client.transaction().await?;
    let mut desk = load_receive_batch(&tx, all).await?;
    let gone = desk.deliveries_without_inbox(all);
    if !gone.is_empty() {
        tx.rollback().await?;
        return Ok(Err(gone));
    }
    let answers: Vec<Vec<ReceiveResult>> = all.iter().map(|coming| desk.receive(coming)).collect();
    if desk.new_rows.is_empty() {
        tx.rollback().await?;
        return Ok(Ok(answers));
    }
    let hints = desk.hints();
    desk.write(&tx).await?;
    if !hints.is_empty() {
        execute(&tx, NOTIFY, &[&shared.wake_up_bus.encode(&hints)]).await?;
    }
    let committed = shared.commit(tx, all.len()).await;
    shared.wake_up_bus.notify_local(&hints);
    committed.map(|()| Ok(answers))
}

/// Locks the keys and inboxes, and loads existing deliveries.
async fn load_receive_batch<'a>(tx: &Transaction<'_>, all: &[ReceiveCall]) -> TxResult<ReceiveBatch<'a>> {
    let new_deliveries = || all.iter().flat_map(|coming| &coming.arrival.deliveries);
    let mut wanted: BTreeMap<DeliveryKey, KeyedDelivery> = BTreeMap::new();
    for new_delivery in new_deliveries().filter(|new_delivery| new_delivery.suppression.is_none()) {
        wanted
            .entry((new_delivery.team, new_delivery.dedup_key))
            .or_insert((new_delivery.id, new_delivery.dedup_until));
    }
    let (teams, hashes, ids, untils) = key_columns(wanted.iter());
    let (own_teams, own_ids): (Vec<Uuid>, Vec<Uuid>) =
        new_deliveries().map(|new_delivery| (new_delivery.team.0, new_delivery.id.0)).unzip();
    let needed: BTreeSet<(Uuid, Uuid)> = new_deliveries()
        .filter_map(|new_delivery| Some((new_delivery.team.0, new_delivery.required_inbox()?.0)))
        .collect();
    let (inbox_teams, inbox_ids): (Vec<Uuid>, Vec<Uuid>) = needed.into_iter().unzip();
    let asked: [BoundStatement<'_>; 3] = [
        (LOCK_DELIVERY_KEYS, &[&teams, &hashes, &ids, &untils]),
        (LOCK_INBOXES, &[&inbox_teams, &inbox_ids]),
        (BY_IDS, &[&own_teams, &own_ids]),
    ];
    let answers = query_pipelined(tx, &asked).await?;
    let (held, inboxes, own) = (answers.first(), answers.get(1), answers.get(2));
    let mut desk = ReceiveBatch::default();
    for row in inboxes.into_iter().flatten() {
        desk.inboxes.insert((TeamId(row.try_get(0)?), InboxId(row.try_get(1)?)));
    }
    for row in held.into_iter().flatten() {
        let key = (TeamId(row.try_get(0)?), read_hash(row.try_get(1)?)?);
        desk.keys.insert(key, (DeliveryId(row.try_get(2)?), Time(row.try_get(3)?)));
        if row.try_get(4)? {
            desk.new_keys.insert(key);
        }
    }
    desk.add_existing(own.into_iter().flatten())?;
    let firsts: BTreeSet<(TeamId, DeliveryId)> = new_deliveries()
        .filter_map(|new_delivery| Some((new_delivery, desk.keys.get(&(new_delivery.team, new_delivery.dedup_key))?)))
        .filter(|(new_delivery, (first, _))| *first != new_delivery.id)
        .map(|(new_delivery, (first, _))| (new_delivery.team, *first))
        .collect();
    if !firsts.is_empty() {
        let (teams, ids): (Vec<Uuid>, Vec<Uuid>) = firsts.iter().map(|(team, id)| (team.0, id.0)).unzip();
        desk.add_existing(&query_rows(tx, BY_IDS, &[&teams, &ids]).await?)?;
    }
    Ok(desk)
}

fn key_columns<'a>(
    keys: impl Iterator<Item = (&'a DeliveryKey, &'a KeyedDelivery)>,
) -> (Vec<Uuid>, Vec<&'a [u8]>, Vec<Uuid>, Vec<i64>) {
    let (mut teams, mut hashes, mut ids, mut untils) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ((team, hash), (id, until)) in keys {
        teams.push(team.0);
        hashes.push(hash.as_slice());
        ids.push(id.0);
        untils.push(until.0);
    }
    (teams, hashes, ids, untils)
}

impl<'a> ReceiveBatch<'a> {
    fn add_existing<'r>(&mut self, rows: impl IntoIterator<Item = &'r tokio_postgres::Row>) -> TxResult<()> {
        for row in rows {
            let delivery = read_delivery(row)?;
            self.existing.insert((delivery.team, delivery.id), delivery);
        }
        Ok(())
    }

    /// Deliveries whose inbox no longer exists, except those that an earlier try of the same call stored.
    fn deliveries_without_inbox(&self, all: &[ReceiveCall]) -> DeliveriesWithoutInbox {
        let was_kept = |new_delivery: &NewDelivery| {
            let there = self.existing.get(&(new_delivery.team, new_delivery.id));
            there.is_some_and(|there| there.receive_result(false).is_accepted())
        };
        let is_gone = |new_delivery: &&NewDelivery| {
            let inbox = new_delivery.required_inbox();
            inbox.is_some_and(|inbox| !self.inboxes.contains(&(new_delivery.team, inbox))) && !was_kept(new_delivery)
        };
        let new_deliveries = all.iter().flat_map(|coming| &coming.arrival.deliveries);
        new_deliveries.filter(is_gone).map(|new_delivery| (new_delivery.team, new_delivery.id)).collect()
    }

    /// Decides the deliveries of one mail.
    fn receive(&mut self, coming: &'a ReceiveCall) -> Vec<ReceiveResult> {
        let arrival = &coming.arrival;
        let (begun, mut answers) = (self.new_rows.len(), Vec::with_capacity(arrival.deliveries.len()));
        for new_delivery in &arrival.deliveries {
            let there = self.existing.get(&(new_delivery.team, new_delivery.id));
            let answer = there.map(|there| there.receive_result(new_delivery.suppression.is_some()));
            answers.push(answer.unwrap_or_else(|| self.decide_delivery(new_delivery, arrival.leased_to, coming.now)));
        }
        let (mut raw, mut users) = (None, 0);
        for fresh in self.new_rows.iter_mut().skip(begun).filter(|fresh| fresh.delivery.needs_raw_bytes()) {
            fresh.raw = Some(*raw.get_or_insert(fresh.delivery.id.0));
            users += 1;
        }
        self.raws.extend(raw.map(|raw| (raw, users, &*arrival.raw)));
        answers
    }

    /// Decides a delivery that does not exist yet.
    fn decide_delivery(&mut self, new_delivery: &NewDelivery, reader: Option<NodeId>, now: Time) -> ReceiveResult {
        let delivery = match self.find_original(new_delivery, now) {
            Some((of, message)) => Delivery::duplicate(new_delivery.clone(), of, message, now),
            None => Delivery::new(new_delivery.clone(), reader.is_some(), now),
        };
        self.events.extend(delivery.to_event(now).map(|event| (delivery.team, event)));
        let answer = delivery.receive_result(new_delivery.suppression.is_some());
        self.existing.insert((delivery.team, delivery.id), delivery.clone());
        let holder = reader.filter(|_| delivery.due_at.is_some());
        self.new_rows.push(NewDeliveryRow { delivery, holder, raw: None });
        answer
    }

    /// The earlier delivery with the same key, and its message. If there is none, the key is bound to this delivery.
    fn find_original(&mut self, new_delivery: &NewDelivery, now: Time) -> Option<(DeliveryId, Option<MessageId>)> {
        if new_delivery.suppression.is_some() {
            return None;
        }
        let key = (new_delivery.team, new_delivery.dedup_key);
        let (first, until) = self.keys.get(&key).copied()?;
        if first == new_delivery.id && self.new_keys.contains(&key) {
            return None;
        }
        if until > now {
            let message = self.existing.get(&(new_delivery.team, first)).and_then(|there| there.message);
            return Some((first, message));
        }
        self.keys.insert(key, (new_delivery.id, new_delivery.dedup_until));
        self.rebound_keys.insert(key);
        None
    }

    /// The wake-up for workers, if there are deliveries that no node has leased.
    fn hints(&self) -> Vec<InboundWakeUp> {
        let unread = self.new_rows.iter().any(|fresh| fresh.delivery.due_at.is_some() && fresh.holder.is_none());
        unread.then_some(InboundWakeUp::DeliveryWaiting).into_iter().collect()
    }

    async fn write(&self, tx: &Transaction<'_>) -> TxResult<()> {
        let renamed = self.keys.iter().filter(|(key, _)| self.rebound_keys.contains(key));
        let (teams, hashes, ids, untils) = key_columns(renamed);
        if !teams.is_empty() {
            execute(tx, REBIND_KEYS, &[&teams, &hashes, &ids, &untils]).await?;
        }
        let raw: Vec<Uuid> = self.raws.iter().map(|(id, _, _)| *id).collect();
        let users: Vec<i32> = self.raws.iter().map(|(_, users, _)| *users).collect();
        let bytes: Vec<&[u8]> = self.raws.iter().map(|(_, _, bytes)| *bytes).collect();
        let columns = DeliveryColumns::of(&self.new_rows)?;
        let asked: [BoundStatement<'_>; 2] =
            [(INSERT_DELIVERIES, &columns.params()), (INSERT_RAWS, &[&raw, &users, &bytes])];
        let written = query_pipelined(tx, &asked).await?;
        if written.first().is_none_or(|rows| rows.len() < self.new_rows.len()) {
            return Err(TxError::Conflict("the same call was faster elsewhere".into()));
        }
        self.resweep_inboxes(tx).await?;
        write_events(tx, &self.events).await
    }

    /// Schedules another sweep of removed inboxes that got new deliveries which are already finished.
    async fn resweep_inboxes(&self, tx: &Transaction<'_>) -> TxResult<()> {
        let ended = self.new_rows.iter().filter(|fresh| !fresh.delivery.needs_raw_bytes());
        let inboxes = ended.filter_map(|NewDeliveryRow { delivery, .. }| {
            Some(((delivery.team.0, delivery.target.inbox()?.0), delivery.received_at))
        });
        let inboxes: BTreeMap<(Uuid, Uuid), Time> = inboxes.collect();
        let Some(now) = inboxes.values().max() else { return Ok(()) };
        let (teams, ids): (Vec<Uuid>, Vec<Uuid>) = inboxes.keys().copied().unzip();
        execute(tx, RESWEEP_INBOXES, &[&teams, &ids, &now.0]).await.map(drop)
    }
}
