//! The part of the port for mail that comes in.

use async_trait::async_trait;
use mailonce_core::{
    artifact::{Applied, Artifact, ArtifactKind, Taken, Taking},
    delivery::{Arrival, Brought, Delivery, DeliveryQuery, Reading, Received, Settle},
    id::{ArtifactId, DeliveryId, EmailId, InboxId, MessageId, NodeId, TeamId, WatchId},
    inbox::{Inbox, InboxChange, InboxEdit, InboxMade},
    message::{Filed, Message, MessagePage, MessageQuery, NewMessage},
    port::{
        arrivals::{Arrivals, Hearer, Hint},
        store::{Once, Operation, Result},
    },
    time::Time,
    watch::{Spent, Watch},
};
use std::sync::PoisonError;

use super::Memory;

impl Memory {
    fn hint(&self, hint: Hint) {
        for hearer in self.hearers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            hearer(hint);
        }
    }
}

#[async_trait]
impl Arrivals for Memory {
    async fn create_inbox(&self, inbox: Inbox, operation: Option<Operation>) -> Result<Once<InboxMade>> {
        Ok(self.world().create_inbox(inbox, operation.as_ref()))
    }

    async fn inbox(&self, team: TeamId, id: InboxId) -> Result<Option<Inbox>> {
        Ok(self.world().inbound.inbox(team, id).cloned())
    }

    async fn inbox_at(&self, places: &[String]) -> Result<Option<Inbox>> {
        Ok(self.world().inbox_at(places))
    }

    async fn team_at(&self, places: &[String]) -> Result<Option<TeamId>> {
        Ok(self.world().team_at(places))
    }

    async fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Result<Vec<Inbox>> {
        Ok(self.world().inboxes(team, before, limit))
    }

    async fn change_inbox(
        &self,
        edit: InboxEdit,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<InboxChange>> {
        Ok(self.world().change_inbox(edit, operation.as_ref(), now))
    }

    async fn remove_inbox(&self, team: TeamId, id: InboxId, _now: Time) -> Result<Option<Inbox>> {
        Ok(self.world().remove_inbox(team, id))
    }

    async fn receive(&self, arrival: Arrival, now: Time) -> Result<Vec<Received>> {
        let unread = arrival.reader.is_none();
        let received = self.world().receive(arrival, now);
        if unread && received.iter().any(|received| matches!(received, Received::Kept(_))) {
            self.hint(Hint::Waiting);
        }
        Ok(received)
    }

    async fn read(&self, node: NodeId, max: usize, now: Time) -> Result<Vec<Reading>> {
        Ok(self.world().read(node, max, now))
    }

    async fn bring(&self, team: TeamId, id: DeliveryId, brought: Brought) -> Result<Option<Delivery>> {
        Ok(self.world().bring(team, id, brought))
    }

    async fn file(&self, team: TeamId, delivery: DeliveryId, message: NewMessage, now: Time) -> Result<Filed> {
        let filed = self.world().file(team, delivery, message, now);
        if let Filed::New(message, _) = &filed {
            self.hint(Hint::Filed(message.inbox));
        }
        Ok(filed)
    }

    async fn settle_delivery(
        &self,
        team: TeamId,
        id: DeliveryId,
        settle: Settle,
        now: Time,
    ) -> Result<Option<Delivery>> {
        Ok(self.world().settle_delivery(team, id, settle, now))
    }

    async fn replay_delivery(&self, team: TeamId, id: DeliveryId, now: Time) -> Result<Option<Delivery>> {
        let replayed = self.world().replay_delivery(team, id, now);
        if replayed.as_ref().is_some_and(|(_, changed)| *changed) {
            self.hint(Hint::Waiting);
        }
        Ok(replayed.map(|(delivery, _)| delivery))
    }

    async fn team_of(&self, email: EmailId) -> Result<Option<TeamId>> {
        Ok(self.world().emails.get(&email).map(|email| email.team))
    }

    async fn delivery(&self, team: TeamId, id: DeliveryId) -> Result<Option<Delivery>> {
        Ok(self.world().inbound.delivery(team, id).cloned())
    }

    async fn deliveries(&self, team: TeamId, query: DeliveryQuery) -> Result<Vec<Delivery>> {
        Ok(self.world().deliveries(team, &query))
    }

    async fn message(&self, team: TeamId, id: MessageId) -> Result<Option<Message>> {
        Ok(self.world().message(team, id))
    }

    async fn raw(&self, team: TeamId, id: MessageId) -> Result<Option<Vec<u8>>> {
        Ok(self.world().raw(team, id))
    }

    async fn messages(&self, team: TeamId, inbox: InboxId, query: MessageQuery) -> Result<MessagePage> {
        Ok(self.world().messages(team, inbox, &query))
    }

    async fn artifact(&self, team: TeamId, id: ArtifactId) -> Result<Option<Artifact>> {
        Ok(self.world().artifact(team, id))
    }

    async fn artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: Option<ArtifactKind>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Artifact>> {
        Ok(self.world().artifacts(team, inbox, kind, after, limit))
    }

    async fn consume(
        &self,
        team: TeamId,
        id: ArtifactId,
        taking: Taking,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Taken>> {
        Ok(self.world().consume(team, id, taking, operation.as_ref(), now))
    }

    async fn apply(&self, team: TeamId, id: ArtifactId, purpose: &str, now: Time) -> Result<Applied> {
        Ok(self.world().apply(team, id, purpose, now))
    }

    async fn create_watch(&self, watch: Watch, operation: Option<Operation>) -> Result<Once<Option<Watch>>> {
        Ok(self.world().create_watch(watch, operation.as_ref()))
    }

    async fn watch_of(&self, team: TeamId, id: WatchId) -> Result<Option<Watch>> {
        Ok(self.world().watch_of(team, id))
    }

    async fn spend(&self, team: TeamId, id: WatchId, operation: Option<Operation>, now: Time) -> Result<Once<Spent>> {
        Ok(self.world().spend(team, id, operation.as_ref(), now))
    }

    fn hear(&self, hearer: Hearer) -> bool {
        self.hearers.lock().unwrap_or_else(PoisonError::into_inner).push(hearer);
        true
    }
}
