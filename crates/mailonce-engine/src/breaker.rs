//! Telling every team that a way out rests, or works again.
//!
//! A breaker lives in the memory of one node and may move at any time; what a team was told of it is a record, so that
//! each change is told once. Other nodes may see the way differently for a moment: the record follows whoever spoke last.

use mailonce_core::{
    id::TeamId,
    port::store::{Once, StoreError},
    record::{Created, Record, RecordKind, WayState},
};

use crate::{
    Engine,
    ways::{Way, is_inner},
};

impl Engine {
    /// Tells how a way is to all who were told otherwise. What cannot be told now is told when the way moves again;
    /// nothing else waits for it.
    pub(crate) async fn tell_of_way(&self, way: &Way) {
        let view = way.view(self.time.even());
        if is_inner(&view.name) {
            return;
        }
        let is = WayState { rests: view.breaker != "closed", why: view.why, ..WayState::default() };
        if is.rests {
            tracing::warn!(transport = view.name, why = is.why, "the breaker opened");
        }
        if let Err(error) = self.tell_teams_of_way(&view.name, &is).await {
            tracing::warn!(%error, transport = view.name, "telling that a breaker moved");
        }
    }

    async fn tell_teams_of_way(&self, name: &str, is: &WayState) -> Result<(), StoreError> {
        for team in self.store.teams().await? {
            self.tell_team_of_way(team.id, name, is).await?;
        }
        Ok(())
    }

    async fn tell_team_of_way(&self, team: TeamId, name: &str, is: &WayState) -> Result<(), StoreError> {
        let (kind, now) = (RecordKind::Transport, self.now());
        let Some(record) = self.store.record_named(team, kind, name).await? else {
            // Nobody was ever told that it rests, so nobody needs to hear that it works.
            if is.rests {
                let about = as_json(is)?;
                let (id, name) = (self.new_id(now), name.to_owned());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, about };
                let _made_or_raced: Once<Created> = self.store.create_record(record, None).await?;
            }
            return Ok(());
        };
        let was = serde_json::from_str::<WayState>(&record.about).unwrap_or_default();
        if was.rests != is.rests {
            let is = WayState { rests: is.rests, why: is.why.clone(), ..was };
            let _changed_or_raced = self.store.change_record(record.edit(as_json(&is)?), None, now).await?;
        }
        Ok(())
    }
}

/// What a record is to say of a transport.
pub(crate) fn as_json(state: &WayState) -> Result<String, StoreError> {
    serde_json::to_string(state).map_err(|error| StoreError::Corrupt(error.to_string()))
}
