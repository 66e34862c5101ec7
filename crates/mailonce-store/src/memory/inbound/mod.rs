//! Received mail: implements `InboundStore` for [`Memory`].

pub(crate) mod deliveries;
pub(crate) mod filing;
pub(crate) mod tables;
use async_trait::async_trait;
use mailonce_core::{
    id::{ArtifactId, DeliveryId, EmailId, InboxId, MessageId, NodeId, TeamId, WatchId},
    inbound::{
        delivery::{
            Delivery, DeliveryOutcome, DeliveryQuery, FetchedContent, InboundMail, LeasedDelivery, ReceiveResult,
        },
        wake_up::InboundWakeUp,
    },
    inbox::{
        CreateInboxResult, Inbox, InboxChangeResult, InboxEdit,
        artifact::{Artifact, ArtifactKind, ConsumeRequest, ConsumeResult, MarkAppliedResult},
        message::{FileMessageResult, Message, MessagePage, MessageQuery, NewMessage},
        watch::{ImplicitWatch, SpendResendResult, Watch},
    },
    operation::{IdempotentResult, KeyedOperation},
    ports::{inbound_store::InboundStore, store::Result},
    time::Time,
};
use std::sync::PoisonError;

use super::Memory;

impl Memory {
    fn notify_wake_up(&self, hint: InboundWakeUp) {
        for handler in self.inbound_subscribers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            handler(hint);
        }
    }
}

