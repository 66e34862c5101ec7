//! Deliveries: arriving, being read, ending, and going at last.

use mailonce_core::{
    delivery::{Arrival, Brought, Delivery, DeliveryQuery, DeliveryState, NewDelivery, Reading, Received, Settle},
    id::{DeliveryId, NodeId, TeamId},
    limits, mutant,
    time::Time,
};
use std::sync::Arc;

use super::{World, inbound::Kept};

impl World {
    pub(super) fn receive(&mut self, arrival: Arrival, now: Time) -> Vec<Received> {
        let Arrival { raw, reader, parcels } = arrival;
        let mut kept = None;
        parcels.into_iter().map(|parcel| self.receive_one(parcel, &raw, reader, &mut kept, now)).collect()
    }

    /// Keeps one recipient's delivery. `kept` is where the bytes of the arrival are, once they are kept.
    fn receive_one(
        &mut self,
        mut parcel: NewDelivery,
        raw: &Arc<[u8]>,
        reader: Option<NodeId>,
        kept: &mut Option<DeliveryId>,
        now: Time,
    ) -> Received {
        if let Some(before) = self.inbound.delivery(parcel.team, parcel.id) {
            // The very same one: this call was made before.
            return before.answered(parcel.refused.is_some());
        }
        if parcel.needs_inbox().is_some_and(|inbox| self.inbound.inbox(parcel.team, inbox).is_none()) {
            parcel.refuse_inbox_gone();
        }
        let refused = parcel.refused.is_some();
        let (id, key) = ((parcel.team, parcel.key), (parcel.id, parcel.known_until));
        let known = self.inbound.keys.get(&id).filter(|(_, until)| *until > now && !refused);
        let delivery = match known.map(|(of, _)| *of) {
            Some(of) => {
                let message = self.inbound.deliveries.get(&of).and_then(|first| first.delivery.message);
                Delivery::duplicate(parcel, of, message, now)
            }
            None => Delivery::new(parcel, reader.is_some(), now),
        };
        let waits = delivery.state == DeliveryState::Waiting;
        if waits {
            self.inbound.keys.insert(id, key);
            let first = *kept.get_or_insert(delivery.id);
            self.inbound.raws.entry(first).or_insert_with(|| raw.clone());
        }
        if mutant!("repeat-unrecorded") && delivery.state == DeliveryState::Duplicate {
            return delivery.answered(refused);
        }
        self.note_id(delivery.id.0);
        self.events.entry(delivery.team).or_default().extend(delivery.told(now));
        let received = delivery.answered(refused);
        let (holder, raw) = (reader.filter(|_| waits), kept.filter(|_| waits));
        self.inbound.deliveries.insert(delivery.id, Kept { delivery, holder, raw });
        received
    }

    pub(super) fn read(&mut self, node: NodeId, max: usize, now: Time) -> Vec<Reading> {
        let waits = |kept: &&Kept| kept.delivery.clone().take_up(now);
        let due = |kept: &Kept| (kept.delivery.due, kept.delivery.id);
        let mut due: Vec<_> = self.inbound.deliveries.values().filter(waits).map(due).collect();
        due.sort_unstable();
        let mut readings = Vec::new();
        for (_, id) in due.into_iter().take(max) {
            let Some(kept) = self.inbound.deliveries.get_mut(&id) else { continue };
            kept.delivery.take_up(now);
            kept.holder = Some(node);
            let raw = kept.raw.and_then(|raw| self.inbound.raws.get(&raw)).map(|raw| raw.to_vec());
            readings.push(Reading { delivery: kept.delivery.clone(), raw: raw.unwrap_or_default() });
        }
        readings
    }

