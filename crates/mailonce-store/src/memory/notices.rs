//! The part of the port for telling others.

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

use super::Memory;

#[async_trait]
impl Notices for Memory {
    async fn create_endpoint(
        &self,
        endpoint: Endpoint,
        start: Start,
        operation: Option<Operation>,
    ) -> Result<Once<Endpoint>> {
        Ok(self.world().create_endpoint(endpoint, start, operation.as_ref()))
    }

    async fn endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        Ok(self.world().outbound.endpoint(team, id).cloned())
    }

    async fn endpoints(&self, team: TeamId, before: Option<EndpointId>, limit: usize) -> Result<Vec<Endpoint>> {
        Ok(self.world().outbound.endpoints(team, before, limit))
    }

    async fn change_endpoint(
        &self,
        edit: EndpointEdit,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<EndpointChange>> {
        Ok(self.world().change_endpoint(edit, operation.as_ref(), now))
    }

    async fn remove_endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        Ok(self.world().remove_endpoint(team, id))
    }

    async fn spread(&self, max: usize, now: Time) -> Result<Spread> {
        Ok(self.world().spread(max, now))
    }

    async fn endpoints_due(&self, max: usize, now: Time) -> Result<Vec<Endpoint>> {
        Ok(self.world().outbound.endpoints_due(max, now))
    }

    async fn lease_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        node: NodeId,
        max: usize,
        now: Time,
    ) -> Result<Vec<Owed>> {
        Ok(self.world().lease_notices((team, endpoint), node, max, now))
    }

    async fn settle_notice(&self, settle: NoticeSettle, now: Time) -> Result<Option<Notice>> {
        Ok(self.world().settle_notice(settle, now))
    }

    async fn next_notice_due(&self) -> Result<Option<Time>> {
        Ok(self.world().outbound.next_due())
    }

    async fn notice(&self, team: TeamId, id: NoticeId) -> Result<Option<Notice>> {
        Ok(self.world().outbound.notice(team, id).cloned())
    }

    async fn notices(&self, team: TeamId, endpoint: EndpointId, query: NoticeQuery) -> Result<Vec<Notice>> {
        Ok(self.world().outbound.notices(team, endpoint, &query))
    }

    async fn endpoint_gauges(&self) -> Result<Vec<EndpointGauge>> {
        Ok(self.world().endpoint_gauges())
    }

    async fn replay_notice(
        &self,
        team: TeamId,
        id: NoticeId,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Option<Notice>>> {
        Ok(self.world().replay_notice((team, id), operation.as_ref(), now))
    }

    async fn recover_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        recovery: Recovery,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Option<Recovering>>> {
        Ok(self.world().recover_notices((team, endpoint), recovery, operation.as_ref(), now))
    }
}
