//! Credentials: who may come in, and how new ones are made.

use mailonce_core::{
    address::Address,
    cidr::Cidr,
    email::Channel,
    id::{ApiKeyId, InboxId, TeamId},
    key::InstallSecret,
    limits,
    port::store::{Founded, Once},
    problem::{Code, Problem},
    team::{AboutApiKey, ApiKey, Team},
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

use crate::{
    Asked, Caller, Engine, change::taken, fault, open_keys::key_refused, operation, records::Made, ties::Ties,
    unavailable,
};

/// How long a credential is trusted from memory: while other nodes may revoke it, and while they cannot.
const SHARED_MS: i64 = 2_000;
const ALONE_MS: i64 = 60_000;
/// Credentials remembered.
const REMEMBERED: usize = 10_000;

/// A credential as it was last read.
struct Known {
    key: Arc<ApiKey>,
    team: Arc<Team>,
    ties: Option<Arc<Ties>>,
    read_at: Time,
    used_at: AtomicI64,
}

/// Credentials in memory, and the pace of those that are limited.
pub(crate) struct Access {
    known: RwLock<HashMap<[u8; 32], Arc<Known>>>,
    pace: Mutex<HashMap<ApiKeyId, Pace>>,
    trusted_ms: i64,
}

/// A token bucket: up to a second's worth at once.
struct Pace {
    tokens: f64,
    at: Time,
}

impl Access {
    pub(crate) fn new(alone: bool) -> Self {
        let trusted_ms = if alone { ALONE_MS } else { SHARED_MS };
        Self { known: RwLock::default(), pace: Mutex::default(), trusted_ms }
    }

    fn get(&self, hash: &[u8; 32], now: Time) -> Option<Arc<Known>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(hash).filter(|known| now.since(known.read_at) < self.trusted_ms).cloned()
    }

    fn put(&self, hash: [u8; 32], (key, team): (ApiKey, Team), ties: Option<Ties>, now: Time) -> Arc<Known> {
        let used_at = AtomicI64::new(key.last_used_at.unwrap_or_default().0);
        let (key, team, ties) = (Arc::new(key), Arc::new(team), ties.map(Arc::new));
        let entry = Arc::new(Known { key, team, ties, read_at: now, used_at });
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(hash, Arc::clone(&entry));
        entry
    }

    pub(crate) fn forget_all(&self) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Credentials used since they were last written, to the minute.
    pub(crate) fn used(&self) -> Vec<(ApiKeyId, Time)> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let used = |entry: &Arc<Known>| {
            let at = Time(entry.used_at.load(Ordering::Relaxed));
            (entry.key.last_used_at < Some(at) && at.0 > 0).then_some((entry.key.id, at))
        };
        known.values().filter_map(used).collect()
    }

    /// Whether a limited credential may call now; otherwise after how many milliseconds.
    fn pace(&self, key: &ApiKey, now: Time) -> Result<(), i64> {
        let Some(rate) = key.about.rate_per_s.map(f64::from) else { return Ok(()) };
        let mut all = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let pace = all.entry(key.id).or_insert(Pace { tokens: rate, at: now });
        pace.tokens = (pace.tokens + now.since(pace.at).max(0) as f64 / 1000.0 * rate).min(rate.max(1.0));
        pace.at = now;
        if pace.tokens < 1.0 {
            return Err(((1.0 - pace.tokens) / rate * 1000.0).ceil() as i64);
        }
        pace.tokens -= 1.0;
        Ok(())
    }
}

/// A new credential, its secret included. Shown once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewApiKey {
    /// Its id.
    pub id: ApiKeyId,
    /// Its team.
    pub team: TeamId,
    /// The secret itself.
    pub secret: String,
    /// When it was made.
    pub created_at: Time,
}

/// Whether a key with these inboxes reaches no further than one that is tied to `own`. An empty list means every inbox.
fn is_within(own: &[String], inboxes: &[String]) -> bool {
    own.is_empty() || (!inboxes.is_empty() && inboxes.iter().all(|inbox| own.contains(inbox)))
}

