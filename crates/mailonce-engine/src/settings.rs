//! How a team wants things done: its content guard, who is told of questions, and when a question answers itself.

use mailonce_core::{
    address::Mailbox,
    conversation::likeness::Mode,
    id::TeamId,
    message::ReplyToPolicy,
    port::store::{Once, StoreError},
    problem::{FieldError, Problem},
    record::{Created, Record, RecordChange, RecordKind},
    team::Scope,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Caller, Engine, records, unavailable};

/// The name of the one record of a team.
const NAME: &str = "team";
/// How long settings may differ from what another node made of them, in milliseconds.
const SHARED_MS: i64 = 2_000;
/// Teams whose settings are kept at hand.
const TEAMS: usize = 10_000;
/// How often a change that raced with another is tried anew.
const TRIES: usize = 4;
/// People who are told of questions.
pub const TOLD: usize = 10;

/// How a team wants things done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// What to do about look-alikes among sends with a key.
    pub keyed: Mode,
    /// What to do about them among sends without one.
    pub keyless: Mode,
    /// What to do about them among sends of models, which word a retry anew and name it anew.
    pub mcp: Mode,
    /// Who is told by mail when a person is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<Notify>,
    /// After how many milliseconds a held email that nobody decided about is rejected; never without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_ms: Option<i64>,
    /// What to do about answers that would go to somebody for whom the sender does not vouch.
    pub reply_to: ReplyToPolicy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keyed: Mode::Flag,
            keyless: Mode::Hold,
            mcp: Mode::Hold,
            notify: None,
            expire_ms: None,
            reply_to: ReplyToPolicy::Flag,
        }
    }
}

/// Who is told by mail when a person is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    /// The sender.
    pub from: String,
    /// The people.
    pub to: Vec<String>,
}

/// A change of settings. What is `None` stays; an inner `None` takes it away.
#[derive(Clone, Debug, Default)]
pub struct SettingsPatch {
    /// Among sends with a key.
    pub keyed: Option<Mode>,
    /// Among sends without one.
    pub keyless: Option<Mode>,
    /// Among those of models.
    pub mcp: Option<Mode>,
    /// Who is told.
    pub notify: Option<Option<Notify>>,
    /// When a held email is rejected.
    pub expire_ms: Option<Option<i64>>,
    /// Answers to somebody else.
    pub reply_to: Option<ReplyToPolicy>,
}

impl SettingsPatch {
    fn on(self, old: Settings) -> Settings {
        Settings {
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
        if notify.to.is_empty() || notify.to.len() > TOLD {
            return fault("notify.to", format!("names 1 to {TOLD} people"));
        }
        for (path, text) in notify.to.iter().map(|to| ("notify.to", to)).chain([("notify.from", &notify.from)]) {
            if let Err(error) = Mailbox::parse(text) {
                return fault(path, error.to_string());
            }
        }
        Ok(())
    }
}

/// The settings of teams, as they were last read.
#[derive(Default)]
pub(crate) struct SettingsBook(Mutex<HashMap<TeamId, (Arc<Settings>, i64)>>);

impl SettingsBook {
    fn get(&self, team: TeamId, since: i64) -> Option<Arc<Settings>> {
        let book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.get(&team).filter(|(_, read_at)| *read_at >= since).map(|(settings, _)| Arc::clone(settings))
    }

    fn put(&self, team: TeamId, settings: Arc<Settings>, even: i64) {
        let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if book.len() >= TEAMS {
            book.clear();
        }
        book.insert(team, (settings, even));
    }

    fn forget(&self, team: TeamId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&team);
    }
}

impl Engine {
    /// A team's settings.
    pub(crate) async fn settings_of(&self, team: TeamId) -> Result<Arc<Settings>, StoreError> {
        let even = self.time.even();
        let since = if self.alone { i64::MIN } else { even - SHARED_MS };
        if let Some(settings) = self.settings_book.get(team, since) {
            return Ok(settings);
        }
        let record = self.store.record_named(team, RecordKind::Settings, NAME).await?;
        let settings = match record.map(|record| serde_json::from_str(&record.about)) {
            None => Settings::default(),
            Some(Ok(settings)) => settings,
            Some(Err(error)) => return Err(StoreError::Corrupt(format!("the settings of team {team}: {error}"))),
        };
        let settings = Arc::new(settings);
        self.settings_book.put(team, Arc::clone(&settings), even);
        Ok(settings)
    }

    /// The settings of the caller's team.
    pub async fn settings(&self, caller: &Caller) -> Result<Arc<Settings>, Problem> {
        caller.need(Scope::Read)?;
        caller.need_whole_team()?;
        self.settings_of(caller.team.id).await.map_err(unavailable)
    }

    /// Changes the settings of the caller's team.
    pub async fn change_settings(&self, caller: &Caller, patch: SettingsPatch) -> Result<Arc<Settings>, Problem> {
        caller.need(Scope::Admin)?;
        caller.need_whole_team()?;
        patch.check()?;
        let (team, kind) = (caller.team.id, RecordKind::Settings);
        for _ in 0..TRIES {
            let found = self.store.record_named(team, kind, NAME).await.map_err(unavailable)?;
            let old = found.as_ref().map_or_else(|| Ok(Settings::default()), records::read)?;
            let about = records::write(&patch.clone().on(old))?;
            let now = self.now();
            let done = if let Some(record) = found {
                let changed = self.store.change_record(record.edit(about), None, now).await.map_err(unavailable)?;
                matches!(changed, Once::Done(RecordChange::Changed(_)))
            } else {
                let (id, name) = (self.new_id(now), NAME.to_owned());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, about };
                let made = self.store.create_record(record, None).await.map_err(unavailable)?;
                matches!(made, Once::Done(Created::Made(_)))
            };
            self.settings_book.forget(team);
            if done {
                break;
            }
        }
        self.settings_of(team).await.map_err(unavailable)
    }
}
