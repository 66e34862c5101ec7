//! The part of the store for received mail. It follows the rules of the store: every method is one transaction and
//! idempotent, time and ids are arguments, every row and every query carries its team.

use async_trait::async_trait;

use super::store::Result;
use crate::{
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
    time::Time,
};

/// Called after a commit of this process or, on stores with several nodes, of another one.
pub type InboundWakeUpHandler = Box<dyn Fn(InboundWakeUp) + Send + Sync>;

/// Inboxes, deliveries, messages, artifacts and watches. The module documentation states the rules that every method
/// follows.
#[async_trait]
pub trait InboundStore: Send + Sync + 'static {
    // Inboxes

    /// Creates an inbox. The key of the operation is bound only when the inbox was created by this call.
    async fn create_inbox(
        &self,
        inbox: Inbox,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateInboxResult>>;
    /// One inbox. Removed inboxes are not returned.
    async fn inbox(&self, team: TeamId, id: InboxId) -> Result<Option<Inbox>>;
    /// The inbox, of any team, at the first of these addresses that was ever taken. A retired or removed address
    /// receives no mail, not even through the catch-all of its domain.
    async fn inbox_by_address(&self, places: &[String]) -> Result<Option<Inbox>>;
    /// The team that owns or owned the first known one of these addresses, even when it is retired or its inbox is
    /// removed.
    async fn team_by_address(&self, places: &[String]) -> Result<Option<TeamId>>;
    /// Inboxes older than `before`, newest first.
    async fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Result<Vec<Inbox>>;
    /// Changes an inbox, if it still has the revision that the caller saw.
    async fn change_inbox(
        &self,
        edit: InboxEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<InboxChangeResult>>;
    /// Removes an inbox with everything in it. Its addresses stay reserved. `None` when the team has no such inbox.
    async fn remove_inbox(&self, team: TeamId, id: InboxId, now: Time) -> Result<Option<Inbox>>;

    // Deliveries

    /// Stores a mail for each recipient, unless the same delivery was received before. Every duplicate is recorded with
    /// a row and an event. The results are in the order of the recipients. Two recipients of one mail with the same key
    /// are one delivery. A recipient whose inbox was removed by the time of the commit is refused, with a row and an
    /// event. The inbox cannot be removed between that check and the commit.
    async fn receive(&self, arrival: InboundMail, now: Time) -> Result<Vec<ReceiveResult>>;
    /// Leases up to `max` due deliveries to a worker, earliest due first.
    async fn lease_deliveries(&self, node: NodeId, max: usize, now: Time) -> Result<Vec<LeasedDelivery>>;
    /// Attaches a fetched mail to a waiting delivery that holds only a reference to it. Only that delivery changes, and
    /// a worker that holds it continues. `None` when there is no such delivery. One that no longer waits, or has its
    /// mail, stays unchanged.
    async fn attach_fetched_content(
        &self,
        team: TeamId,
        id: DeliveryId,
        brought: FetchedContent,
    ) -> Result<Option<Delivery>>;
    /// Files the message of a waiting delivery with its thread, artifacts and events, unless the inbox already has the
    /// message. In that case the delivery ends as a duplicate and its bytes are deleted.
    async fn file_message(
        &self,
        team: TeamId,
        delivery: DeliveryId,
        message: NewMessage,
        now: Time,
    ) -> Result<FileMessageResult>;
    /// Ends or postpones a waiting delivery that makes no message now. `None` when there is no such delivery. One that
    /// no longer waits stays unchanged.
    async fn record_delivery_outcome(
        &self,
        team: TeamId,
        id: DeliveryId,
        settle: DeliveryOutcome,
        now: Time,
    ) -> Result<Option<Delivery>>;
    /// Makes a dead delivery due again, with its attempts reset. `None` when there is no such delivery. One that is not
    /// dead, or whose bytes were deleted, stays unchanged.
    async fn replay_delivery(&self, team: TeamId, id: DeliveryId, now: Time) -> Result<Option<Delivery>>;
    /// The team of an email. For a bounce that has proven which email it is about.
    async fn team_of_email(&self, email: EmailId) -> Result<Option<TeamId>>;
    /// One delivery.
    async fn delivery(&self, team: TeamId, id: DeliveryId) -> Result<Option<Delivery>>;
    /// Deliveries, newest first. A page shorter than its limit is the last.
    async fn deliveries(&self, team: TeamId, query: DeliveryQuery) -> Result<Vec<Delivery>>;

    // Messages

    /// One message.
    async fn message(&self, team: TeamId, id: MessageId) -> Result<Option<Message>>;
    /// The packed bytes of a message. `None` once they were deleted.
    async fn raw_message(&self, team: TeamId, id: MessageId) -> Result<Option<Vec<u8>>>;
    /// Messages of an inbox, ordered by number.
    async fn messages(&self, team: TeamId, inbox: InboxId, query: MessageQuery) -> Result<MessagePage>;

    // Artifacts

    /// One artifact.
    async fn artifact(&self, team: TeamId, id: ArtifactId) -> Result<Option<Artifact>>;
    /// Artifacts of an inbox in messages after a number, those of the latest messages first, then by id.
    async fn artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: Option<ArtifactKind>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Artifact>>;
    /// Artifacts of an inbox in messages after a number that this consumer has, those of the latest messages first.
    async fn held_artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: ArtifactKind,
        after: u64,
        purpose: &str,
    ) -> Result<Vec<Artifact>>;
    /// Gives an artifact to its first consumer. With `held_before`, calls of one consumer at an inbox take effect one
    /// after the other, so that the second one sees what the first one took. The key of the operation is bound unless
    /// nothing was given.
    async fn consume_artifact(
        &self,
        team: TeamId,
        id: ArtifactId,
        taking: ConsumeRequest,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<ConsumeResult>>;
    /// Records that the consumer of an artifact has used it.
    async fn mark_artifact_applied(
        &self,
        team: TeamId,
        id: ArtifactId,
        purpose: &str,
        now: Time,
    ) -> Result<MarkAppliedResult>;

    // Watches

    /// Creates a watch. The store sets `after_seq` to the latest message number of the inbox. `None` when the team has
    /// no such inbox.
    async fn create_watch(
        &self,
        watch: Watch,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<Option<Watch>>>;
    /// Starts an implicit watch, or continues the one that its consumer has at the inbox and that has not ended.
    async fn touch_implicit_watch(&self, watch: ImplicitWatch, now: Time) -> Result<ImplicitWatch>;
    /// One watch.
    async fn watch_of(&self, team: TeamId, id: WatchId) -> Result<Option<Watch>>;
    /// Uses one of the resends of a watch. The key of the operation is bound only when one was used.
    async fn spend_resend(
        &self,
        team: TeamId,
        id: WatchId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<SpendResendResult>>;
}
