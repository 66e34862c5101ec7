//! Team settings: the content guard, who is notified of questions, and when a held email expires.

use crate::{
    access::{Access, caller::Caller, compat_settings::CompatSettings},
    runtime::{problems::unavailable, records},
};
use mailonce_core::{
    access::team::ApiKeyScope,
    address::NamedAddress,
    control::budget_period::CalendarZone,
    conversation::quiet_hours::QuietHours,
    id::TeamId,
    inbox::message::ReplyToPolicy,
    operation::IdempotentResult,
    outbound::content_guard::{ContentGuardMode, IdenticalMode},
    ports::store::StoreError,
    problem::Problem,
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind, TEAM_SETTINGS},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// How long a node may use settings that another node has changed, in milliseconds.
const MULTI_NODE_TTL_MS: i64 = 2_000;
/// Teams in the cache.
const CACHE_CAPACITY: usize = 10_000;
/// How often a change is retried after a conflict.
const MAX_CONFLICT_RETRIES: usize = 4;
/// The maximum number of tags that get an unsubscribe link.
const MAX_UNSUBSCRIBE_TAGS: usize = 20;
/// The maximum length of a tag, with its value, in characters.
const MAX_UNSUBSCRIBE_TAG_CHARS: usize = 513;
/// The maximum number of people who are notified of questions.
pub const MAX_NOTIFY_RECIPIENTS: usize = 10;

/// The settings of a team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TeamSettings {
    /// The content guard for sends with an idempotency key.
    pub keyed: ContentGuardMode,
    /// The content guard for sends without a key.
    pub keyless: ContentGuardMode,
    /// The content guard for sends over MCP: a model that retries may change both the text and the key.
    pub mcp: ContentGuardMode,
    /// Who gets an email when a person is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<EscalationNotification>,
    /// How people who may decide are told of questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_emails: Option<ApprovalEmails>,
    /// After how many milliseconds without a decision a held email is rejected. Never when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_ms: Option<i64>,
    /// What to do with replies to an address that the sender's authentication doesn't cover.
    pub reply_to: ReplyToPolicy,
    /// The time zone of calendar days and months, by its IANA name. UTC when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Whether every entry of the audit log is also an event.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub audit_events: bool,
    /// How long data is kept.
    #[serde(skip_serializing_if = "Retention::is_default")]
    pub retention: Retention,
    /// Email with one of these tags gets an unsubscribe link: names, or `name=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsubscribe_tags: Vec<String>,
    /// Emails without a key through dialects.
    #[serde(skip_serializing_if = "CompatSettings::is_default")]
    pub compat: CompatSettings,
}

/// How long data is kept, in milliseconds. `None`: as long as without the setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Retention {
    /// Bodies of emails, counted from when the email settled. They are never kept longer than 30 days.
    #[serde(rename = "bodies", skip_serializing_if = "Option::is_none")]
    pub bodies_ms: Option<i64>,
    /// The bytes of received mail, with its text and attachments.
    #[serde(rename = "raw", skip_serializing_if = "Option::is_none")]
    pub raw_ms: Option<i64>,
    /// Events, with the settled notices about them.
    #[serde(rename = "events", skip_serializing_if = "Option::is_none")]
    pub events_ms: Option<i64>,
    /// Entries of the audit log.
    #[serde(rename = "audit", skip_serializing_if = "Option::is_none")]
    pub audit_ms: Option<i64>,
}

impl TeamSettings {
    /// The zone in which days and months begin.
    pub fn calendar_zone(&self) -> CalendarZone {
        // A name is checked when it is set. One that a later release no longer knows counts as UTC.
        self.time_zone.as_deref().and_then(CalendarZone::parse).unwrap_or_default()
    }
}

impl Retention {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for TeamSettings {
    fn default() -> Self {
        Self {
            keyed: ContentGuardMode::Flag,
            keyless: ContentGuardMode::Hold,
            mcp: ContentGuardMode::Hold,
            notify: None,
            approval_emails: None,
            expire_ms: None,
            reply_to: ReplyToPolicy::Flag,
            time_zone: None,
            audit_events: false,
            retention: Retention::default(),
            unsubscribe_tags: Vec::new(),
            compat: CompatSettings::default(),
        }
    }
}

/// Who gets an email when a person is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscalationNotification {
    /// The sender of the notification.
    pub from: String,
    /// The people who are notified.
    pub to: Vec<String>,
}

