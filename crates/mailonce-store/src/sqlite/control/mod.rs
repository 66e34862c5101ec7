//! Control: the audit log, budgets, contacts, erasures, records and stops. Implements `ControlStore` for [`Sqlite`].

pub(crate) mod audit;
pub(crate) mod budgets;
pub(crate) mod contacts;
mod erasures;
pub(crate) mod records;
pub(crate) mod stops;
mod typed_texts;

use async_trait::async_trait;
use mailonce_core::{
    control::{
        contact::ContactHash,
        stop::{CreateStopResult, Stop, StopKind},
    },
    id::{EmailId, StopId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    outbound::email::Email,
    ports::{control_store::ControlStore, store::Result},
    time::Time,
};
use std::collections::BTreeMap;

use super::Sqlite;

#[async_trait]
impl ControlStore for Sqlite {
    async fn create_stop(
        &self,
        stop: Stop,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<CreateStopResult>> {
        self.run_write(move |ledger| stops::create(ledger, stop, operation.as_ref(), now)).await
    }

    async fn stops(&self, team: Option<TeamId>) -> Result<Vec<Stop>> {
        let number = match team {
            Some(team) => match self.team_number(team) {
                Some(number) => Some(number),
                None => return Ok(Vec::new()),
            },
            None => None,
        };
        self.run_query(move |conn| stops::by_team(conn, number)).await
    }

    async fn stop_counts(&self) -> Result<BTreeMap<StopKind, u64>> {
        self.run_query(stops::counts).await
    }

    async fn waiting_counts(&self, stops: Vec<Stop>, team: Option<TeamId>, max: usize, now: Time) -> Result<Vec<u64>> {
        let number = match team.map(|team| self.team_number(team)) {
            Some(None) => return Ok(vec![0; stops.len()]),
            Some(number) => number,
            None => None,
        };
        self.run_query(move |conn| stops::waiting_counts(conn, &stops, number, max, now)).await
    }

    async fn end_stop(
        &self,
        team: Option<TeamId>,
        id: StopId,
        rate_per_s: Option<u32>,
        now: Time,
    ) -> Result<Option<Stop>> {
        self.run_write(move |ledger| stops::end(ledger, team, id, rate_per_s, now)).await
    }

    async fn release_stopped(&self, max: usize, now: Time) -> Result<usize> {
        let has_ended = self.run_query(|conn| Ok(stops::load(conn)?.0.iter().any(|stop| !stop.is_in_force()))).await?;
        if !has_ended {
            return Ok(0);
        }
        self.run_write(move |ledger| stops::release(ledger, max, now)).await
    }

    async fn emails_held_by_budget(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        self.run_query(move |conn| budgets::held_emails(conn, after, limit)).await
    }

    async fn known_contacts(&self, team: TeamId, contacts: Vec<ContactHash>) -> Result<Vec<bool>> {
        let Some(number) = self.team_number(team) else { return Ok(vec![false; contacts.len()]) };
        self.run_query(move |conn| contacts::known(conn, number, &contacts)).await
    }
}
