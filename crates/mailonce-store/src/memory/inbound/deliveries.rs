//! Deliveries: receiving, leasing, recording outcomes, and deleting old ones.

use mailonce_core::{
    id::{DeliveryId, NodeId, TeamId},
    inbound::delivery::{
        Delivery, DeliveryOutcome, DeliveryQuery, DeliveryState, FetchedContent, InboundMail, LeasedDelivery,
        NewDelivery, ReceiveResult,
    },
    limits, mutant,
    time::Time,
};
use std::sync::Arc;

use crate::memory::{
    Tables,
    inbound::tables::{DeliveryRow, InboundTables},
};

impl Tables {
    pub(crate) fn receive(&mut self, arrival: InboundMail, now: Time) -> Vec<ReceiveResult> {
        let InboundMail { raw, leased_to: reader, deliveries: new_deliveries } = arrival;
        let mut kept = None;
        new_deliveries
            .into_iter()
            .map(|new_delivery| self.receive_one(new_delivery, &raw, reader, &mut kept, now))
            .collect()
    }

    /// Stores one recipient's delivery. `kept` is the id under which the raw bytes are stored, once they are.
    fn receive_one(
        &mut self,
        mut new_delivery: NewDelivery,
        raw: &Arc<[u8]>,
        reader: Option<NodeId>,
        kept: &mut Option<DeliveryId>,
        now: Time,
    ) -> ReceiveResult {
        if let Some(before) = self.inbound.delivery(new_delivery.team, new_delivery.id) {
            // The same id: this call is a retry.
            return before.receive_result(new_delivery.suppression.is_some());
        }
        if new_delivery.required_inbox().is_some_and(|inbox| self.inbound.inbox(new_delivery.team, inbox).is_none()) {
            new_delivery.refuse_missing_inbox();
        }
        let refused = new_delivery.suppression.is_some();
        let (id, key) = ((new_delivery.team, new_delivery.dedup_key), (new_delivery.id, new_delivery.dedup_until));
        let known = self.inbound.delivery_keys.get(&id).filter(|(_, until)| *until > now && !refused);
        let delivery = match known.map(|(of, _)| *of) {
            Some(of) => {
                let message = self.inbound.deliveries.get(&of).and_then(|first| first.delivery.message);
                Delivery::duplicate(new_delivery, of, message, now)
            }
            None => Delivery::new(new_delivery, reader.is_some(), now),
        };
        let waits = delivery.state == DeliveryState::Waiting;
        if waits {
            self.inbound.delivery_keys.insert(id, key);
            let first = *kept.get_or_insert(delivery.id);
            self.inbound.raws.entry(first).or_insert_with(|| raw.clone());
        }
        if mutant!("repeat-unrecorded") && delivery.state == DeliveryState::Duplicate {
            return delivery.receive_result(refused);
        }
        self.reserve_id(delivery.id.0);
        self.events.log.entry(delivery.team).or_default().extend(delivery.to_event(now));
        let received = delivery.receive_result(refused);
        let (holder, raw) = (reader.filter(|_| waits), kept.filter(|_| waits));
        self.inbound.deliveries.insert(delivery.id, DeliveryRow { delivery, holder, raw });
        received
    }

    pub(crate) fn attach_fetched_content(
        &mut self,
        team: TeamId,
        id: DeliveryId,
        brought: FetchedContent,
    ) -> Option<Delivery> {
        let mut delivery = self.inbound.delivery(team, id)?.clone();
        let Some(kept) = self.inbound.deliveries.get_mut(&id).filter(|_| delivery.attach_fetched_content(&brought))
        else {
            return Some(delivery);
        };
        kept.delivery = delivery.clone();
        let notice = kept.raw.replace(brought.storage_id);
        self.inbound.raws.insert(brought.storage_id, brought.raw);
        self.inbound.drop_unused_raw(notice);
        self.reserve_id(brought.storage_id.0);
        Some(delivery)
    }

    pub(crate) fn record_delivery_outcome(
        &mut self,
        team: TeamId,
        id: DeliveryId,
        settle: DeliveryOutcome,
        now: Time,
    ) -> Option<Delivery> {
        let mut delivery = self.inbound.delivery(team, id)?.clone();
        if delivery.record_outcome(settle) {
            self.finish_delivery(&delivery, now);
        }
        Some(delivery)
    }

