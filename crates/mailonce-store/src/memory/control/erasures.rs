//! Erasing: removes what names a person, one row at a time.

use async_trait::async_trait;
use mailonce_core::{
    access::call_origin::Alias,
    control::{audit::act::Act, erasure::AddressEraser, typed_text::TypedText},
    events::retention::EventRetention,
    handoff::Attempt,
    id::{ClaimId, DeliveryId, EmailId, InboxId, MessageId, TeamId, ThreadId},
    inbound::delivery::{Delivery, DeliveryState},
    inbox::message::Message,
    outbound::email::Email,
    ports::{
        erasure_store::{EraseClaimResult, EraseEmailResult, ErasureStore},
        store::Result,
    },
    record::Record,
    time::Time,
};
use serde_json::Value;
use std::collections::BTreeSet;

use crate::memory::{Memory, Tables};

impl Tables {
    /// Erases a settled email. Returns the email as it is now.
    fn erase_email(&mut self, eraser: &AddressEraser, id: EmailId) -> (EraseEmailResult, Option<Email>) {
        let Some(mut email) = self.outbound.email_of_team(eraser.team, id) else {
            return (EraseEmailResult::Missing, None);
        };
        if !email.erase(eraser) {
            return (EraseEmailResult::NotSettled, None);
        }
        self.outbound.bodies.remove(&id);
        self.outbound.suppressed.entry(id).and_modify(Vec::clear);
        self.handoffs.wires.retain(|(wired, _), _| *wired != id);
        self.handoffs.attempts.entry(id).or_default().iter_mut().for_each(Attempt::erase);
        self.handoffs.evidence.entry(id).or_default().iter_mut().for_each(|fact| fact.erase(eraser));
        for latest in self.conversations.recent_fingerprints.values_mut() {
            latest.retain(|(_, email, _)| *email != id);
        }
        self.erase_subject_of_thread(email.head.thread);
        self.search.forget(id.0);
        self.outbound.emails.insert(id, email.clone());
        (EraseEmailResult::Erased, Some(email))
    }

    fn erase_subject_of_thread(&mut self, thread: Option<ThreadId>) {
        if let Some(thread) = thread.and_then(|id| self.conversations.threads.get_mut(&id)) {
            thread.erase_subject();
        }
    }

    fn erase_message(&mut self, team: TeamId, id: MessageId, now: Time) -> bool {
        let Some(mut message) = self.inbound.message(team, id).filter(Message::is_visible) else {
            return false;
        };
        message.erase(now);
        if let Some(kept) = self.inbound.deliveries.get_mut(&message.delivery) {
            kept.delivery.erase();
            let raw = kept.raw.take();
            self.inbound.drop_unused_raw(raw);
        }
        self.inbound.artifacts.retain(|_, (_, artifact)| artifact.message != id);
        self.erase_subject_of_thread(Some(message.thread));
        self.search.forget(id.0);
        self.inbound.messages.insert(id, message);
        self.record_act(Some(Act::of_deletion(team, "message", id.0)), now);
        true
    }

    fn drop_bodies(&mut self, team: TeamId, settled_by: Time, max: usize) -> usize {
        let is_due = |id: &&EmailId| {
            let email = self.outbound.email_of_team(team, **id);
            email
                .is_some_and(|email| email.state().is_terminal() && email.settled_at.is_some_and(|at| at <= settled_by))
        };
        let due: BTreeSet<EmailId> = self.outbound.bodies.keys().filter(is_due).take(max).copied().collect();
        self.outbound.bodies.retain(|id, _| !due.contains(id));
        self.handoffs.wires.retain(|(wired, _), _| !due.contains(wired));
        self.erase_from_search();
        due.len()
    }

    fn drop_message_bytes(&mut self, team: TeamId, id: MessageId) -> bool {
        let Some(message) = self.inbound.message(team, id) else { return false };
        let raw = self.inbound.deliveries.get_mut(&message.delivery).and_then(|kept| kept.raw.take());
        self.inbound.drop_unused_raw(raw);
        self.erase_from_search();
        raw.is_some()
    }

