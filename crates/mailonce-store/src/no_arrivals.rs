//! Until the engines keep inbound mail: every verb of it says that it cannot tell.
macro_rules! no_arrivals {
    ($engine:ident) => {
        #[allow(unused_imports)]
        mod arrivals {
            use mailonce_core::{
                artifact::*,
                delivery::*,
                id::*,
                inbox::*,
                message::*,
                port::{
                    arrivals::*,
                    store::{Once, Operation, Result, StoreError},
                },
                time::Time,
                watch::*,
            };
            #[async_trait::async_trait]
            impl mailonce_core::port::arrivals::Arrivals for super::$engine {
                async fn create_inbox(&self, _inbox: Inbox, _operation: Option<Operation>) -> Result<Once<InboxMade>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn inbox(&self, _team: TeamId, _id: InboxId) -> Result<Option<Inbox>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn inbox_at(&self, _places: &[String]) -> Result<Option<Inbox>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn inboxes(&self, _team: TeamId, _before: Option<InboxId>, _limit: usize) -> Result<Vec<Inbox>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn change_inbox(
                    &self,
                    _edit: InboxEdit,
                    _operation: Option<Operation>,
                    _now: Time,
                ) -> Result<Once<InboxChange>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn remove_inbox(&self, _team: TeamId, _id: InboxId, _now: Time) -> Result<Option<Inbox>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn receive(&self, _arrival: Arrival, _now: Time) -> Result<Vec<Received>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn read(&self, _node: NodeId, _max: usize, _now: Time) -> Result<Vec<Reading>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn file(
                    &self,
                    _team: TeamId,
                    _delivery: DeliveryId,
                    _message: NewMessage,
                    _now: Time,
                ) -> Result<Filed> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn settle_delivery(
                    &self,
                    _team: TeamId,
                    _id: DeliveryId,
                    _settle: Settle,
                    _now: Time,
                ) -> Result<Option<Delivery>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn replay_delivery(
                    &self,
                    _team: TeamId,
                    _id: DeliveryId,
                    _now: Time,
                ) -> Result<Option<Delivery>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn delivery(&self, _team: TeamId, _id: DeliveryId) -> Result<Option<Delivery>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn deliveries(&self, _team: TeamId, _query: DeliveryQuery) -> Result<Vec<Delivery>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn message(&self, _team: TeamId, _id: MessageId) -> Result<Option<Message>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn raw(&self, _team: TeamId, _id: MessageId) -> Result<Option<Vec<u8>>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn messages(&self, _team: TeamId, _inbox: InboxId, _query: MessageQuery) -> Result<MessagePage> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn artifact(&self, _team: TeamId, _id: ArtifactId) -> Result<Option<Artifact>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn artifacts(
                    &self,
                    _team: TeamId,
                    _inbox: InboxId,
                    _kind: Option<ArtifactKind>,
                    _after: u64,
                    _limit: usize,
                ) -> Result<Vec<Artifact>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn consume(
                    &self,
                    _team: TeamId,
                    _id: ArtifactId,
                    _taking: Taking,
                    _operation: Option<Operation>,
                    _now: Time,
                ) -> Result<Once<Taken>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn apply(&self, _team: TeamId, _id: ArtifactId, _purpose: &str, _now: Time) -> Result<Applied> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn create_watch(
                    &self,
                    _watch: Watch,
                    _operation: Option<Operation>,
                ) -> Result<Once<Option<Watch>>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn watch_of(&self, _team: TeamId, _id: WatchId) -> Result<Option<Watch>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn spend(
                    &self,
                    _team: TeamId,
                    _id: WatchId,
                    _operation: Option<Operation>,
                    _now: Time,
                ) -> Result<Once<Spent>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }
                async fn team_of(&self, _email: EmailId) -> Result<Option<TeamId>> {
                    Err(StoreError::Unreachable("inbound mail is not built yet".into()))
                }

                fn hear(&self, _hearer: Hearer) -> bool {
                    false
                }
            }
        }
    };
}
pub(crate) use no_arrivals;
