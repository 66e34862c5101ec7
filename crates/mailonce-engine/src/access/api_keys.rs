//! API keys: authentication, rate limits, and the creation of keys and teams.

use crate::{
    access::{
        Access,
        active_keys::invalid_api_key,
        caller::{Caller, InboxRestriction},
        sessions::check_session,
    },
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        records::CreateOutcome,
    },
};
use mailonce_core::{
    access::{
        person::PersonalAccessKind,
        team::{ApiKey, ApiKeyDetails, CreateTeamResult, Team},
    },
    address::Address,
    cidr::Cidr,
    id::{ApiKeyId, InboxId, TeamId},
    key::InstallSecret,
    limits,
    operation::IdempotentResult,
    outbound::email::Channel,
    problem::{Code, Problem},
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering},
    },
};
use subtle::ConstantTimeEq as _;

/// How long a cached API key is valid, with and without other nodes that may revoke it.
const MULTI_NODE_TTL_MS: i64 = 2_000;
const SINGLE_NODE_TTL_MS: i64 = 60_000;
/// The same for the credentials of people: a sign-out or a new role counts everywhere within a second.
const PERSONAL_TTL_MS: i64 = 500;
/// API keys in the cache.
const CACHE_CAPACITY: usize = 10_000;

/// An API key as it was last read.
pub(super) struct CachedCredential {
    key: Arc<ApiKey>,
    team: Arc<Team>,
    inbox_restriction: Option<Arc<InboxRestriction>>,
    read_at: Time,
    used_at: AtomicI64,
}

/// API keys in memory, and the rate limits of those that have one.
pub(crate) struct CredentialCache {
    entries: RwLock<HashMap<[u8; 32], Arc<CachedCredential>>>,
    buckets: Mutex<HashMap<ApiKeyId, KeyRateBucket>>,
    unwritten_uses: Mutex<HashMap<ApiKeyId, Time>>,
    ttl_ms: i64,
}

/// A token bucket that holds up to one second's worth of calls.
struct KeyRateBucket {
    tokens: f64,
    refilled_at: Time,
}

impl CredentialCache {
    pub(crate) fn new(is_single_node: bool) -> Self {
        let ttl_ms = if is_single_node { SINGLE_NODE_TTL_MS } else { MULTI_NODE_TTL_MS };
        Self { entries: RwLock::default(), buckets: Mutex::default(), unwritten_uses: Mutex::default(), ttl_ms }
    }

    pub(super) fn get(&self, hash: &[u8; 32], now: Time) -> Option<Arc<CachedCredential>> {
        let known = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |known: &&Arc<CachedCredential>| {
            let is_personal = known.key.details.on_behalf_of.is_some();
            now.since(known.read_at) < if is_personal { self.ttl_ms.min(PERSONAL_TTL_MS) } else { self.ttl_ms }
        };
        known.get(hash).filter(is_fresh).cloned()
    }

    pub(super) fn put(
        &self,
        hash: [u8; 32],
        (key, team): (ApiKey, Team),
        restriction: Option<InboxRestriction>,
        now: Time,
    ) -> Arc<CachedCredential> {
        let used_at = AtomicI64::new(key.last_used_at.unwrap_or_default().0);
        let (key, team, restriction) = (Arc::new(key), Arc::new(team), restriction.map(Arc::new));
        let entry = Arc::new(CachedCredential { key, team, inbox_restriction: restriction, read_at: now, used_at });
        let mut known = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CACHE_CAPACITY {
            known.clear();
        }
        known.insert(hash, Arc::clone(&entry));
        entry
    }

