//! The part of the port for mail that comes in.

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
use rusqlite::Connection;
use std::sync::{Arc, PoisonError};

use super::{
    Sqlite, artifact,
    delivery::{self, Kept},
    file, inbox, message, receive, watch,
};

/// Deliveries with their bytes. One that was settled since has none, and needs no reading.
fn with_bytes(conn: &Connection, taken: Vec<Kept>) -> Result<Vec<Reading>> {
    let mut readings = Vec::with_capacity(taken.len());
    for Kept { delivery, raw } in taken {
        if let Some(raw) = raw.map(|raw| delivery::bytes(conn, raw)).transpose()?.flatten() {
            readings.push(Reading { delivery, raw });
        }
    }
    Ok(readings)
}

#[async_trait]
impl Arrivals for Sqlite {
    async fn create_inbox(&self, inbox: Inbox, operation: Option<Operation>) -> Result<Once<InboxMade>> {
        self.write(move |ledger| inbox::create(ledger, &inbox, operation.as_ref())).await
    }

    async fn inbox(&self, team: TeamId, id: InboxId) -> Result<Option<Inbox>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| inbox::one(conn, number, id)).await
    }

    async fn inbox_at(&self, places: &[String]) -> Result<Option<Inbox>> {
        let places = places.to_vec();
        self.look(move |conn| inbox::at(conn, &places)).await
    }

    async fn team_at(&self, places: &[String]) -> Result<Option<TeamId>> {
        let places = places.to_vec();
        self.look(move |conn| inbox::team_at(conn, &places)).await
    }

    async fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Result<Vec<Inbox>> {
        let Some(number) = self.number(team) else { return Ok(Vec::new()) };
        self.look(move |conn| inbox::list(conn, number, before, limit)).await
    }

    async fn change_inbox(
        &self,
        edit: InboxEdit,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<InboxChange>> {
        self.write(move |ledger| inbox::change(ledger, edit, operation.as_ref(), now)).await
    }

    async fn remove_inbox(&self, team: TeamId, id: InboxId, _now: Time) -> Result<Option<Inbox>> {
        self.write(move |ledger| inbox::remove(ledger, team, id)).await
    }

    async fn receive(&self, arrival: Arrival, now: Time) -> Result<Vec<Received>> {
        let prepared = receive::Prepared::new(arrival, now)?;
        self.write(move |ledger| receive::receive(ledger, &prepared, now)).await
    }

    async fn read(&self, node: NodeId, max: usize, now: Time) -> Result<Vec<Reading>> {
        let places = self.look(move |conn| delivery::candidates(conn, max, now)).await?;
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let taken = self.write(move |ledger| delivery::take_up(ledger, &places, node, now)).await?;
        // Bytes may be large: they are read apart from the writer.
        self.look(move |conn| with_bytes(conn, taken)).await
    }

    async fn bring(&self, team: TeamId, id: DeliveryId, brought: Brought) -> Result<Option<Delivery>> {
        self.write(move |ledger| delivery::bring(ledger, team, id, &brought)).await
    }

    async fn file(&self, team: TeamId, delivery: DeliveryId, message: NewMessage, now: Time) -> Result<Filed> {
        let prepared = file::Prepared::new(message)?;
        self.write(move |ledger| file::file(ledger, (team, delivery), prepared, now)).await
    }

    async fn settle_delivery(
        &self,
        team: TeamId,
        id: DeliveryId,
        settle: Settle,
        now: Time,
    ) -> Result<Option<Delivery>> {
        self.write(move |ledger| delivery::settle(ledger, (team, id), settle, now)).await
    }

    async fn replay_delivery(&self, team: TeamId, id: DeliveryId, now: Time) -> Result<Option<Delivery>> {
        self.write(move |ledger| delivery::replay(ledger, team, id, now)).await
    }

    async fn team_of(&self, email: EmailId) -> Result<Option<TeamId>> {
        let teams = Arc::clone(&self.teams);
        let team_id = move |number| teams.read().unwrap_or_else(PoisonError::into_inner).id(number);
        self.look(move |conn| Ok(delivery::owner(conn, email)?.and_then(team_id))).await
    }

    async fn delivery(&self, team: TeamId, id: DeliveryId) -> Result<Option<Delivery>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        let look = move |conn: &Connection| delivery::one(conn, team, number, id);
        Ok(self.look(look).await?.map(|kept| kept.delivery))
    }

    async fn deliveries(&self, team: TeamId, query: DeliveryQuery) -> Result<Vec<Delivery>> {
        let Some(number) = self.number(team) else { return Ok(Vec::new()) };
        self.look(move |conn| delivery::list(conn, team, number, &query)).await
    }

    async fn message(&self, team: TeamId, id: MessageId) -> Result<Option<Message>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| message::one(conn, team, number, id)).await
    }

    async fn raw(&self, team: TeamId, id: MessageId) -> Result<Option<Vec<u8>>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| message::raw(conn, team, number, id)).await
    }

    async fn messages(&self, team: TeamId, inbox: InboxId, query: MessageQuery) -> Result<MessagePage> {
        let Some(number) = self.number(team) else { return Ok(MessagePage::default()) };
        self.look(move |conn| message::list(conn, (team, number), inbox, &query)).await
    }

    async fn artifact(&self, team: TeamId, id: ArtifactId) -> Result<Option<Artifact>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| artifact::one(conn, team, number, id)).await
    }

    async fn artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: Option<ArtifactKind>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Artifact>> {
        let Some(number) = self.number(team) else { return Ok(Vec::new()) };
        self.look(move |conn| artifact::list(conn, (team, number), (inbox, kind), after, limit)).await
    }

    async fn consume(
        &self,
        team: TeamId,
        id: ArtifactId,
        taking: Taking,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Taken>> {
        self.write(move |ledger| artifact::consume(ledger, (team, id), taking, operation.as_ref(), now)).await
    }

    async fn apply(&self, team: TeamId, id: ArtifactId, purpose: &str, now: Time) -> Result<Applied> {
        let purpose = purpose.to_owned();
        self.write(move |ledger| artifact::apply(ledger, (team, id), &purpose, now)).await
    }

    async fn create_watch(&self, watch: Watch, operation: Option<Operation>) -> Result<Once<Option<Watch>>> {
        self.write(move |ledger| watch::create(ledger, watch, operation.as_ref())).await
    }

    async fn watch_of(&self, team: TeamId, id: WatchId) -> Result<Option<Watch>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| watch::one(conn, team, number, id)).await
    }

    async fn spend(&self, team: TeamId, id: WatchId, operation: Option<Operation>, now: Time) -> Result<Once<Spent>> {
        self.write(move |ledger| watch::spend(ledger, (team, id), operation.as_ref(), now)).await
    }

    fn hear(&self, hearer: Hearer) -> bool {
        self.listeners.hearers.write().unwrap_or_else(PoisonError::into_inner).push(hearer);
        true
    }
}
