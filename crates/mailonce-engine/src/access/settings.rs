//! How a team wants things done: its content guard, who is told of questions, and when a question answers itself.

use mailonce_core::{
    access::team::ApiKeyScope,
    address::NamedAddress,
    id::TeamId,
    inbox::message::ReplyToPolicy,
    outbound::content_guard::ContentGuardMode,
    ports::store::{IdempotentResult, StoreError},
    problem::{FieldError, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Caller, Engine, runtime::records, unavailable};

/// The name of the one record of a team.
const RECORD_NAME: &str = "team";
/// How long settings may differ from what another node made of them, in milliseconds.
const MULTI_NODE_TTL_MS: i64 = 2_000;
/// Teams whose settings are kept at hand.
const CACHE_CAPACITY: usize = 10_000;
/// How often a change that raced with another is tried anew.
const MAX_CONFLICT_RETRIES: usize = 4;
/// People who are told of questions.
pub const MAX_NOTIFY_RECIPIENTS: usize = 10;

/// How a team wants things done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TeamSettings {
    /// What to do about look-alikes among sends with a key.
    pub keyed: ContentGuardMode,
    /// What to do about them among sends without one.
    pub keyless: ContentGuardMode,
    /// What to do about them among sends of models, which word a retry anew and name it anew.
    pub mcp: ContentGuardMode,
    /// Who is told by mail when a person is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<EscalationNotification>,
    /// After how many milliseconds a held email that nobody decided about is rejected; never without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_ms: Option<i64>,
    /// What to do about answers that would go to somebody for whom the sender does not vouch.
    pub reply_to: ReplyToPolicy,
}

impl Default for TeamSettings {
    fn default() -> Self {
        Self {
            keyed: ContentGuardMode::Flag,
            keyless: ContentGuardMode::Hold,
            mcp: ContentGuardMode::Hold,
            notify: None,
            expire_ms: None,
            reply_to: ReplyToPolicy::Flag,
        }
    }
}

/// Who is told by mail when a person is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationNotification {
    /// The sender.
    pub from: String,
    /// The people.
    pub to: Vec<String>,
}

/// A change of settings. What is `None` stays; an inner `None` takes it away.
#[derive(Clone, Debug, Default)]
pub struct SettingsPatch {
    /// Among sends with a key.
    pub keyed: Option<ContentGuardMode>,
    /// Among sends without one.
    pub keyless: Option<ContentGuardMode>,
    /// Among those of models.
    pub mcp: Option<ContentGuardMode>,
    /// Who is told.
    pub notify: Option<Option<EscalationNotification>>,
    /// When a held email is rejected.
    pub expire_ms: Option<Option<i64>>,
    /// Answers to somebody else.
    pub reply_to: Option<ReplyToPolicy>,
}

impl SettingsPatch {
    fn apply_to(self, old: TeamSettings) -> TeamSettings {
        TeamSettings {
            keyed: self.keyed.unwrap_or(old.keyed),
            keyless: self.keyless.unwrap_or(old.keyless),
            mcp: self.mcp.unwrap_or(old.mcp),
            notify: self.notify.unwrap_or(old.notify),
            expire_ms: self.expire_ms.unwrap_or(old.expire_ms),
            reply_to: self.reply_to.unwrap_or(old.reply_to),
        }
    }

    fn check(&self) -> Result<(), Problem> {
        let Some(Some(notify)) = &self.notify else { return Ok(()) };
        let fault = |path: &str, message: String| Err(Problem::from(vec![FieldError::new(path, message)]));
        if notify.to.is_empty() || notify.to.len() > MAX_NOTIFY_RECIPIENTS {
            return fault("notify.to", format!("names 1 to {MAX_NOTIFY_RECIPIENTS} people"));
        }
        for (path, text) in notify.to.iter().map(|to| ("notify.to", to)).chain([("notify.from", &notify.from)]) {
            if let Err(error) = NamedAddress::parse(text) {
                return fault(path, error.to_string());
            }
        }
        Ok(())
    }
}

/// The settings of teams, as they were last read.
#[derive(Default)]
pub(crate) struct SettingsCache(Mutex<HashMap<TeamId, (Arc<TeamSettings>, i64)>>);

impl SettingsCache {
    fn get(&self, team: TeamId, since: i64) -> Option<Arc<TeamSettings>> {
        let book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.get(&team).filter(|(_, read_at)| *read_at >= since).map(|(settings, _)| Arc::clone(settings))
    }

    fn put(&self, team: TeamId, settings: Arc<TeamSettings>, even: i64) {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if book.len() >= CACHE_CAPACITY {
            book.clear();
        }
        book.insert(team, (settings, even));
    }

    fn invalidate(&self, team: TeamId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&team);
    }
}

impl Engine {
    /// A team's settings.
    pub(crate) async fn settings_of(&self, team: TeamId) -> Result<Arc<TeamSettings>, StoreError> {
        let even = self.time.boot_clock_ms();
        let since = if self.is_single_node { i64::MIN } else { even - MULTI_NODE_TTL_MS };
        if let Some(settings) = self.settings_cache.get(team, since) {
            return Ok(settings);
        }
        let record = self.store.record_by_name(team, RecordKind::Settings, RECORD_NAME).await?;
        let settings = match record.map(|record| serde_json::from_str(&record.json)) {
            None => TeamSettings::default(),
            Some(Ok(settings)) => settings,
            Some(Err(error)) => return Err(StoreError::Corrupt(format!("the settings of team {team}: {error}"))),
        };
        let settings = Arc::new(settings);
        self.settings_cache.put(team, Arc::clone(&settings), even);
        Ok(settings)
    }

    /// The settings of the caller's team.
    pub async fn settings(&self, caller: &Caller) -> Result<Arc<TeamSettings>, Problem> {
        caller.require_scope(ApiKeyScope::Read)?;
        caller.require_unrestricted_key()?;
        self.settings_of(caller.team.id).await.map_err(unavailable)
    }

    /// Changes the settings of the caller's team.
    pub async fn change_settings(&self, caller: &Caller, patch: SettingsPatch) -> Result<Arc<TeamSettings>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        patch.check()?;
        let (team, kind) = (caller.team.id, RecordKind::Settings);
        for _ in 0..MAX_CONFLICT_RETRIES {
            let found = self.store.record_by_name(team, kind, RECORD_NAME).await.map_err(unavailable)?;
            let old = found.as_ref().map_or_else(|| Ok(TeamSettings::default()), records::decode)?;
            let about = records::encode(&patch.clone().apply_to(old))?;
            let now = self.now();
            let done = if let Some(record) = found {
                let changed = self.store.change_record(record.edit(about), None, now).await.map_err(unavailable)?;
                matches!(changed, IdempotentResult::Done(RecordChangeResult::Changed(_)))
            } else {
                let (id, name) = (self.new_id(now), RECORD_NAME.to_owned());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, json: about };
                let made = self.store.create_record(record, None).await.map_err(unavailable)?;
                matches!(made, IdempotentResult::Done(CreateRecordResult::Created(_)))
            };
            self.settings_cache.invalidate(team);
            if done {
                break;
            }
        }
        self.settings_of(team).await.map_err(unavailable)
    }
}