    fn drop_dead_mail(&mut self, team: TeamId, inbox: Option<InboxId>, received_by: Time, max: usize) -> usize {
        let is_due = |delivery: &Delivery| {
            let is_old = delivery.state == DeliveryState::Dead && delivery.received_at <= received_by;
            delivery.team == team && is_old && (inbox.is_none() || delivery.target.inbox() == inbox)
        };
        let dead = self.inbound.deliveries.values_mut().filter(|kept| is_due(&kept.delivery));
        let raws: Vec<DeliveryId> = dead.filter_map(|kept| kept.raw.take()).take(max).collect();
        raws.iter().for_each(|raw| self.inbound.drop_unused_raw(Some(*raw)));
        raws.len()
    }

    fn remove_thread(&mut self, team: TeamId, id: ThreadId, now: Time) -> bool {
        let is_ours = self.conversations.threads.get(&id).is_some_and(|thread| thread.team == team);
        let has_messages = self.inbound.messages.values().any(|message| message.thread == id && message.is_visible());
        if !is_ours || has_messages {
            return false;
        }
        self.conversations.threads.remove(&id);
        self.conversations.emails.remove(&id);
        self.record_act(Some(Act::of_deletion(team, "thread", id.0)), now);
        true
    }

    fn remove_delivery(&mut self, team: TeamId, id: DeliveryId) -> bool {
        let removable = self.inbound.delivery(team, id).is_some_and(|delivery| {
            delivery.state != DeliveryState::Waiting
                && (delivery.state != DeliveryState::Done || delivery.message.is_none())
        });
        if removable && let Some(kept) = self.inbound.deliveries.remove(&id) {
            self.inbound.drop_unused_raw(kept.raw);
        }
        removable
    }
}

#[async_trait]
impl ErasureStore for Memory {
    async fn erase_email(&self, eraser: &AddressEraser, id: EmailId) -> Result<EraseEmailResult> {
        let (result, email) = self.lock_tables().erase_email(eraser, id);
        email.iter().for_each(|email| self.notify_email_changed(email));
        Ok(result)
    }

    async fn erase_claim(&self, eraser: &AddressEraser, id: ClaimId) -> Result<EraseClaimResult> {
        Ok(self.lock_tables().claims.erase(eraser, id))
    }

    async fn erase_message(&self, team: TeamId, id: MessageId, now: Time) -> Result<bool> {
        Ok(self.lock_tables().erase_message(team, id, now))
    }

    async fn redact_thread(&self, eraser: &AddressEraser, id: ThreadId) -> Result<bool> {
        let mut tables = self.lock_tables();
        let found = tables.conversations.threads.get_mut(&id).filter(|thread| thread.team == eraser.team);
        Ok(found.is_some_and(|thread| thread.redact(eraser)))
    }

    async fn redact_consumers(&self, eraser: &AddressEraser, inbox: InboxId, message: MessageId) -> Result<usize> {
        let mut tables = self.lock_tables();
        let artifacts = tables.inbound.artifacts.values_mut().map(|(_, artifact)| artifact);
        let ours = artifacts
            .filter(|artifact| (artifact.team, artifact.inbox, artifact.message) == (eraser.team, inbox, message));
        Ok(ours
            .filter_map(|artifact| artifact.consumption.as_mut())
            .filter_map(|by| by.redact(eraser).then_some(()))
            .count())
    }

    async fn redact_typed_texts(&self, eraser: &AddressEraser, kind: TypedText) -> Result<usize> {
        let mut tables = self.lock_tables();
        Ok(match kind {
            TypedText::ApiKeys => tables.access.redact_api_keys(eraser),
            TypedText::Endpoints => tables.events.webhooks.redact_endpoints(eraser),
            TypedText::Inboxes => tables.inbound.redact_inboxes(eraser),
            TypedText::Stops => {
                let stops = tables.control.stops.values_mut();
                let ours = stops.filter(|stop| stop.scope.team() == Some(eraser.team));
                ours.filter_map(|stop| stop.redact(eraser).then_some(())).count()
            }
        })
    }

