//! The part of the store for mail that comes in, as one life of a node sees it.

use super::ledger::Ledger;
use async_trait::async_trait;
use mailonce_core::{
    artifact::{Applied, Artifact, ArtifactKind, Taken, Taking},
    delivery::{Arrival, Brought, Delivery, DeliveryQuery, Reading, Received, Settle},
    id::{ArtifactId, DeliveryId, EmailId, InboxId, MessageId, NodeId, TeamId, WatchId},
    inbox::{Inbox, InboxChange, InboxEdit, InboxMade},
    message::{Filed, Message, MessagePage, MessageQuery, NewMessage},
    mutant,
    port::{
        arrivals::{Arrivals, Hearer},
        store::{Once, Operation, Result},
    },
    time::Time,
    watch::{Spent, Watch},
};
use std::{sync::Arc, time::Duration};

impl Ledger {
    /// Answers that a mail is kept, and commits a little later.
    async fn promise_mail(&self, arrival: Arrival, now: Time) -> Vec<Received> {
        self.body.pass().await;
        let kept = arrival.parcels.iter().map(|parcel| Received::Kept(parcel.id)).collect();
        let (inner, body) = (Arc::clone(&self.inner), Arc::clone(&self.body));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            body.pass().await;
            inner.receive(arrival, now).await.map(drop)
        });
        kept
    }
}

/// Writes the port out: each verb passes through [`Ledger::verb`].
macro_rules! arrivals {
    (
        writes { $(fn $write:ident($($warg:ident: $wtype:ty),*) -> $wout:ty;)* }
        reads { $(fn $read:ident($($rarg:ident: $rtype:ty),*) -> $rout:ty;)* }
    ) => {
        #[async_trait]
        impl Arrivals for Ledger {
            $(async fn $write(&self, $($warg: $wtype),*) -> Result<$wout> {
                self.verb(stringify!($write), true, self.inner.$write($($warg),*)).await
            })*
            $(async fn $read(&self, $($rarg: $rtype),*) -> Result<$rout> {
                self.verb(stringify!($read), false, self.inner.$read($($rarg),*)).await
            })*

            async fn receive(&self, arrival: Arrival, now: Time) -> Result<Vec<Received>> {
                if mutant::is_on("mail-answered-before-commit") {
                    return Ok(self.promise_mail(arrival, now).await);
                }
                self.verb("receive", true, self.inner.receive(arrival, now)).await
            }

            async fn file(&self, team: TeamId, id: DeliveryId, message: NewMessage, now: Time) -> Result<Filed> {
                let noted = async {
                    let filed = self.inner.file(team, id, message, now).await?;
                    self.body.shared.filed(&filed, now);
                    Ok(filed)
                };
                self.verb("file", true, noted).await
            }

            fn hear(&self, hearer: Hearer) -> bool {
                self.alone && self.inner.hear(hearer)
            }
        }
    };
}

arrivals! {
    writes {
        fn create_inbox(inbox: Inbox, operation: Option<Operation>) -> Once<InboxMade>;
        fn change_inbox(edit: InboxEdit, operation: Option<Operation>, now: Time) -> Once<InboxChange>;
        fn remove_inbox(team: TeamId, id: InboxId, now: Time) -> Option<Inbox>;
        fn read(node: NodeId, max: usize, now: Time) -> Vec<Reading>;
        fn bring(team: TeamId, id: DeliveryId, brought: Brought) -> Option<Delivery>;
        fn settle_delivery(team: TeamId, id: DeliveryId, settle: Settle, now: Time) -> Option<Delivery>;
        fn replay_delivery(team: TeamId, id: DeliveryId, now: Time) -> Option<Delivery>;
        fn consume(team: TeamId, id: ArtifactId, taking: Taking, operation: Option<Operation>, now: Time) -> Once<Taken>;
        fn apply(team: TeamId, id: ArtifactId, purpose: &str, now: Time) -> Applied;
        fn create_watch(watch: Watch, operation: Option<Operation>) -> Once<Option<Watch>>;
        fn spend(team: TeamId, id: WatchId, operation: Option<Operation>, now: Time) -> Once<Spent>;
    }
    reads {
        fn inbox(team: TeamId, id: InboxId) -> Option<Inbox>;
        fn inbox_at(places: &[String]) -> Option<Inbox>;
        fn team_at(places: &[String]) -> Option<TeamId>;
        fn inboxes(team: TeamId, before: Option<InboxId>, limit: usize) -> Vec<Inbox>;
        fn team_of(email: EmailId) -> Option<TeamId>;
        fn delivery(team: TeamId, id: DeliveryId) -> Option<Delivery>;
        fn deliveries(team: TeamId, query: DeliveryQuery) -> Vec<Delivery>;
        fn message(team: TeamId, id: MessageId) -> Option<Message>;
        fn raw(team: TeamId, id: MessageId) -> Option<Vec<u8>>;
        fn messages(team: TeamId, inbox: InboxId, query: MessageQuery) -> MessagePage;
        fn artifact(team: TeamId, id: ArtifactId) -> Option<Artifact>;
        fn artifacts(team: TeamId, inbox: InboxId, kind: Option<ArtifactKind>, after: u64, limit: usize) -> Vec<Artifact>;
        fn watch_of(team: TeamId, id: WatchId) -> Option<Watch>;
    }
}
