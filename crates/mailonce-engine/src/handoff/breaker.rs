//! Telling every team that a way out rests, or works again.
//!
//! A breaker lives in the memory of one node and may move at any time; what a team was told of it is a record, so that
//! each change is told once. Other nodes may see the way differently for a moment: the record follows whoever spoke last.

use mailonce_core::{
    id::TeamId,
    ports::store::{IdempotentResult, StoreError},
    record::{CreateRecordResult, Record, RecordKind, TransportState},
};

use crate::{
    Engine,
    handoff::transport_selector::{OutboundRoute, is_sandbox_internal},
};

impl Engine {
    /// Tells how a way is to all who were told otherwise. What cannot be told now is told when the way moves again;
    /// nothing else waits for it.
    pub(crate) async fn publish_breaker_state(&self, way: &OutboundRoute) {
        let view = way.status(self.time.boot_clock_ms());
        if is_sandbox_internal(&view.name) {
            return;
        }
        let is = TransportState { rests: view.breaker != "closed", why: view.why, ..TransportState::default() };
        if is.rests {
            tracing::warn!(transport = view.name, why = is.why, "the breaker opened");
        }
        if let Err(error) = self.publish_breaker_state_to_teams(&view.name, &is).await {
            tracing::warn!(%error, transport = view.name, "telling that a breaker moved");
        }
    }

    async fn publish_breaker_state_to_teams(&self, name: &str, is: &TransportState) -> Result<(), StoreError> {
        for team in self.store.teams().await? {
            self.publish_breaker_state_to_team(team.id, name, is).await?;
        }
        Ok(())
    }

    async fn publish_breaker_state_to_team(
        &self,
        team: TeamId,
        name: &str,
        is: &TransportState,
    ) -> Result<(), StoreError> {
        let (kind, now) = (RecordKind::Transport, self.now());
        let Some(record) = self.store.record_by_name(team, kind, name).await? else {
            // Nobody was ever told that it rests, so nobody needs to hear that it works.
            if is.rests {
                let about = transport_state_json(is)?;
                let (id, name) = (self.new_id(now), name.to_owned());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, json: about };
                let _made_or_raced: IdempotentResult<CreateRecordResult> =
                    self.store.create_record(record, None).await?;
            }
            return Ok(());
        };
        let was = serde_json::from_str::<TransportState>(&record.json).unwrap_or_default();
        if was.rests != is.rests {
            let is = TransportState { rests: is.rests, why: is.why.clone(), ..was };
            let _changed_or_raced =
                self.store.change_record(record.edit(transport_state_json(&is)?), None, now).await?;
        }
        Ok(())
    }
}

/// What a record is to say of a transport.
pub(crate) fn transport_state_json(state: &TransportState) -> Result<String, StoreError> {
    serde_json::to_string(state).map_err(|error| StoreError::Corrupt(error.to_string()))
}