/// How people who may decide are told of questions, each with a link of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalEmails {
    /// The sender. `None`: nobody is told by email, only notification targets are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// After how long the next person is told, in milliseconds. `None`: all are told at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after_ms: Option<i64>,
    /// When nobody is told, neither by email nor by a notification target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_hours: Option<QuietHours>,
}

/// A change of settings. `None` leaves a value unchanged; an inner `None` removes it.
#[derive(Clone, Debug, Default)]
pub struct SettingsPatch {
    /// The content guard for sends with a key.
    pub keyed: Option<ContentGuardMode>,
    /// The content guard for sends without a key.
    pub keyless: Option<ContentGuardMode>,
    /// The content guard for sends over MCP.
    pub mcp: Option<ContentGuardMode>,
    /// Who is notified.
    pub notify: Option<Option<EscalationNotification>>,
    /// How people are told of questions.
    pub approval_emails: Option<Option<ApprovalEmails>>,
    /// When a held email is rejected.
    pub expire_ms: Option<Option<i64>>,
    /// Replies to an address that the sender's authentication doesn't cover.
    pub reply_to: Option<ReplyToPolicy>,
    /// The time zone of calendar days and months.
    pub time_zone: Option<String>,
    /// Whether every entry of the audit log is also an event.
    pub audit_events: Option<bool>,
    /// How long entries of the audit log are kept.
    pub audit_retention_ms: Option<Option<i64>>,
    /// The tags whose email gets an unsubscribe link.
    pub unsubscribe_tags: Option<Vec<String>>,
    /// How long bodies of emails are kept.
    pub body_retention_ms: Option<Option<i64>>,
    /// How long the bytes of received mail are kept.
    pub raw_retention_ms: Option<Option<i64>>,
    /// How long events are kept.
    pub event_retention_ms: Option<Option<i64>>,
    /// What happens to an identical email without a key through a dialect.
    pub compat_keyless: Option<Option<IdenticalMode>>,
    /// For how long.
    pub compat_window_ms: Option<Option<i64>>,
}

impl SettingsPatch {
    fn apply_to(self, old: TeamSettings) -> TeamSettings {
        TeamSettings {
            keyed: self.keyed.unwrap_or(old.keyed),
            keyless: self.keyless.unwrap_or(old.keyless),
            mcp: self.mcp.unwrap_or(old.mcp),
            notify: self.notify.unwrap_or(old.notify),
            approval_emails: self.approval_emails.unwrap_or(old.approval_emails),
            expire_ms: self.expire_ms.unwrap_or(old.expire_ms),
            reply_to: self.reply_to.unwrap_or(old.reply_to),
            time_zone: self.time_zone.or(old.time_zone),
            audit_events: self.audit_events.unwrap_or(old.audit_events),
            retention: Retention {
                bodies_ms: self.body_retention_ms.unwrap_or(old.retention.bodies_ms),
                raw_ms: self.raw_retention_ms.unwrap_or(old.retention.raw_ms),
                events_ms: self.event_retention_ms.unwrap_or(old.retention.events_ms),
                audit_ms: self.audit_retention_ms.unwrap_or(old.retention.audit_ms),
            },
            unsubscribe_tags: self.unsubscribe_tags.unwrap_or(old.unsubscribe_tags),
            compat: CompatSettings {
                keyless: self.compat_keyless.unwrap_or(old.compat.keyless),
                window_ms: self.compat_window_ms.unwrap_or(old.compat.window_ms),
            },
        }
    }

    fn check(&self) -> Result<(), Problem> {
        self.check_unsubscribe_tags()?;
        let Some(Some(notify)) = &self.notify else { return Ok(()) };
        let fault = |path: &str, message: String| Err(Problem::invalid_field(path, message));
        if notify.to.is_empty() || notify.to.len() > MAX_NOTIFY_RECIPIENTS {
            return fault("escalation_email.to", format!("must have 1 to {MAX_NOTIFY_RECIPIENTS} addresses"));
        }
        for (path, text) in
            notify.to.iter().map(|to| ("escalation_email.to", to)).chain([("escalation_email.from", &notify.from)])
        {
            if let Err(error) = NamedAddress::parse(text) {
                return fault(path, error.to_string());
            }
        }
        Ok(())
    }

