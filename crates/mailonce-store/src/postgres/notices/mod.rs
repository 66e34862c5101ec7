//! Telling others.
//!
//! | file | what it holds |
//! |---|---|
//! | `endpoint` | endpoints, and how far they are |
//! | `spread` | from events to notices |
//! | `notice` | what becomes of notices |
//! | `row` | how both lie in their tables |
//!
//! Whoever locks more than one row keeps to this order: keys of operations, endpoints, notices by their numbers.

mod endpoint;
pub(super) mod notice;
mod row;
mod spread;

use async_trait::async_trait;
use mailonce_core::{
    endpoint::{Endpoint, EndpointChange, EndpointEdit, EndpointGauge, Start},
    id::{EndpointId, NodeId, NoticeId, TeamId},
    notice::{Notice, NoticeQuery, NoticeSettle, Owed, Recovering, Recovery, Spread},
    port::{
        notices::Notices,
        store::{Once, Operation, Result},
    },
    time::Time,
};

use super::{Postgres, shown, told, trouble::insist};

#[async_trait]
impl Notices for Postgres {
    async fn create_endpoint(
        &self,
        endpoint: Endpoint,
        start: Start,
        operation: Option<Operation>,
    ) -> Result<Once<Endpoint>> {
        shown!(self, insist!(self.ledger.create_endpoint(&endpoint, start, operation.as_ref())))
    }

    async fn endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        shown!(self, self.ledger.endpoint(team, id).await)
    }

    async fn endpoints(&self, team: TeamId, before: Option<EndpointId>, limit: usize) -> Result<Vec<Endpoint>> {
        shown!(self, self.ledger.endpoints(team, before, limit).await)
    }

    async fn change_endpoint(
        &self,
        edit: EndpointEdit,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<EndpointChange>> {
        shown!(self, insist!(self.ledger.change_endpoint(&edit, operation.as_ref(), now)))
    }

    async fn remove_endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        shown!(self, insist!(self.ledger.remove_endpoint(team, id)))
    }

    async fn spread(&self, max: usize, now: Time) -> Result<Spread> {
        told(insist!(self.ledger.spread(max, now)))
    }

    async fn endpoints_due(&self, max: usize, now: Time) -> Result<Vec<Endpoint>> {
        told(self.ledger.endpoints_due(max, now).await)
    }

    async fn lease_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        node: NodeId,
        max: usize,
        now: Time,
    ) -> Result<Vec<Owed>> {
        told(insist!(self.ledger.lease_notices((team, endpoint), node, max, now)))
    }

    async fn settle_notice(&self, settle: NoticeSettle, now: Time) -> Result<Option<Notice>> {
        shown!(self, insist!(self.ledger.settle_notice(&settle, now)))
    }

    async fn next_notice_due(&self) -> Result<Option<Time>> {
        told(self.ledger.next_notice_due().await)
    }

    async fn notice(&self, team: TeamId, id: NoticeId) -> Result<Option<Notice>> {
        shown!(self, self.ledger.notice(team, id).await)
    }

    async fn notices(&self, team: TeamId, endpoint: EndpointId, query: NoticeQuery) -> Result<Vec<Notice>> {
        shown!(self, self.ledger.notices(team, endpoint, &query).await)
    }

    async fn endpoint_gauges(&self) -> Result<Vec<EndpointGauge>> {
        told(self.ledger.endpoint_gauges().await)
    }

    async fn replay_notice(
        &self,
        team: TeamId,
        id: NoticeId,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Option<Notice>>> {
        shown!(self, insist!(self.ledger.replay_notice((team, id), operation.as_ref(), now)))
    }

    async fn recover_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        recovery: Recovery,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Option<Recovering>>> {
        shown!(self, insist!(self.ledger.recover_notices((team, endpoint), recovery, operation.as_ref(), now)))
    }
}
