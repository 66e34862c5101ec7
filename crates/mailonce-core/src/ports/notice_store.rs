//! What mailonce must remember of those who are told of events. A part of the store, with the same rules: every method
//! is one transaction and safe to repeat, time and ids are arguments, every row and every query carries its team.
//!
//! Events are spread: each endpoint has a cursor of its own in its team's events, and what lies past it becomes
//! notices. So an event reaches every endpoint that wants it although the verb that made it knows of none.

use async_trait::async_trait;

use super::store::{IdempotentResult, KeyedOperation, Result};
use crate::{
    events::{
        endpoint::{Endpoint, EndpointChangeResult, EndpointEdit, EndpointGauge, EndpointStart},
        notice::{
            FanOutCounts, LeasedNotice, Notice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult,
        },
    },
    id::{EndpointId, NodeId, NoticeId, TeamId},
    time::Time,
};

/// Telling others. See the module's words.
#[async_trait]
pub trait NoticeStore: Send + Sync + 'static {
    // Endpoints

    /// Makes an endpoint. Its cursor is set by `start`. One made twice is the same endpoint.
    async fn create_endpoint(
        &self,
        endpoint: Endpoint,
        start: EndpointStart,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<Endpoint>>;
    /// One endpoint. Removed ones are not there.
    async fn endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>>;
    /// Endpoints older than `before`, newest first.
    async fn endpoints(&self, team: TeamId, before: Option<EndpointId>, limit: usize) -> Result<Vec<Endpoint>>;
    /// Changes an endpoint, if it is still as it was seen: also its secrets and whether it is told of events. The key of
    /// an operation is bound only when it is.
    async fn change_endpoint(
        &self,
        edit: EndpointEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EndpointChangeResult>>;
    /// Removes an endpoint with everything owed to it. `None` when the team has no such endpoint.
    async fn remove_endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>>;

    // Telling

    /// Looks at up to `max` events, all endpoints together, that lie past the cursors of enabled endpoints, and writes
    /// down what is owed. Those that waited longest come first, and none takes another's share.
    async fn fan_out(&self, max: usize, now: Time) -> Result<FanOutCounts>;
    /// Enabled endpoints with a notice that is due, those that waited longest first.
    async fn endpoints_with_due_notices(&self, max: usize, now: Time) -> Result<Vec<Endpoint>>;
    /// Gives up to `max` due notices of an enabled endpoint to a process, the longest due first: of each subject only
    /// the earliest that is open. Nobody else gets them within [`crate::limits::NOTICE_HELD_MS`], unless that process ends.
    async fn lease_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        node: NodeId,
        max: usize,
        now: Time,
    ) -> Result<Vec<LeasedNotice>>;
    /// Writes down how an attempt ended, what that means for the notice and its endpoint, and who is next in line.
    /// `None` when there is no such notice; an attempt that is known changes nothing.
    async fn record_notice_outcome(&self, settle: NoticeOutcome, now: Time) -> Result<Option<Notice>>;
    /// When the next notice of an enabled endpoint is due, or can be taken from a process that has it for too long.
    async fn next_notice_due(&self) -> Result<Option<Time>>;

    // Looking

    /// One notice, with its latest attempts.
    async fn notice(&self, team: TeamId, id: NoticeId) -> Result<Option<Notice>>;
    /// Notices of an endpoint, those of the latest events first. A page shorter than its limit is the last.
    async fn notices(&self, team: TeamId, endpoint: EndpointId, query: NoticeQuery) -> Result<Vec<Notice>>;
    /// How far each endpoint is.
    async fn endpoint_gauges(&self) -> Result<Vec<EndpointGauge>>;

    // Telling again

    /// Owes a notice anew and at once, under its id. `None` when there is no such notice, and then the key of an
    /// operation is not bound; one that a process is at stays as it is.
    async fn replay_notice(
        &self,
        team: TeamId,
        id: NoticeId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Option<Notice>>>;
    /// Tells an endpoint again, under the same ids: what failed is due at once, or everything since then is looked at
    /// anew. `None` when the team has no such endpoint, and then the key of an operation is not bound.
    async fn recover_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        recovery: NoticeRecovery,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Option<NoticeRecoveryResult>>>;
}
