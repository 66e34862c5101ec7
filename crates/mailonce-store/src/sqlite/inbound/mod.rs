//! Received mail: implements `InboundStore` for [`Sqlite`].

pub(crate) mod deliveries;
pub(crate) mod filing;
pub(crate) mod receive;
pub(crate) mod sweep;
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
use rusqlite::Connection;
use std::sync::{Arc, PoisonError};

use super::Sqlite;
use crate::sqlite::{
    inbound::deliveries::DeliveryRow,
    inbox::{artifacts, inboxes, messages, watches},
};

/// Adds the raw bytes to leased deliveries. A delivery without bytes has finished since, and is left out.
fn with_bytes(conn: &Connection, taken: Vec<DeliveryRow>) -> Result<Vec<LeasedDelivery>> {
    let mut readings = Vec::with_capacity(taken.len());
    for DeliveryRow { delivery, raw } in taken {
        if let Some(raw) = raw.map(|raw| deliveries::raw_bytes(conn, raw)).transpose()?.flatten() {
            readings.push(LeasedDelivery { delivery, raw });
        }
    }
    Ok(readings)
}

#[async_trait]
impl InboundStore for Sqlite {
    async fn create_inbox(
        &self,
        inbox: Inbox,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<CreateInboxResult>> {
        self.run_write(move |ledger| inboxes::create(ledger, &inbox, operation.as_ref())).await
    }

    async fn inbox(&self, team: TeamId, id: InboxId) -> Result<Option<Inbox>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| inboxes::by_id(conn, number, id)).await
    }

    async fn inbox_by_address(&self, places: &[String]) -> Result<Option<Inbox>> {
        let places = places.to_vec();
        self.run_query(move |conn| inboxes::by_address(conn, &places)).await
    }

    async fn team_by_address(&self, places: &[String]) -> Result<Option<TeamId>> {
        let places = places.to_vec();
        self.run_query(move |conn| inboxes::team_by_address(conn, &places)).await
    }

    async fn inboxes(&self, team: TeamId, before: Option<InboxId>, limit: usize) -> Result<Vec<Inbox>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| inboxes::list(conn, number, before, limit)).await
    }

    async fn change_inbox(
        &self,
        edit: InboxEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<InboxChangeResult>> {
        self.run_write(move |ledger| inboxes::change(ledger, edit, operation.as_ref(), now)).await
    }

    async fn remove_inbox(&self, team: TeamId, id: InboxId, now: Time) -> Result<Option<Inbox>> {
        self.run_write(move |ledger| inboxes::remove(ledger, team, id, now)).await
    }

    async fn receive(&self, arrival: InboundMail, now: Time) -> Result<Vec<ReceiveResult>> {
        let prepared = receive::PreparedArrival::new(arrival, now)?;
        self.run_write(move |ledger| receive::receive(ledger, &prepared, now)).await
    }

    async fn lease_deliveries(&self, node: NodeId, max: usize, now: Time) -> Result<Vec<LeasedDelivery>> {
        let places = self.run_query(move |conn| deliveries::due_candidates(conn, max, now)).await?;
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let taken = self.run_write(move |ledger| deliveries::lease(ledger, &places, node, now)).await?;
        // The bytes may be large, so a reader loads them instead of the writer.
        self.run_query(move |conn| with_bytes(conn, taken)).await
    }

    async fn attach_fetched_content(
        &self,
        team: TeamId,
        id: DeliveryId,
        brought: FetchedContent,
    ) -> Result<Option<Delivery>> {
        self.run_write(move |ledger| deliveries::attach_fetched_content(ledger, team, id, &brought)).await
    }

    async fn file_message(
        &self,
        team: TeamId,
        delivery: DeliveryId,
        message: NewMessage,
        now: Time,
    ) -> Result<FileMessageResult> {
        let prepared = filing::PreparedMessage::new(message)?;
        self.run_write(move |ledger| filing::file_message(ledger, (team, delivery), prepared, now)).await
    }

    async fn record_delivery_outcome(
        &self,
        team: TeamId,
        id: DeliveryId,
        settle: DeliveryOutcome,
        now: Time,
    ) -> Result<Option<Delivery>> {
        self.run_write(move |ledger| deliveries::record_outcome(ledger, (team, id), settle, now)).await
    }

    async fn replay_delivery(&self, team: TeamId, id: DeliveryId, now: Time) -> Result<Option<Delivery>> {
        self.run_write(move |ledger| deliveries::replay(ledger, team, id, now)).await
    }

    async fn team_of_email(&self, email: EmailId) -> Result<Option<TeamId>> {
        let teams = Arc::clone(&self.teams);
        let team_id = move |number| teams.read().unwrap_or_else(PoisonError::into_inner).id(number);
        self.run_query(move |conn| Ok(deliveries::team_of_email(conn, email)?.and_then(team_id))).await
    }

    async fn delivery(&self, team: TeamId, id: DeliveryId) -> Result<Option<Delivery>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let look = move |conn: &Connection| deliveries::by_id(conn, team, number, id);
        Ok(self.run_query(look).await?.map(|kept| kept.delivery))
    }

    async fn deliveries(&self, team: TeamId, query: DeliveryQuery) -> Result<Vec<Delivery>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| deliveries::list(conn, team, number, &query)).await
    }

    async fn message(&self, team: TeamId, id: MessageId) -> Result<Option<Message>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        let found = self.run_query(move |conn| messages::by_id(conn, team, number, id)).await?;
        Ok(found.filter(Message::is_visible))
    }

    async fn raw_message(&self, team: TeamId, id: MessageId) -> Result<Option<Vec<u8>>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| messages::raw(conn, team, number, id)).await
    }

    async fn messages(&self, team: TeamId, inbox: InboxId, query: MessageQuery) -> Result<MessagePage> {
        let Some(number) = self.team_number(team) else { return Ok(MessagePage::default()) };
        self.run_query(move |conn| messages::list(conn, (team, number), inbox, &query)).await
    }

    async fn artifact(&self, team: TeamId, id: ArtifactId) -> Result<Option<Artifact>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| artifacts::by_id(conn, team, number, id)).await
    }

    async fn artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: Option<ArtifactKind>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Artifact>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| artifacts::list(conn, (team, number), (inbox, kind), after, limit)).await
    }

    async fn held_artifacts(
        &self,
        team: TeamId,
        inbox: InboxId,
        kind: ArtifactKind,
        after: u64,
        purpose: &str,
    ) -> Result<Vec<Artifact>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        let purpose = purpose.to_owned();
        self.run_query(move |conn| artifacts::held(conn, (team, number), (inbox, kind), after, &purpose)).await
    }

    async fn consume_artifact(
        &self,
        team: TeamId,
        id: ArtifactId,
        taking: ConsumeRequest,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<ConsumeResult>> {
        self.run_write(move |ledger| artifacts::consume(ledger, (team, id), taking, operation.as_ref(), now)).await
    }

    async fn mark_artifact_applied(
        &self,
        team: TeamId,
        id: ArtifactId,
        purpose: &str,
        now: Time,
    ) -> Result<MarkAppliedResult> {
        let purpose = purpose.to_owned();
        self.run_write(move |ledger| artifacts::mark_applied(ledger, (team, id), &purpose, now)).await
    }

    async fn create_watch(
        &self,
        watch: Watch,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<Option<Watch>>> {
        self.run_write(move |ledger| watches::create(ledger, watch, operation.as_ref())).await
    }

    async fn touch_implicit_watch(&self, watch: ImplicitWatch, now: Time) -> Result<ImplicitWatch> {
        self.run_write(move |ledger| watches::start_or_extend_implicit(ledger, watch, now)).await
    }

    async fn watch_of(&self, team: TeamId, id: WatchId) -> Result<Option<Watch>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| watches::by_id(conn, team, number, id)).await
    }

    async fn spend_resend(
        &self,
        team: TeamId,
        id: WatchId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<SpendResendResult>> {
        self.run_write(move |ledger| watches::spend_resend(ledger, (team, id), operation.as_ref(), now)).await
    }
}
