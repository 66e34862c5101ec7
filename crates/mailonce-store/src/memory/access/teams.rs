//! Teams and API keys.

use mailonce_core::{
    access::team::{ApiKey, CreateTeamResult, Team},
    id::{ApiKeyId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use std::collections::BTreeMap;

use crate::memory::Tables;

/// The tables of teams and API keys.
#[derive(Default)]
pub(crate) struct AccessTables {
    pub(crate) teams: BTreeMap<TeamId, Team>,
    api_keys: BTreeMap<ApiKeyId, ApiKey>,
}

impl AccessTables {
    pub(crate) fn set_require_keys(&mut self, team: TeamId, require: bool) -> Option<Team> {
        let team = self.teams.get_mut(&team)?;
        team.require_keys = require;
        Some(team.clone())
    }

    /// The API keys of a team, newest first.
    pub(crate) fn api_keys(&self, team: TeamId) -> Vec<ApiKey> {
        self.api_keys.values().rev().filter(|key| key.team == team).cloned().collect()
    }

    pub(crate) fn api_key_by_hash(&self, hash: [u8; 32]) -> Option<(ApiKey, Team)> {
        let key = self.api_keys.values().find(|key| key.hash == hash)?;
        Some((key.clone(), self.teams.get(&key.team)?.clone()))
    }

    pub(crate) fn revoke_api_key(&mut self, team: TeamId, id: ApiKeyId, now: Time) -> Option<ApiKey> {
        let key = self.api_keys.get_mut(&id).filter(|key| key.team == team)?;
        key.revoked_at.get_or_insert(now);
        Some(key.clone())
    }

    pub(crate) fn touch_api_keys(&mut self, used: &[(ApiKeyId, Time)]) {
        for (id, at) in used {
            if let Some(key) = self.api_keys.get_mut(id) {
                key.last_used_at = key.last_used_at.max(Some(*at));
            }
        }
    }
}

impl Tables {
    pub(crate) fn create_team(
        &mut self,
        team: Team,
        key: ApiKey,
        operation: Option<&KeyedOperation>,
    ) -> IdempotentResult<CreateTeamResult> {
        if let Some(answer) = operation.and_then(|operation| self.outbound.find_replay(operation, key.created_at)) {
            return answer;
        }
        if self.access.teams.values().any(|other| other.name == team.name && other.id != team.id) {
            return IdempotentResult::Done(CreateTeamResult::NameTaken);
        }
        if let Some(operation) = operation {
            self.outbound.bind_operation(operation);
        }
        self.access.teams.entry(team.id).or_insert(team);
        self.access.api_keys.entry(key.id).or_insert(key);
        IdempotentResult::Done(CreateTeamResult::Created)
    }

    pub(crate) fn create_api_key(&mut self, key: ApiKey, operation: Option<&KeyedOperation>) -> IdempotentResult<()> {
        if let Some(operation) = operation {
            if let Some(answer) = self.outbound.find_replay(operation, key.created_at) {
                return answer;
            }
            self.outbound.bind_operation(operation);
        }
        self.access.api_keys.entry(key.id).or_insert(key);
        IdempotentResult::Done(())
    }
}