    fn check_unsubscribe_tags(&self) -> Result<(), Problem> {
        let tags = self.unsubscribe_tags.as_deref().unwrap_or_default();
        if tags.len() > MAX_UNSUBSCRIBE_TAGS {
            let message = format!("must have at most {MAX_UNSUBSCRIBE_TAGS} tags");
            return Err(Problem::invalid_field("unsubscribe.tags", message));
        }
        let is_tag = |tag: &String| !tag.is_empty() && tag.chars().count() <= MAX_UNSUBSCRIBE_TAG_CHARS;
        match tags.iter().position(|tag| !is_tag(tag)) {
            Some(at) => {
                let message = format!("must be a name or name=value of 1 to {MAX_UNSUBSCRIBE_TAG_CHARS} characters");
                Err(Problem::invalid_field(format!("unsubscribe.tags[{at}]"), message))
            }
            None => Ok(()),
        }
    }
}

/// The settings of teams, as they were last read.
#[derive(Default)]
pub(crate) struct SettingsCache(Mutex<HashMap<TeamId, (Arc<TeamSettings>, i64)>>);

impl SettingsCache {
    fn get(&self, team: TeamId, since: i64) -> Option<Arc<TeamSettings>> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.get(&team).filter(|(_, read_at)| *read_at >= since).map(|(settings, _)| Arc::clone(settings))
    }

    fn put(&self, team: TeamId, settings: Arc<TeamSettings>, boot_ms: i64) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= CACHE_CAPACITY {
            entries.clear();
        }
        entries.insert(team, (settings, boot_ms));
    }

    fn invalidate(&self, team: TeamId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&team);
    }
}

impl Access {
    /// Reads a team's settings again at their next use.
    pub(crate) fn forget_cached_settings(&self, team: TeamId) {
        self.settings_cache.invalidate(team);
    }

    /// A team's settings.
    pub(crate) async fn settings_of(&self, team: TeamId) -> Result<Arc<TeamSettings>, StoreError> {
        let boot_ms = self.ctx.time.boot_clock_ms();
        let since = if self.ctx.is_single_node { i64::MIN } else { boot_ms - MULTI_NODE_TTL_MS };
        if let Some(settings) = self.settings_cache.get(team, since) {
            return Ok(settings);
        }
        let record = self.ctx.store.record_by_name(team, RecordKind::Settings, TEAM_SETTINGS).await?;
        let settings = match record.map(|record| serde_json::from_str(&record.json)) {
            None => TeamSettings::default(),
            Some(Ok(settings)) => settings,
            Some(Err(error)) => return Err(StoreError::Corrupt(format!("the settings of team {team}: {error}"))),
        };
        let settings = Arc::new(settings);
        self.settings_cache.put(team, Arc::clone(&settings), boot_ms);
        Ok(settings)
    }

    /// What the installation does with emails without a key through dialects, for teams without a setting.
    pub fn compat_defaults(&self) -> CompatSettings {
        self.ctx.deps.compat
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
        let emails = patch.approval_emails.as_ref().and_then(Option::as_ref);
        if let Some(from) = emails.and_then(|emails| emails.from.as_ref()) {
            let from = NamedAddress::parse(from);
            let from = from.map_err(|error| Problem::invalid_field("approval_emails.from", error.to_string()))?;
            self.check_approval_sender(&from.to_address()).await?;
        }
        let has_tags = patch.unsubscribe_tags.as_ref().is_some_and(|tags| !tags.is_empty());
        if has_tags && self.ctx.deps.public_url.is_none() {
            let message = "needs a URL that recipients can reach: an operator sets `http.public_url` first";
            return Err(Problem::invalid_field("unsubscribe.tags", message));
        }
        let (team, kind) = (caller.team.id, RecordKind::Settings);
        for _ in 0..MAX_CONFLICT_RETRIES {
            let found = self.ctx.store.record_by_name(team, kind, TEAM_SETTINGS).await.map_err(unavailable)?;
            let old = found.as_ref().map_or_else(|| Ok(TeamSettings::default()), records::decode)?;
            let json = records::encode(&patch.clone().apply_to(old))?;
            let now = self.ctx.now();
            let done = if let Some(record) = found {
                let changed = self.ctx.store.change_record(record.edit(json), None, now).await.map_err(unavailable)?;
                matches!(changed, IdempotentResult::Done(RecordChangeResult::Changed(_)))
            } else {
                let (id, name) = (self.ctx.new_id(now), TEAM_SETTINGS.to_owned());
                let record = Record { team, kind, id, name, rev: 1, created_at: now, json };
                let created = self.ctx.store.create_record(record, None).await.map_err(unavailable)?;
                matches!(created, IdempotentResult::Done(CreateRecordResult::Created(_)))
            };
            self.settings_cache.invalidate(team);
            if done {
                break;
            }
        }
        self.settings_of(team).await.map_err(unavailable)
    }
}