    /// Saves a changed delivery, and emits its event.
    pub(crate) fn finish_delivery(&mut self, delivery: &Delivery, now: Time) {
        self.events.log.entry(delivery.team).or_default().extend(delivery.to_event(now));
        self.inbound.save_delivery(delivery);
    }
}

impl InboundTables {
    pub(crate) fn lease_deliveries(&mut self, node: NodeId, max: usize, now: Time) -> Vec<LeasedDelivery> {
        let waits = |kept: &&DeliveryRow| kept.delivery.clone().lease(now);
        let due = |kept: &DeliveryRow| (kept.delivery.due_at, kept.delivery.id);
        let mut due: Vec<_> = self.deliveries.values().filter(waits).map(due).collect();
        due.sort_unstable();
        let mut readings = Vec::new();
        for (_, id) in due.into_iter().take(max) {
            let Some(kept) = self.deliveries.get_mut(&id) else { continue };
            kept.delivery.lease(now);
            kept.holder = Some(node);
            let raw = kept.raw.and_then(|raw| self.raws.get(&raw)).map(|raw| raw.to_vec());
            readings.push(LeasedDelivery { delivery: kept.delivery.clone(), raw: raw.unwrap_or_default() });
        }
        readings
    }

    /// Replays a dead delivery: makes it due again. Returns true with the delivery if it changed.
    pub(crate) fn replay_delivery(&mut self, team: TeamId, id: DeliveryId, now: Time) -> Option<(Delivery, bool)> {
        let mut delivery = self.delivery(team, id)?.clone();
        let has_bytes = self.deliveries.get(&id).is_some_and(|kept| kept.raw.is_some());
        let changed = has_bytes && delivery.replay(now);
        if changed {
            self.save_delivery(&delivery);
        }
        Some((delivery, changed))
    }

    pub(crate) fn deliveries(&self, team: TeamId, query: &DeliveryQuery) -> Vec<Delivery> {
        let ours = self.deliveries.values().rev().map(|kept| &kept.delivery);
        let older =
            |delivery: &&Delivery| delivery.team == team && query.before.is_none_or(|before| delivery.id < before);
        let looked = ours.filter(older).take(limits::SCAN_ROWS);
        looked.filter(|delivery| query.matches(delivery)).take(query.limit).cloned().collect()
    }

    /// Makes deliveries due again whose lease holder is no longer alive. Returns how many.
    pub(crate) fn reclaim_deliveries(&mut self, alive: impl Fn(NodeId) -> bool, max: usize, now: Time) -> usize {
        let left = |kept: &&mut DeliveryRow| kept.holder.is_some_and(|holder| !alive(holder));
        let mut held: Vec<&mut DeliveryRow> = self.deliveries.values_mut().filter(left).collect();
        held.retain(|kept| kept.delivery.clone().reclaim_lease(now));
        held.sort_by_key(|kept| (kept.delivery.due_at, kept.delivery.id));
        held.truncate(max);
        for kept in &mut held {
            kept.delivery.reclaim_lease(now);
            kept.holder = None;
        }
        held.len()
    }

    /// Deletes old suppressed deliveries, expired delivery keys, and the deliveries of removed inboxes. Returns how
    /// many deliveries were deleted.
    pub(crate) fn sweep_deliveries(&mut self, max: usize, now: Time) -> usize {
        self.delivery_keys.retain(|_, (_, until)| *until > now);
        let old = |delivery: &Delivery| {
            let suppressed = matches!(delivery.state, DeliveryState::Duplicate | DeliveryState::Refused);
            suppressed && now.since(delivery.received_at) >= limits::SUPPRESSED_DELIVERY_RETENTION_MS
        };
        // A waiting delivery of a removed inbox is still processed: a worker refuses it, so that the refusal is
        // recorded.
        let is_of_removed_inbox = |delivery: &Delivery| {
            let inbox = delivery.target.inbox().filter(|_| delivery.state != DeliveryState::Waiting);
            inbox.is_some_and(|inbox| self.removed_inboxes.contains_key(&inbox))
        };
        let all = || self.deliveries.values().map(|kept| &kept.delivery);
        let mut gone: Vec<DeliveryId> = all().filter(|one| old(one)).map(|one| one.id).collect();
        gone.extend(all().filter(|one| !old(one) && is_of_removed_inbox(one)).map(|one| one.id));
        gone.truncate(max);
        for id in &gone {
            let raw = self.deliveries.remove(id).and_then(|kept| kept.raw);
            self.drop_unused_raw(raw);
        }
        gone.len()
    }
}
