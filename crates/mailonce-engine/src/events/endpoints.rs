//! Webhook endpoints: the URLs to which a team's events are sent.
//!
//! Secrets and the values of custom headers are encrypted before they are stored. A secret is shown only when it is
//! created.

use crate::{
    access::caller::Caller,
    events::Events,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{key_mismatch, unavailable},
        vault::SecretLocation,
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::{
        endpoint::{
            Dialect, Endpoint, EndpointChangeResult, EndpointConfig, EndpointEdit, EndpointSecret, EndpointStart,
            EndpointState, EventTypePattern,
        },
        event::EventCursor,
        webhook::WebhookResult,
    },
    id::{EndpointId, InboxId, TeamId},
    limits,
    operation::IdempotentResult,
    problem::{Code, Problem, nearest_name},
    time::Time,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The wire format of this version.
pub const WIRE_VERSION: &str = "2026-11-15";
/// The prefix of a secret.
const SECRET_PREFIX: &str = "whsec_";
/// The length of a generated secret.
const SECRET_BYTES: usize = 32;
/// How often a change that conflicts with a concurrent change is tried.
const MAX_CONFLICT_RETRIES: usize = 3;
/// How long the previous secrets stay valid after a rotation by default, in milliseconds.
pub const ROTATION_OVERLAP_MS: i64 = 86_400_000;
/// The highest rate limit of an endpoint, in requests per second.
const MAX_RATE_PER_S: u32 = 1_000;

/// The settings of a new or changed endpoint. `None` means the default, or unchanged.
#[derive(Clone, Debug, Default)]
pub struct NewEndpoint {
    /// The URL to send webhooks to.
    pub url: Option<String>,
    /// A description for people.
    pub description: Option<String>,
    /// The event types to send.
    pub events: Option<Vec<String>>,
    /// Sends only events of these inboxes.
    pub inboxes: Option<Vec<String>>,
    /// Custom headers of every request.
    pub headers: Option<BTreeMap<String, String>>,
    /// The rate limit in requests per second; `Some(None)` for no limit.
    pub rate_per_s: Option<Option<u32>>,
    /// Whether webhooks about received messages include their text.
    pub bodies: Option<bool>,
    /// The service whose webhook format is used.
    pub dialect: Option<Dialect>,
}

/// An endpoint with its new secret, which is shown only once.
#[derive(Clone, Debug)]
pub struct EndpointWithSecret {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The secret, as `whsec_…`.
    pub secret: String,
    /// Whether this call created it. False for a replay.
    pub is_new: bool,
}

/// The stored answer for replays of a call that returned a secret.
#[derive(Serialize, Deserialize)]
struct EndpointSecretAnswer {
    id: EndpointId,
    secret: String,
}

/// The problem for an unknown endpoint.
pub(crate) fn endpoint_not_found(id: EndpointId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no endpoint {id}"))
}

fn secret_location(team: TeamId, id: EndpointId, purpose: &'static str) -> SecretLocation {
    SecretLocation { team, record: id.0, purpose }
}

/// Decodes a secret such as `whsec_…`, of 24 to 64 bytes.
pub fn secret_bytes(text: &str) -> Result<Vec<u8>, Problem> {
    let bytes = text.strip_prefix(SECRET_PREFIX).and_then(|encoded| STANDARD.decode(encoded).ok());
    let invalid = || Problem::invalid_field("secret", "must be `whsec_` followed by 24 to 64 bytes in base64");
    bytes.filter(|bytes| (24..=64).contains(&bytes.len())).ok_or_else(invalid)
}

/// Encodes a secret as `whsec_…`.
pub fn secret_text(bytes: &[u8]) -> String {
    format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes))
}

fn parse_filters(names: &[String]) -> Result<Vec<EventTypePattern>, Problem> {
    if names.is_empty() || names.len() > limits::ENDPOINT_PARTS {
        return Err(Problem::invalid_field(
            "events",
            format!("must list 1 to {} types, or be [\"*\"]", limits::ENDPOINT_PARTS),
        ));
    }
    names.iter().map(|name| parse_filter("events", name)).collect()
}

