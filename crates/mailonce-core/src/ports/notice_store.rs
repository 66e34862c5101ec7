//! The part of the store for webhook endpoints and notices. It follows the rules of the store: every method is one
//! transaction and idempotent, time and ids are arguments, every row and every query carries its team.
//!
//! Events fan out: each endpoint has its own cursor in the events of its team, and every event past the cursor that the
//! endpoint subscribes to becomes a notice. So a transaction that writes an event does not need to know the endpoints.

use async_trait::async_trait;

use super::store::Result;
use crate::{
    events::{
        endpoint::{Endpoint, EndpointChangeResult, EndpointEdit, EndpointGauge, EndpointStart},
        notice::{
            FanOutCounts, LeasedNotice, Notice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult,
        },
    },
    id::{EndpointId, NodeId, NoticeId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};

/// Endpoints and notices. The module documentation states the rules that every method follows.
#[async_trait]
pub trait NoticeStore: Send + Sync + 'static {
    // Endpoints

    /// Creates an endpoint. `start` sets its cursor. Creating it twice returns the same endpoint.
    async fn create_endpoint(
        &self,
        endpoint: Endpoint,
        start: EndpointStart,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<Endpoint>>;
    /// One endpoint. Removed endpoints are not returned.
    async fn endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>>;
    /// Endpoints older than `before`, newest first.
    async fn endpoints(&self, team: TeamId, before: Option<EndpointId>, limit: usize) -> Result<Vec<Endpoint>>;
    /// Changes an endpoint, its secrets or whether it is enabled, if it still has the revision that the caller saw. The
    /// key of the operation is bound only when the endpoint was changed.
    async fn change_endpoint(
        &self,
        edit: EndpointEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EndpointChangeResult>>;
    /// Removes an endpoint and its pending notices. `None` when the team has no such endpoint.
    async fn remove_endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>>;

    // Delivery

    /// Reads up to `max` events past the cursors of enabled endpoints, counted over all endpoints, and writes their
    /// notices. Endpoints that waited longest come first, and `max` is shared fairly.
    async fn fan_out(&self, max: usize, now: Time) -> Result<FanOutCounts>;
    /// Enabled endpoints with a due notice, longest waiting first.
    async fn endpoints_with_due_notices(&self, max: usize, now: Time) -> Result<Vec<Endpoint>>;
    /// Leases up to `max` due notices of an enabled endpoint to a process, earliest due first. Of each subject only the
    /// earliest open notice is leased. The lease ends after [`crate::limits::NOTICE_LEASE_MS`], or when the process
    /// dies.
    async fn lease_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        node: NodeId,
        max: usize,
        now: Time,
    ) -> Result<Vec<LeasedNotice>>;
    /// Records the outcome of an attempt, updates the notice and its endpoint, and makes the next notice of the same
    /// subject due. `None` when there is no such notice. An attempt that was recorded before changes nothing.
    async fn record_notice_outcome(&self, settle: NoticeOutcome, now: Time) -> Result<Option<Notice>>;
    /// When the next notice of an enabled endpoint is due, or when the lease of one expires.
    async fn next_notice_due(&self) -> Result<Option<Time>>;

    // Queries

    /// One notice, with its latest attempts.
    async fn notice(&self, team: TeamId, id: NoticeId) -> Result<Option<Notice>>;
    /// Notices of an endpoint, those of the latest events first. A page shorter than its limit is the last.
    async fn notices(&self, team: TeamId, endpoint: EndpointId, query: NoticeQuery) -> Result<Vec<Notice>>;
    /// The progress of each endpoint.
    async fn endpoint_gauges(&self) -> Result<Vec<EndpointGauge>>;

    // Replay

    /// Makes a notice due again at once, under the same id. A notice that a process holds stays unchanged. `None` when
    /// there is no such notice; then the key of the operation is not bound.
    async fn replay_notice(
        &self,
        team: TeamId,
        id: NoticeId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Option<Notice>>>;
    /// Repeats notices of an endpoint under the same ids: failed ones become due at once, or all events since a time
    /// fan out again. `None` when the team has no such endpoint; then the key of the operation is not bound.
    async fn recover_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        recovery: NoticeRecovery,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Option<NoticeRecoveryResult>>>;
}
