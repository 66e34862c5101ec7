//! Received mail.
//!
//! | module | contents |
//! |---|---|
//! | `receive`, `delivery_insert` | storing received mail as deliveries |
//! | `deliveries` | leasing, finishing and listing deliveries |
//! | `filing`, `filing_batch`, `filing_write` | turning a delivery into a message: load, decide, write |
//! | `wake_ups` | wake-ups between nodes |
//! | `sweep`, `row` | deletion of expired rows; the mapping between rows and domain values |
//!
//! A transaction that locks several rows takes them in this order: keys of operations, keys of deliveries,
//! deliveries, inboxes, threads, addresses, artifacts and watches, raw bytes.

pub(crate) mod deliveries;
mod delivery_insert;
pub(crate) mod filing;
mod filing_batch;
mod filing_write;
pub(crate) mod receive;
pub(crate) mod row;
pub(crate) mod sweep;
pub(crate) mod wake_ups;

use async_trait::async_trait;
use mailonce_core::{
    id::{ArtifactId, DeliveryId, EmailId, InboxId, MessageId, NodeId, TeamId, WatchId},
    inbound::delivery::{
        Delivery, DeliveryOutcome, DeliveryQuery, FetchedContent, InboundMail, LeasedDelivery, ReceiveResult,
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

use super::{Postgres, into_store_result, when_durable};
use crate::postgres::{
    error::call_until_final,
    inbox::{artifacts, inboxes, messages, watches},
};
use filing::FileCall;
use receive::ReceiveCall;

#[async_trait]
impl InboundStore for Postgres {
    async fn create_inbox(
        &self,
        inbox: Inbox,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateInboxResult>> {
        when_durable!(self, call_until_final!(inboxes::create_inbox(&self.shared, &inbox, operation.as_ref())))
    }

    async fn inbox(&self, team: TeamId, id: InboxId) -> Result<Option<Inbox>> {
        when_durable!(self, inboxes::inbox(&self.shared, team, id).await)
    }

    async fn inbox_by_address(&self, places: &[String]) -> Result<Option<Inbox>> {
        when_durable!(self, inboxes::inbox_by_address(&self.shared, places).await)
    }

    async fn team_by_address(&self, places: &[String]) -> Result<Option<TeamId>> {
        when_durable!(self, inboxes::team_by_address(&self.shared, places).await)
    }

    async fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Result<Vec<Inbox>> {
        when_durable!(self, inboxes::inboxes(&self.shared, team, before, limit).await)
    }

    async fn change_inbox(
        &self,
        edit: InboxEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<InboxChangeResult>> {
        when_durable!(self, call_until_final!(inboxes::change_inbox(&self.shared, &edit, operation.as_ref(), now)))
    }

    async fn remove_inbox(&self, team: TeamId, id: InboxId, now: Time) -> Result<Option<Inbox>> {
        when_durable!(self, call_until_final!(inboxes::remove_inbox(&self.shared, team, id, now)))
    }

    async fn receive(&self, arrival: InboundMail, now: Time) -> Result<Vec<ReceiveResult>> {
        when_durable!(self, self.shared.receive_batcher.submit(ReceiveCall { arrival, now }).await)
    }

    async fn lease_deliveries(&self, node: NodeId, max: usize, now: Time) -> Result<Vec<LeasedDelivery>> {
        into_store_result(call_until_final!(deliveries::lease_deliveries(&self.shared, node, max, now)))
    }

    async fn attach_fetched_content(
        &self,
        team: TeamId,
        id: DeliveryId,
        brought: FetchedContent,
    ) -> Result<Option<Delivery>> {
        when_durable!(self, call_until_final!(deliveries::attach_fetched_content(&self.shared, team, id, &brought)))
    }

    async fn file_message(
        &self,
        team: TeamId,
        delivery: DeliveryId,
        message: NewMessage,
        now: Time,
    ) -> Result<FileMessageResult> {
        when_durable!(self, self.shared.file_batcher.submit(FileCall { team, delivery, message, now }).await)
    }

    async fn record_delivery_outcome(
        &self,
        team: TeamId,
        id: DeliveryId,
        settle: DeliveryOutcome,
        now: Time,
    ) -> Result<Option<Delivery>> {
        when_durable!(
            self,
            call_until_final!(deliveries::record_delivery_outcome(&self.shared, team, id, &settle, now))
        )
    }

    async fn replay_delivery(&self, team: TeamId, id: DeliveryId, now: Time) -> Result<Option<Delivery>> {
        when_durable!(self, call_until_final!(deliveries::replay_delivery(&self.shared, team, id, now)))
    }

    async fn team_of_email(&self, email: EmailId) -> Result<Option<TeamId>> {
        when_durable!(self, deliveries::team_of_email(&self.shared, email).await)
    }

    async fn delivery(&self, team: TeamId, id: DeliveryId) -> Result<Option<Delivery>> {
        when_durable!(self, deliveries::delivery(&self.shared, team, id).await)
    }

    async fn deliveries(&self, team: TeamId, query: DeliveryQuery) -> Result<Vec<Delivery>> {
        when_durable!(self, deliveries::deliveries(&self.shared, team, &query).await)
    }

    async fn message(&self, team: TeamId, id: MessageId) -> Result<Option<Message>> {
        let found = when_durable!(self, messages::message(&self.shared, team, id).await)?;
        Ok(found.filter(Message::is_visible))
    }

    async fn raw_message(&self, team: TeamId, id: MessageId) -> Result<Option<Vec<u8>>> {
        when_durable!(self, messages::raw_message(&self.shared, team, id).await)
    }

    async fn messages(&self, team: TeamId, inbox: InboxId, query: MessageQuery) -> Result<MessagePage> {
        when_durable!(self, messages::messages(&self.shared, team, inbox, &query).await)
    }

    async fn artifact(&self, team: TeamId, id: ArtifactId) -> Result<Option<Artifact>> {
        when_durable!(self, artifacts::artifact(&self.shared, team, id).await)
    }

    async fn artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: Option<ArtifactKind>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Artifact>> {
        when_durable!(self, artifacts::artifacts(&self.shared, (team, inbox), kind, after, limit).await)
    }

    async fn held_artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: ArtifactKind,
        after: u64,
        purpose: &str,
    ) -> Result<Vec<Artifact>> {
        when_durable!(self, artifacts::held_artifacts(&self.shared, (team, inbox), kind, after, purpose).await)
    }

    async fn consume_artifact(
        &self,
        team: TeamId,
        id: ArtifactId,
        taking: ConsumeRequest,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<ConsumeResult>> {
        when_durable!(
            self,
            call_until_final!(artifacts::consume_artifact(&self.shared, team, id, &taking, operation.as_ref(), now))
        )
    }

    async fn mark_artifact_applied(
        &self,
        team: TeamId,
        id: ArtifactId,
        purpose: &str,
        now: Time,
    ) -> Result<MarkAppliedResult> {
        when_durable!(self, call_until_final!(artifacts::mark_artifact_applied(&self.shared, team, id, purpose, now)))
    }

    async fn create_watch(
        &self,
        watch: Watch,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<Option<Watch>>> {
        when_durable!(self, call_until_final!(watches::create_watch(&self.shared, &watch, operation.as_ref())))
    }

    async fn touch_implicit_watch(&self, watch: ImplicitWatch, now: Time) -> Result<ImplicitWatch> {
        when_durable!(self, call_until_final!(watches::touch_implicit_watch(&self.shared, watch, now)))
    }

    async fn watch_of(&self, team: TeamId, id: WatchId) -> Result<Option<Watch>> {
        when_durable!(self, watches::watch_of(&self.shared, team, id).await)
    }

    async fn spend_resend(
        &self,
        team: TeamId,
        id: WatchId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<SpendResendResult>> {
        when_durable!(self, call_until_final!(watches::spend_resend(&self.shared, team, id, operation.as_ref(), now)))
    }
}
