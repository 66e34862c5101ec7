//! The database of an outbox. It belongs to the user, not to mailonce.

use async_trait::async_trait;
use std::time::Duration;
use uuid::Uuid;

use crate::outbox::{LeasedRow, OutboxError, OutboxStatus, ParkedRow, RowEmail, RowRecord, reports::ReportedRow};

/// The result of a call.
pub type Result<T> = std::result::Result<T, OutboxError>;

/// The database of an outbox. Every call is one short transaction: none stays open while mailonce does something else.
#[async_trait]
pub trait OutboxDatabase: Send + Sync + 'static {
    /// The random id from the installation. It is part of the key of rows without one.
    async fn outbox_id(&self) -> Result<Uuid>;
    /// Copies up to `max` new rows of the table that the outbox reads into the outbox. Returns how many; `None` when it
    /// reads no table. Fails with [`OutboxError::UnreadableTable`] when rows are deleted before they can be read.
    async fn collect(&self, max: usize) -> Result<Option<usize>>;
    /// Leases up to `max` due rows, oldest first, and of each order key only the oldest open row. Parks rows that are
    /// older than the memory of their key. Fails with [`OutboxError::IdentityChanged`] when the database is not the one
    /// that an operator confirmed.
    async fn lease(&self, holder: &str, max: usize, lease: Duration) -> Result<Vec<LeasedRow>>;
    /// Records the outcomes of leased rows. Returns those that were recorded: another drainer may have leased a row since,
    /// and then it does not change.
    async fn record_outcomes(&self, records: &[RowRecord]) -> Result<Vec<Uuid>>;
    /// Up to `max` rows whose email may have changed since the last look, with the state that they show.
    async fn rows_to_refresh(&self, max: usize) -> Result<Vec<(Uuid, RowEmail)>>;
    /// Writes later states of their emails to rows, in one transaction. An earlier revision changes nothing.
    async fn write_back(&self, rows: &[(Uuid, RowEmail)]) -> Result<()>;
    /// Dead letters, newest first, before this position.
    async fn parked(&self, before: Option<i64>, limit: usize) -> Result<Vec<ParkedRow>>;
    /// Whether a row is a dead letter. `None` when there is no such row.
    async fn is_parked(&self, row: Uuid) -> Result<Option<bool>>;
    /// Up to `max` dead letters that were not reported to the team yet, oldest first. Fails with
    /// [`OutboxError::IdentityChanged`] as [`Self::lease`] does: a copy of the database has the same dead letters.
    async fn unreported(&self, max: usize) -> Result<Vec<ReportedRow>>;
    /// Marks dead letters as reported, unless they were parked again meanwhile.
    async fn mark_reported(&self, rows: &[ReportedRow]) -> Result<()>;
    /// Offers a dead letter again. A row that is not parked stays as it is, and so does one that this request has
    /// replayed before.
    async fn replay(&self, row: Uuid, request: Uuid) -> Result<()>;
    /// What the outbox contains.
    async fn status(&self) -> Result<OutboxStatus>;
    /// Returns when a transaction with new rows has committed, or when the time is over.
    async fn wait_for_rows(&self, at_most: Duration);
}
