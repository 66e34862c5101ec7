//! Receiving: arrivals that come together are kept in one transaction, each delivery once.
//!
//! Keys are made or locked in their order by one statement that also says whose they are. Whoever made a key first is
//! the delivery; the others are repeats of it.

use deadpool_postgres::Transaction;
use mailonce_core::{
    delivery::{Arrival, Delivery, NewDelivery, Received},
    event::NewEvent,
    id::{DeliveryId, InboxId, MessageId, NodeId, TeamId},
    port::arrivals::Hint,
    time::Time,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

use super::{
    hear::NOTIFY,
    parcel::{Columns, Fresh, NEW},
    row::{delivery_columns, read_delivery, read_hash},
    sweep::LEFT_OVER,
};
use crate::postgres::{
    Ledger,
    gate::{Gate, Traveller},
    trouble::{Tried, Trouble},
    write::{Asked, ask, ask_all, run, write_events},
};

/// Makes the keys that are missing and locks the others, in order. Writing what is there already gives back what it is
/// once the lock is held. Only a row that was made here and now was never locked, and has no `xmax`.
const HOLD_KEYS: &str = "
    INSERT INTO delivery_keys (team, key, delivery, known_until)
    SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::uuid[], $4::bigint[]) AS w (team, key, delivery, known_until)
     ORDER BY team, key
    ON CONFLICT (team, key) DO UPDATE SET delivery = delivery_keys.delivery
    RETURNING team, key, delivery, known_until, xmax = 0";
const CHANGE_KEYS: &str = "
    UPDATE delivery_keys k SET delivery = w.delivery, known_until = w.known_until
      FROM unnest($1::uuid[], $2::bytea[], $3::uuid[], $4::bigint[]) AS w (team, key, delivery, known_until)
     WHERE k.team = w.team AND k.key = w.key";
const ONES: &str = concat!(
    "SELECT ",
    delivery_columns!(),
    " FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id) JOIN deliveries d ON d.team = w.team AND d.id = w.id"
);
/// The inboxes that are there. They cannot be removed before this commits: whoever removes one holds its row for update.
/// Filings, which only number messages, go on beside it.
const HOLD_INBOXES: &str = "
    SELECT i.team, i.id FROM unnest($1::uuid[], $2::uuid[]) AS w (team, id)
      JOIN inboxes i ON i.team = w.team AND i.id = w.id AND i.removed_at IS NULL
     ORDER BY i.team, i.id FOR KEY SHARE OF i";
/// Bytes that are there are the same ones: an arrival came again of which not every trace was gone.
const NEW_RAWS: &str = "
    INSERT INTO raws (id, users, bytes) SELECT * FROM unnest($1::uuid[], $2::int[], $3::bytea[])
    ON CONFLICT (id) DO UPDATE SET users = raws.users + excluded.users";

/// An arrival that wants to be kept.
#[derive(Clone)]
pub(in crate::postgres) struct Coming {
    pub arrival: Arrival,
    pub now: Time,
}

/// What a key names, and until when.
type Named = (DeliveryId, Time);
type DeliveryKey = (TeamId, [u8; 32]);

impl Traveller for Coming {
    type Answer = Vec<Received>;

    fn size(&self) -> usize {
        self.arrival.raw.len() + 1024 * self.arrival.parcels.len()
    }

    fn gate(ledger: &Ledger) -> &Gate<Self> {
        &ledger.receives
    }

    async fn travel(ledger: &Ledger, together: &[Self]) -> Tried<Vec<Vec<Received>>> {
        ledger.receive_all(together).await
    }
}

/// Parcels whose inbox is not there any more.
type Gone = BTreeSet<(TeamId, DeliveryId)>;

/// The same arrivals with these parcels refused.
fn refuse(all: &[Coming], gone: &Gone) -> Vec<Coming> {
    let mut all = all.to_vec();
    for parcel in all.iter_mut().flat_map(|coming| &mut coming.arrival.parcels) {
        if gone.contains(&(parcel.team, parcel.id)) {
            parcel.refuse_inbox_gone();
        }
    }
    all
}

/// What is known before anything is decided, and what was decided.
#[derive(Default)]
struct Desk<'a> {
    keys: BTreeMap<DeliveryKey, Named>,
    /// Keys that were never seen before.
    made: BTreeSet<DeliveryKey>,
    /// Keys whose time had come, and that name another delivery from now on.
    renamed: BTreeSet<DeliveryKey>,
    /// Deliveries that were there: those that an earlier try of the same call left, and the first ones of repeats.
    there: BTreeMap<(TeamId, DeliveryId), Delivery>,
    /// Inboxes that are there until this commits.
    inboxes: BTreeSet<(TeamId, InboxId)>,
    fresh: Vec<Fresh>,
    raws: Vec<(Uuid, i32, &'a [u8])>,
    events: Vec<(TeamId, NewEvent)>,
}