/// Parses an event type filter.
pub fn parse_filter(path: &str, name: &str) -> Result<EventTypePattern, Problem> {
    EventTypePattern::parse(name).ok_or_else(|| {
        let known = mailonce_core::events::event::EventKind::ALL.iter().map(|kind| kind.as_str());
        let hint = nearest_name(name, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        Problem::invalid_field(path, format!("has the unknown event type `{name}`{hint}"))
    })
}

fn parse_inboxes(ids: &[String]) -> Result<Vec<InboxId>, Problem> {
    if ids.len() > limits::ENDPOINT_PARTS {
        return Err(Problem::invalid_field("inboxes", format!("has more than {} entries", limits::ENDPOINT_PARTS)));
    }
    ids.iter()
        .map(|id| id.parse().map_err(|_not_an_id| Problem::invalid_field("inboxes", "must list ids of inboxes")))
        .collect()
}

/// The inboxes whose events an endpoint gets; empty for those of the whole team.
fn event_inboxes(config: &EndpointConfig) -> &[InboxId] {
    match &config.dialect {
        Some(dialect) if config.inboxes.is_empty() => &dialect.inboxes,
        _ => &config.inboxes,
    }
}

/// Refuses an endpoint that would get events of inboxes outside the caller's restriction.
fn check_own_inboxes(caller: &Caller, config: &EndpointConfig) -> Result<(), Problem> {
    if caller.may_access_inboxes(event_inboxes(config)) {
        return Ok(());
    }
    Err(Problem::invalid_field("inboxes", "must list inboxes that this API key is restricted to, and no others"))
}

/// Refuses custom headers that would override ours or make the request invalid.
fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), Problem> {
    const RESERVED: [&str; 14] = [
        "host",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
        "user-agent",
        "date",
        "forwarded",
        "via",
        "accept-encoding",
        "idempotency-key",
    ];
    const FAMILIES: [&str; 7] = ["webhook-", "svix-", "content-", "proxy-", "sec-", "x-forwarded-", "mailonce-"];
    if headers.len() > limits::ENDPOINT_PARTS {
        return Err(Problem::invalid_field("headers", format!("has more than {} entries", limits::ENDPOINT_PARTS)));
    }
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || name.len() > limits::HEADER_NAME_CHARS || !name.bytes().all(is_token) {
            return Err(Problem::invalid_field("headers", format!("has `{name}`, which is not a valid header name")));
        }
        if RESERVED.contains(&lower.as_str()) || FAMILIES.iter().any(|family| lower.starts_with(family)) {
            return Err(Problem::invalid_field("headers", format!("has `{name}`, which is reserved for mailonce")));
        }
        let is_plain = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if !is_plain || value.len() > limits::HEADER_VALUE_CHARS {
            return Err(Problem::invalid_field(
                "headers",
                format!("gives `{name}` a value that is too long or not plain ASCII"),
            ));
        }
    }
    Ok(())
}

