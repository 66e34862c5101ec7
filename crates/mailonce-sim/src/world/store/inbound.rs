//! The received-mail part of the store, as one process of a node sees it.

use crate::world::{mutants::ports, store::FaultyStore};
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
    mutant,
    operation::{IdempotentResult, KeyedOperation},
    ports::{inbound_store::InboundStore, store::Result},
    time::Time,
};
use std::{sync::Arc, time::Duration};

impl FaultyStore {
    /// Acknowledges a mail before its commit.
    async fn ack_mail_before_commit(&self, arrival: InboundMail, now: Time) -> Vec<ReceiveResult> {
        self.process.wait_while_paused().await;
        let results = arrival.deliveries.iter().map(|new_delivery| ReceiveResult::Stored(new_delivery.id)).collect();
        let (inner, body) = (Arc::clone(&self.inner), Arc::clone(&self.process));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            body.wait_while_paused().await;
            inner.receive(arrival, now).await.map(drop)
        });
        results
    }
}

/// Implements the port: each method goes through the faulty network.
macro_rules! arrivals {
    (
        writes { $(fn $write:ident($($warg:ident: $wtype:ty),*) -> $wout:ty;)* }
        reads { $(fn $read:ident($($rarg:ident: $rtype:ty),*) -> $rout:ty;)* }
    ) => {
        #[async_trait]
        impl InboundStore for FaultyStore {
            $(async fn $write(&self, $($warg: $wtype),*) -> Result<$wout> {
                self.call_with_faults(stringify!($write), true, self.inner.$write($($warg),*)).await
            })*
            $(async fn $read(&self, $($rarg: $rtype),*) -> Result<$rout> {
                self.call_with_faults(stringify!($read), false, self.inner.$read($($rarg),*)).await
            })*

            async fn receive(&self, mut arrival: InboundMail, now: Time) -> Result<Vec<ReceiveResult>> {
                ports::alter_inbound_mail(&mut arrival);
                if mutant::is_on("mail-answered-before-commit") {
                    return Ok(self.ack_mail_before_commit(arrival, now).await);
                }
                self.call_with_faults("receive", true, self.inner.receive(arrival, now)).await
            }

            async fn file_message(&self, team: TeamId, id: DeliveryId, mut message: NewMessage, now: Time) -> Result<FileMessageResult> {
                ports::alter_new_message(&mut message);
                let noted = async {
                    let filed = self.inner.file_message(team, id, message, now).await?;
                    self.process.shared.record_filed(&filed, now);
                    Ok(filed)
                };
                self.call_with_faults("file", true, noted).await
            }
        }
    };
}

arrivals! {
    writes {
        fn create_inbox(inbox: Inbox, operation: Option<KeyedOperation>) -> IdempotentResult<CreateInboxResult>;
        fn change_inbox(edit: InboxEdit, operation: Option<KeyedOperation>, now: Time) -> IdempotentResult<InboxChangeResult>;
        fn remove_inbox(team: TeamId, id: InboxId, now: Time) -> Option<Inbox>;
        fn lease_deliveries(node: NodeId, max: usize, now: Time) -> Vec<LeasedDelivery>;
        fn attach_fetched_content(team: TeamId, id: DeliveryId, content: FetchedContent) -> Option<Delivery>;
        fn record_delivery_outcome(team: TeamId, id: DeliveryId, settle: DeliveryOutcome, now: Time) -> Option<Delivery>;
        fn replay_delivery(team: TeamId, id: DeliveryId, now: Time) -> Option<Delivery>;
        fn consume_artifact(team: TeamId, id: ArtifactId, taking: ConsumeRequest, operation: Option<KeyedOperation>, now: Time) -> IdempotentResult<ConsumeResult>;
        fn mark_artifact_applied(team: TeamId, id: ArtifactId, purpose: &str, now: Time) -> MarkAppliedResult;
        fn create_watch(watch: Watch, operation: Option<KeyedOperation>) -> IdempotentResult<Option<Watch>>;
        fn touch_implicit_watch(watch: ImplicitWatch, now: Time) -> ImplicitWatch;
        fn spend_resend(team: TeamId, id: WatchId, operation: Option<KeyedOperation>, now: Time) -> IdempotentResult<SpendResendResult>;
    }
    reads {
        fn inbox(team: TeamId, id: InboxId) -> Option<Inbox>;
        fn inbox_by_address(places: &[String]) -> Option<Inbox>;
        fn team_by_address(places: &[String]) -> Option<TeamId>;
        fn inboxes(team: TeamId, before: Option<InboxId>, limit: usize) -> Vec<Inbox>;
        fn team_of_email(email: EmailId) -> Option<TeamId>;
        fn delivery(team: TeamId, id: DeliveryId) -> Option<Delivery>;
        fn deliveries(team: TeamId, query: DeliveryQuery) -> Vec<Delivery>;
        fn message(team: TeamId, id: MessageId) -> Option<Message>;
        fn raw_message(team: TeamId, id: MessageId) -> Option<Vec<u8>>;
        fn messages(team: TeamId, inbox: InboxId, query: MessageQuery) -> MessagePage;
        fn artifact(team: TeamId, id: ArtifactId) -> Option<Artifact>;
        fn held_artifacts(team: TeamId, inbox: InboxId, kind: ArtifactKind, after: u64, purpose: &str) -> Vec<Artifact>;
        fn artifacts(team: TeamId, inbox: InboxId, kind: Option<ArtifactKind>, after: u64, limit: usize) -> Vec<Artifact>;
        fn watch_of(team: TeamId, id: WatchId) -> Option<Watch>;
    }
}