impl Ledger {
    async fn receive_all(&self, all: &[Coming]) -> Tried<Vec<Vec<Received>>> {
        let mut gone = match self.receive_if_there(all).await? {
            Ok(answers) => return Ok(answers),
            Err(gone) => gone,
        };
        // Keys of refused parcels must not be bound, so it begins anew. An inbox that is gone stays gone.
        loop {
            match self.receive_if_there(&refuse(all, &gone)).await? {
                Ok(answers) => return Ok(answers),
                Err(more) => gone.extend(more),
            }
        }
    }

    /// Receives, unless inboxes are not there any more: then nothing is written, and the parcels for them are named.
    async fn receive_if_there(&self, all: &[Coming]) -> Tried<Result<Vec<Vec<Received>>, Gone>> {
        let mut client = self.link.client().await?;
        let tx = client.transaction().await?;
        let mut desk = look(&tx, all).await?;
        let gone = desk.gone(all);
        if !gone.is_empty() {
            tx.rollback().await?;
            return Ok(Err(gone));
        }
        let answers: Vec<Vec<Received>> = all.iter().map(|coming| desk.receive(coming)).collect();
        if desk.fresh.is_empty() {
            tx.rollback().await?;
            return Ok(Ok(answers));
        }
        let hints = desk.hints();
        desk.write(&tx).await?;
        if !hints.is_empty() {
            run(&tx, NOTIFY, &[&self.ears.letters(&hints)]).await?;
        }
        let committed = self.commit(tx, all.len()).await;
        self.ears.tell(&hints);
        committed.map(|()| Ok(answers))
    }
}

/// Locks the keys and reads what is there.
async fn look<'a>(tx: &Transaction<'_>, all: &[Coming]) -> Tried<Desk<'a>> {
    let parcels = || all.iter().flat_map(|coming| &coming.arrival.parcels);
    let mut wanted: BTreeMap<DeliveryKey, Named> = BTreeMap::new();
    for parcel in parcels().filter(|parcel| parcel.refused.is_none()) {
        wanted.entry((parcel.team, parcel.key)).or_insert((parcel.id, parcel.known_until));
    }
    let (teams, hashes, ids, untils) = key_columns(wanted.iter());
    let (own_teams, own_ids): (Vec<Uuid>, Vec<Uuid>) = parcels().map(|parcel| (parcel.team.0, parcel.id.0)).unzip();
    let needed: BTreeSet<(Uuid, Uuid)> =
        parcels().filter_map(|parcel| Some((parcel.team.0, parcel.needs_inbox()?.0))).collect();
    let (inbox_teams, inbox_ids): (Vec<Uuid>, Vec<Uuid>) = needed.into_iter().unzip();
    let asked: [Asked<'_>; 3] = [
        (HOLD_KEYS, &[&teams, &hashes, &ids, &untils]),
        (HOLD_INBOXES, &[&inbox_teams, &inbox_ids]),
        (ONES, &[&own_teams, &own_ids]),
    ];
    let answers = ask_all(tx, &asked).await?;
    let (held, inboxes, own) = (answers.first(), answers.get(1), answers.get(2));
    let mut desk = Desk::default();
    for row in inboxes.into_iter().flatten() {
        desk.inboxes.insert((TeamId(row.try_get(0)?), InboxId(row.try_get(1)?)));
    }
    for row in held.into_iter().flatten() {
        let key = (TeamId(row.try_get(0)?), read_hash(row.try_get(1)?)?);
        desk.keys.insert(key, (DeliveryId(row.try_get(2)?), Time(row.try_get(3)?)));
        if row.try_get(4)? {
            desk.made.insert(key);
        }
    }
    desk.note(own.into_iter().flatten())?;
    let firsts: BTreeSet<(TeamId, DeliveryId)> = parcels()
        .filter_map(|parcel| Some((parcel, desk.keys.get(&(parcel.team, parcel.key))?)))
        .filter(|(parcel, (first, _))| *first != parcel.id)
        .map(|(parcel, (first, _))| (parcel.team, *first))
        .collect();
    if !firsts.is_empty() {
        let (teams, ids): (Vec<Uuid>, Vec<Uuid>) = firsts.iter().map(|(team, id)| (team.0, id.0)).unzip();
        desk.note(&ask(tx, ONES, &[&teams, &ids]).await?)?;
    }
    Ok(desk)
}

fn key_columns<'a>(
    keys: impl Iterator<Item = (&'a DeliveryKey, &'a Named)>,
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

