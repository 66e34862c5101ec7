//! Publishes to every team that a circuit breaker opened or closed.
//!
//! The breaker lives in the memory of one node. What a team was notified of is a record, so that each change is
//! published once. Nodes may disagree for a moment; the record then follows the node that published last.

use crate::handoff::{
    Handoffs,
    transport_selector::{OutboundRoute, is_sandbox_internal},
};
use mailonce_core::{
    id::TeamId,
    operation::IdempotentResult,
    ports::store::StoreError,
    record::{CreateRecordResult, Record, RecordKind, TransportState},
};

impl Handoffs {
    /// Publishes a transport's breaker state to the teams whose record differs. If that fails, the next change
    /// publishes it; nothing else depends on it.
    pub(crate) async fn publish_breaker_state(&self, route: &OutboundRoute) {
        let status = route.status(self.ctx.time.boot_clock_ms());
        if is_sandbox_internal(&status.name) {
            return;
        }
        let state = TransportState {
            is_breaker_open: status.breaker != "closed",
            reason: status.breaker_reason,
            ..TransportState::default()
        };
        if state.is_breaker_open {
            tracing::warn!(transport = status.name, reason = state.reason, "the circuit breaker opened");
        }
        if let Err(error) = self.publish_breaker_state_to_teams(&status.name, &state).await {
            tracing::warn!(%error, transport = status.name, "cannot publish the state of a circuit breaker");
        }
    }

    async fn publish_breaker_state_to_teams(&self, name: &str, state: &TransportState) -> Result<(), StoreError> {
        for team in self.ctx.store.teams().await? {
            self.publish_breaker_state_to_team(team.id, name, state).await?;
        }
        Ok(())
    }

    async fn publish_breaker_state_to_team(
        &self,
        team: TeamId,
        name: &str,
        state: &TransportState,
    ) -> Result<(), StoreError> {
        let (kind, now) = (RecordKind::Transport, self.ctx.now());
        let Some(record) = self.ctx.store.record_by_name(team, kind, name).await? else {
            // Without a record the team was never notified of an open breaker, so it needs no notice of a closed one.
            if state.is_breaker_open {
                let json = transport_state_json(state)?;
                let (id, name) = (self.ctx.new_id(now), name.to_owned());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, json };
                let _made_or_raced: IdempotentResult<CreateRecordResult> =
                    self.ctx.store.create_record(record, None).await?;
            }
            return Ok(());
        };
        let old_state = serde_json::from_str::<TransportState>(&record.json).unwrap_or_default();
        if old_state.is_breaker_open != state.is_breaker_open {
            let state =
                TransportState { is_breaker_open: state.is_breaker_open, reason: state.reason.clone(), ..old_state };
            let _changed_or_raced =
                self.ctx.store.change_record(record.edit(transport_state_json(&state)?), None, now).await?;
        }
        Ok(())
    }
}

/// Encodes the record of a transport.
pub(crate) fn transport_state_json(state: &TransportState) -> Result<String, StoreError> {
    serde_json::to_string(state).map_err(|error| StoreError::Corrupt(error.to_string()))
}
