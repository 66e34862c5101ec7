//! Mail that comes in, as plain maps.

use mailonce_core::{
    artifact::Artifact,
    delivery::Delivery,
    id::{ArtifactId, DeliveryId, InboxId, MessageId, NodeId, TeamId, ThreadId, WatchId, ordered_bits},
    inbox::Inbox,
    message::{KnownMessage, Message},
    time::Time,
    watch::Watch,
};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

use super::Tables;

/// A hash of a key, a name, or a content.
pub(super) type Hash = [u8; 32];

/// Everything about mail that comes in.
#[derive(Default)]
pub(super) struct InboundTables {
    pub(super) inboxes: BTreeMap<InboxId, Inbox>,
    /// Inboxes that are no more.
    pub(super) removed_inboxes: BTreeMap<InboxId, TeamId>,
    /// Every address that was ever taken, by whom, and whether it still reaches its inbox.
    pub(super) addresses: BTreeMap<String, (InboxId, bool)>,
    pub(super) deliveries: BTreeMap<DeliveryId, DeliveryRow>,
    /// Keys of deliveries, and until when each is known.
    pub(super) delivery_keys: BTreeMap<(TeamId, Hash), (DeliveryId, Time)>,
    /// Bytes under the first delivery of their arrival.
    pub(super) raws: BTreeMap<DeliveryId, Arc<[u8]>>,
    pub(super) messages: BTreeMap<MessageId, Message>,
    /// Messages by their names; the nameless under `None`.
    pub(super) messages_by_message_id: BTreeMap<(InboxId, Option<Hash>), Vec<KnownMessage>>,
    pub(super) threads_by_message_id: BTreeMap<(InboxId, Hash), ThreadId>,
    pub(super) artifacts: BTreeMap<ArtifactId, (Hash, Artifact)>,
    pub(super) watches: BTreeMap<WatchId, Watch>,
}

/// A delivery, who reads it, and where its bytes are.
pub(super) struct DeliveryRow {
    pub(super) delivery: Delivery,
    pub(super) holder: Option<NodeId>,
    pub(super) raw: Option<DeliveryId>,
}

impl InboundTables {
    /// The inbox, if it is this team's.
    pub(super) fn inbox(&self, team: TeamId, id: InboxId) -> Option<&Inbox> {
        self.inboxes.get(&id).filter(|inbox| inbox.team == team)
    }

    /// The delivery, if it is this team's.
    pub(super) fn delivery(&self, team: TeamId, id: DeliveryId) -> Option<&Delivery> {
        self.deliveries.get(&id).map(|kept| &kept.delivery).filter(|delivery| delivery.team == team)
    }

    /// Writes what became of a delivery. Nobody reads it any more; bytes that nobody needs go.
    pub(super) fn save_delivery(&mut self, delivery: &Delivery) {
        let Some(kept) = self.deliveries.get_mut(&delivery.id) else { return };
        kept.delivery = delivery.clone();
        kept.holder = None;
        let raw = kept.raw;
        self.drop_unused_raw(raw);
    }

    /// Lets go of bytes that no delivery of their arrival needs.
    pub(super) fn drop_unused_raw(&mut self, raw: Option<DeliveryId>) {
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
    pub(super) fn reserve_id(&mut self, id: Uuid) {
        self.highest_id = self.highest_id.max(ordered_bits(id));
    }
}
