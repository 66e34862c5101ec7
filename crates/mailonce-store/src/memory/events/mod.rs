//! Webhooks: implements `NoticeStore` for [`Memory`]. A notice is one event to be delivered to one endpoint.

pub(crate) mod notices;
use async_trait::async_trait;
use mailonce_core::{
    events::{
        endpoint::{Endpoint, EndpointChangeResult, EndpointEdit, EndpointGauge, EndpointStart},
        event::{Event, NewEvent},
        notice::{
            FanOutCounts, LeasedNotice, Notice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult,
        },
    },
    id::{EndpointId, NodeId, NoticeId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    ports::{notice_store::NoticeStore, store::Result},
    time::Time,
};
use std::collections::BTreeMap;

use super::Memory;
use notices::WebhookTables;

/// The event log of each team, and the webhooks that follow it.
#[derive(Default)]
pub(crate) struct EventTables {
    pub(crate) log: BTreeMap<TeamId, Vec<NewEvent>>,
    /// The number up to which the events of a team were deleted. Their places in `log` stay, without data.
    pub(crate) deleted: BTreeMap<TeamId, u64>,
    pub(crate) webhooks: WebhookTables,
}

impl EventTables {
    /// Events with a sequence number above `after`, in order.
    pub(crate) fn page_after(&self, team: TeamId, after: u64, limit: usize) -> Vec<Event> {
        self.events_after(team, after).take(limit).collect()
    }
}

#[async_trait]
impl NoticeStore for Memory {
    async fn create_endpoint(
        &self,
        endpoint: Endpoint,
        start: EndpointStart,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<Endpoint>> {
        Ok(self.lock_tables().create_endpoint(endpoint, start, operation.as_ref()))
    }

    async fn endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        Ok(self.lock_tables().events.webhooks.endpoint(team, id).cloned())
    }

    async fn endpoints(&self, team: TeamId, before: Option<EndpointId>, limit: usize) -> Result<Vec<Endpoint>> {
        Ok(self.lock_tables().events.webhooks.endpoints(team, before, limit))
    }

    async fn change_endpoint(
        &self,
        edit: EndpointEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EndpointChangeResult>> {
        Ok(self.lock_tables().change_endpoint(edit, operation.as_ref(), now))
    }

    async fn remove_endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        Ok(self.lock_tables().remove_endpoint(team, id, self.time.commit_time(Time(0))))
    }

    async fn fan_out(&self, max: usize, now: Time) -> Result<FanOutCounts> {
        Ok(self.lock_tables().events.fan_out(max, now))
    }

    async fn endpoints_with_due_notices(&self, max: usize, now: Time) -> Result<Vec<Endpoint>> {
        Ok(self.lock_tables().events.webhooks.endpoints_with_due_notices(max, now))
    }

    async fn lease_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        node: NodeId,
        max: usize,
        now: Time,
    ) -> Result<Vec<LeasedNotice>> {
        Ok(self.lock_tables().events.lease_notices((team, endpoint), node, max, now))
    }

    async fn record_notice_outcome(&self, settle: NoticeOutcome, now: Time) -> Result<Option<Notice>> {
        Ok(self.lock_tables().events.record_notice_outcome(settle, now))
    }

    async fn next_notice_due(&self) -> Result<Option<Time>> {
        Ok(self.lock_tables().events.webhooks.next_due())
    }

    async fn notice(&self, team: TeamId, id: NoticeId) -> Result<Option<Notice>> {
        Ok(self.lock_tables().events.webhooks.notice(team, id).cloned())
    }

    async fn notices(&self, team: TeamId, endpoint: EndpointId, query: NoticeQuery) -> Result<Vec<Notice>> {
        Ok(self.lock_tables().events.webhooks.notices(team, endpoint, &query))
    }

    async fn endpoint_gauges(&self) -> Result<Vec<EndpointGauge>> {
        Ok(self.lock_tables().events.endpoint_gauges())
    }

    async fn replay_notice(
        &self,
        team: TeamId,
        id: NoticeId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Option<Notice>>> {
        Ok(self.lock_tables().replay_notice((team, id), operation.as_ref(), now))
    }

    async fn recover_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        recovery: NoticeRecovery,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Option<NoticeRecoveryResult>>> {
        Ok(self.lock_tables().recover_notices((team, endpoint), recovery, operation.as_ref(), now))
    }
}