impl Events {
    /// Creates an endpoint. It gets the events from now on, or those after a cursor.
    pub async fn create_endpoint(
        &self,
        caller: &Caller,
        new: NewEndpoint,
        (secret, after): (Option<String>, Option<Option<EventCursor>>),
        keyed_call: Option<KeyedCall>,
    ) -> Result<EndpointWithSecret, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let (team, now) = (caller.team.id, self.ctx.now());
        let is_repeat = self.ctx.is_repeated_call(caller, keyed_call.as_ref()).await?;
        let start = after
            .map(|cursor| self.ctx.seq_of(cursor))
            .transpose()?
            .map_or(EndpointStart::NextEvent, EndpointStart::After);
        if let (Some(Some(cursor)), false) = (after, is_repeat) {
            self.check_kept_after(team, cursor.seq).await?;
        }
        if !is_repeat
            && self.ctx.store.endpoints(team, None, limits::ENDPOINTS).await.map_err(unavailable)?.len()
                >= limits::ENDPOINTS
        {
            let detail = format!("a team can have at most {} endpoints; remove one", limits::ENDPOINTS);
            return Err(Problem::new(Code::BudgetSpent, detail));
        }
        let id = EndpointId(self.ctx.new_id(now));
        let secret = secret.unwrap_or_else(|| self.new_webhook_secret());
        let mut config = EndpointConfig {
            url: String::new(),
            description: String::new(),
            events: parse_filters(&["*".to_owned()])?,
            inboxes: Vec::new(),
            secrets: vec![EndpointSecret {
                sealed: self.seal_webhook_secret(team, id, &secret)?,
                created_at: now,
                ends_at: None,
            }],
            headers: BTreeMap::new(),
            rate_per_s: None,
            version: WIRE_VERSION.to_owned(),
            include_text: false,
            dialect: None,
            changed_at: None,
        };
        if new.url.is_none() {
            return Err(Problem::invalid_field("url", "is missing"));
        }
        self.apply_endpoint_changes(&mut config, new, (team, id))?;
        check_own_inboxes(caller, &config)?;
        let answer = self.ctx.seal_answer(keyed_call.as_ref(), &EndpointSecretAnswer { id, secret: secret.clone() });
        let operation = operation(caller, keyed_call.as_ref(), answer, now);
        let endpoint = Endpoint::new(id, team, config, now);
        match self.ctx.store.create_endpoint(endpoint, start, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(endpoint) => {
                self.notice_wakeup.notify_one();
                Ok(EndpointWithSecret { endpoint, secret, is_new: true })
            }
            IdempotentResult::Replayed(sealed) => self.replay_shown_secret(caller, keyed_call.as_ref(), &sealed).await,
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    async fn replay_shown_secret(
        &self,
        caller: &Caller,
        keyed_call: Option<&KeyedCall>,
        sealed: &[u8],
    ) -> Result<EndpointWithSecret, Problem> {
        let EndpointSecretAnswer { id, secret } = self.ctx.open_answer(keyed_call, sealed)?;
        Ok(EndpointWithSecret { endpoint: self.endpoint(caller, id).await?, secret, is_new: false })
    }

    /// Checks the given settings and applies them to a configuration.
    fn apply_endpoint_changes(
        &self,
        config: &mut EndpointConfig,
        changes: NewEndpoint,
        (team, id): (TeamId, EndpointId),
    ) -> Result<(), Problem> {
        if let Some(url) = changes.url {
            self.ctx.deps.webhook_sender.check_url(&url).map_err(|why| Problem::invalid_field("url", why))?;
            config.url = url;
        }
        if let Some(description) = changes.description {
            config.description = description;
        }
        if let Some(names) = changes.events {
            config.events = parse_filters(&names)?;
        }
        if let Some(ids) = changes.inboxes {
            config.inboxes = parse_inboxes(&ids)?;
        }
        if let Some(headers) = changes.headers {
            check_headers(&headers)?;
            let seal = |(name, value): (String, String)| {
                let sealed = self.ctx.seal_secret(secret_location(team, id, "endpoint-header"), value.as_bytes());
                sealed.map(|sealed| (name.to_ascii_lowercase(), sealed)).ok_or_else(sealing_failed)
            };
            config.headers = headers.into_iter().map(seal).collect::<Result<_, _>>()?;
        }
        if let Some(dialect) = changes.dialect {
            config.dialect = Some(dialect);
        }
        if let Some(rate) = changes.rate_per_s {
            if rate.is_some_and(|rate| !(1..=MAX_RATE_PER_S).contains(&rate)) {
                return Err(Problem::invalid_field("rate_per_s", format!("must be 1 to {MAX_RATE_PER_S}")));
            }
            config.rate_per_s = rate;
        }
        config.include_text = changes.bodies.unwrap_or(config.include_text);
        Ok(())
    }

    fn new_webhook_secret(&self) -> String {
        let mut bytes = [0; SECRET_BYTES];
        self.ctx.entropy.fill(&mut bytes);
        secret_text(&bytes)
    }

    fn seal_webhook_secret(&self, team: TeamId, id: EndpointId, secret: &str) -> Result<String, Problem> {
        self.ctx.seal_secret(secret_location(team, id, "endpoint"), &secret_bytes(secret)?).ok_or_else(sealing_failed)
    }

    /// The active secrets that sign a request, newest first. `None` when one cannot be decrypted.
    pub(crate) fn endpoint_secrets(&self, endpoint: &Endpoint, now: Time) -> Option<Vec<Vec<u8>>> {
        let open = |secret: &EndpointSecret| {
            self.ctx.open_secret(secret_location(endpoint.team, endpoint.id, "endpoint"), &secret.sealed)
        };
        endpoint.config.active_secrets(now).map(open).collect()
    }

    /// The current secret of an endpoint that has a dialect, whose clients can read secrets. Otherwise `None`.
    pub async fn endpoint_secret(&self, caller: &Caller, id: EndpointId) -> Result<Option<String>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let endpoint = self.endpoint(caller, id).await?;
        let is_readable = endpoint.config.dialect.is_some();
        let secrets = is_readable.then(|| self.endpoint_secrets(&endpoint, self.ctx.now())).flatten();
        Ok(secrets.and_then(|secrets| secrets.first().map(|bytes| secret_text(bytes))))
    }