/// A restricted credential makes only credentials that are restricted at least as much.
fn check_restrictions(key: &ApiKey, about: &AboutApiKey) -> Result<(), Problem> {
    let senders = about.senders.iter().all(|rule| key.may_send_from(rule)) && !about.senders.is_empty();
    if !key.about.senders.is_empty() && !senders {
        return Err(Problem::field(
            Code::SenderNotAllowed,
            "senders",
            "the new key could send from more addresses than this one",
        ));
    }
    let ends = key.about.expires_at.is_none_or(|own| about.expires_at.is_some_and(|new| new <= own));
    let pace = key.about.rate_per_s.is_none_or(|own| about.rate_per_s.is_some_and(|new| new <= own));
    let inside = |block: &Cidr| key.about.allow_ips.iter().any(|own| own.contains(block));
    let ips = key.about.allow_ips.is_empty() || (!about.allow_ips.is_empty() && about.allow_ips.iter().all(inside));
    if !is_within(&key.about.inboxes, &about.inboxes) || !ends || !pace || !ips {
        let detail = "the new key would be less restricted than this one: give it inboxes, expires_at, rate_per_s and allow_ips within its own";
        return Err(Problem::new(Code::WrongScope, detail));
    }
    Ok(())
}

/// A name that people can say.
fn check_name(name: &str) -> Result<(), Problem> {
    if name.trim().is_empty() {
        return Err(fault("name", "is an empty text, which names nothing"));
    }
    Ok(())
}

/// An inbox as credentials are tied to it: by its id, or by its address.
fn tie(inbox: &str) -> Option<String> {
    let id = inbox.parse().map(|id: InboxId| id.to_string());
    id.ok().or_else(|| Address::parse(inbox).ok().map(|address| address.as_str().to_owned()))
}

/// A credential that could never open anything is not made.
fn check_usable(about: &AboutApiKey, now: Time) -> Result<(), Problem> {
    check_name(&about.name)?;
    if about.scopes.is_empty() {
        return Err(fault("scopes", "are empty, and a key without a scope can do nothing"));
    }
    if about.expires_at.is_some_and(|at| at <= now) {
        return Err(fault("expires_at", "is not in the future"));
    }
    if about.inboxes.iter().any(|inbox| tie(inbox).is_none()) {
        return Err(fault("inboxes", "hold something that is neither the id nor the address of an inbox"));
    }
    Ok(())
}