    pub(super) fn bring(&mut self, team: TeamId, id: DeliveryId, brought: Brought) -> Option<Delivery> {
        let mut delivery = self.inbound.delivery(team, id)?.clone();
        let Some(kept) = self.inbound.deliveries.get_mut(&id).filter(|_| delivery.bring(&brought)) else {
            return Some(delivery);
        };
        kept.delivery = delivery.clone();
        let notice = kept.raw.replace(brought.place);
        self.inbound.raws.insert(brought.place, brought.raw);
        self.inbound.drop_bytes(notice);
        self.note_id(brought.place.0);
        Some(delivery)
    }

    pub(super) fn settle_delivery(
        &mut self,
        team: TeamId,
        id: DeliveryId,
        settle: Settle,
        now: Time,
    ) -> Option<Delivery> {
        let mut delivery = self.inbound.delivery(team, id)?.clone();
        if delivery.settle(settle) {
            self.end(&delivery, now);
        }
        Some(delivery)
    }

    /// Writes what became of a delivery, and tells of it.
    pub(super) fn end(&mut self, delivery: &Delivery, now: Time) {
        self.events.entry(delivery.team).or_default().extend(delivery.told(now));
        self.inbound.save(delivery);
    }

    /// Lets a dead delivery be read again. True beside it when it changed.
    pub(super) fn replay_delivery(&mut self, team: TeamId, id: DeliveryId, now: Time) -> Option<(Delivery, bool)> {
        let mut delivery = self.inbound.delivery(team, id)?.clone();
        let changed = delivery.replay(now);
        if changed {
            self.inbound.save(&delivery);
        }
        Some((delivery, changed))
    }

    pub(super) fn deliveries(&self, team: TeamId, query: &DeliveryQuery) -> Vec<Delivery> {
        let ours = self.inbound.deliveries.values().rev().map(|kept| &kept.delivery);
        let older =
            |delivery: &&Delivery| delivery.team == team && query.before.is_none_or(|before| delivery.id < before);
        let looked = ours.filter(older).take(limits::SCAN_ROWS);
        looked.filter(|delivery| query.matches(delivery)).take(query.limit).cloned().collect()
    }

    /// Makes deliveries due that a process which ended was reading. How many.
    pub(super) fn give_back(&mut self, alive: impl Fn(NodeId) -> bool, max: usize, now: Time) -> usize {
        let left = |kept: &&mut Kept| kept.holder.is_some_and(|holder| !alive(holder));
        let mut held: Vec<&mut Kept> = self.inbound.deliveries.values_mut().filter(left).collect();
        held.retain(|kept| kept.delivery.clone().give_back(now));
        held.sort_by_key(|kept| (kept.delivery.due, kept.delivery.id));
        held.truncate(max);
        for kept in &mut held {
            kept.delivery.give_back(now);
            kept.holder = None;
        }
        held.len()
    }

    /// Removes old rows of suppressed deliveries, keys that are known no longer, and what removed inboxes left. How
    /// many deliveries went.
    pub(super) fn sweep_deliveries(&mut self, max: usize, now: Time) -> usize {
        self.inbound.keys.retain(|_, (_, until)| *until > now);
        let old = |delivery: &Delivery| {
            let suppressed = matches!(delivery.state, DeliveryState::Duplicate | DeliveryState::Refused);
            suppressed && now.since(delivery.received_at) >= limits::DUPLICATE_KEPT_MS
        };
        // One that waits for a removed inbox is still read, and then refused: nothing goes without a word.
        let homeless = |delivery: &Delivery| {
            let inbox = delivery.target.inbox().filter(|_| delivery.state != DeliveryState::Waiting);
            inbox.is_some_and(|inbox| self.inbound.removed.contains_key(&inbox))
        };
        let all = || self.inbound.deliveries.values().map(|kept| &kept.delivery);
        let mut gone: Vec<DeliveryId> = all().filter(|one| old(one)).map(|one| one.id).collect();
        gone.extend(all().filter(|one| !old(one) && homeless(one)).map(|one| one.id));
        gone.truncate(max);
        for id in &gone {
            let raw = self.inbound.deliveries.remove(id).and_then(|kept| kept.raw);
            self.inbound.drop_bytes(raw);
        }
        gone.len()
    }
}
