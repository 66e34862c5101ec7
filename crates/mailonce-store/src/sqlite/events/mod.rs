//! Webhooks: implements `NoticeStore` for [`Sqlite`]. A notice is one event to be delivered to one endpoint.

pub(crate) mod endpoints;
pub(crate) mod event_blocks;
pub(crate) mod event_log;
pub(crate) mod event_retention;
pub(crate) mod fan_out;
pub(crate) mod notices;
use async_trait::async_trait;
use mailonce_core::{
    events::{
        endpoint::{Endpoint, EndpointChangeResult, EndpointEdit, EndpointGauge, EndpointStart},
        notice::{
            FanOutCounts, LeasedNotice, Notice, NoticeOutcome, NoticeQuery, NoticeRecovery, NoticeRecoveryResult,
            ReplayFrom,
        },
    },
    id::{EndpointId, NodeId, NoticeId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    ports::{notice_store::NoticeStore, store::Result},
    time::Time,
};
use std::sync::{Arc, PoisonError};

use super::Sqlite;

#[async_trait]
impl NoticeStore for Sqlite {
    async fn create_endpoint(
        &self,
        endpoint: Endpoint,
        start: EndpointStart,
        operation: Option<KeyedOperation>,
    ) -> Result<IdempotentResult<Endpoint>> {
        self.run_write(move |ledger| endpoints::create(ledger, endpoint, start, operation.as_ref())).await
    }

    async fn endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| endpoints::by_id(conn, number, id)).await
    }

    async fn endpoints(&self, team: TeamId, before: Option<EndpointId>, limit: usize) -> Result<Vec<Endpoint>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| endpoints::list(conn, number, before, limit)).await
    }

    async fn change_endpoint(
        &self,
        edit: EndpointEdit,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<EndpointChangeResult>> {
        self.run_write(move |ledger| endpoints::change(ledger, edit, operation.as_ref(), now)).await
    }

    async fn remove_endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        self.run_write(move |ledger| endpoints::remove(ledger, team, id)).await
    }

    async fn fan_out(&self, max: usize, now: Time) -> Result<FanOutCounts> {
        let teams = Arc::clone(&self.teams);
        let plan = move |conn: &rusqlite::Connection| {
            fan_out::plan_fan_out(conn, &teams.read().unwrap_or_else(PoisonError::into_inner), max)
        };
        let shares = self.run_query(plan).await?;
        if shares.is_empty() {
            return Ok(FanOutCounts::default());
        }
        self.run_write(move |ledger| fan_out::fan_out(ledger, &shares, now)).await
    }

    async fn endpoints_with_due_notices(&self, max: usize, now: Time) -> Result<Vec<Endpoint>> {
        self.run_query(move |conn| endpoints::with_due_notices(conn, max, now)).await
    }

    async fn lease_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        node: NodeId,
        max: usize,
        now: Time,
    ) -> Result<Vec<LeasedNotice>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        let leased = self.run_write(move |ledger| notices::lease(ledger, (team, endpoint), node, max, now)).await?;
        // A reader loads the events, to spare the writer thread.
        self.run_query(move |conn| event_log::attach_events(conn, number, leased)).await
    }

    async fn record_notice_outcome(&self, settle: NoticeOutcome, now: Time) -> Result<Option<Notice>> {
        self.run_write(move |ledger| notices::record_outcome(ledger, settle, now)).await
    }

    async fn next_notice_due(&self) -> Result<Option<Time>> {
        self.run_query(endpoints::next_due).await
    }

    async fn notice(&self, team: TeamId, id: NoticeId) -> Result<Option<Notice>> {
        let Some(number) = self.team_number(team) else { return Ok(None) };
        self.run_query(move |conn| notices::by_id(conn, number, id)).await
    }

    async fn notices(&self, team: TeamId, endpoint: EndpointId, query: NoticeQuery) -> Result<Vec<Notice>> {
        let Some(number) = self.team_number(team) else { return Ok(Vec::new()) };
        self.run_query(move |conn| notices::list(conn, number, endpoint, &query)).await
    }

    async fn endpoint_gauges(&self) -> Result<Vec<EndpointGauge>> {
        self.run_query(endpoints::gauges).await
    }

    async fn replay_notice(
        &self,
        team: TeamId,
        id: NoticeId,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Option<Notice>>> {
        self.run_write(move |ledger| notices::replay(ledger, (team, id), operation.as_ref(), now)).await
    }

    async fn recover_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        recovery: NoticeRecovery,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<Option<NoticeRecoveryResult>>> {
        let Some(number) = self.team_number(team) else { return Ok(IdempotentResult::Done(None)) };
        // The event log only grows at its end, so a reader can find the position before the write.
        let after = match recovery.from {
            ReplayFrom::Event(seq) => seq,
            ReplayFrom::Time(time) => {
                self.run_query(move |conn| event_log::seq_before_time(conn, number, time)).await?
            }
        };
        let verb = (recovery, after);
        self.run_write(move |ledger| notices::recover(ledger, (team, endpoint), verb, operation.as_ref(), now)).await
    }
}
