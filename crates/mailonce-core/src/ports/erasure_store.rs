//! The part of the store that erases. It follows the rules of the store: every method is one transaction and idempotent,
//! and time and ids are arguments.
//!
//! The engine finds what names a person, with the queries of the other parts. These methods remove it, one row and what
//! belongs to the row at a time, so that an erasure runs in small steps and can go on after a kill.

use async_trait::async_trait;
use serde_json::Value;

use super::store::Result;
use crate::{
    access::call_origin::Alias,
    control::{erasure::AddressEraser, typed_text::TypedText},
    events::retention::EventRetention,
    id::{ClaimId, DeliveryId, EmailId, InboxId, MessageId, TeamId, ThreadId},
    record::Record,
    time::Time,
};

/// The result of erasing an email.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum EraseEmailResult {
    /// Nothing of the person is left in it.
    Erased,
    /// It has not settled: its body and frozen bytes may still be needed.
    NotSettled,
    /// No such email in this team.
    Missing,
}

/// The result of erasing a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum EraseClaimResult {
    /// Nothing of the person is left in it.
    Erased,
    /// It has not ended: its holder, its next worker or a person still needs what it contains.
    NotEnded,
    /// No such claim in this team.
    Missing,
}

/// Erasing. The module documentation states the rules that every method follows.
#[async_trait]
pub trait ErasureStore: Send + Sync + 'static {
    /// Erases a settled email: its head, body, frozen bytes, attempts, evidence, suppressed calls, fingerprints and
    /// search document, and the subject of its thread. Its keys stay bound.
    async fn erase_email(&self, eraser: &AddressEraser, id: EmailId) -> Result<EraseEmailResult>;
    /// Erases a claim that has ended, or that is free and has no payload: its texts, its result and its payload. Its
    /// key stays bound.
    async fn erase_claim(&self, eraser: &AddressEraser, id: ClaimId) -> Result<EraseClaimResult>;
    /// Erases a message: its head, bytes, delivery, artifacts and search document, and the subject of its thread. The
    /// same mail still makes no second message. Returns false when the team has no such message. Recorded in the audit
    /// log when a caller asked for it.
    async fn erase_message(&self, team: TeamId, id: MessageId, now: Time) -> Result<bool>;
    /// Replaces the address in the subject, the labels and the lease of a thread. Returns whether it was in one of them.
    async fn redact_thread(&self, eraser: &AddressEraser, id: ThreadId) -> Result<bool>;
    /// Replaces the address in what the codes and links of a message were consumed for. Returns of how many.
    async fn redact_consumers(&self, eraser: &AddressEraser, inbox: InboxId, message: MessageId) -> Result<usize>;
    /// Replaces the address in all texts of a kind that people typed. Writes neither events nor entries of the audit log.
    /// Returns in how many rows it was.
    async fn redact_typed_texts(&self, eraser: &AddressEraser, kind: TypedText) -> Result<usize>;
    /// Removes a thread whose messages were erased. Later mail starts a new one. Returns false when the team has no such
    /// thread, or when it has messages left. Recorded in the audit log.
    async fn remove_thread(&self, team: TeamId, id: ThreadId, now: Time) -> Result<bool>;
    /// Deletes the bodies and the frozen bytes of at most `max` emails that settled by a time, before the sweep would.
    /// Emails without a body cost nothing. Returns how many it deleted; fewer than `max` means that no more are due.
    async fn drop_bodies(&self, team: TeamId, settled_by: Time, max: usize) -> Result<usize>;
    /// Deletes the bytes of a received message, and its searchable text. Returns whether there were bytes.
    async fn drop_message_bytes(&self, team: TeamId, id: MessageId) -> Result<bool>;
    /// Deletes the bytes of at most `max` dead deliveries that were received by a time, of one inbox or of the whole team.
    /// Their rows stay and cannot be replayed any more. Returns how many it deleted; fewer than `max` means that no more are due.
    async fn drop_dead_mail(
        &self,
        team: TeamId,
        inbox: Option<InboxId>,
        received_by: Time,
        max: usize,
    ) -> Result<usize>;
    /// The packed bytes of a delivery, while they are kept.
    async fn delivery_bytes(&self, team: TeamId, id: DeliveryId) -> Result<Option<Vec<u8>>>;
    /// Removes a delivery that made no message, with its bytes. The same delivery is still recognized. Returns false
    /// when it waits or is gone.
    async fn remove_delivery(&self, team: TeamId, id: DeliveryId) -> Result<bool>;
    /// Whether the sweep has not deleted everything yet that removed inboxes of the team left.
    async fn has_removed_inboxes(&self, team: TeamId) -> Result<bool>;
    /// Replaces name and JSON of a record, if it still has the revision of `record`. Writes neither an event nor an
    /// entry of the audit log. Returns whether it was replaced.
    async fn replace_record(&self, record: &Record) -> Result<bool>;
    /// Replaces the data of events by number, and deletes what endpoints answered to their notices.
    async fn replace_event_data(&self, team: TeamId, events: Vec<(u64, Value)>) -> Result<()>;
    /// Deletes the oldest events of a team, with the settled notices about them. Numbers go on as if they were there. The
    /// latest event stays, and so does what a webhook endpoint, a pending notice or search still needs. Whole rows of the
    /// log are deleted, so an event may stay a little longer. Returns whether it deleted any; then more may be due.
    async fn drop_events(&self, team: TeamId, retention: EventRetention) -> Result<bool>;
    /// Names in the audit log, ordered by id, after the given one.
    async fn audit_name_page(&self, team: TeamId, after: &str, limit: usize) -> Result<Vec<Alias>>;
    /// Deletes the count of replies to a person, which is kept under an unkeyed hash of the address.
    async fn forget_reply_tally(&self, team: TeamId, person: [u8; 16]) -> Result<()>;
    /// Overwrites the bytes that deleted rows left in the ledger's file. Does nothing where a server owns the files.
    async fn overwrite_freed_storage(&self) -> Result<()>;
    /// Empties the log next to the ledger's file, which has copies of what was overwritten. Fails while somebody reads an
    /// older state of the ledger. Does nothing where a server owns the files.
    async fn truncate_log(&self) -> Result<()>;
}
