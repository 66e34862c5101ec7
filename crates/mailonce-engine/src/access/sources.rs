//! Sources of provider events and mail: which provider sends them, for which transport, and how it authenticates.
//!
//! Credentials are sealed and never shown again. Two can be live at a time, so that one replaces the other without a
//! gap.

use crate::{
    access::{
        Sources,
        caller::Caller,
        collection_config::{CollectionConfig, StoredCollectionConfig, api_key_location},
        source_credentials::{rotate, to_secrets},
    },
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::{self, CreateOutcome, CursorPage},
        vault::SecretLocation,
    },
};
use mailonce_core::{
    access::team::ApiKeyScope,
    id::{SourceId, TeamId},
    inbound::provider_mail::ProviderAccount,
    operation::IdempotentResult,
    problem::{Code, Problem},
    record::{CreateRecordResult, Record, RecordChangeResult, RecordKind},
    time::Time,
};
use mailonce_mail::hooks::{HookSecrets, Kind};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How often a rotation is retried after a conflict.
const MAX_CONFLICT_RETRIES: usize = 3;

pub use crate::access::source_credentials::SourceCredential;

/// A source of provider events and mail.
#[derive(Clone, Debug)]
pub struct SourceView {
    /// Its id, which is also the last part of its URL.
    pub id: SourceId,
    /// Its name.
    pub name: String,
    /// Its rev.
    pub rev: u32,
    /// When it was added.
    pub created_at: Time,
    /// The provider.
    pub kind: &'static str,
    /// The transport whose events it reports.
    pub transport: Option<String>,
    /// What it may deliver.
    pub scope: SourceScope,
    /// How many credentials, or topics, are live.
    pub live_credentials: usize,
    /// When the last one was added.
    pub rotated_at: Option<Time>,
    /// Whether mail that it only announces can be fetched.
    pub can_fetch: bool,
    /// The URL to fetch from, when it isn't the provider's default.
    pub base_url: Option<String>,
    /// How often the provider's mail is listed, in milliseconds.
    pub poll_ms: Option<i64>,
    /// The status of this polling.
    pub poll_status: PollStatus,
}

/// The status of a source's polling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollStatus {
    /// When the last round ended.
    pub at: Option<Time>,
    /// The error since then, if any.
    pub error: Option<String>,
}

/// What a source may deliver. At least one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceScope {
    /// Events about emails that we sent.
    pub events: bool,
    /// Received mail.
    pub inbound: bool,
}

impl SourceScope {
    /// The default for records from before sources could deliver mail.
    fn events() -> Self {
        Self { events: true, inbound: false }
    }

    /// The default for a provider: events if it has them, otherwise mail.
    fn default_for(kind: Kind) -> Self {
        Self { events: kind.sends_events(), inbound: !kind.sends_events() }
    }

    /// The names of what it delivers.
    pub fn names(self) -> Vec<&'static str> {
        [(self.events, "events"), (self.inbound, "inbound")]
            .into_iter()
            .filter_map(|(is, word)| is.then_some(word))
            .collect()
    }

    /// Parses the names.
    pub fn parse(names: &[String]) -> Result<Self, Problem> {
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        let scope = Self { events: has("events"), inbound: has("inbound") };
        if names.is_empty() || scope.names().len() != names.len() {
            return Err(Problem::invalid_field("accepts", "must be a list of `events`, `inbound` or both"));
        }
        Ok(scope)
    }

    /// Checks that a provider can deliver this, with this credential.
    fn check(self, kind: Kind, credential: &SourceCredential) -> Result<(), Problem> {
        if self.events && !kind.sends_events() {
            return Err(Problem::invalid_field("accepts", format!("must not contain `events`: {kind} sends none")));
        }
        if self.inbound && !kind.delivers_mail() {
            return Err(Problem::invalid_field(
                "accepts",
                format!("must not contain `inbound`: {kind} delivers no mail"),
            ));
        }
        if self.events && kind == Kind::Sendgrid && !matches!(credential, SourceCredential::Key(_)) {
            return Err(Problem::invalid_field(
                "secret",
                "is required: sendgrid signs its events. Other credentials are allowed for its mail only.",
            ));
        }
        Ok(())
    }
}

/// A source to create.
#[derive(Clone, Debug)]
pub struct NewSource {
    /// Its name.
    pub name: String,
    /// The provider's name.
    pub kind: String,
    /// The transport whose events it reports. Required only for events.
    pub transport: Option<String>,
    /// What it may deliver; the provider's default when `None`.
    pub scope: Option<SourceScope>,
    /// How it authenticates.
    pub credential: SourceCredential,
    /// How mail is fetched from its provider.
    pub collection: CollectionConfig,
}

