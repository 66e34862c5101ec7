//! What mailonce must remember of mail that comes in. A part of the store, with the same rules: every method is one
//! transaction and safe to repeat, time and ids are arguments, every row and every query carries its team.

use async_trait::async_trait;

use super::store::{IdempotentResult, KeyedOperation, Result};
use crate::{
    id::{ArtifactId, DeliveryId, EmailId, InboxId, MessageId, NodeId, TeamId, WatchId},
    inbound::delivery::{
        Delivery, DeliveryOutcome, DeliveryQuery, FetchedContent, InboundMail, LeasedDelivery, ReceiveResult,
    },
    inbox::{
        CreateInboxResult, Inbox, InboxChangeResult, InboxEdit,
        artifact::{Artifact, ArtifactKind, ConsumeRequest, ConsumeResult, MarkAppliedResult},
        message::{FileMessageResult, Message, MessagePage, MessageQuery, NewMessage},
        watch::{SpendResendResult, Watch},
    },
    time::Time,
};

/// Something that others may wait for has happened. A hint: it may be lost, and then costs a moment only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundWakeUp {
    /// A message was filed in an inbox.
    MessageFiled(InboxId),
    /// A delivery waits that nobody reads yet.
    DeliveryWaiting,
}

/// Called after a commit, of this process or (on engines of many nodes) of another.
pub type InboundWakeUpHandler = Box<dyn Fn(InboundWakeUp) + Send + Sync>;

/// Mail that comes in. See the module's words.
#[async_trait]
pub trait InboundStore: Send + Sync + 'static {
    // Inboxes

    /// Makes an inbox. The key of an operation is bound only when it was made now.
    async fn create_inbox(
        &self,
        inbox: Inbox,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateInboxResult>>;
    /// One inbox. Removed ones are not there.
    async fn inbox(&self, team: TeamId, id: InboxId) -> Result<Option<Inbox>>;
    /// The inbox at the first of these addresses that was ever taken, whosever it is. A retired or removed one reaches
    /// nobody, not even its domain's catch-all.
    async fn inbox_by_address(&self, places: &[String]) -> Result<Option<Inbox>>;
    /// The team whose the first of these addresses is or was: also when it was retired, or its inbox removed.
    async fn team_by_address(&self, places: &[String]) -> Result<Option<TeamId>>;
    /// Inboxes older than `before`, newest first.
    async fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Result<Vec<Inbox>>;
    /// Changes an inbox, if it is still as it was seen.
    async fn change_inbox(
        &self,
        edit: InboxEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<InboxChangeResult>>;
    /// Removes an inbox with everything in it. Its addresses stay taken. `None` when the team has no such inbox.
    async fn remove_inbox(&self, team: TeamId, id: InboxId, now: Time) -> Result<Option<Inbox>>;

    // Arriving

    /// Keeps a mail for each recipient, unless the same delivery came before; every repeat leaves a row and an event.
    /// The answers are in the order of the parcels. Two parcels of one arrival with the same key are one delivery.
    /// A parcel whose inbox is not there any more when this commits is refused and leaves a row and an event: no inbox
    /// can be removed between that look and the commit.
    async fn receive(&self, arrival: InboundMail, now: Time) -> Result<Vec<ReceiveResult>>;
    /// Gives up to `max` due deliveries to a worker, the longest due first.
    async fn lease_deliveries(&self, node: NodeId, max: usize, now: Time) -> Result<Vec<LeasedDelivery>>;
    /// Puts a mail that was fetched in the place of the notice which a waiting delivery holds, for that delivery alone.
    /// Whoever reads it goes on. `None` when there is no such delivery; what no longer waits, or has its mail, stays as
    /// it is.
    async fn attach_fetched_content(
        &self,
        team: TeamId,
        id: DeliveryId,
        brought: FetchedContent,
    ) -> Result<Option<Delivery>>;
    /// Files the message of a waiting delivery, unless its inbox has it: thread, artifacts and events with it. A
    /// message that was there already ends the delivery as a repeat of it, its bytes dropped.
    async fn file_message(
        &self,
        team: TeamId,
        delivery: DeliveryId,
        message: NewMessage,
        now: Time,
    ) -> Result<FileMessageResult>;
    /// Ends or postpones a waiting delivery that makes no message now. `None` when there is no such delivery; what is
    /// no longer waiting stays as it is.
    async fn record_delivery_outcome(
        &self,
        team: TeamId,
        id: DeliveryId,
        settle: DeliveryOutcome,
        now: Time,
    ) -> Result<Option<Delivery>>;
    /// Lets a dead delivery be read again, from its first attempt. `None` when there is no such delivery; what is not
    /// dead stays as it is.
    async fn replay_delivery(&self, team: TeamId, id: DeliveryId, now: Time) -> Result<Option<Delivery>>;
    /// The team of an email, whosever it is: for a bounce that has proven which email it is about.
    async fn team_of_email(&self, email: EmailId) -> Result<Option<TeamId>>;
    /// One delivery.
    async fn delivery(&self, team: TeamId, id: DeliveryId) -> Result<Option<Delivery>>;
    /// Deliveries, newest first. A page shorter than its limit is the last.
    async fn deliveries(&self, team: TeamId, query: DeliveryQuery) -> Result<Vec<Delivery>>;

    // Messages

    /// One message.
    async fn message(&self, team: TeamId, id: MessageId) -> Result<Option<Message>>;
    /// The packed bytes of a message; `None` once they were dropped.
    async fn raw_message(&self, team: TeamId, id: MessageId) -> Result<Option<Vec<u8>>>;
    /// Messages of an inbox in the order of their numbers.
    async fn messages(&self, team: TeamId, inbox: InboxId, query: MessageQuery) -> Result<MessagePage>;

    // Artifacts

    /// One artifact.
    async fn artifact(&self, team: TeamId, id: ArtifactId) -> Result<Option<Artifact>>;
    /// Artifacts of an inbox found after a message's number, those of the latest messages first, then by id.
    async fn artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: Option<ArtifactKind>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Artifact>>;
    /// Takes an artifact for its first consumer. The key of an operation is bound unless it is missing or gone.
    async fn consume_artifact(
        &self,
        team: TeamId,
        id: ArtifactId,
        taking: ConsumeRequest,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<ConsumeResult>>;
    /// Notes that an artifact was used by the one who took it.
    async fn mark_artifact_applied(
        &self,
        team: TeamId,
        id: ArtifactId,
        purpose: &str,
        now: Time,
    ) -> Result<MarkAppliedResult>;

    // Watches

    /// Begins a watch; `after` is filled in with the inbox's latest number. `None` when the team has no such inbox.
    async fn create_watch(
        &self,
        watch: Watch,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<Option<Watch>>>;
    /// One watch.
    async fn watch_of(&self, team: TeamId, id: WatchId) -> Result<Option<Watch>>;
    /// Spends one of a watch's resends. The key of an operation is bound only when it was spent.
    async fn spend_resend(
        &self,
        team: TeamId,
        id: WatchId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<SpendResendResult>>;

    /// Registers who hears of what happened. Hints of other nodes come as fast as the store can tell; false when it
    /// tells of this process only although there may be others, so that waiting needs polling too.
    fn subscribe_to_inbound(&self, hearer: InboundWakeUpHandler) -> bool;
}
