//! Events, webhook endpoints and notices.
//!
//! | module | contents |
//! |---|---|
//! | `event_log` | the sequencer, which numbers events, and reading them |
//! | `event_retention` | deleting the oldest events |
//! | `endpoints` | webhook endpoints and their cursors |
//! | `fan_out` | creating notices from events |
//! | `notices` | leasing, recording, replaying and sweeping notices |
//! | `pending_events` | events that are not numbered yet |
//! | `row` | the mapping between rows and domain values |
//!
//! A transaction that locks several rows takes them in this order: keys of operations, endpoints, notices by sequence
//! number.

mod endpoints;
pub(crate) mod event_log;
pub(crate) mod event_retention;
mod fan_out;
pub(crate) mod notices;
pub(crate) mod pending_events;
mod row;

use async_trait::async_trait;
use mailonce_core::{
    events::{
        endpoint::{Endpoint, EndpointChangeResult, EndpointEdit, EndpointGauge, EndpointStart},
        notice::{
            FanOutCounts, LeasedNotice, Notice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult,
        },
    },
    id::{EndpointId, NodeId, NoticeId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    ports::{notice_store::NoticeStore, store::Result},
    time::Time,
};

use super::{Postgres, into_store_result, when_durable};
use crate::postgres::error::call_until_final;

#[async_trait]
impl NoticeStore for Postgres {
    async fn create_endpoint(
        &self,
        endpoint: Endpoint,
        start: EndpointStart,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<Endpoint>> {
        when_durable!(
            self,
            call_until_final!(endpoints::create_endpoint(&self.shared, &endpoint, start, operation.as_ref()))
        )
    }

    async fn endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        when_durable!(self, endpoints::endpoint(&self.shared, team, id).await)
    }

    async fn endpoints(&self, team: TeamId, before: Option<EndpointId>, limit: usize) -> Result<Vec<Endpoint>> {
        when_durable!(self, endpoints::endpoints(&self.shared, team, before, limit).await)
    }

    async fn change_endpoint(
        &self,
        edit: EndpointEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EndpointChangeResult>> {
        when_durable!(self, call_until_final!(endpoints::change_endpoint(&self.shared, &edit, operation.as_ref(), now)))
    }

    async fn remove_endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        when_durable!(self, call_until_final!(endpoints::remove_endpoint(&self.shared, team, id)))
    }

    async fn fan_out(&self, max: usize, now: Time) -> Result<FanOutCounts> {
        into_store_result(call_until_final!(fan_out::fan_out(&self.shared, max, now)))
    }

    async fn endpoints_with_due_notices(&self, max: usize, now: Time) -> Result<Vec<Endpoint>> {
        into_store_result(call_until_final!(endpoints::endpoints_with_due_notices(&self.shared, max, now)))
    }

    async fn lease_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        node: NodeId,
        max: usize,
        now: Time,
    ) -> Result<Vec<LeasedNotice>> {
        into_store_result(call_until_final!(notices::lease_notices(&self.shared, (team, endpoint), node, max, now)))
    }

    async fn record_notice_outcome(&self, settle: NoticeOutcome, now: Time) -> Result<Option<Notice>> {
        when_durable!(self, call_until_final!(notices::record_notice_outcome(&self.shared, &settle, now)))
    }

    async fn next_notice_due(&self) -> Result<Option<Time>> {
        into_store_result(call_until_final!(endpoints::next_notice_due(&self.shared)))
    }

    async fn notice(&self, team: TeamId, id: NoticeId) -> Result<Option<Notice>> {
        when_durable!(self, notices::notice(&self.shared, team, id).await)
    }

    async fn notices(&self, team: TeamId, endpoint: EndpointId, query: NoticeQuery) -> Result<Vec<Notice>> {
        when_durable!(self, notices::notices(&self.shared, team, endpoint, &query).await)
    }

    async fn endpoint_gauges(&self) -> Result<Vec<EndpointGauge>> {
        into_store_result(call_until_final!(endpoints::endpoint_gauges(&self.shared)))
    }

    async fn replay_notice(
        &self,
        team: TeamId,
        id: NoticeId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Option<Notice>>> {
        when_durable!(
            self,
            call_until_final!(notices::replay_notice(&self.shared, (team, id), operation.as_ref(), now))
        )
    }

    async fn recover_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        recovery: NoticeRecovery,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Option<NoticeRecoveryResult>>> {
        when_durable!(
            self,
            call_until_final!(notices::recover_notices(
                &self.shared,
                (team, endpoint),
                recovery,
                operation.as_ref(),
                now
            ))
        )
    }
}