impl<'a> Desk<'a> {
    fn note<'r>(&mut self, rows: impl IntoIterator<Item = &'r tokio_postgres::Row>) -> Tried<()> {
        for row in rows {
            let delivery = read_delivery(row)?;
            self.there.insert((delivery.team, delivery.id), delivery);
        }
        Ok(())
    }

    /// Parcels whose inbox is not there any more, save those that an earlier try of the same call kept.
    fn gone(&self, all: &[Coming]) -> Gone {
        let was_kept = |parcel: &NewDelivery| {
            let there = self.there.get(&(parcel.team, parcel.id));
            there.is_some_and(|there| there.answered(false).is_taken())
        };
        let is_gone = |parcel: &&NewDelivery| {
            let inbox = parcel.needs_inbox();
            inbox.is_some_and(|inbox| !self.inboxes.contains(&(parcel.team, inbox))) && !was_kept(parcel)
        };
        let parcels = all.iter().flat_map(|coming| &coming.arrival.parcels);
        parcels.filter(is_gone).map(|parcel| (parcel.team, parcel.id)).collect()
    }

    /// Decides about one arrival.
    fn receive(&mut self, coming: &'a Coming) -> Vec<Received> {
        let arrival = &coming.arrival;
        let (begun, mut answers) = (self.fresh.len(), Vec::with_capacity(arrival.parcels.len()));
        for parcel in &arrival.parcels {
            let there = self.there.get(&(parcel.team, parcel.id));
            let answer = there.map(|there| there.answered(parcel.refused.is_some()));
            answers.push(answer.unwrap_or_else(|| self.keep(parcel, arrival.reader, coming.now)));
        }
        let (mut raw, mut users) = (None, 0);
        for fresh in self.fresh.iter_mut().skip(begun).filter(|fresh| fresh.delivery.needs_bytes()) {
            fresh.raw = Some(*raw.get_or_insert(fresh.delivery.id.0));
            users += 1;
        }
        self.raws.extend(raw.map(|raw| (raw, users, &*arrival.raw)));
        answers
    }

    /// Decides about one parcel that was never seen.
    fn keep(&mut self, parcel: &NewDelivery, reader: Option<NodeId>, now: Time) -> Received {
        let delivery = match self.earlier(parcel, now) {
            Some((of, message)) => Delivery::duplicate(parcel.clone(), of, message, now),
            None => Delivery::new(parcel.clone(), reader.is_some(), now),
        };
        self.events.extend(delivery.told(now).map(|event| (delivery.team, event)));
        let answer = delivery.answered(parcel.refused.is_some());
        self.there.insert((delivery.team, delivery.id), delivery.clone());
        let holder = reader.filter(|_| delivery.due.is_some());
        self.fresh.push(Fresh { delivery, holder, raw: None });
        answer
    }

    /// The delivery that came before under the same key, and its message. When none did, the key is this one's.
    fn earlier(&mut self, parcel: &NewDelivery, now: Time) -> Option<(DeliveryId, Option<MessageId>)> {
        if parcel.refused.is_some() {
            return None;
        }
        let key = (parcel.team, parcel.key);
        let (first, until) = self.keys.get(&key).copied()?;
        if first == parcel.id && self.made.contains(&key) {
            return None;
        }
        if until > now {
            let message = self.there.get(&(parcel.team, first)).and_then(|there| there.message);
            return Some((first, message));
        }
        self.keys.insert(key, (parcel.id, parcel.known_until));
        self.renamed.insert(key);
        None
    }

    /// What others should hear of: deliveries that nobody reads yet.
    fn hints(&self) -> Vec<Hint> {
        let unread = self.fresh.iter().any(|fresh| fresh.delivery.due.is_some() && fresh.holder.is_none());
        unread.then_some(Hint::Waiting).into_iter().collect()
    }

    async fn write(&self, tx: &Transaction<'_>) -> Tried<()> {
        let renamed = self.keys.iter().filter(|(key, _)| self.renamed.contains(key));
        let (teams, hashes, ids, untils) = key_columns(renamed);
        if !teams.is_empty() {
            run(tx, CHANGE_KEYS, &[&teams, &hashes, &ids, &untils]).await?;
        }
        let raw: Vec<Uuid> = self.raws.iter().map(|(id, _, _)| *id).collect();
        let users: Vec<i32> = self.raws.iter().map(|(_, users, _)| *users).collect();
        let bytes: Vec<&[u8]> = self.raws.iter().map(|(_, _, bytes)| *bytes).collect();
        let columns = Columns::of(&self.fresh)?;
        let asked: [Asked<'_>; 2] = [(NEW, &columns.params()), (NEW_RAWS, &[&raw, &users, &bytes])];
        let written = ask_all(tx, &asked).await?;
        if written.first().is_none_or(|rows| rows.len() < self.fresh.len()) {
            return Err(Trouble::Again("the same call was faster elsewhere".into()));
        }
        self.leave_over(tx).await?;
        write_events(tx, &self.events).await
    }

    /// Has inboxes swept again that were removed before these came and ended at once.
    async fn leave_over(&self, tx: &Transaction<'_>) -> Tried<()> {
        let ended = self.fresh.iter().filter(|fresh| !fresh.delivery.needs_bytes());
        let inboxes = ended.filter_map(|Fresh { delivery, .. }| {
            Some(((delivery.team.0, delivery.target.inbox()?.0), delivery.received_at))
        });
        let inboxes: BTreeMap<(Uuid, Uuid), Time> = inboxes.collect();
        let Some(now) = inboxes.values().max() else { return Ok(()) };
        let (teams, ids): (Vec<Uuid>, Vec<Uuid>) = inboxes.keys().copied().unzip();
        run(tx, LEFT_OVER, &[&teams, &ids, &now.0]).await.map(drop)
    }
}
