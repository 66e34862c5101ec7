//! The part of the port for telling others.

use async_trait::async_trait;
use mailonce_core::{
    endpoint::{Endpoint, EndpointChange, EndpointEdit, EndpointGauge, Start},
    id::{EndpointId, NodeId, NoticeId, TeamId},
    notice::{Notice, NoticeQuery, NoticeSettle, Owed, Recovering, Recovery, Since, Spread},
    port::{
        notices::Notices,
        store::{Once, Operation, Result},
    },
    time::Time,
};
use std::sync::{Arc, PoisonError};

use super::{Sqlite, endpoint, events, notice, spread};

#[async_trait]
impl Notices for Sqlite {
    async fn create_endpoint(
        &self,
        endpoint: Endpoint,
        start: Start,
        operation: Option<Operation>,
    ) -> Result<Once<Endpoint>> {
        self.write(move |ledger| endpoint::create(ledger, endpoint, start, operation.as_ref())).await
    }

    async fn endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| endpoint::one(conn, number, id)).await
    }

    async fn endpoints(&self, team: TeamId, before: Option<EndpointId>, limit: usize) -> Result<Vec<Endpoint>> {
        let Some(number) = self.number(team) else { return Ok(Vec::new()) };
        self.look(move |conn| endpoint::list(conn, number, before, limit)).await
    }

    async fn change_endpoint(
        &self,
        edit: EndpointEdit,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<EndpointChange>> {
        self.write(move |ledger| endpoint::change(ledger, edit, operation.as_ref(), now)).await
    }

    async fn remove_endpoint(&self, team: TeamId, id: EndpointId) -> Result<Option<Endpoint>> {
        self.write(move |ledger| endpoint::remove(ledger, team, id)).await
    }

    async fn spread(&self, max: usize, now: Time) -> Result<Spread> {
        let teams = Arc::clone(&self.teams);
        let plan = move |conn: &rusqlite::Connection| {
            spread::plan(conn, &teams.read().unwrap_or_else(PoisonError::into_inner), max)
        };
        let shares = self.look(plan).await?;
        if shares.is_empty() {
            return Ok(Spread::default());
        }
        self.write(move |ledger| spread::spread(ledger, &shares, now)).await
    }

    async fn endpoints_due(&self, max: usize, now: Time) -> Result<Vec<Endpoint>> {
        self.look(move |conn| endpoint::due(conn, max, now)).await
    }

    async fn lease_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        node: NodeId,
        max: usize,
        now: Time,
    ) -> Result<Vec<Owed>> {
        let Some(number) = self.number(team) else { return Ok(Vec::new()) };
        let leased = self.write(move |ledger| notice::lease(ledger, (team, endpoint), node, max, now)).await?;
        // Their events are read apart from the writer.
        self.look(move |conn| events::of_notices(conn, number, leased)).await
    }

    async fn settle_notice(&self, settle: NoticeSettle, now: Time) -> Result<Option<Notice>> {
        self.write(move |ledger| notice::settle(ledger, settle, now)).await
    }

    async fn next_notice_due(&self) -> Result<Option<Time>> {
        self.look(endpoint::next_due).await
    }

    async fn notice(&self, team: TeamId, id: NoticeId) -> Result<Option<Notice>> {
        let Some(number) = self.number(team) else { return Ok(None) };
        self.look(move |conn| notice::one(conn, number, id)).await
    }

    async fn notices(&self, team: TeamId, endpoint: EndpointId, query: NoticeQuery) -> Result<Vec<Notice>> {
        let Some(number) = self.number(team) else { return Ok(Vec::new()) };
        self.look(move |conn| notice::list(conn, number, endpoint, &query)).await
    }

    async fn endpoint_gauges(&self) -> Result<Vec<EndpointGauge>> {
        self.look(endpoint::gauges).await
    }

    async fn replay_notice(
        &self,
        team: TeamId,
        id: NoticeId,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Option<Notice>>> {
        self.write(move |ledger| notice::replay(ledger, (team, id), operation.as_ref(), now)).await
    }

    async fn recover_notices(
        &self,
        team: TeamId,
        endpoint: EndpointId,
        recovery: Recovery,
        operation: Option<Operation>,
        now: Time,
    ) -> Result<Once<Option<Recovering>>> {
        let Some(number) = self.number(team) else { return Ok(Once::Done(None)) };
        // Events only ever come to the end, so what lies before them can be looked up first.
        let after = match recovery.since {
            Since::Event(seq) => seq,
            Since::Time(time) => self.look(move |conn| events::before(conn, number, time)).await?,
        };
        let verb = (recovery, after);
        self.write(move |ledger| notice::recover(ledger, (team, endpoint), verb, operation.as_ref(), now)).await
    }
}