/// A change of a source's credentials.
#[derive(Clone, Debug)]
pub struct SourceRotation {
    /// The new credential; `None` keeps the current ones.
    pub credential: Option<SourceCredential>,
    /// Whether the previous credential stays live.
    pub keep: bool,
    /// How mail is fetched. Missing values stay unchanged.
    pub collection: CollectionConfig,
}

/// The stored form of a source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SourceDetails {
    pub(crate) kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transport: Option<String>,
    #[serde(default = "SourceScope::events")]
    accepts: SourceScope,
    /// The credentials, newest first, as sealed JSON.
    sealed: String,
    live: usize,
    #[serde(default)]
    rotated_at: Option<Time>,
    /// How mail is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) collecting: Option<StoredCollectionConfig>,
}

impl SourceDetails {
    /// The polling interval, if it polls.
    pub(crate) fn poll_ms(&self) -> Option<i64> {
        self.collecting.as_ref().and_then(|collecting| collecting.poll_ms).filter(|_| self.accepts.inbound)
    }

    /// Whether it polls.
    pub(crate) fn is_polled(&self) -> bool {
        self.poll_ms().is_some()
    }
}

/// The source that announced a mail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceRef {
    pub(crate) id: SourceId,
    pub(crate) team: TeamId,
    pub(crate) kind: Kind,
}

impl LiveSource {
    pub(crate) fn source_ref(&self) -> SourceRef {
        SourceRef { id: self.id, team: self.team, kind: self.kind }
    }
}

/// A source with its opened credentials, as webhooks use it.
pub(crate) struct LiveSource {
    pub(crate) id: SourceId,
    pub(crate) team: TeamId,
    pub(crate) kind: Kind,
    pub(crate) transport: Option<String>,
    pub(crate) scope: SourceScope,
    pub(crate) secrets: HookSecrets,
}

fn secret_location(team: TeamId, record: Uuid) -> SecretLocation {
    SecretLocation { team, record, purpose: "source" }
}

fn view(record: &Record) -> Result<SourceView, Problem> {
    let details: SourceDetails = records::decode(record)?;
    let poll_ms = details.poll_ms();
    Ok(SourceView {
        id: SourceId(record.id),
        name: record.name.clone(),
        rev: record.rev,
        created_at: record.created_at,
        kind: details.kind.as_str(),
        transport: details.transport,
        scope: details.accepts,
        live_credentials: details.live,
        rotated_at: details.rotated_at,
        poll_ms,
        can_fetch: details.collecting.is_some(),
        base_url: details.collecting.and_then(|collecting| collecting.base_url),
        poll_status: PollStatus::default(),
    })
}

