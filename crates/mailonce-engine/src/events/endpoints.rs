//! Endpoints: receivers outside that a team wants to be told of its events.
//!
//! Secrets and the values of custom headers are sealed before the ledger sees them. A secret is shown when it is made
//! and never again.

use crate::{
    access::caller::Caller,
    events::Events,
    runtime::{
        keyed_call::{KeyedCall, operation},
        problems::{invalid_field, key_mismatch, unavailable},
        vault::SecretLocation,
    },
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mailonce_core::{
    access::team::ApiKeyScope,
    events::{
        endpoint::{
            Dialect, Endpoint, EndpointChangeResult, EndpointConfig, EndpointEdit, EndpointSecret, EndpointStart,
            EndpointState, EventTypeFilter,
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
/// How a secret begins.
const SECRET_PREFIX: &str = "whsec_";
/// Bytes of a secret that we make.
const SECRET_BYTES: usize = 32;
/// How often a change is tried anew when somebody else changed the endpoint meanwhile.
const MAX_CONFLICT_RETRIES: usize = 3;
/// How long the secrets before count after a rotation, in milliseconds, when nobody says.
pub const ROTATION_OVERLAP_MS: i64 = 86_400_000;
/// Requests a second at the most.
const MAX_RATE_PER_S: u32 = 1_000;

/// What a caller says of an endpoint. What is absent stays as it is, or is as usual.
#[derive(Clone, Debug, Default)]
pub struct NewEndpoint {
    /// Where notices go.
    pub url: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Which events.
    pub events: Option<Vec<String>>,
    /// Only of these inboxes.
    pub inboxes: Option<Vec<String>>,
    /// Headers of every request.
    pub headers: Option<BTreeMap<String, String>>,
    /// Requests a second; `Some(None)` for no limit.
    pub rate_per_s: Option<Option<u32>>,
    /// Whether notices of messages carry their text.
    pub bodies: Option<bool>,
    /// In whose words.
    pub dialect: Option<Dialect>,
}

/// An endpoint with a secret that is shown this once.
#[derive(Clone, Debug)]
pub struct EndpointWithSecret {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// `whsec_…`.
    pub secret: String,
    /// Whether this call made it.
    pub is_new: bool,
}

/// What a repeated call is answered with.
#[derive(Serialize, Deserialize)]
struct EndpointSecretAnswer {
    id: EndpointId,
    secret: String,
}

/// The problem for an endpoint that is not there.
pub(crate) fn endpoint_not_found(id: EndpointId) -> Problem {
    Problem::new(Code::NotFound, format!("there is no endpoint {id}"))
}

fn secret_location(team: TeamId, id: EndpointId, purpose: &'static str) -> SecretLocation {
    SecretLocation { team, record: id.0, purpose }
}

/// The bytes of a secret such as `whsec_…`, of 24 to 64 bytes.
pub fn secret_bytes(text: &str) -> Result<Vec<u8>, Problem> {
    let bytes = text.strip_prefix(SECRET_PREFIX).and_then(|rest| STANDARD.decode(rest).ok());
    let wrong = || invalid_field("secret", "is `whsec_` and the base64 form of 24 to 64 bytes");
    bytes.filter(|bytes| (24..=64).contains(&bytes.len())).ok_or_else(wrong)
}

/// A secret as it is shown.
pub fn secret_text(bytes: &[u8]) -> String {
    format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes))
}

fn parse_filters(words: &[String]) -> Result<Vec<EventTypeFilter>, Problem> {
    if words.is_empty() || words.len() > limits::ENDPOINT_PARTS {
        return Err(invalid_field("events", format!("is a list of 1 to {} types, or [\"*\"]", limits::ENDPOINT_PARTS)));
    }
    words.iter().map(|word| parse_filter("events", word)).collect()
}

/// One filter, or what is wrong with it.
pub fn parse_filter(path: &str, word: &str) -> Result<EventTypeFilter, Problem> {
    EventTypeFilter::parse(word).ok_or_else(|| {
        let known = mailonce_core::events::event::EventKind::ALL.iter().map(|kind| kind.as_str());
        let hint = nearest_name(word, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        invalid_field(path, format!("names the type `{word}`, which there is not{hint}"))
    })
}

fn parse_inboxes(words: &[String]) -> Result<Vec<InboxId>, Problem> {
    if words.len() > limits::ENDPOINT_PARTS {
        return Err(invalid_field("inboxes", format!("has more than {} entries", limits::ENDPOINT_PARTS)));
    }
    words
        .iter()
        .map(|word| word.parse().map_err(|_not_an_id| invalid_field("inboxes", "holds ids of inboxes")))
        .collect()
}

/// The inboxes whose events an endpoint gets; empty for those of the whole team.
fn event_inboxes(about: &EndpointConfig) -> &[InboxId] {
    match &about.tongue {
        Some(tongue) if about.inboxes.is_empty() => &tongue.inboxes,
        _ => &about.inboxes,
    }
}

/// Refuses an endpoint that would get events of inboxes that the caller is not tied to.
fn check_own_inboxes(caller: &Caller, about: &EndpointConfig) -> Result<(), Problem> {
    if caller.may_access_inboxes(event_inboxes(about)) {
        return Ok(());
    }
    Err(invalid_field("inboxes", "must name inboxes that this API key is tied to, and no others"))
}

/// Refuses headers that would say something else than what we say, or break the request.
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
        return Err(invalid_field("headers", format!("has more than {} entries", limits::ENDPOINT_PARTS)));
    }
    for (name, value) in headers {
        let small = name.to_ascii_lowercase();
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || name.len() > limits::HEADER_NAME_CHARS || !name.bytes().all(token) {
            return Err(invalid_field("headers", format!("holds `{name}`, which is no name of a header")));
        }
        if RESERVED.contains(&small.as_str()) || FAMILIES.iter().any(|family| small.starts_with(family)) {
            return Err(invalid_field("headers", format!("holds `{name}`, which is ours to set")));
        }
        let plain = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if !plain || value.len() > limits::HEADER_VALUE_CHARS {
            return Err(invalid_field(
                "headers",
                format!("gives `{name}` a value that is too long or not plain ASCII"),
            ));
        }
    }
    Ok(())
}

impl Events {
    /// Makes an endpoint. It is told of what happens from now on, or after a cursor.
    pub async fn create_endpoint(
        &self,
        caller: &Caller,
        wish: NewEndpoint,
        (secret, after): (Option<String>, Option<Option<EventCursor>>),
        asked: Option<KeyedCall>,
    ) -> Result<EndpointWithSecret, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let (team, now) = (caller.team.id, self.ctx.now());
        let again = self.ctx.is_repeated_call(caller, asked.as_ref()).await?;
        let start = after
            .map(|cursor| self.ctx.seq_of(cursor))
            .transpose()?
            .map_or(EndpointStart::NextEvent, EndpointStart::After);
        if !again
            && self.ctx.store.endpoints(team, None, limits::ENDPOINTS).await.map_err(unavailable)?.len()
                >= limits::ENDPOINTS
        {
            let detail = format!("a team has {} endpoints at the most; remove one", limits::ENDPOINTS);
            return Err(Problem::new(Code::BudgetSpent, detail));
        }
        let id = EndpointId(self.ctx.new_id(now));
        let secret = secret.unwrap_or_else(|| self.new_webhook_secret());
        let mut about = EndpointConfig {
            url: String::new(),
            description: String::new(),
            events: parse_filters(&["*".to_owned()])?,
            inboxes: Vec::new(),
            secrets: vec![EndpointSecret {
                sealed: self.seal_webhook_secret(team, id, &secret)?,
                made_at: now,
                ends_at: None,
            }],
            headers: BTreeMap::new(),
            rate_per_s: None,
            version: WIRE_VERSION.to_owned(),
            bodies: false,
            tongue: None,
            changed_at: None,
        };
        if wish.url.is_none() {
            return Err(invalid_field("url", "is missing"));
        }
        self.apply_endpoint_changes(&mut about, wish, (team, id))?;
        check_own_inboxes(caller, &about)?;
        let kept = self.ctx.seal_answer(asked.as_ref(), &EndpointSecretAnswer { id, secret: secret.clone() });
        let operation = operation(caller, asked.as_ref(), kept, now);
        let endpoint = Endpoint::new(id, team, about, now);
        match self.ctx.store.create_endpoint(endpoint, start, operation).await.map_err(unavailable)? {
            IdempotentResult::Done(endpoint) => {
                self.notice_wakeup.notify_one();
                Ok(EndpointWithSecret { endpoint, secret, is_new: true })
            }
            IdempotentResult::Replayed(sealed) => self.replay_shown_secret(caller, asked.as_ref(), &sealed).await,
            IdempotentResult::KeyMismatch(bound) => Err(key_mismatch(&bound)),
        }
    }

    async fn replay_shown_secret(
        &self,
        caller: &Caller,
        asked: Option<&KeyedCall>,
        sealed: &[u8],
    ) -> Result<EndpointWithSecret, Problem> {
        let EndpointSecretAnswer { id, secret } = self.ctx.open_answer(asked, sealed)?;
        Ok(EndpointWithSecret { endpoint: self.endpoint(caller, id).await?, secret, is_new: false })
    }

    /// Puts a wish into effect, everything in it checked.
    fn apply_endpoint_changes(
        &self,
        about: &mut EndpointConfig,
        wish: NewEndpoint,
        (team, id): (TeamId, EndpointId),
    ) -> Result<(), Problem> {
        if let Some(url) = wish.url {
            self.ctx.deps.webhook_sender.check_url(&url).map_err(|why| invalid_field("url", why))?;
            about.url = url;
        }
        if let Some(description) = wish.description {
            about.description = description;
        }
        if let Some(words) = wish.events {
            about.events = parse_filters(&words)?;
        }
        if let Some(words) = wish.inboxes {
            about.inboxes = parse_inboxes(&words)?;
        }
        if let Some(headers) = wish.headers {
            check_headers(&headers)?;
            let seal = |(name, value): (String, String)| {
                let sealed = self.ctx.seal_secret(secret_location(team, id, "endpoint-header"), value.as_bytes());
                sealed.map(|sealed| (name.to_ascii_lowercase(), sealed)).ok_or_else(sealing_failed)
            };
            about.headers = headers.into_iter().map(seal).collect::<Result<_, _>>()?;
        }
        if let Some(tongue) = wish.dialect {
            about.tongue = Some(tongue);
        }
        if let Some(rate) = wish.rate_per_s {
            if rate.is_some_and(|rate| !(1..=MAX_RATE_PER_S).contains(&rate)) {
                return Err(invalid_field("rate_per_s", format!("is 1 to {MAX_RATE_PER_S}")));
            }
            about.rate_per_s = rate;
        }
        about.bodies = wish.bodies.unwrap_or(about.bodies);
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

    /// The secrets that sign a request now, newest first.
    pub(crate) fn endpoint_secrets(&self, endpoint: &Endpoint, now: Time) -> Option<Vec<Vec<u8>>> {
        let open = |secret: &EndpointSecret| {
            self.ctx.open_secret(secret_location(endpoint.team, endpoint.id, "endpoint"), &secret.sealed)
        };
        endpoint.config.active_secrets(now).map(open).collect()
    }

    /// The secret that signs now, of an endpoint whose dialect shows it.
    pub async fn endpoint_secret(&self, caller: &Caller, id: EndpointId) -> Result<Option<String>, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let endpoint = self.endpoint(caller, id).await?;
        let shown = endpoint.config.tongue.is_some();
        let secrets = shown.then(|| self.endpoint_secrets(&endpoint, self.ctx.now())).flatten();
        Ok(secrets.and_then(|secrets| secrets.first().map(|bytes| secret_text(bytes))))
    }

    /// Sets and takes away some of an endpoint's custom headers; the others stay.
    pub async fn merge_endpoint_headers(
        &self,
        caller: &Caller,
        id: EndpointId,
        set: BTreeMap<String, String>,
        remove: &[String],
    ) -> Result<Endpoint, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let endpoint = self.endpoint(caller, id).await?;
        let sealed = || Problem::new(Code::Unavailable, "the headers of this endpoint cannot be opened");
        let mut headers: BTreeMap<String, String> =
            self.endpoint_headers(&endpoint).ok_or_else(sealed)?.into_iter().collect();
        headers.retain(|name, _| !remove.iter().any(|gone| gone.eq_ignore_ascii_case(name)));
        headers.extend(set.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)));
        let wish = NewEndpoint { headers: Some(headers), ..NewEndpoint::default() };
        self.change_endpoint(caller, id, wish, Some(endpoint.rev)).await
    }

    /// The custom headers, opened.
    pub(crate) fn endpoint_headers(&self, endpoint: &Endpoint) -> Option<Vec<(String, String)>> {
        let place = secret_location(endpoint.team, endpoint.id, "endpoint-header");
        let open = |(name, sealed): (&String, &String)| {
            Some((name.clone(), String::from_utf8(self.ctx.open_secret(place, sealed)?).ok()?))
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

    /// The caller's endpoints, newest first, and where to go on.
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

    /// Changes what an endpoint says. A `rev` that was seen must still be true.
    pub async fn change_endpoint(
        &self,
        caller: &Caller,
        id: EndpointId,
        wish: NewEndpoint,
        rev: Option<u32>,
    ) -> Result<Endpoint, Problem> {
        let change = |endpoint: &Endpoint| {
            if let Some(rev) = rev.filter(|rev| *rev != endpoint.rev) {
                let detail = format!("the endpoint has rev {}, not {rev}", endpoint.rev);
                return Err(Problem::new(Code::StaleRev, detail).with_extension("rev", endpoint.rev));
            }
            let mut about = endpoint.config.clone();
            self.apply_endpoint_changes(&mut about, wish.clone(), (endpoint.team, endpoint.id))?;
            check_own_inboxes(caller, &about)?;
            Ok((about, endpoint.state))
        };
        Ok(self.edit_endpoint(caller, id, (None, Vec::new()), change).await?.0)
    }

    /// Lets an endpoint rest, or be told of events again.
    pub async fn set_endpoint_state(
        &self,
        caller: &Caller,
        id: EndpointId,
        state: EndpointState,
        asked: Option<KeyedCall>,
    ) -> Result<Endpoint, Problem> {
        let change = |endpoint: &Endpoint| Ok((endpoint.config.clone(), state));
        let changed = self.edit_endpoint(caller, id, (asked, Vec::new()), change).await?.0;
        self.notice_wakeup.notify_one();
        Ok(changed)
    }

    /// Gives an endpoint another secret. Those before count for a while.
    pub async fn rotate_endpoint(
        &self,
        caller: &Caller,
        id: EndpointId,
        (secret, overlap_ms): (Option<String>, i64),
        asked: Option<KeyedCall>,
    ) -> Result<EndpointWithSecret, Problem> {
        let now = self.ctx.now();
        let secret = secret.unwrap_or_else(|| self.new_webhook_secret());
        let sealed = self.seal_webhook_secret(caller.team.id, id, &secret)?;
        let kept = self.ctx.seal_answer(asked.as_ref(), &EndpointSecretAnswer { id, secret: secret.clone() });
        let change = |endpoint: &Endpoint| {
            let mut about = endpoint.config.clone();
            about.rotate_secret(sealed.clone(), overlap_ms, now);
            Ok((about, endpoint.state))
        };
        match self.edit_endpoint(caller, id, (asked.clone(), kept), change).await? {
            (endpoint, None) => Ok(EndpointWithSecret { endpoint, secret, is_new: true }),
            (_, Some(sealed)) => self.replay_shown_secret(caller, asked.as_ref(), &sealed).await,
        }
    }

    /// Changes an endpoint as it is now. With what was answered before when this was asked before.
    async fn edit_endpoint(
        &self,
        caller: &Caller,
        id: EndpointId,
        (asked, answer): (Option<KeyedCall>, Vec<u8>),
        change: impl Fn(&Endpoint) -> Result<(EndpointConfig, EndpointState), Problem>,
    ) -> Result<(Endpoint, Option<Vec<u8>>), Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let mut seen = self.endpoint(caller, id).await?;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let now = self.ctx.now();
            let (about, state) = change(&seen)?;
            let about = EndpointConfig { changed_at: Some(now), ..about };
            let edit = EndpointEdit { team: caller.team.id, id, rev: seen.rev, config: about, state };
            let operation = operation(caller, asked.as_ref(), answer.clone(), now);
            match self.ctx.store.change_endpoint(edit, operation, now).await.map_err(unavailable)? {
                IdempotentResult::Done(EndpointChangeResult::Changed(endpoint)) => return Ok((endpoint, None)),
                IdempotentResult::Done(EndpointChangeResult::Stale(now)) => seen = now,
                IdempotentResult::Done(EndpointChangeResult::Missing) => return Err(endpoint_not_found(id)),
                IdempotentResult::Replayed(before) => return Ok((self.endpoint(caller, id).await?, Some(before))),
                IdempotentResult::KeyMismatch(bound) => return Err(key_mismatch(&bound)),
            }
        }
        Err(Problem::new(Code::StaleRev, format!("the endpoint {id} changed meanwhile")))
    }

    /// Removes an endpoint and everything that is owed to it.
    pub async fn remove_endpoint(&self, caller: &Caller, id: EndpointId) -> Result<Endpoint, Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        self.endpoint(caller, id).await?;
        let removed = self.ctx.store.remove_endpoint(caller.team.id, id).await.map_err(unavailable)?;
        removed.ok_or_else(|| endpoint_not_found(id))
    }

    /// Tells an endpoint something harmless, now, whatever its state. Nothing of it is written down.
    pub async fn test_endpoint(&self, caller: &Caller, id: EndpointId) -> Result<(String, WebhookResult), Problem> {
        caller.require_scope(ApiKeyScope::Admin)?;
        let endpoint = self.endpoint(caller, id).await?;
        let busy = |_full| {
            Problem::new(Code::RateLimited, "too many tests run at the moment").with_extension("retry_after", 5)
        };
        let _place = self.endpoint_test_permits.try_acquire().map_err(busy)?;
        let now = self.ctx.now();
        let name = self.ctx.new_id(now).to_string();
        let about = serde_json::json!({ "kind": "endpoint", "id": id.to_string(), "rev": endpoint.rev });
        let body = serde_json::json!({
            "seq": null, "cursor": null, "id": name, "type": "endpoint.test", "at": now.to_string(), "about": about,
            "data": { "text": "This is a test. Nothing happened." },
        });
        let post = self.signed_post(&endpoint, name.clone(), body.to_string(), now).ok_or_else(|| {
            Problem::new(Code::Unavailable, "the secrets of this endpoint cannot be opened; an operator must look")
        })?;
        Ok((name, self.ctx.deps.webhook_sender.post(post).await))
    }
}

fn sealing_failed() -> Problem {
    Problem::new(Code::Internal, "a secret could not be sealed")
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
