//! The tables of received mail, as plain maps.

use mailonce_core::{
    id::{ArtifactId, DeliveryId, InboxId, MessageId, NodeId, TeamId, ThreadId, WatchId, ordered_bits},
    inbound::delivery::Delivery,
    inbox::{
        Inbox,
        artifact::Artifact,
        message::{KnownMessage, Message},
        watch::{ImplicitWatch, Watch},
    },
    time::Time,
};
use std::{collections::BTreeMap, sync::Arc};
use uuid::Uuid;

use crate::memory::Tables;

/// A hash of a deduplication key, a Message-ID, or a content.
pub(crate) type Hash = [u8; 32];

/// The tables of received mail: inboxes, deliveries, messages, artifacts and watches.
#[derive(Default)]
pub(crate) struct InboundTables {
    pub(crate) inboxes: BTreeMap<InboxId, Inbox>,
    /// Removed inboxes, with their teams.
    pub(crate) removed_inboxes: BTreeMap<InboxId, TeamId>,
    /// Every address that was ever assigned, with its inbox, and whether it still leads there.
    pub(crate) addresses: BTreeMap<String, (InboxId, bool)>,
    pub(crate) deliveries: BTreeMap<DeliveryId, DeliveryRow>,
    /// Deduplication keys of deliveries, each with its expiry time.
    pub(crate) delivery_keys: BTreeMap<(TeamId, Hash), (DeliveryId, Time)>,
    /// Raw bytes of received mails, under the id of the mail's first delivery or of the fetched content.
    pub(crate) raws: BTreeMap<DeliveryId, Arc<[u8]>>,
    pub(crate) messages: BTreeMap<MessageId, Message>,
    /// Messages by Message-ID hash. Messages without a Message-ID are under `None`.
    pub(crate) messages_by_message_id: BTreeMap<(InboxId, Option<Hash>), Vec<KnownMessage>>,
    pub(crate) threads_by_message_id: BTreeMap<(InboxId, Hash), ThreadId>,
    pub(crate) artifacts: BTreeMap<ArtifactId, (Hash, Artifact)>,
    pub(crate) watches: BTreeMap<WatchId, Watch>,
    pub(crate) implicit_watches: BTreeMap<(TeamId, InboxId, [u8; 16]), ImplicitWatch>,
}

/// A delivery, its lease holder, and the id of its raw bytes.
pub(crate) struct DeliveryRow {
    pub(crate) delivery: Delivery,
    pub(crate) holder: Option<NodeId>,
    pub(crate) raw: Option<DeliveryId>,
}

impl InboundTables {
    /// The inbox, if it belongs to this team.
    pub(crate) fn inbox(&self, team: TeamId, id: InboxId) -> Option<&Inbox> {
        self.inboxes.get(&id).filter(|inbox| inbox.team == team)
    }

    /// The delivery, if it belongs to this team.
    pub(crate) fn delivery(&self, team: TeamId, id: DeliveryId) -> Option<&Delivery> {
        self.deliveries.get(&id).map(|kept| &kept.delivery).filter(|delivery| delivery.team == team)
    }

    /// Saves a changed delivery, ends its lease, and drops its raw bytes if no delivery needs them.
    pub(crate) fn save_delivery(&mut self, delivery: &Delivery) {
        let Some(kept) = self.deliveries.get_mut(&delivery.id) else { return };
        kept.delivery = delivery.clone();
        kept.holder = None;
        let raw = kept.raw;
        self.drop_unused_raw(raw);
    }

    /// Deletes raw bytes that no delivery needs.
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
    /// Records an id as used, so that it is never assigned again.
    pub(crate) fn reserve_id(&mut self, id: Uuid) {
        self.highest_id = self.highest_id.max(ordered_bits(id));
    }
}