    /// Forgets the keys. Their uses are still written.
    pub(crate) fn clear(&self) {
        let used = self.recently_used();
        self.unwritten_uses.lock().unwrap_or_else(PoisonError::into_inner).extend(used);
        self.entries.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Takes the uses of forgotten keys that were not written.
    fn take_unwritten_uses(&self) -> Vec<(ApiKeyId, Time)> {
        std::mem::take(&mut *self.unwritten_uses.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }

    /// API keys that were used since their last use was written, to the minute.
    pub(crate) fn recently_used(&self) -> Vec<(ApiKeyId, Time)> {
        let known = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let used = |entry: &Arc<CachedCredential>| {
            let at = Time(entry.used_at.load(Ordering::Relaxed));
            (entry.key.last_used_at < Some(at) && at.0 > 0).then_some((entry.key.id, at))
        };
        known.values().filter_map(used).collect()
    }

    /// Takes a token from the key's rate limit. The error is the wait in milliseconds.
    fn take_token(&self, key: &ApiKey, now: Time) -> Result<(), i64> {
        let Some(rate) = key.details.rate_per_s.map(f64::from) else { return Ok(()) };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(key.id).or_insert(KeyRateBucket { tokens: rate, refilled_at: now });
        bucket.tokens =
            (bucket.tokens + now.since(bucket.refilled_at).max(0) as f64 / 1000.0 * rate).min(rate.max(1.0));
        bucket.refilled_at = now;
        if bucket.tokens < 1.0 {
            return Err(((1.0 - bucket.tokens) / rate * 1000.0).ceil() as i64);
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

/// A new API key with its secret, which is shown only once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewApiKey {
    /// Its id.
    pub id: ApiKeyId,
    /// Its team.
    pub team: TeamId,
    /// The secret.
    pub secret: String,
    /// When it was created.
    pub created_at: Time,
}

/// Whether a key with these inboxes can access no more than one that is restricted to `own`. An empty list means every
/// inbox.
fn is_inbox_subset(own: &[String], inboxes: &[String]) -> bool {
    own.is_empty() || (!inboxes.is_empty() && inboxes.iter().all(|inbox| own.contains(inbox)))
}

/// A restricted key can create only keys with at least the same restrictions.
fn check_restrictions(key: &ApiKey, details: &ApiKeyDetails) -> Result<(), Problem> {
    let senders_ok = details.senders.iter().all(|rule| key.may_send_from(rule)) && !details.senders.is_empty();
    if !key.details.senders.is_empty() && !senders_ok {
        return Err(Problem::for_field(
            Code::SenderNotAllowed,
            "allowed_senders",
            "allowed_senders must be a subset of the addresses that this API key may send from",
        ));
    }
    // A person's keys outlive the session in which they were made.
    let expires_at = key.details.expires_at.filter(|_| key.details.on_behalf_of.is_none());
    let expiry_ok = expires_at.is_none_or(|own| details.expires_at.is_some_and(|new| new <= own));
    let rate_ok = key.details.rate_per_s.is_none_or(|own| details.rate_per_s.is_some_and(|new| new <= own));
    let inside = |block: &Cidr| key.details.allow_ips.iter().any(|own| own.contains_block(block));
    let ips_ok =
        key.details.allow_ips.is_empty() || (!details.allow_ips.is_empty() && details.allow_ips.iter().all(inside));
    if !is_inbox_subset(&key.details.inboxes, &details.inboxes) || !expiry_ok || !rate_ok || !ips_ok {
        let detail = "the new key would be less restricted than this one: its inboxes, expires_at, rate_per_s and \
                      allow_ips must be within those of this key";
        return Err(Problem::new(Code::WrongScope, detail));
    }
    Ok(())
}

/// Refuses an empty name.
pub(super) fn check_name(name: &str) -> Result<(), Problem> {
    if name.trim().is_empty() {
        return Err(Problem::invalid_field("name", "must not be empty"));
    }
    Ok(())
}

/// The normalized form of an inbox in a restriction: its id or its address.
fn normalize_inbox(inbox: &str) -> Option<String> {
    let id = inbox.parse().map(|id: InboxId| id.to_string());
    id.ok().or_else(|| Address::parse(inbox).ok().map(|address| address.as_str().to_owned()))
}

/// Refuses a key that could never be used.
fn check_usable(details: &ApiKeyDetails, now: Time) -> Result<(), Problem> {
    check_name(&details.name)?;
    if details.scopes.is_empty() {
        return Err(Problem::invalid_field("scopes", "must have at least one scope"));
    }
    if details.expires_at.is_some_and(|at| at <= now) {
        return Err(Problem::invalid_field("expires_at", "must be in the future"));
    }
    if details.inboxes.iter().any(|inbox| normalize_inbox(inbox).is_none()) {
        return Err(Problem::invalid_field("inboxes", "must be ids or addresses of inboxes"));
    }
    Ok(())
}

/// Normalizes a key: each scope once, inboxes in the form that is compared.
fn normalize(mut details: ApiKeyDetails) -> ApiKeyDetails {
    let mut scopes = Vec::new();
    for scope in details.scopes {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    details.scopes = scopes;
    details.inboxes = details.inboxes.into_iter().map(|inbox| normalize_inbox(&inbox).unwrap_or(inbox)).collect();
    details
}

/// What a credential is. Each kind has a hash of its own, so that none can be used as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// An API key of a program.
    ApiKey,
    /// The session of a person in a browser.
    Session,
    /// An access token of a client that a person connected.
    AccessToken,
}

/// The keyed hash under which a credential is stored.
pub(super) fn credential_hash(secret: &InstallSecret, kind: CredentialKind, credential: &str) -> [u8; 32] {
    let label = match kind {
        CredentialKind::ApiKey => "api-key",
        CredentialKind::Session => "session",
        CredentialKind::AccessToken => "access-token",
    };
    secret.mac(label, &[credential.as_bytes()])
}

/// Only a caller with the right secret learns that its key expired, so this doesn't help guessing.
fn key_expired_problem(key: &ApiKey) -> Problem {
    let expired_at = key.details.expires_at.map(|at| at.to_string()).unwrap_or_default();
    let what = match &key.details.on_behalf_of {
        Some(access) if access.kind == PersonalAccessKind::Connection => "access token",
        _ => "API key",
    };
    Problem::new(Code::KeyExpired, format!("the {what} {} expired at {expired_at}", key.details.hint))
        .with_extension("expires_at", expired_at)
}

impl Access {
    /// Authenticates a caller. Unknown and revoked keys get the same answer.
    pub async fn authenticate(&self, credential: &str, channel: Channel) -> Result<Caller, Problem> {
        self.authenticate_as(CredentialKind::ApiKey, credential, channel).await
    }

    /// Authenticates the session of a person.
    pub async fn authenticate_session(&self, secret: &str) -> Result<Caller, Problem> {
        self.authenticate_as(CredentialKind::Session, secret, Channel::Http).await
    }

    async fn authenticate_as(
        &self,
        kind: CredentialKind,
        credential: &str,
        channel: Channel,
    ) -> Result<Caller, Problem> {
        let now = self.ctx.now();
        let hash = credential_hash(&self.ctx.secret, kind, credential);
        let known = if let Some(known) = self.credentials.get(&hash, now) {
            known
        } else {
            let found = self.ctx.store.api_key_by_hash(hash).await.map_err(unavailable)?;
            let (mut key, team) = found.ok_or_else(invalid_api_key)?;
            self.apply_role(&mut key, now).await?;
            let restriction = self.inbox_restriction_of(&key).await.map_err(unavailable)?;
            self.credentials.put(hash, (key, team), restriction, now)
        };
        let same: bool = known.key.hash.ct_eq(&hash).into();
        if !same {
            return Err(invalid_api_key());
        }
        self.caller_of(&known, channel, now)
    }

    /// The caller of a credential that was found, unless it was revoked, has expired, or calls too often.
    pub(super) fn caller_of(&self, known: &CachedCredential, channel: Channel, now: Time) -> Result<Caller, Problem> {
        if known.key.revoked_at.is_some() {
            return Err(invalid_api_key());
        }
        if !known.key.is_active(now) {
            return Err(key_expired_problem(&known.key));
        }
        // Rounded down to the minute, but never before the key's creation.
        let minute = (now.0 - now.0 % 60_000).max(known.key.created_at.0);
        known.used_at.store(minute, Ordering::Relaxed);
        if let Err(wait_ms) = self.credentials.take_token(&known.key, now) {
            let seconds = (wait_ms + 999) / 1000;
            return Err(Problem::new(Code::RateLimited, format!("try again in {seconds} s"))
                .with_extension("retry_after", seconds));
        }
        let (key, team, restriction) =
            (Arc::clone(&known.key), Arc::clone(&known.team), known.inbox_restriction.clone());
        Ok(Caller { key, team, channel, call: None, inbox_restriction: restriction })
    }

    /// Gives the credential of a person the scopes of the person's role, if it is still valid.
    pub(super) async fn apply_role(&self, key: &mut ApiKey, now: Time) -> Result<(), Problem> {
        let Some(access) = &key.details.on_behalf_of else { return Ok(()) };
        let view = self.person_of(key.team, access.person).await?;
        let person = view.as_ref().map(|view| &view.person);
        key.details.scopes = match access.kind {
            PersonalAccessKind::Session => check_session(key, person, key.last_used_at.unwrap_or(key.created_at), now)?,
            PersonalAccessKind::Connection => self.check_connection(key, person).await?,
        };
        Ok(())
    }

    /// Whether the credential with this hash is valid now.
    pub(super) async fn is_credential_valid(&self, hash: [u8; 32]) -> Result<bool, Problem> {
        let now = self.ctx.now();
        let Some((mut key, _)) = self.ctx.store.api_key_by_hash(hash).await.map_err(unavailable)? else {
            return Ok(false);
        };
        match self.apply_role(&mut key, now).await {
            Ok(()) => Ok(key.is_active(now)),
            Err(problem) if problem.code == Code::SessionEnded => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// Whether this process has found the credential valid before. It may have been revoked since.
    pub fn is_credential_cached(&self, kind: CredentialKind, credential: &str) -> bool {
        let hash = credential_hash(&self.ctx.secret, kind, credential);
        self.credentials.entries.read().unwrap_or_else(PoisonError::into_inner).contains_key(&hash)
    }

    /// A new secret: `mo_` and 43 random characters, about 256 bits.
    pub fn new_secret(&self) -> String {
        format!("mo_{}", self.random_letters())
    }

    /// 43 random letters and digits.
    pub(super) fn random_letters(&self) -> String {
        const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        (0..43).map(|_| char::from(LETTERS[(self.ctx.entropy.next_u64() % 62) as usize])).collect()
    }

    /// Builds an API key to store. Only the hash and the first characters of its secret are kept.
    fn build_api_key(&self, team: TeamId, mut details: ApiKeyDetails, secret: &str, now: Time) -> ApiKey {
        details.hint = secret.chars().take(7).collect();
        ApiKey {
            id: ApiKeyId(self.ctx.new_id(now)),
            team,
            hash: credential_hash(&self.ctx.secret, CredentialKind::ApiKey, secret),
            details,
            created_at: now,
            revoked_at: None,
            last_used_at: None,
        }
    }

    /// Creates an API key in the caller's team. The same idempotency key again returns the same secret.
    pub async fn create_api_key(
        &self,
        caller: &Caller,
        details: ApiKeyDetails,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<NewApiKey>, Problem> {
        let now = self.ctx.now();
        // A repeat returns the first key, even if it has expired meanwhile.
        if !self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await? {
            check_usable(&details, now)?;
        }
        let details = normalize(details);
        // A key can't grant scopes that it doesn't have.
        details.scopes.iter().try_for_each(|scope| caller.require_scope(*scope))?;
        check_restrictions(&caller.key, &details)?;
        let secret = self.new_secret();
        let key = self.build_api_key(caller.team.id, details, &secret, now);
        let new = NewApiKey { id: key.id, team: key.team, secret, created_at: now };
        let operation = operation(caller, keyed_call.as_ref(), self.ctx.seal_answer(keyed_call.as_ref(), &new), now);
        let answer = self.ctx.store.create_api_key(key, operation).await.map_err(unavailable)?;
        self.created_or_replayed(answer, keyed_call.as_ref(), new)
    }

    /// Creates a team with its first API key. The same idempotency key again returns the same ones.
    pub async fn create_team(
        &self,
        caller: &Caller,
        name: &str,
        details: ApiKeyDetails,
        keyed_call: Option<KeyedCall>,
    ) -> Result<CreateOutcome<NewApiKey>, Problem> {
        let now = self.ctx.now();
        if !self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await? {
            check_name(name)?;
        }
        let (team, key, new) = self.build_team_with_key(name, details, self.new_secret(), now);
        let operation = operation(caller, keyed_call.as_ref(), self.ctx.seal_answer(keyed_call.as_ref(), &new), now);
        match self.ctx.store.create_team(team, key, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(CreateTeamResult::NameTaken) => Err(team_exists(name)),
            answer => self.created_or_replayed(answer.map(|_made| ()), keyed_call.as_ref(), new),
        }
    }

    /// Creates a team with its first API key. For the command line, which opens the ledger directly.
    pub async fn create_team_directly(&self, name: &str, details: ApiKeyDetails) -> Result<NewApiKey, Problem> {
        check_name(name)?;
        let created = self.try_create_team(name, details, self.new_secret()).await?;
        created.ok_or_else(|| team_exists(name))
    }

    /// Creates a team with its first API key; `None` when the name is taken.
    async fn try_create_team(
        &self,
        name: &str,
        details: ApiKeyDetails,
        secret: String,
    ) -> Result<Option<NewApiKey>, Problem> {
        let (team, key, new) = self.build_team_with_key(name, details, secret, self.ctx.now());
        match self.ctx.store.create_team(team, key, None).await.map_err(unavailable)? {
            IdempotentResult::Done(CreateTeamResult::NameTaken) => Ok(None),
            answer => Ok(Some(self.created_or_replayed(answer.map(|_made| ()), None, new)?.value)),
        }
    }

    fn build_team_with_key(
        &self,
        name: &str,
        details: ApiKeyDetails,
        secret: String,
        now: Time,
    ) -> (Team, ApiKey, NewApiKey) {
        let team =
            Team { id: TeamId(self.ctx.new_id(now)), name: name.to_owned(), created_at: now, require_keys: false };
        let key = self.build_api_key(team.id, details, &secret, now);
        let new = NewApiKey { id: key.id, team: team.id, secret, created_at: now };
        (team, key, new)
    }

    fn created_or_replayed(
        &self,
        answer: IdempotentResult<()>,
        keyed_call: Option<&KeyedCall>,
        new: NewApiKey,
    ) -> Result<CreateOutcome<NewApiKey>, Problem> {
        match answer {
            IdempotentResult::Done(()) => Ok(CreateOutcome { value: new, is_new: true }),
            IdempotentResult::Replayed(sealed) => {
                Ok(CreateOutcome { value: self.ctx.open_answer(keyed_call, &sealed)?, is_new: false })
            }
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    /// The API keys of the caller's team, newest first.
    pub async fn api_keys(&self, caller: &Caller) -> Result<Vec<ApiKey>, Problem> {
        let mut keys = self.ctx.store.api_keys(caller.team.id).await.map_err(unavailable)?;
        let is_visible = |key: &ApiKey| is_inbox_subset(&caller.key.details.inboxes, &key.details.inboxes);
        keys.retain(|key| key.details.on_behalf_of.is_none() && is_visible(key));
        self.apply_new_names(caller.team.id, &mut keys).await?;
        Ok(keys)
    }

    /// Revokes an API key. Other nodes may accept it for two more seconds; open streams and waits end within one.
    pub async fn revoke_api_key(&self, caller: &Caller, id: ApiKeyId) -> Result<ApiKey, Problem> {
        let missing = || Problem::new(Code::NotFound, format!("there is no API key {id}"));
        if !self.api_keys(caller).await?.iter().any(|key| key.id == id) {
            return Err(missing());
        }
        let revoked = self.ctx.store.revoke_api_key(caller.team.id, id, self.ctx.now()).await.map_err(unavailable)?;
        self.credentials.clear();
        self.check_active_keys().await;
        revoked.ok_or_else(missing)
    }

    /// All teams.
    pub async fn teams(&self) -> Result<Vec<Team>, Problem> {
        self.ctx.store.teams().await.map_err(unavailable)
    }

    /// Sets whether sends of a team require an idempotency key.
    pub async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Team, Problem> {
        let changed = self.ctx.store.set_require_keys(team, require).await.map_err(unavailable)?;
        self.credentials.clear();
        changed.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no team {team}")))
    }

    /// Creates the team with its first API key, or another API key of an existing team. The secret is given or
    /// generated; an active key with the same secret is returned instead. For the command line, which opens the ledger
    /// directly.
    pub async fn ensure_api_key(
        &self,
        team_name: &str,
        details: ApiKeyDetails,
        secret: Option<String>,
    ) -> Result<NewApiKey, Problem> {
        let now = self.ctx.now();
        let secret = secret.unwrap_or_else(|| self.new_secret());
        if secret.chars().count() < limits::MIN_SECRET_CHARS {
            return Err(Problem::new(
                Code::InvalidField,
                format!("an API key must have at least {} characters", limits::MIN_SECRET_CHARS),
            ));
        }
        let hash = credential_hash(&self.ctx.secret, CredentialKind::ApiKey, &secret);
        let found = self.ctx.store.api_key_by_hash(hash).await.map_err(unavailable)?;
        if let Some((key, _)) = found.filter(|(key, _)| key.is_active(now)) {
            return Ok(NewApiKey { id: key.id, team: key.team, secret, created_at: key.created_at });
        }
        check_name(team_name)?;
        check_usable(&details, now)?;
        let details = normalize(details);
        if self.find_team(team_name).await?.is_none()
            && let Some(created) = self.try_create_team(team_name, details.clone(), secret.clone()).await?
        {
            return Ok(created);
        }
        // The team existed, or another process created it meanwhile.
        let team = self.find_team(team_name).await?;
        let team = team.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no team named {team_name}")))?;
        let key = self.build_api_key(team.id, details, &secret, now);
        let new = NewApiKey { id: key.id, team: team.id, secret, created_at: now };
        let created = self.ctx.store.create_api_key(key, None).await.map_err(unavailable)?;
        Ok(self.created_or_replayed(created, None, new)?.value)
    }

    async fn find_team(&self, name: &str) -> Result<Option<Team>, Problem> {
        Ok(self.teams().await?.into_iter().find(|team| team.name == name))
    }
}

fn team_exists(name: &str) -> Problem {
    Problem::for_field(Code::TeamExists, "name", format!("there is a team named {name} already"))
}

impl Access {
    /// Drops the cached API keys, because the inboxes that they are restricted to changed.
    pub(crate) fn clear_credentials(&self) {
        self.credentials.clear();
    }

    /// Writes when API keys were last used.
    pub async fn flush_key_usage(&self) {
        let mut used = self.credentials.recently_used();
        used.extend(self.credentials.take_unwritten_uses());
        if used.is_empty() {
            return;
        }
        if let Err(error) = self.ctx.store.touch_api_keys(used).await {
            tracing::warn!(%error, "cannot record the last use of API keys");
        }
    }
}