impl Sources {
    /// Adds a source. Its name must be free.
    pub async fn create_source(
        &self,
        caller: &Caller,
        new: NewSource,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<SourceView>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let (team, now) = (caller.team.id, self.ctx.now());
        let id = self.ctx.new_id(now);
        // A repeat is answered even if the transport has been removed since.
        let is_repeat = self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await?;
        let kind = Kind::parse(&new.kind).ok_or_else(|| {
            let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
            Problem::invalid_field("kind", format!("must be one of {}", known.join(", ")))
        })?;
        let scope = new.scope.unwrap_or_else(|| SourceScope::default_for(kind));
        scope.check(kind, &new.credential)?;
        if !is_repeat {
            self.check_transport(scope, new.transport.as_deref())?;
        }
        let mut details = self.seal_source(team, id, kind, &[new.credential])?;
        details.accepts = scope;
        details.transport = new.transport;
        details.collecting = self.seal_collection_config(team, id, kind, &new.collection)?;
        if details.collecting.is_some() && !scope.inbound {
            return Err(Problem::invalid_field("api_key", "is not allowed: this source does not accept inbound mail"));
        }
        let json = records::encode(&details)?;
        let name = new.name.clone();
        let record = Record { team, kind: RecordKind::Source, id, name: new.name, rev: 1, created_at: now, json };
        let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
        match self.ctx.store.create_record(record, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(CreateRecordResult::Created(record)) => {
                self.on_collection_changed(SourceId(record.id));
                Ok(CreateOutcome { value: view(&record)?, is_new: true })
            }
            IdempotentResult::Done(CreateRecordResult::NameTaken(record)) => {
                let detail =
                    format!("a source named {} already exists; rotate its secret or use another name", record.name);
                Err(Problem::for_field(Code::NameTaken, "name", detail).with_extension("id", record.id.to_string()))
            }
            IdempotentResult::Replayed(_) => {
                let found =
                    self.ctx.store.record_by_name(team, RecordKind::Source, &name).await.map_err(unavailable)?;
                let found = found.ok_or_else(|| records::not_found(RecordKind::Source, &name))?;
                Ok(CreateOutcome { value: view(&found)?, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// Events apply to the handoffs of one transport, so they need one. Mail needs none.
    fn check_transport(&self, scope: SourceScope, transport: Option<&str>) -> Result<(), Problem> {
        let names = self.ctx.transports.selectable_names();
        match transport {
            None if scope.events => {
                return Err(Problem::invalid_field(
                    "transport",
                    "is required for events, because they belong to one transport",
                ));
            }
            None => return Ok(()),
            Some(transport) if names.contains(&transport) => return Ok(()),
            Some(_) => {}
        }
        Err(Problem::invalid_field("transport", format!("must be a configured transport: {}", names.join(", "))))
    }

    /// Checks and seals the credentials of a source.
    fn seal_source(
        &self,
        team: TeamId,
        id: Uuid,
        kind: Kind,
        credentials: &[SourceCredential],
    ) -> Result<SourceDetails, Problem> {
        to_secrets(kind, credentials).map_err(|bad| Problem::invalid_field("secret", bad.to_string()))?;
        let broken = || Problem::new(Code::Internal, "the secrets could not be encrypted");
        let json = serde_json::to_vec(credentials).map_err(|_error| broken())?;
        let sealed = self.ctx.seal_secret(secret_location(team, id), &json).ok_or_else(broken)?;
        let live = match credentials {
            [SourceCredential::Topics { topics, .. }] => topics.len(),
            _ => credentials.len(),
        };
        let scope = SourceScope::default_for(kind);
        Ok(SourceDetails { kind, transport: None, accepts: scope, sealed, live, rotated_at: None, collecting: None })
    }

    fn open_credentials(&self, record: &Record, details: &SourceDetails) -> Result<Vec<SourceCredential>, Problem> {
        let opened = self.ctx.open_secret(secret_location(record.team, record.id), &details.sealed);
        let credentials = opened.and_then(|json| serde_json::from_slice(&json).ok());
        credentials.ok_or_else(|| {
            tracing::error!(source = %record.id, "the secrets of a source cannot be decrypted");
            Problem::new(
                Code::Unavailable,
                "the secrets of this source cannot be decrypted; ask an operator to check the server's log",
            )
        })
    }

    /// Gives a source a new credential, a new configuration for fetching mail, or both. The previous credential stays
    /// live unless the rotation drops it.
    pub async fn rotate_source(
        &self,
        caller: &Caller,
        id: SourceId,
        rotation: SourceRotation,
        keyed_call: Option<KeyedCall>,
    ) -> Result<SourceView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let mut record = self.ctx.team_record(caller, RecordKind::Source, id.0).await?;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let now = self.ctx.now();
            let details = self.rotate_stored_source(&record, &rotation, now)?;
            let edit = record.edit(records::encode(&details)?);
            let operation = operation(caller, keyed_call.as_ref(), Vec::new(), now);
            match self.ctx.store.change_record(edit, operation, now).await.map_err(unavailable)? {
                IdempotentResult::Done(RecordChangeResult::Changed(changed)) => {
                    self.on_collection_changed(id);
                    return self.view_with_poll_status(&changed).await;
                }
                IdempotentResult::Done(RecordChangeResult::Stale(now)) => record = now,
                IdempotentResult::Done(RecordChangeResult::Missing) => {
                    return Err(records::not_found(RecordKind::Source, &id.to_string()));
                }
                IdempotentResult::Replayed(_) => return self.source(caller, id).await,
                IdempotentResult::KeyMismatch(bound) => return Err(key_mismatch(&bound)),
            }
        }
        Err(Problem::new(Code::StaleRev, format!("the source {} keeps changing; try again", record.name)))
    }

    /// The stored form of a source after a rotation.
    fn rotate_stored_source(
        &self,
        record: &Record,
        rotation: &SourceRotation,
        now: Time,
    ) -> Result<SourceDetails, Problem> {
        let mut details: SourceDetails = records::decode(record)?;
        if let Some(credential) = &rotation.credential {
            let credentials = rotate(self.open_credentials(record, &details)?, credential.clone(), rotation.keep);
            details.accepts.check(details.kind, credential)?;
            let SourceDetails { sealed, live, .. } =
                self.seal_source(record.team, record.id, details.kind, &credentials)?;
            details = SourceDetails { sealed, live, rotated_at: Some(now), ..details };
        }
        if rotation.collection != CollectionConfig::default() {
            if !details.accepts.inbound {
                return Err(Problem::invalid_field(
                    "api_key",
                    "is not allowed: this source does not accept inbound mail",
                ));
            }
            let CollectionConfig { api_key, base_url, poll_ms } = rotation.collection.clone();
            let before = details.collecting.as_ref();
            // An API key is sent only to the URL that it was given for.
            let kept = before.filter(|_| base_url.is_none()).and_then(|_| self.provider_account(record, &details).ok());
            let merged = CollectionConfig {
                api_key: api_key.or_else(|| kept.map(|account| account.api_key)),
                base_url: base_url.or_else(|| before.and_then(|before| before.base_url.clone())),
                poll_ms: poll_ms.or_else(|| before.and_then(|before| before.poll_ms)),
            };
            details.collecting = self.seal_collection_config(record.team, record.id, details.kind, &merged)?;
        }
        Ok(details)
    }

    /// A source with the status of its polling.
    async fn view_with_poll_status(&self, record: &Record) -> Result<SourceView, Problem> {
        let mut source = view(record)?;
        if source.poll_ms.is_some() {
            source.poll_status = self.poll_status(record.team, source.id).await.map_err(unavailable)?;
        }
        Ok(source)
    }

    /// The team's sources, newest first.
    pub async fn sources(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<CursorPage<SourceView>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let mut page = self.ctx.team_records(caller, RecordKind::Source, before, limit, view).await?;
        for source in page.rows.iter_mut().filter(|source| source.poll_ms.is_some()) {
            source.poll_status = self.poll_status(caller.team.id, source.id).await.map_err(unavailable)?;
        }
        Ok(page)
    }

    /// One source.
    pub async fn source(&self, caller: &Caller, id: SourceId) -> Result<SourceView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        self.view_with_poll_status(&self.ctx.team_record(caller, RecordKind::Source, id.0).await?).await
    }

    /// Removes a source. Later requests to its URL get `not_found`.
    pub async fn remove_source(&self, caller: &Caller, id: SourceId) -> Result<SourceView, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        caller.require_unrestricted_key()?;
        let removed =
            self.ctx.store.remove_record(caller.team.id, RecordKind::Source, id.0).await.map_err(unavailable)?;
        let removed = removed.ok_or_else(|| records::not_found(RecordKind::Source, &id.to_string()))?;
        self.remove_poll_cursor(caller.team.id, id).await.map_err(unavailable)?;
        view(&removed)
    }

    /// The source behind a URL.
    pub(crate) async fn live_source(&self, id: SourceId) -> Result<LiveSource, Problem> {
        let found = self.ctx.store.record_of_any_team(RecordKind::Source, id.0).await.map_err(unavailable)?;
        let record = found.ok_or_else(|| records::not_found(RecordKind::Source, &id.to_string()))?;
        let details: SourceDetails = records::decode(&record)?;
        let credentials = self.open_credentials(&record, &details)?;
        let secrets = to_secrets(details.kind, &credentials)
            .map_err(|bad| Problem::new(Code::Unavailable, format!("this source cannot be used: {bad}")))?;
        let SourceDetails { kind, transport, accepts, .. } = details;
        Ok(LiveSource { id, team: record.team, kind, transport, scope: accepts, secrets })
    }
}

impl Sources {
    /// Wakes the fetches that wait for a source, because its credential or configuration changed.
    pub(crate) fn on_collection_changed(&self, source: SourceId) {
        self.ctx.inbound.fetch_limiter.clear_backoff(source);
        self.ctx.inbound.fetch_limiter.sources_changed.notify_one();
    }
}

impl Sources {
    /// The provider account from which a source's mail is fetched. The error is shown to people.
    pub(crate) fn provider_account(&self, record: &Record, details: &SourceDetails) -> Result<ProviderAccount, String> {
        let config = details.collecting.as_ref();
        let config = config
            .ok_or("the source has no api_key to fetch mail with: rotate the source with an api_key, then replay")?;
        let opened = self.ctx.open_secret(api_key_location(record.team, record.id), &config.sealed);
        let api_key = opened.and_then(|bytes| String::from_utf8(bytes).ok());
        let api_key = api_key.ok_or("the api_key of the source cannot be decrypted")?;
        Ok(ProviderAccount { provider: details.kind.as_str(), api_key, base_url: config.base_url.clone() })
    }
}