    /// Sets and removes some of an endpoint's custom headers. The others stay.
    pub async fn merge_endpoint_headers(
        &self,
        caller: &Caller,
        id: EndpointId,
        set: BTreeMap<String, String>,
        remove: &[String],
    ) -> Result<Endpoint, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let endpoint = self.endpoint(caller, id).await?;
        let unreadable = || Problem::new(Code::Unavailable, "the headers of this endpoint cannot be decrypted");
        let mut headers: BTreeMap<String, String> =
            self.endpoint_headers(&endpoint).ok_or_else(unreadable)?.into_iter().collect();
        headers.retain(|name, _| !remove.iter().any(|removed| removed.eq_ignore_ascii_case(name)));
        headers.extend(set.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)));
        let changes = NewEndpoint { headers: Some(headers), ..NewEndpoint::default() };
        self.change_endpoint(caller, id, changes, Some(endpoint.rev)).await
    }

    /// The custom headers, decrypted.
    pub(crate) fn endpoint_headers(&self, endpoint: &Endpoint) -> Option<Vec<(String, String)>> {
        let location = secret_location(endpoint.team, endpoint.id, "endpoint-header");
        let open = |(name, sealed): (&String, &String)| {
            Some((name.clone(), String::from_utf8(self.ctx.open_secret(location, sealed)?).ok()?))
        };
        endpoint.config.headers.iter().map(open).collect()
    }

    /// One endpoint.
    pub async fn endpoint(&self, caller: &Caller, id: EndpointId) -> Result<Endpoint, Problem> {
        let found = self.ctx.store.endpoint(caller.team.id, id).await.map_err(unavailable)?;
        found
            .filter(|endpoint| caller.may_access_inboxes(event_inboxes(&endpoint.config)))
            .ok_or_else(|| endpoint_not_found(id))
    }

    /// The caller's endpoints, newest first, and the id to continue from.
    pub async fn endpoints(
        &self,
        caller: &Caller,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<(Vec<Endpoint>, Option<Uuid>), Problem> {
        let before = before.map(EndpointId);
        let mut rows = self.ctx.store.endpoints(caller.team.id, before, limit + 1).await.map_err(unavailable)?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(|endpoint| endpoint.id.0);
        rows.retain(|endpoint| caller.may_access_inboxes(event_inboxes(&endpoint.config)));
        Ok((rows, next))
    }

    /// Changes an endpoint. With a `rev`, the endpoint must still have that rev.
    pub async fn change_endpoint(
        &self,
        caller: &Caller,
        id: EndpointId,
        changes: NewEndpoint,
        rev: Option<u32>,
    ) -> Result<Endpoint, Problem> {
        let change = |endpoint: &Endpoint| {
            if let Some(rev) = rev.filter(|rev| *rev != endpoint.rev) {
                let detail = format!("the endpoint has rev {}, not {rev}", endpoint.rev);
                return Err(Problem::new(Code::StaleRev, detail).with_extension("rev", endpoint.rev));
            }
            let mut config = endpoint.config.clone();
            self.apply_endpoint_changes(&mut config, changes.clone(), (endpoint.team, endpoint.id))?;
            check_own_inboxes(caller, &config)?;
            Ok((config, endpoint.state))
        };
        Ok(self.edit_endpoint(caller, id, (None, Vec::new()), change).await?.0)
    }

    /// Pauses or resumes an endpoint.
    pub async fn set_endpoint_state(
        &self,
        caller: &Caller,
        id: EndpointId,
        state: EndpointState,
        keyed_call: Option<KeyedCall>,
    ) -> Result<Endpoint, Problem> {
        let change = |endpoint: &Endpoint| Ok((endpoint.config.clone(), state));
        let changed = self.edit_endpoint(caller, id, (keyed_call, Vec::new()), change).await?.0;
        self.notice_wakeup.notify_one();
        Ok(changed)
    }

    /// Gives an endpoint a new secret. The previous ones stay valid for `overlap_ms`.
    pub async fn rotate_endpoint(
        &self,
        caller: &Caller,
        id: EndpointId,
        (secret, overlap_ms): (Option<String>, i64),
        keyed_call: Option<KeyedCall>,
    ) -> Result<EndpointWithSecret, Problem> {
        let now = self.ctx.now();
        let secret = secret.unwrap_or_else(|| self.new_webhook_secret());
        let sealed = self.seal_webhook_secret(caller.team.id, id, &secret)?;
        let answer = self.ctx.seal_answer(keyed_call.as_ref(), &EndpointSecretAnswer { id, secret: secret.clone() });
        let change = |endpoint: &Endpoint| {
            let mut config = endpoint.config.clone();
            config.rotate_secret(sealed.clone(), overlap_ms, now);
            Ok((config, endpoint.state))
        };
        match self.edit_endpoint(caller, id, (keyed_call.clone(), answer), change).await? {
            (endpoint, None) => Ok(EndpointWithSecret { endpoint, secret, is_new: true }),
            (_, Some(sealed)) => self.replay_shown_secret(caller, keyed_call.as_ref(), &sealed).await,
        }
    }

    /// Applies a change to the current endpoint and retries on conflict. A replay also returns the first answer.
    async fn edit_endpoint(
        &self,
        caller: &Caller,
        id: EndpointId,
        (keyed_call, answer): (Option<KeyedCall>, Vec<u8>),
        change: impl Fn(&Endpoint) -> Result<(EndpointConfig, EndpointState), Problem>,
    ) -> Result<(Endpoint, Option<Vec<u8>>), Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let mut current = self.endpoint(caller, id).await?;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let now = self.ctx.now();
            let (config, state) = change(&current)?;
            let config = EndpointConfig { changed_at: Some(now), ..config };
            let edit = EndpointEdit { team: caller.team.id, id, rev: current.rev, config, state };
            let operation = operation(caller, keyed_call.as_ref(), answer.clone(), now);
            match self.ctx.store.change_endpoint(edit, operation, now).await.map_err(unavailable)? {
                IdempotentResult::Done(EndpointChangeResult::Changed(endpoint)) => return Ok((endpoint, None)),
                IdempotentResult::Done(EndpointChangeResult::Stale(now)) => current = now,
                IdempotentResult::Done(EndpointChangeResult::Missing) => return Err(endpoint_not_found(id)),
                IdempotentResult::Replayed(stored_answer) => {
                    return Ok((self.endpoint(caller, id).await?, Some(stored_answer)));
                }
                IdempotentResult::KeyMismatch(bound) => return Err(key_mismatch(&bound)),
            }
        }
        Err(Problem::new(Code::StaleRev, format!("the endpoint {id} changed meanwhile")))
    }

    /// Removes an endpoint and its notices.
    pub async fn remove_endpoint(&self, caller: &Caller, id: EndpointId) -> Result<Endpoint, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        self.endpoint(caller, id).await?;
        let removed = self.ctx.store.remove_endpoint(caller.team.id, id).await.map_err(unavailable)?;
        removed.ok_or_else(|| endpoint_not_found(id))
    }

    /// Sends a test event to an endpoint at once, whatever its state. Nothing is recorded.
    pub async fn test_endpoint(&self, caller: &Caller, id: EndpointId) -> Result<(String, WebhookResult), Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let endpoint = self.endpoint(caller, id).await?;
        let too_many = |_full| {
            Problem::new(Code::RateLimited, "too many endpoint tests are running; try again later")
                .with_extension("retry_after", 5)
        };
        let _permit = self.endpoint_test_permits.try_acquire().map_err(too_many)?;
        let now = self.ctx.now();
        let event_id = self.ctx.new_id(now).to_string();
        let resource = serde_json::json!({ "kind": "endpoint", "id": id.to_string(), "rev": endpoint.rev });
        let body = serde_json::json!({
            "seq": null, "cursor": null, "id": event_id, "type": "endpoint.test", "at": now.to_string(),
            "about": resource, "data": { "text": "This is a test. Nothing happened." },
        });
        let post = self.signed_post(&endpoint, event_id.clone(), body.to_string(), now).ok_or_else(|| {
            Problem::new(Code::Unavailable, "the secrets of this endpoint cannot be decrypted; ask an operator")
        })?;
        Ok((event_id, self.ctx.deps.webhook_sender.post(post).await))
    }
}

fn sealing_failed() -> Problem {
    Problem::new(Code::Internal, "a secret could not be encrypted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_ours_are_refused_in_any_case() {
        let one = |name: &str, value: &str| check_headers(&BTreeMap::from([(name.to_owned(), value.to_owned())]));
        for name in ["Host", "webhook-id", "SVIX-signature", "Content-Length", "Transfer-Encoding", "", "a b", "a:b"] {
            assert!(one(name, "x").is_err(), "{name}");
        }
        for value in ["a\r\nb: c", "ä", "\0"] {
            assert!(one("x-ok", value).is_err(), "{value:?}");
        }
        assert!(one("Authorization", "Bearer x y").is_ok() && one("x-team", "").is_ok());
    }

    #[test]
    fn secrets_are_of_the_usual_form() {
        assert_eq!(secret_bytes(&format!("whsec_{}", STANDARD.encode([7; 24]))).unwrap(), vec![7; 24]);
        for bad in ["whsec_", "whsec_YWJj", "YWJjYWJjYWJjYWJjYWJjYWJjYWJjYWJj", "whsec_!!!!"] {
            assert!(secret_bytes(bad).is_err(), "{bad}");
        }
    }
}
