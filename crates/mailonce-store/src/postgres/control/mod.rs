//! Control: the audit log, budgets, contacts, erasures, records and stops. Implements `ControlStore` for [`Postgres`].

mod audit;
pub(crate) mod audit_chain;
pub(crate) mod budget_counters;
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

use super::{Postgres, into_store_result, when_durable};
use crate::postgres::error::call_until_final;

#[async_trait]
impl ControlStore for Postgres {
    async fn create_stop(
        &self,
        stop: Stop,
        operation: Option<KeyedOperation>,
        now: Time,
    ) -> Result<IdempotentResult<CreateStopResult>> {
        when_durable!(self, call_until_final!(stops::create_stop(&self.shared, &stop, operation.as_ref(), now)))
    }

    async fn stops(&self, team: Option<TeamId>) -> Result<Vec<Stop>> {
        when_durable!(self, stops::stops(&self.shared, team).await)
    }

    async fn stop_counts(&self) -> Result<BTreeMap<StopKind, u64>> {
        when_durable!(self, stops::stop_counts(&self.shared).await)
    }

    async fn waiting_counts(&self, stops: Vec<Stop>, team: Option<TeamId>, max: usize, now: Time) -> Result<Vec<u64>> {
        when_durable!(self, stops::waiting_counts(&self.shared, &stops, team, max, now).await)
    }

    async fn end_stop(
        &self,
        team: Option<TeamId>,
        id: StopId,
        rate_per_s: Option<u32>,
        now: Time,
    ) -> Result<Option<Stop>> {
        when_durable!(self, call_until_final!(stops::end_stop(&self.shared, team, id, rate_per_s, now)))
    }

    async fn release_stopped(&self, max: usize, now: Time) -> Result<usize> {
        into_store_result(call_until_final!(stops::release_stopped(&self.shared, max, now)))
    }

    async fn emails_held_by_budget(&self, after: Option<(TeamId, EmailId)>, limit: usize) -> Result<Vec<Email>> {
        when_durable!(self, call_until_final!(budgets::held_emails(&self.shared, after, limit)))
    }

    async fn known_contacts(&self, team: TeamId, contacts: Vec<ContactHash>) -> Result<Vec<bool>> {
        when_durable!(self, call_until_final!(contacts::known(&self.shared, team, &contacts)))
    }
}
