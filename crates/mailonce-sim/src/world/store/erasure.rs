//! The part of the store that erases, as one process of a node sees it.

use crate::world::store::FaultyStore;
use async_trait::async_trait;
use mailonce_core::{
    access::call_origin::Alias,
    control::{erasure::AddressEraser, typed_text::TypedText},
    events::retention::EventRetention,
    id::{ClaimId, DeliveryId, EmailId, InboxId, MessageId, TeamId, ThreadId},
    ports::{
        erasure_store::{EraseClaimResult, EraseEmailResult, ErasureStore},
        store::Result,
    },
    record::Record,
    time::Time,
};
use serde_json::Value;

/// Each method goes through the faulty network.
#[async_trait]
impl ErasureStore for FaultyStore {
    async fn erase_email(&self, eraser: &AddressEraser, id: EmailId) -> Result<EraseEmailResult> {
        self.call_with_faults("erase_email", true, self.inner.erase_email(eraser, id)).await
    }

    async fn erase_claim(&self, eraser: &AddressEraser, id: ClaimId) -> Result<EraseClaimResult> {
        self.call_with_faults("erase_claim", true, self.inner.erase_claim(eraser, id)).await
    }

    async fn erase_message(&self, team: TeamId, id: MessageId, now: Time) -> Result<bool> {
        self.call_with_faults("erase_message", true, self.inner.erase_message(team, id, now)).await
    }

    async fn redact_thread(&self, eraser: &AddressEraser, id: ThreadId) -> Result<bool> {
        self.call_with_faults("redact_thread", true, self.inner.redact_thread(eraser, id)).await
    }

    async fn redact_consumers(&self, eraser: &AddressEraser, inbox: InboxId, message: MessageId) -> Result<usize> {
        self.call_with_faults("redact_consumers", true, self.inner.redact_consumers(eraser, inbox, message)).await
    }

    async fn redact_typed_texts(&self, eraser: &AddressEraser, kind: TypedText) -> Result<usize> {
        self.call_with_faults("redact_typed_texts", true, self.inner.redact_typed_texts(eraser, kind)).await
    }

    async fn remove_thread(&self, team: TeamId, id: ThreadId, now: Time) -> Result<bool> {
        self.call_with_faults("remove_thread", true, self.inner.remove_thread(team, id, now)).await
    }

    async fn drop_bodies(&self, team: TeamId, settled_by: Time, max: usize) -> Result<usize> {
        self.call_with_faults("drop_bodies", true, self.inner.drop_bodies(team, settled_by, max)).await
    }

    async fn drop_message_bytes(&self, team: TeamId, id: MessageId) -> Result<bool> {
        self.call_with_faults("drop_message_bytes", true, self.inner.drop_message_bytes(team, id)).await
    }

    async fn drop_dead_mail(
        &self,
        team: TeamId,
        inbox: Option<InboxId>,
        received_by: Time,
        max: usize,
    ) -> Result<usize> {
        let dropped = self.inner.drop_dead_mail(team, inbox, received_by, max);
        self.call_with_faults("drop_dead_mail", true, dropped).await
    }

    async fn drop_events(&self, team: TeamId, retention: EventRetention) -> Result<bool> {
        self.call_with_faults("drop_events", true, self.inner.drop_events(team, retention)).await
    }

    async fn delivery_bytes(&self, team: TeamId, id: DeliveryId) -> Result<Option<Vec<u8>>> {
        self.call_with_faults("delivery_bytes", false, self.inner.delivery_bytes(team, id)).await
    }

    async fn remove_delivery(&self, team: TeamId, id: DeliveryId) -> Result<bool> {
        self.call_with_faults("remove_delivery", true, self.inner.remove_delivery(team, id)).await
    }

    async fn has_removed_inboxes(&self, team: TeamId) -> Result<bool> {
        self.call_with_faults("has_removed_inboxes", false, self.inner.has_removed_inboxes(team)).await
    }

    async fn replace_record(&self, record: &Record) -> Result<bool> {
        self.call_with_faults("replace_record", true, self.inner.replace_record(record)).await
    }

    async fn replace_event_data(&self, team: TeamId, events: Vec<(u64, Value)>) -> Result<()> {
        self.call_with_faults("replace_event_data", true, self.inner.replace_event_data(team, events)).await
    }

    async fn audit_name_page(&self, team: TeamId, after: &str, limit: usize) -> Result<Vec<Alias>> {
        self.call_with_faults("audit_name_page", false, self.inner.audit_name_page(team, after, limit)).await
    }

    async fn forget_reply_tally(&self, team: TeamId, person: [u8; 16]) -> Result<()> {
        self.call_with_faults("forget_reply_tally", true, self.inner.forget_reply_tally(team, person)).await
    }

    async fn overwrite_freed_storage(&self) -> Result<()> {
        self.call_with_faults("overwrite_freed_storage", false, self.inner.overwrite_freed_storage()).await
    }

    async fn truncate_log(&self) -> Result<()> {
        self.call_with_faults("truncate_log", false, self.inner.truncate_log()).await
    }
}
