//! Display names that API keys were given after they were created.
//!
//! A new name is a record of its own: the row of a key never changes, except that it is revoked or used.

use mailonce_core::{
    access::team::ApiKey,
    id::{ApiKeyId, TeamId},
    limits,
    operation::IdempotentResult,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

use crate::{
    access::{Access, api_keys::check_name, caller::Caller},
    runtime::{problems::unavailable, records},
};

/// How often a change that conflicts with a concurrent change is tried.
const MAX_CONFLICT_RETRIES: usize = 8;

#[derive(Serialize, Deserialize)]
struct NewName {
    name: String,
}

impl Access {
    /// Replaces the names of keys that were renamed.
    pub(super) async fn apply_new_names(&self, team: TeamId, keys: &mut [ApiKey]) -> Result<(), Problem> {
        let (mut names, mut before) = (HashMap::new(), None);
        loop {
            let page = self.ctx.store.records(team, RecordKind::ApiKeyName, before, limits::PAGE_ROWS).await;
            let page = page.map_err(unavailable)?;
            for record in &page.rows {
                names.insert(record.name.clone(), records::decode::<NewName>(record)?.name);
            }
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        for key in keys {
            if let Some(name) = names.remove(&key.id.to_string()) {
                key.details.name = name;
            }
        }
        Ok(())
    }

    /// Gives an active API key another display name, and returns the key.
    pub async fn rename_api_key(&self, caller: &Caller, id: ApiKeyId, name: &str) -> Result<ApiKey, Problem> {
        check_name(name)?;
        let now = self.ctx.now();
        let key = self.api_keys(caller).await?.into_iter().find(|key| key.id == id && key.is_active(now));
        let mut key = key.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no API key {id}")))?;
        if key.details.name != name {
            self.store_new_name(caller.team.id, id, name).await?;
            key.details.name = name.to_owned();
        }
        Ok(key)
    }

    async fn store_new_name(&self, team: TeamId, id: ApiKeyId, name: &str) -> Result<(), Problem> {
        let json = records::encode(&NewName { name: name.to_owned() })?;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let now = self.ctx.now();
            let record = Record {
                team,
                kind: RecordKind::ApiKeyName,
                id: self.ctx.new_id(now),
                name: id.to_string(),
                rev: 1,
                created_at: now,
                json: json.clone(),
            };
            let created = self.ctx.store.create_record(record, None).await.map_err(unavailable)?;
            let IdempotentResult::Done(CreateRecordResult::NameTaken(existing)) = created else { return Ok(()) };
            let changed = self.ctx.store.change_record(existing.edit(json.clone()), None, now).await;
            if let IdempotentResult::Done(RecordChangeResult::Changed(_)) = changed.map_err(unavailable)? {
                return Ok(());
            }
        }
        Err(Problem::new(Code::Unavailable, "the API key was renamed several times meanwhile; try again"))
    }
}
