//! Mail that comes in.
//!
//! | file | what it holds |
//! |---|---|
//! | `gate` | calls that come together travel together |
//! | `inbox` | inboxes and their addresses |
//! | `receive`, `parcel`, `delivery` | keeping what arrives, giving it to workers, ending it |
//! | `file`, `cabinet`, `shelf` | from a delivery to a message: what is known, what is decided, how it is written |
//! | `message`, `artifact`, `watch` | looking, taking, waiting |
//! | `hear` | hints between nodes |
//! | `sweep`, `row` | what goes, and how things lie in their tables |
//!
//! Whoever locks more than one row keeps to this order: keys of operations, keys of deliveries, deliveries, inboxes,
//! threads, addresses, artifacts and watches, bytes.

mod artifact;
mod cabinet;
mod delivery;
pub(super) mod file;
pub(super) mod hear;
mod inbox;
mod message;
mod parcel;
pub(super) mod receive;
pub(super) mod row;
mod shelf;
pub(super) mod sweep;
mod watch;

use async_trait::async_trait;
use mailonce_core::{
    artifact::{Applied, Artifact, ArtifactKind, Taken, Taking},
    delivery::{Arrival, Brought, Delivery, DeliveryQuery, Reading, Received, Settle},
    id::{ArtifactId, DeliveryId, EmailId, InboxId, MessageId, NodeId, TeamId, WatchId},
    inbox::{Inbox, InboxChange, InboxEdit, InboxMade},
    message::{Filed, Message, MessagePage, MessageQuery, NewMessage},
    port::{
        arrivals::{Arrivals, Hearer},
        store::{Once, Operation, Result},
    },
    time::Time,
    watch::{Spent, Watch},
};

use super::{Postgres, shown, told, trouble::insist};
use file::Filing;
use receive::Coming;

#[async_trait]
impl Arrivals for Postgres {
    async fn create_inbox(&self, inbox: Inbox, operation: Option<Operation>) -> Result<Once<InboxMade>> {
        shown!(self, insist!(self.ledger.create_inbox(&inbox, operation.as_ref())))
    }

    async fn inbox(&self, team: TeamId, id: InboxId) -> Result<Option<Inbox>> {
        shown!(self, self.ledger.inbox(team, id).await)
    }

    async fn inbox_at(&self, places: &[String]) -> Result<Option<Inbox>> {
        shown!(self, self.ledger.inbox_at(places).await)
    }

    async fn team_at(&self, places: &[String]) -> Result<Option<TeamId>> {
        shown!(self, self.ledger.team_at(places).await)
    }

    async fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Result<Vec<Inbox>> {
        shown!(self, self.ledger.inboxes(team, before, limit).await)
    }

    async fn change_inbox(
        &self,
        edit: InboxEdit,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<InboxChange>> {
        shown!(self, insist!(self.ledger.change_inbox(&edit, operation.as_ref(), now)))
    }

    async fn remove_inbox(&self, team: TeamId, id: InboxId, now: Time) -> Result<Option<Inbox>> {
        shown!(self, insist!(self.ledger.remove_inbox(team, id, now)))
    }

    async fn receive(&self, arrival: Arrival, now: Time) -> Result<Vec<Received>> {
        shown!(self, self.ledger.receives.pass(Coming { arrival, now }).await)
    }

    async fn read(&self, node: NodeId, max: usize, now: Time) -> Result<Vec<Reading>> {
        told(insist!(self.ledger.read(node, max, now)))
    }

    async fn bring(&self, team: TeamId, id: DeliveryId, brought: Brought) -> Result<Option<Delivery>> {
        shown!(self, insist!(self.ledger.bring(team, id, &brought)))
    }

    async fn file(&self, team: TeamId, delivery: DeliveryId, message: NewMessage, now: Time) -> Result<Filed> {
        shown!(self, self.ledger.files.pass(Filing { team, delivery, message, now }).await)
    }

    async fn settle_delivery(
        &self,
        team: TeamId,
        id: DeliveryId,
        settle: Settle,
        now: Time,
    ) -> Result<Option<Delivery>> {
        shown!(self, insist!(self.ledger.settle_delivery(team, id, &settle, now)))
    }

    async fn replay_delivery(&self, team: TeamId, id: DeliveryId, now: Time) -> Result<Option<Delivery>> {
        shown!(self, insist!(self.ledger.replay_delivery(team, id, now)))
    }

    async fn team_of(&self, email: EmailId) -> Result<Option<TeamId>> {
        shown!(self, self.ledger.owner(email).await)
    }

    async fn delivery(&self, team: TeamId, id: DeliveryId) -> Result<Option<Delivery>> {
        shown!(self, self.ledger.delivery(team, id).await)
    }

    async fn deliveries(&self, team: TeamId, query: DeliveryQuery) -> Result<Vec<Delivery>> {
        shown!(self, self.ledger.deliveries(team, &query).await)
    }

    async fn message(&self, team: TeamId, id: MessageId) -> Result<Option<Message>> {
        shown!(self, self.ledger.message(team, id).await)
    }

    async fn raw(&self, team: TeamId, id: MessageId) -> Result<Option<Vec<u8>>> {
        shown!(self, self.ledger.raw(team, id).await)
    }

    async fn messages(&self, team: TeamId, inbox: InboxId, query: MessageQuery) -> Result<MessagePage> {
        shown!(self, self.ledger.messages(team, inbox, &query).await)
    }

    async fn artifact(&self, team: TeamId, id: ArtifactId) -> Result<Option<Artifact>> {
        shown!(self, self.ledger.artifact(team, id).await)
    }

    async fn artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: Option<ArtifactKind>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Artifact>> {
        shown!(self, self.ledger.artifacts((team, inbox), kind, after, limit).await)
    }

    async fn consume(
        &self,
        team: TeamId,
        id: ArtifactId,
        taking: Taking,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Taken>> {
        shown!(self, insist!(self.ledger.consume(team, id, &taking, operation.as_ref(), now)))
    }

    async fn apply(&self, team: TeamId, id: ArtifactId, purpose: &str, now: Time) -> Result<Applied> {
        shown!(self, insist!(self.ledger.apply(team, id, purpose, now)))
    }

    async fn create_watch(&self, watch: Watch, operation: Option<Operation>) -> Result<Once<Option<Watch>>> {
        shown!(self, insist!(self.ledger.create_watch(&watch, operation.as_ref())))
    }

    async fn watch_of(&self, team: TeamId, id: WatchId) -> Result<Option<Watch>> {
        shown!(self, self.ledger.watch_of(team, id).await)
    }

    async fn spend(&self, team: TeamId, id: WatchId, operation: Option<Operation>, now: Time) -> Result<Once<Spent>> {
        shown!(self, insist!(self.ledger.spend(team, id, operation.as_ref(), now)))
    }

    fn hear(&self, hearer: Hearer) -> bool {
        self.ledger.ears.hear(hearer)
    }
}