#[async_trait]
impl InboundStore for Memory {
    async fn create_inbox(
        &self,
        inbox: Inbox,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateInboxResult>> {
        Ok(self.lock_tables().create_inbox(inbox, operation.as_ref()))
    }

    async fn inbox(&self, team: TeamId, id: InboxId) -> Result<Option<Inbox>> {
        Ok(self.lock_tables().inbound.inbox(team, id).cloned())
    }

    async fn inbox_by_address(&self, places: &[String]) -> Result<Option<Inbox>> {
        Ok(self.lock_tables().inbound.inbox_by_address(places))
    }

    async fn team_by_address(&self, places: &[String]) -> Result<Option<TeamId>> {
        Ok(self.lock_tables().inbound.team_by_address(places))
    }

    async fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Result<Vec<Inbox>> {
        Ok(self.lock_tables().inbound.inboxes(team, before, limit))
    }

    async fn change_inbox(
        &self,
        edit: InboxEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<InboxChangeResult>> {
        Ok(self.lock_tables().change_inbox(edit, operation.as_ref(), now))
    }

    async fn remove_inbox(&self, team: TeamId, id: InboxId, now: Time) -> Result<Option<Inbox>> {
        Ok(self.lock_tables().remove_inbox(team, id, now))
    }

    async fn receive(&self, arrival: InboundMail, now: Time) -> Result<Vec<ReceiveResult>> {
        let unread = arrival.leased_to.is_none();
        let received = self.lock_tables().receive(arrival, now);
        if unread && received.iter().any(|received| matches!(received, ReceiveResult::Stored(_))) {
            self.notify_wake_up(InboundWakeUp::DeliveryWaiting);
        }
        Ok(received)
    }

    async fn lease_deliveries(&self, node: NodeId, max: usize, now: Time) -> Result<Vec<LeasedDelivery>> {
        Ok(self.lock_tables().inbound.lease_deliveries(node, max, now))
    }

    async fn attach_fetched_content(
        &self,
        team: TeamId,
        id: DeliveryId,
        brought: FetchedContent,
    ) -> Result<Option<Delivery>> {
        Ok(self.lock_tables().attach_fetched_content(team, id, brought))
    }

    async fn file_message(
        &self,
        team: TeamId,
        delivery: DeliveryId,
        message: NewMessage,
        now: Time,
    ) -> Result<FileMessageResult> {
        let filed = self.lock_tables().file_message(team, delivery, message, now);
        if let FileMessageResult::New(message, _) = &filed {
            self.notify_wake_up(InboundWakeUp::MessageFiled(message.inbox));
        }
        Ok(filed)
    }

    async fn record_delivery_outcome(
        &self,
        team: TeamId,
        id: DeliveryId,
        settle: DeliveryOutcome,
        now: Time,
    ) -> Result<Option<Delivery>> {
        Ok(self.lock_tables().record_delivery_outcome(team, id, settle, now))
    }

    async fn replay_delivery(&self, team: TeamId, id: DeliveryId, now: Time) -> Result<Option<Delivery>> {
        let replayed = self.lock_tables().inbound.replay_delivery(team, id, now);
        if replayed.as_ref().is_some_and(|(_, changed)| *changed) {
            self.notify_wake_up(InboundWakeUp::DeliveryWaiting);
        }
        Ok(replayed.map(|(delivery, _)| delivery))
    }

    async fn team_of_email(&self, email: EmailId) -> Result<Option<TeamId>> {
        Ok(self.lock_tables().outbound.emails.get(&email).map(|email| email.team))
    }

    async fn delivery(&self, team: TeamId, id: DeliveryId) -> Result<Option<Delivery>> {
        Ok(self.lock_tables().inbound.delivery(team, id).cloned())
    }

    async fn deliveries(&self, team: TeamId, query: DeliveryQuery) -> Result<Vec<Delivery>> {
        Ok(self.lock_tables().inbound.deliveries(team, &query))
    }

    async fn message(&self, team: TeamId, id: MessageId) -> Result<Option<Message>> {
        Ok(self.lock_tables().inbound.message(team, id).filter(Message::is_visible))
    }

    async fn raw_message(&self, team: TeamId, id: MessageId) -> Result<Option<Vec<u8>>> {
        Ok(self.lock_tables().inbound.raw_message(team, id))
    }

    async fn messages(&self, team: TeamId, inbox: InboxId, query: MessageQuery) -> Result<MessagePage> {
        Ok(self.lock_tables().inbound.messages(team, inbox, &query))
    }

    async fn artifact(&self, team: TeamId, id: ArtifactId) -> Result<Option<Artifact>> {
        Ok(self.lock_tables().inbound.artifact(team, id))
    }

    async fn artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: Option<ArtifactKind>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Artifact>> {
        Ok(self.lock_tables().inbound.artifacts(team, inbox, kind, after, limit))
    }

    async fn held_artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: ArtifactKind,
        after: u64,
        purpose: &str,
    ) -> Result<Vec<Artifact>> {
        Ok(self.lock_tables().inbound.held_artifacts((team, inbox), kind, after, purpose))
    }

    async fn consume_artifact(
        &self,
        team: TeamId,
        id: ArtifactId,
        taking: ConsumeRequest,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<ConsumeResult>> {
        Ok(self.lock_tables().consume_artifact(team, id, taking, operation.as_ref(), now))
    }

    async fn mark_artifact_applied(
        &self,
        team: TeamId,
        id: ArtifactId,
        purpose: &str,
        now: Time,
    ) -> Result<MarkAppliedResult> {
        Ok(self.lock_tables().mark_artifact_applied(team, id, purpose, now))
    }

    async fn create_watch(
        &self,
        watch: Watch,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<Option<Watch>>> {
        Ok(self.lock_tables().create_watch(watch, operation.as_ref()))
    }

    async fn touch_implicit_watch(&self, watch: ImplicitWatch, now: Time) -> Result<ImplicitWatch> {
        Ok(self.lock_tables().inbound.touch_implicit_watch(watch, now))
    }

    async fn watch_of(&self, team: TeamId, id: WatchId) -> Result<Option<Watch>> {
        Ok(self.lock_tables().inbound.watch_of(team, id))
    }

    async fn spend_resend(
        &self,
        team: TeamId,
        id: WatchId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<SpendResendResult>> {
        Ok(self.lock_tables().spend_resend(team, id, operation.as_ref(), now))
    }
}