    async fn remove_thread(&self, team: TeamId, id: ThreadId, now: Time) -> Result<bool> {
        Ok(self.lock_tables().remove_thread(team, id, now))
    }

    async fn drop_bodies(&self, team: TeamId, settled_by: Time, max: usize) -> Result<usize> {
        Ok(self.lock_tables().drop_bodies(team, settled_by, max))
    }

    async fn drop_message_bytes(&self, team: TeamId, id: MessageId) -> Result<bool> {
        Ok(self.lock_tables().drop_message_bytes(team, id))
    }

    async fn drop_dead_mail(
        &self,
        team: TeamId,
        inbox: Option<InboxId>,
        received_by: Time,
        max: usize,
    ) -> Result<usize> {
        Ok(self.lock_tables().drop_dead_mail(team, inbox, received_by, max))
    }

    async fn delivery_bytes(&self, team: TeamId, id: DeliveryId) -> Result<Option<Vec<u8>>> {
        let tables = self.lock_tables();
        let kept = tables.inbound.deliveries.get(&id).filter(|kept| kept.delivery.team == team);
        Ok(kept.and_then(|kept| kept.raw).and_then(|raw| tables.inbound.raws.get(&raw)).map(|raw| raw.to_vec()))
    }

    async fn remove_delivery(&self, team: TeamId, id: DeliveryId) -> Result<bool> {
        Ok(self.lock_tables().remove_delivery(team, id))
    }

    async fn has_removed_inboxes(&self, team: TeamId) -> Result<bool> {
        let tables = self.lock_tables();
        let is_left = |delivery: &Delivery| {
            let inbox = delivery.target.inbox().filter(|_| delivery.team == team);
            inbox.is_some_and(|inbox| tables.inbound.removed_inboxes.contains_key(&inbox))
        };
        Ok(tables.inbound.deliveries.values().any(|kept| is_left(&kept.delivery)))
    }

    async fn replace_record(&self, record: &Record) -> Result<bool> {
        let mut tables = self.lock_tables();
        let found = tables.control.record(record.team, record.kind, record.id);
        let is_current = found.is_some_and(|found| found.rev == record.rev);
        if is_current {
            let replaced = Record { rev: record.rev + 1, ..record.clone() };
            tables.control.records.insert(record.id, replaced);
        }
        Ok(is_current)
    }

    async fn replace_event_data(&self, team: TeamId, events: Vec<(u64, Value)>) -> Result<()> {
        let mut tables = self.lock_tables();
        for (seq, data) in events {
            tables.events.webhooks.forget_responses(team, seq);
            if tables.events.deleted.get(&team).is_some_and(|deleted| seq <= *deleted) {
                continue;
            }
            let place = usize::try_from(seq.saturating_sub(1)).unwrap_or(usize::MAX);
            if let Some(event) = tables.events.log.entry(team).or_default().get_mut(place) {
                event.data = data;
            }
        }
        Ok(())
    }

    async fn drop_events(&self, team: TeamId, retention: EventRetention) -> Result<bool> {
        let mut tables = self.lock_tables();
        let indexed = tables.search.cursors.get(&team).copied().unwrap_or(0);
        Ok(tables.events.drop_events(team, retention, indexed))
    }

    async fn audit_name_page(&self, team: TeamId, after: &str, limit: usize) -> Result<Vec<Alias>> {
        Ok(self.lock_tables().control.audit.name_page(team, after, limit))
    }

    async fn forget_reply_tally(&self, team: TeamId, person: [u8; 16]) -> Result<()> {
        self.lock_tables().conversations.person_tallies.remove(&(team, person));
        Ok(())
    }

    async fn overwrite_freed_storage(&self) -> Result<()> {
        Ok(())
    }

    async fn truncate_log(&self) -> Result<()> {
        Ok(())
    }
}
