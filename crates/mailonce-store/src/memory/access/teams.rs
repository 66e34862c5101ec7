//! Teams and API keys.

use mailonce_core::{
    access::{
        oauth_client::OauthClient,
        team::{ApiKey, CreateTeamResult, Team},
    },
    control::{audit::act::Act, erasure::AddressEraser},
    id::{ApiKeyId, OauthClientId, TeamId},
    operation::{IdempotentResult, KeyedOperation},
    time::Time,
};
use std::collections::BTreeMap;

use crate::memory::Tables;

/// The tables of teams, API keys and OAuth clients.
#[derive(Default)]
pub(crate) struct AccessTables {
    pub(crate) teams: BTreeMap<TeamId, Team>,
    api_keys: BTreeMap<ApiKeyId, ApiKey>,
    pub(crate) oauth_clients: BTreeMap<OauthClientId, OauthClient>,
}

impl AccessTables {
    /// The API keys of a team, newest first.
    pub(crate) fn api_keys(&self, team: TeamId) -> Vec<ApiKey> {
        self.api_keys.values().rev().filter(|key| key.team == team).cloned().collect()
    }

    pub(crate) fn api_key_by_hash(&self, hash: [u8; 32]) -> Option<(ApiKey, Team)> {
        let key = self.api_keys.values().find(|key| key.hash == hash)?;
        Some((key.clone(), self.teams.get(&key.team)?.clone()))
    }

    /// Replaces the address in the names of a team's API keys. Returns in how many.
    pub(crate) fn redact_api_keys(&mut self, eraser: &AddressEraser) -> usize {
        let ours = self.api_keys.values_mut().filter(|key| key.team == eraser.team);
        ours.filter_map(|key| key.details.redact(eraser).then_some(())).count()
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
        let is_new = !self.access.teams.contains_key(&team.id);
        self.access.teams.entry(team.id).or_insert_with(|| team.clone());
        if is_new {
            self.record_act(Some(Act::of_new_team(&team)), team.created_at);
        }
        self.insert_api_key(key);
        IdempotentResult::Done(CreateTeamResult::Created)
    }

    pub(crate) fn create_api_key(&mut self, key: ApiKey, operation: Option<&KeyedOperation>) -> IdempotentResult<()> {
        if let Some(operation) = operation {
            if let Some(answer) = self.outbound.find_replay(operation, key.created_at) {
                return answer;
            }
            self.outbound.bind_operation(operation);
        }
        self.insert_api_key(key);
        IdempotentResult::Done(())
    }

    fn insert_api_key(&mut self, key: ApiKey) {
        if !self.access.api_keys.contains_key(&key.id) {
            self.record_act(Some(Act::of_api_key(&key)), key.created_at);
            self.access.api_keys.insert(key.id, key);
        }
    }

    pub(crate) fn set_require_keys(&mut self, team: TeamId, require: bool, now: Time) -> Option<Team> {
        let team = self.access.teams.get_mut(&team)?;
        let before = std::mem::replace(&mut team.require_keys, require);
        let team = team.clone();
        self.record_act((before != require).then(|| Act::of_require_keys(before, &team)), now);
        Some(team)
    }

    pub(crate) fn revoke_api_key(&mut self, team: TeamId, id: ApiKeyId, now: Time) -> Option<ApiKey> {
        let key = self.access.api_keys.get_mut(&id).filter(|key| key.team == team)?;
        let was_revoked = key.revoked_at.replace(key.revoked_at.unwrap_or(now)).is_some();
        let key = key.clone();
        self.record_act((!was_revoked).then(|| Act::of_api_key(&key)), now);
        Some(key)
    }
}