/// The same credential in one form: each scope once, inboxes as they are compared.
fn in_one_form(mut about: AboutApiKey) -> AboutApiKey {
    let mut scopes = Vec::new();
    for scope in about.scopes {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    about.scopes = scopes;
    about.inboxes = about.inboxes.into_iter().map(|inbox| tie(&inbox).unwrap_or(inbox)).collect();
    about
}

/// The keyed hash under which a credential is stored.
fn hash(secret: &InstallSecret, credential: &str) -> [u8; 32] {
    secret.mac("api-key", &[credential.as_bytes()])
}

/// Only who has the secret learns that its key expired, so that this helps nobody who guesses.
fn key_expired(key: &ApiKey) -> Problem {
    let ended = key.about.expires_at.map(|at| at.to_string()).unwrap_or_default();
    Problem::new(Code::KeyExpired, format!("the API key {} expired at {ended}", key.about.hint))
        .with("expires_at", ended)
}

impl Engine {
    /// Who brings this credential. Unknown and revoked ones get the same answer.
    pub async fn authenticate(&self, credential: &str, channel: Channel) -> Result<Caller, Problem> {
        let now = self.now();
        let hash = hash(&self.secret, credential);
        let known = if let Some(known) = self.access.get(&hash, now) {
            known
        } else {
            let found = self.store.api_key_by_hash(hash).await.map_err(unavailable)?;
            let found = found.ok_or_else(key_refused)?;
            let ties = self.ties_of(&found.0).await.map_err(unavailable)?;
            self.access.put(hash, found, ties, now)
        };
        let same: bool = known.key.hash.ct_eq(&hash).into();
        if !same || known.key.revoked_at.is_some() {
            return Err(key_refused());
        }
        if !known.key.is_live(now) {
            return Err(key_expired(&known.key));
        }
        // To the minute, and never before it was made.
        let minute = (now.0 - now.0 % 60_000).max(known.key.created_at.0);
        known.used_at.store(minute, Ordering::Relaxed);
        if let Err(wait_ms) = self.access.pace(&known.key, now) {
            let seconds = (wait_ms + 999) / 1000;
            return Err(
                Problem::new(Code::RateLimited, format!("try again in {seconds} s")).with("retry_after", seconds)
            );
        }
        let (key, team, ties) = (Arc::clone(&known.key), Arc::clone(&known.team), known.ties.clone());
        Ok(Caller { key, team, channel, call: None, ties })
    }

    /// Whether this process has found the API key valid before. It may be revoked since.
    pub fn has_seen_api_key(&self, credential: &str) -> bool {
        let hash = hash(&self.secret, credential);
        self.access.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(&hash)
    }

    /// A fresh secret: `mo_` and 43 random letters, about 256 bits.
    pub fn new_secret(&self) -> String {
        const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        let letter = |_| char::from(LETTERS[(self.chance.number() % 62) as usize]);
        std::iter::once("mo_".to_owned()).chain((0..43).map(letter).map(String::from)).collect()
    }

    /// A credential ready to be stored, and its secret.
    fn api_key(&self, team: TeamId, mut about: AboutApiKey, secret: &str, now: Time) -> ApiKey {
        about.hint = secret.chars().take(7).collect();
        ApiKey {
            id: ApiKeyId(self.new_id(now)),
            team,
            hash: hash(&self.secret, secret),
            about,
            created_at: now,
            revoked_at: None,
            last_used_at: None,
        }
    }

    /// Makes a credential in the caller's team. Asked again with the same key it shows the same secret.
    pub async fn create_api_key(
        &self,
        caller: &Caller,
        about: AboutApiKey,
        asked: Option<Asked>,
    ) -> Result<Made<NewApiKey>, Problem> {
        let now = self.now();
        // What was made before is shown again, though its time is over meanwhile.
        if !self.was_asked(caller, asked.as_ref()).await? {
            check_usable(&about, now)?;
        }
        let about = in_one_form(about);
        // Nobody hands out more than they hold.
        about.scopes.iter().try_for_each(|scope| caller.need(*scope))?;
        check_restrictions(&caller.key, &about)?;
        let secret = self.new_secret();
        let key = self.api_key(caller.team.id, about, &secret, now);
        let new = NewApiKey { id: key.id, team: key.team, secret, created_at: now };
        let operation = operation(caller, asked.as_ref(), self.sealed(asked.as_ref(), &new), now);
        let answer = self.store.create_api_key(key, operation).await.map_err(unavailable)?;
        self.shown_once(answer, asked.as_ref(), new)
    }

    /// Makes a team with its first credential. Asked again with the same key it shows the same ones.
    pub async fn create_team(
        &self,
        caller: &Caller,
        name: &str,
        about: AboutApiKey,
        asked: Option<Asked>,
    ) -> Result<Made<NewApiKey>, Problem> {
        let now = self.now();
        if !self.was_asked(caller, asked.as_ref()).await? {
            check_name(name)?;
        }
        let (team, key, new) = self.team_with_key(name, about, self.new_secret(), now);
        let operation = operation(caller, asked.as_ref(), self.sealed(asked.as_ref(), &new), now);
        match self.store.create_team(team, key, operation).await.map_err(unavailable)? {
            Once::Done(Founded::Taken) => Err(team_exists(name)),
            answer => self.shown_once(answer.map(|_made| ()), asked.as_ref(), new),
        }
    }

    /// Makes a team with its first credential. For the command line, which works on the ledger itself.
    pub async fn found_team(&self, name: &str, about: AboutApiKey) -> Result<NewApiKey, Problem> {
        check_name(name)?;
        let made = self.found(name, about, self.new_secret()).await?;
        made.ok_or_else(|| team_exists(name))
    }

    /// Makes a team with its first credential; `None` when there is one of this name.
    async fn found(&self, name: &str, about: AboutApiKey, secret: String) -> Result<Option<NewApiKey>, Problem> {
        let (team, key, new) = self.team_with_key(name, about, secret, self.now());
        match self.store.create_team(team, key, None).await.map_err(unavailable)? {
            Once::Done(Founded::Taken) => Ok(None),
            answer => Ok(Some(self.shown_once(answer.map(|_made| ()), None, new)?.thing)),
        }
    }

    fn team_with_key(&self, name: &str, about: AboutApiKey, secret: String, now: Time) -> (Team, ApiKey, NewApiKey) {
        let team = Team { id: TeamId(self.new_id(now)), name: name.to_owned(), created_at: now, require_keys: false };
        let key = self.api_key(team.id, about, &secret, now);
        let new = NewApiKey { id: key.id, team: team.id, secret, created_at: now };
        (team, key, new)
    }

    fn shown_once(&self, answer: Once<()>, asked: Option<&Asked>, new: NewApiKey) -> Result<Made<NewApiKey>, Problem> {
        match answer {
            Once::Done(()) => Ok(Made { thing: new, first: true }),
            Once::Repeated(sealed) => Ok(Made { thing: self.unsealed(asked, &sealed)?, first: false }),
            Once::Mismatch(bound) => Err(taken(&bound)),
        }
    }

    /// The credentials of the caller's team, newest first.
    pub async fn api_keys(&self, caller: &Caller) -> Result<Vec<ApiKey>, Problem> {
        let mut keys = self.store.api_keys(caller.team.id).await.map_err(unavailable)?;
        keys.retain(|key| is_within(&caller.key.about.inboxes, &key.about.inboxes));
        Ok(keys)
    }

    /// Takes a credential back. Other nodes follow within two seconds; what is open under it ends within one.
    pub async fn revoke_api_key(&self, caller: &Caller, id: ApiKeyId) -> Result<ApiKey, Problem> {
        let missing = || Problem::new(Code::NotFound, format!("there is no API key {id}"));
        if caller.ties.is_some() && !self.api_keys(caller).await?.iter().any(|key| key.id == id) {
            return Err(missing());
        }
        let revoked = self.store.revoke_api_key(caller.team.id, id, self.now()).await.map_err(unavailable)?;
        self.access.forget_all();
        self.check_open_keys().await;
        revoked.ok_or_else(missing)
    }

    /// Every team.
    pub async fn teams(&self) -> Result<Vec<Team>, Problem> {
        self.store.teams().await.map_err(unavailable)
    }

    /// Changes whether a team requires keys.
    pub async fn set_require_keys(&self, team: TeamId, require: bool) -> Result<Team, Problem> {
        let changed = self.store.set_require_keys(team, require).await.map_err(unavailable)?;
        self.access.forget_all();
        changed.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no team {team}")))
    }

    /// Makes the first team with a given or a fresh secret, or a further credential of the team that is there.
    /// For the command line, which works on the ledger itself.
    pub async fn first_api_key(
        &self,
        team_name: &str,
        about: AboutApiKey,
        secret: Option<String>,
    ) -> Result<NewApiKey, Problem> {
        let now = self.now();
        let secret = secret.unwrap_or_else(|| self.new_secret());
        if secret.chars().count() < limits::SECRET_CHARS {
            return Err(Problem::new(
                Code::InvalidField,
                format!("an API key has at least {} characters", limits::SECRET_CHARS),
            ));
        }
        let found = self.store.api_key_by_hash(hash(&self.secret, &secret)).await.map_err(unavailable)?;
        if let Some((key, _)) = found.filter(|(key, _)| key.is_live(now)) {
            return Ok(NewApiKey { id: key.id, team: key.team, secret, created_at: key.created_at });
        }
        check_name(team_name)?;
        check_usable(&about, now)?;
        let about = in_one_form(about);
        if self.team_named(team_name).await?.is_none()
            && let Some(made) = self.found(team_name, about.clone(), secret.clone()).await?
        {
            return Ok(made);
        }
        // It was there, or another process made it meanwhile.
        let team = self.team_named(team_name).await?;
        let team = team.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no team named {team_name}")))?;
        let key = self.api_key(team.id, about, &secret, now);
        let new = NewApiKey { id: key.id, team: team.id, secret, created_at: now };
        let made = self.store.create_api_key(key, None).await.map_err(unavailable)?;
        Ok(self.shown_once(made, None, new)?.thing)
    }

    async fn team_named(&self, name: &str) -> Result<Option<Team>, Problem> {
        Ok(self.teams().await?.into_iter().find(|team| team.name == name))
    }
}

fn team_exists(name: &str) -> Problem {
    Problem::field(Code::TeamExists, "name", format!("there is a team named {name} already"))
}
