//! Mail that comes in, as plain maps.

use mailonce_core::{
    id::{ArtifactId, DeliveryId, InboxId, MessageId, NodeId, TeamId, ThreadId, WatchId, ordered_bits},
    inbound::delivery::Delivery,
    inbox::{
        Inbox,
        artifact::Artifact,
        message::{KnownMessage, Message},
        watch::Watch,
    },
    time::Time,
};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

use crate::memory::Tables;

/// A hash of a key, a name, or a content.
pub(crate) type Hash = [u8; 32];

/// Everything about mail that comes in.
#[derive(Default)]
pub(crate) struct InboundTables {
    pub(crate) inboxes: BTreeMap<InboxId, Inbox>,
    /// Inboxes that are no more.
    pub(crate) removed_inboxes: BTreeMap<InboxId, TeamId>,
    /// Every address that was ever taken, by whom, and whether it still reaches its inbox.
    pub(crate) addresses: BTreeMap<String, (InboxId, bool)>,
    pub(crate) deliveries: BTreeMap<DeliveryId, DeliveryRow>,
    /// Keys of deliveries, and until when each is known.
    pub(crate) delivery_keys: BTreeMap<(TeamId, Hash), (DeliveryId, Time)>,
    /// Bytes under the first delivery of their arrival.
    pub(crate) raws: BTreeMap<DeliveryId, Arc<[u8]>>,
    pub(crate) messages: BTreeMap<MessageId, Message>,
    /// Messages by their names; the nameless under `None`.
    pub(crate) messages_by_message_id: BTreeMap<(InboxId, Option<Hash>), Vec<KnownMessage>>,
    pub(crate) threads_by_message_id: BTreeMap<(InboxId, Hash), ThreadId>,
    pub(crate) artifacts: BTreeMap<ArtifactId, (Hash, Artifact)>,
    pub(crate) watches: BTreeMap<WatchId, Watch>,
}

/// A delivery, who reads it, and where its bytes are.
pub(crate) struct DeliveryRow {
    pub(crate) delivery: Delivery,
    pub(crate) holder: Option<NodeId>,
    pub(crate) raw: Option<DeliveryId>,
}

impl InboundTables {
    /// The inbox, if it is this team's.
    pub(crate) fn inbox(&self, team: TeamId, id: InboxId) -> Option<&Inbox> {
        self.inboxes.get(&id).filter(|inbox| inbox.team == team)
    }

    /// The delivery, if it is this team's.
    pub(crate) fn delivery(&self, team: TeamId, id: DeliveryId) -> Option<&Delivery> {
        self.deliveries.get(&id).map(|kept| &kept.delivery).filter(|delivery| delivery.team == team)
    }

    /// Writes what became of a delivery. Nobody reads it any more; bytes that nobody needs go.
    pub(crate) fn save_delivery(&mut self, delivery: &Delivery) {
        let Some(kept) = self.deliveries.get_mut(&delivery.id) else { return };
        kept.delivery = delivery.clone();
        kept.holder = None;
        let raw = kept.raw;
        self.drop_unused_raw(raw);
    }

    /// Lets go of bytes that no delivery of their arrival needs.
    pub(crate) fn drop_unused_raw(&mut self, raw: Option<DeliveryId>) {
        let needs = |kept: &DeliveryRow| kept.raw == raw && kept.delivery.needs_raw_bytes();
        if let Some(id) = raw
            && !self.deliveries.values().any(needs)
        {
            self.raws.remove(&id);
        }
    }
}

impl Tables {
    /// No id may be handed out again.
    pub(crate) fn reserve_id(&mut self, id: Uuid) {
        self.highest_id = self.highest_id.max(ordered_bits(id));
    }
}
