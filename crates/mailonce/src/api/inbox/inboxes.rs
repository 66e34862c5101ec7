//! Inboxes: the addresses that agents read, waiting at them, and watches.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::caps::ReplyCaps,
    events::event::EventCursor,
    id::{InboxId, WatchId},
    inbox::{Inbox, InboxSettings, artifact::ArtifactKind, watch::Watch},
    limits,
    problem::{Code, FieldError, Problem},
    time::{Time, parse_span},
};
use mailonce_engine::inbox::{
    inboxes::{CapsPatch, InboxPatch, NewInbox},
    wait::WaitFilter,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use utoipa::{IntoParams, ToSchema};

use super::messages::MessageBody;
use crate::api::{
    ApiResult, App, PathParam, QueryParams,
    door::{AuthedRequest, RawBody},
    pagination::{PageQuery, created_response},
    wire::{check_text, given, given_object, object_or_null},
};

/// Registrable domains of one inbox whose links are allowed.
const MAX_LINK_DOMAINS: usize = 50;
/// Resends that a watch may be given.
const MAX_WATCH_BUDGET: u32 = 100;
/// How long a watch lasts when nobody says.
const DEFAULT_WATCH_MS: i64 = 10 * 60_000;
/// How long a caller waits when it does not say.
const DEFAULT_WAIT_S: u64 = 30;

/// An inbox to make: a whole `address`, or `username` and `domain`, or neither for a random one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewInboxBody {
    #[serde(default)]
    address: Option<String>,
    #[serde(default)]
    username: Option<String>,
    /// The first domain of this installation by default.
    #[serde(default)]
    domain: Option<String>,
    /// How long it takes mail: `30m`, `24h`, `7d`. Without one it is permanent.
    #[serde(default)]
    ttl: Option<String>,
    /// The same `client_id` again answers with the same inbox.
    #[serde(default)]
    client_id: Option<String>,
    /// The agent it is for.
    #[serde(default)]
    agent: Option<String>,
    /// The name beside its address in mail that it sends.
    #[serde(default)]
    name: Option<String>,
    /// Whether it takes mail for every address of its domain that has no inbox; needs `admin`.
    #[serde(default)]
    catch_all: bool,
    /// Registrable domains whose links are allowed; without any, links are judged by their sender.
    #[serde(default)]
    allowed_link_domains: Vec<String>,
    /// How many answers are too many here.
    #[serde(default, deserialize_with = "object_or_null")]
    caps: Option<CapsBody>,
    /// Whether mail that only looks automatic may be answered.
    #[serde(default)]
    reply_to_likely_automatic: bool,
    /// Whether its answers say that a machine wrote them (`Auto-Submitted`).
    #[serde(default)]
    mark_auto_submitted: bool,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// How many answers are too many. What is absent stays; a new inbox begins with 3 in 300 s and 20 a day in a thread, and
/// 20 a day to a person.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapsBody {
    /// Answers in a thread within the window; the next is held.
    #[serde(default)]
    per_window: Option<u32>,
    /// Seconds, at most a day.
    #[serde(default)]
    window_s: Option<u32>,
    /// Answers in a thread within a day.
    #[serde(default)]
    per_thread_per_day: Option<u32>,
    /// Answers to one person within a day, over all threads.
    #[serde(default)]
    per_recipient_per_day: Option<u32>,
    /// Answers in a thread in all; any number without it, and again after `null`.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    per_thread_total: Option<Option<u32>>,
}

impl From<ReplyCaps> for CapsBody {
    fn from(caps: ReplyCaps) -> Self {
        Self {
            per_window: Some(caps.per_window),
            window_s: u32::try_from(caps.window_ms / 1000).ok(),
            per_thread_per_day: Some(caps.per_day),
            per_recipient_per_day: Some(caps.per_person),
            per_thread_total: caps.per_thread.map(Some),
        }
    }
}

impl CapsBody {
    fn validate(self) -> Result<CapsPatch, Problem> {
        let count = |field: &str, given: Option<u32>| match given {
            Some(most) if most > ReplyCaps::MAX => {
                Err(invalid_field(&format!("caps.{field}"), format!("is at most {}", ReplyCaps::MAX)))
            }
            given => Ok(given),
        };
        if self.window_s.is_some_and(|seconds| !(1..=86_400).contains(&seconds)) {
            return Err(invalid_field("caps.window_s", "is 1 to 86400"));
        }
        Ok(CapsPatch {
            per_window: count("per_window", self.per_window)?,
            window_ms: self.window_s.map(|seconds| i64::from(seconds) * 1000),
            per_day: count("per_thread_per_day", self.per_thread_per_day)?,
            per_person: count("per_recipient_per_day", self.per_recipient_per_day)?,
            per_thread: self.per_thread_total,
        })
    }
}

/// What to change. Absent members stay; `null` takes away.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxPatchBody {
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    agent: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    name: Option<Option<String>>,
    /// From now on: `30m`, `24h`; `0s` expires it now, `null` makes it permanent.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    ttl: Option<Option<String>>,
    #[serde(default)]
    catch_all: Option<bool>,
    #[serde(default)]
    allowed_link_domains: Option<Vec<String>>,
    /// `null` makes them the usual ones.
    #[serde(default, deserialize_with = "given_object")]
    #[schema(value_type = Option<CapsBody>)]
    caps: Option<Option<CapsBody>>,
    #[serde(default)]
    reply_to_likely_automatic: Option<bool>,
    #[serde(default)]
    mark_auto_submitted: Option<bool>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    /// The rev that was seen; a stale one is refused.
    #[serde(default)]
    rev: Option<u32>,
}

/// An inbox.
#[derive(Serialize, ToSchema)]
pub(crate) struct InboxBody {
    id: String,
    address: String,
    rev: u32,
    agent: Option<String>,
    name: Option<String>,
    client_id: Option<String>,
    created_at: String,
    /// From then on it refuses mail; its history stays.
    expires_at: Option<String>,
    catch_all: bool,
    allowed_link_domains: Vec<String>,
    caps: CapsBody,
    reply_to_likely_automatic: bool,
    mark_auto_submitted: bool,
    metadata: BTreeMap<String, String>,
    /// Messages that arrived.
    message_count: u64,
    /// The place after its latest message, for `after`.
    cursor: String,
}

impl InboxBody {
    pub(crate) fn of(app: &App, inbox: Inbox) -> Self {
        let about = inbox.settings;
        let InboxSettings { agent, name, expires_at, catch_all, allowed_link_domains, caps, .. } = about;
        Self {
            id: inbox.id.to_string(),
            address: inbox.address,
            rev: inbox.rev,
            agent,
            name,
            client_id: inbox.client_id,
            created_at: inbox.created_at.to_string(),
            expires_at: expires_at.map(|at| at.to_string()),
            catch_all,
            allowed_link_domains,
            caps: CapsBody::from(caps.unwrap_or_default()),
            reply_to_likely_automatic: about.reply_to_likely_automatic,
            mark_auto_submitted: about.mark_auto_submitted,
            metadata: about.metadata,
            message_count: inbox.latest_seq,
            cursor: app.engine.ctx.cursor(inbox.latest_seq).to_string(),
        }
    }
}

/// Inboxes, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct InboxPage {
    data: Vec<InboxBody>,
    next_cursor: Option<String>,
}

pub(crate) fn invalid_field(path: &str, message: impl Into<String>) -> Problem {
    Problem::from(vec![FieldError::new(path, message)])
}

pub(crate) fn parse_duration_ms(path: &str, text: &str, longest: i64) -> Result<i64, Problem> {
    let ms = parse_span(text).filter(|ms| (0..=longest).contains(ms));
    ms.ok_or_else(|| {
        invalid_field(path, format!("is a time such as 30m, 24h or 7d, at most {} d", longest / 86_400_000))
    })
}

pub(crate) fn check_texts(texts: &[(&str, Option<&String>)]) -> Result<(), Problem> {
    texts.iter().try_for_each(|(at, text)| text.map_or(Ok(()), |text| check_text(at, text)))
}

fn check_domains(domains: &[String]) -> Result<(), Problem> {
    if domains.len() > MAX_LINK_DOMAINS {
        return Err(invalid_field("allowed_link_domains", format!("holds more than {MAX_LINK_DOMAINS} domains")));
    }
    domains.iter().try_for_each(|domain| check_text("allowed_link_domains", domain))
}

fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), Problem> {
    if metadata.len() > limits::METADATA {
        return Err(invalid_field("metadata", format!("holds more than {} entries", limits::METADATA)));
    }
    metadata.iter().flat_map(|(name, value)| [name, value]).try_for_each(|text| check_text("metadata", text))
}

/// The longest life of an inbox that is not permanent.
const MAX_TTL_MS: i64 = 400 * 86_400_000;

impl NewInboxBody {
    fn validate(self) -> Result<NewInbox, Problem> {
        check_texts(&[
            ("address", self.address.as_ref()),
            ("username", self.username.as_ref()),
            ("domain", self.domain.as_ref()),
            ("client_id", self.client_id.as_ref()),
            ("agent", self.agent.as_ref()),
            ("name", self.name.as_ref()),
        ])?;
        check_domains(&self.allowed_link_domains)?;
        check_metadata(&self.metadata)?;
        if self.client_id.as_deref().is_some_and(str::is_empty) {
            return Err(invalid_field("client_id", "is empty"));
        }
        let ttl_ms = self.ttl.as_deref().map(|ttl| parse_duration_ms("ttl", ttl, MAX_TTL_MS)).transpose()?;
        let caps = self.caps.map(CapsBody::validate).transpose()?;
        Ok(NewInbox {
            address: self.address,
            username: self.username,
            domain: self.domain,
            ttl_ms,
            client_id: self.client_id,
            about: InboxSettings {
                agent: self.agent,
                name: self.name,
                expires_at: None,
                catch_all: self.catch_all,
                allowed_link_domains: self.allowed_link_domains,
                caps: caps.map(|caps| caps.apply_to(ReplyCaps::default())),
                reply_to_likely_automatic: self.reply_to_likely_automatic,
                mark_auto_submitted: self.mark_auto_submitted,
                metadata: self.metadata,
                changed_at: None,
            },
        })
    }
}

/// The inbox that a path names, by its id or its address.
pub(crate) async fn find_inbox(app: &App, door: &AuthedRequest, text: &str) -> Result<Inbox, Problem> {
    if text.contains('@') {
        return app.engine.inboxes.inbox_by_address(&door.caller, text).await;
    }
    app.engine.inboxes.inbox(&door.caller, inbox_id(text)?).await
}

pub(crate) fn inbox_id(text: &str) -> Result<InboxId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no inbox {text}")))
}

/// Make an inbox.
#[utoipa::path(post, path = "/v1/inboxes", operation_id = "create_inbox", tag = "inboxes", request_body = NewInboxBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 201, description = "Made", body = InboxBody),
        (status = 200, description = "Made before under this key or `client_id`", body = InboxBody),
        (status = 409, description = "The address is taken", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, door: AuthedRequest, body: RawBody) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let new = body.parse_or_empty::<NewInboxBody>()?.validate()?;
    let asked = door.keyed_call("inboxes", "", &body.canonical()?);
    let inbox = app.engine.inboxes.create_inbox(&door.caller, new, asked).await?;
    Ok(created_response(inbox.is_new, Json(InboxBody::of(&app, inbox.value))))
}

/// List inboxes, newest first.
#[utoipa::path(get, path = "/v1/inboxes", operation_id = "list_inboxes", tag = "inboxes", params(PageQuery),
    responses((status = 200, description = "A page", body = InboxPage)))]
pub(crate) async fn list(State(app): State<App>, door: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.inboxes.inboxes(&door.caller, before, limit).await?;
    let data = page.rows.into_iter().map(|inbox| InboxBody::of(&app, inbox)).collect();
    Ok(Json(InboxPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one inbox, by its id or its address.
#[utoipa::path(get, path = "/v1/inboxes/{id}", operation_id = "read_inbox", tag = "inboxes", params(("id" = String, Path)),
    responses((status = 200, description = "The inbox", body = InboxBody)))]
pub(crate) async fn read(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &door, &id).await?;
    Ok(Json(InboxBody::of(&app, inbox)).into_response())
}

/// Change an inbox, or let it expire.
#[utoipa::path(patch, path = "/v1/inboxes/{id}", operation_id = "update_inbox", tag = "inboxes", params(("id" = String, Path)), request_body = InboxPatchBody,
    responses((status = 200, description = "The inbox as it is now", body = InboxBody),
        (status = 409, description = "It changed since it was looked at, or its domain has another catch-all", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn change(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &door, &id).await?;
    let body: InboxPatchBody = body.parse()?;
    let InboxPatchBody { agent, name, ttl, catch_all, allowed_link_domains, metadata, rev, .. } = body;
    check_texts(&[
        ("agent", agent.as_ref().and_then(Option::as_ref)),
        ("name", name.as_ref().and_then(Option::as_ref)),
    ])?;
    allowed_link_domains.as_deref().map_or(Ok(()), check_domains)?;
    metadata.as_ref().map_or(Ok(()), check_metadata)?;
    let expires_at = match ttl {
        None => None,
        Some(None) => Some(None),
        Some(Some(ttl)) => Some(Some(app.engine.ctx.now().plus(parse_duration_ms("ttl", &ttl, MAX_TTL_MS)?))),
    };
    let caps = body.caps.map(|caps| caps.map(CapsBody::validate).transpose()).transpose()?;
    let InboxPatchBody { reply_to_likely_automatic, mark_auto_submitted, .. } = body;
    let patch = InboxPatch {
        agent,
        name,
        expires_at,
        catch_all,
        allowed_link_domains,
        caps,
        reply_to_likely_automatic,
        mark_auto_submitted,
        metadata,
    };
    let inbox = app.engine.inboxes.change_inbox(&door.caller, inbox.id, patch, rev).await?;
    Ok(Json(InboxBody::of(&app, inbox)).into_response())
}

/// Remove an inbox with everything in it. Its address stays taken.
#[utoipa::path(delete, path = "/v1/inboxes/{id}", operation_id = "delete_inbox", tag = "inboxes", params(("id" = String, Path)),
    responses((status = 200, description = "What it was", body = InboxBody)))]
pub(crate) async fn remove(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let inbox = find_inbox(&app, &door, &id).await?;
    let inbox = app.engine.inboxes.remove_inbox(&door.caller, inbox.id).await?;
    Ok(Json(InboxBody::of(&app, inbox)).into_response())
}

/// Give an inbox a new random address. The old one reaches nobody any more.
#[utoipa::path(post, path = "/v1/inboxes/{id}/rotate", operation_id = "rotate_inbox_address", tag = "inboxes", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 200, description = "The inbox as it is now", body = InboxBody),
        (status = 409, description = "It changed meanwhile", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn rotate(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Admin)?;
    let inbox = find_inbox(&app, &door, &id).await?;
    let asked = door.keyed_call("inboxes/rotate", &inbox.id.to_string(), b"");
    let inbox = app.engine.inboxes.rotate_inbox(&door.caller, inbox.id, asked).await?;
    Ok(Json(InboxBody::of(&app, inbox)).into_response())
}

/// What to wait for.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    /// Seconds, at most 60; 30 by default.
    timeout: Option<String>,
    /// A cursor: the first match after it. Without one the latest match that is there will do.
    after: Option<String>,
    /// An address, or `@domain`.
    from: Option<String>,
    /// Part of the subject.
    subject: Option<String>,
    /// `code` or `link`.
    has: Option<String>,
    /// The id of a watch: only mail after its start.
    watch: Option<String>,
}

pub(crate) fn invalid_query(field: &str, detail: &str) -> Problem {
    Problem::for_field(Code::InvalidQuery, field, detail)
}

/// A cursor of an inbox, or `0` for its very start.
pub(crate) fn parse_inbox_cursor(app: &App, field: &str, text: &str) -> Result<u64, Problem> {
    let wrong = || invalid_query(field, &format!("{field} is a cursor such as 1-42, or 0"));
    app.engine.ctx.seq_of(EventCursor::parse(text).ok_or_else(wrong)?)
}

pub(crate) fn artifact_kind(field: &str, word: &str) -> Result<ArtifactKind, Problem> {
    ArtifactKind::parse(word).ok_or_else(|| invalid_query(field, &format!("{field} is code or link")))
}

impl WaitQuery {
    fn parse(self, app: &App) -> Result<(WaitFilter, Duration), Problem> {
        let seconds = match self.timeout.as_deref() {
            None => DEFAULT_WAIT_S,
            Some(text) => {
                text.parse().map_err(|_not_a_number| invalid_query("timeout", "timeout is a number of seconds"))?
            }
        };
        let after = self.after.as_deref().map(|text| parse_inbox_cursor(app, "after", text)).transpose()?;
        let watch = |text: &str| text.parse().map(WatchId).map_err(|_not_an_id| missing_watch(text));
        let wanted = WaitFilter {
            after: after.map(|seq| app.engine.ctx.cursor(seq)),
            from: self.from,
            subject: self.subject,
            has: self.has.as_deref().map(|word| artifact_kind("has", word)).transpose()?,
            watch: self.watch.as_deref().map(watch).transpose()?,
        };
        Ok((wanted, Duration::from_secs(seconds.min(limits::MAX_WAIT_MS as u64 / 1000))))
    }
}

/// A message that arrived.
#[derive(Serialize, ToSchema)]
pub(crate) struct WaitResultBody {
    message: MessageBody,
    /// Pass it as `after` to go on.
    cursor: String,
}

/// Wait for a message. Answers at once when a match is there already.
#[utoipa::path(get, path = "/v1/inboxes/{id}/wait", operation_id = "wait_for_message", tag = "inboxes", params(("id" = String, Path), WaitQuery),
    responses((status = 200, description = "It arrived", body = WaitResultBody), (status = 204, description = "None came in time"),
        (status = 410, description = "The cursor is from before a restore", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn wait(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    query: QueryParams<WaitQuery>,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &door, &id).await?;
    let (wanted, patience) = query.0.parse(&app)?;
    // On the heap: thousands of callers wait at a time, and most of what this holds is needed only at its end.
    let waited = Box::pin(app.engine.inboxes.wait_for_message(&door.caller, inbox.id, wanted, patience)).await?;
    let Some(arrived) = waited else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let cursor = arrived.cursor.to_string();
    let message = MessageBody::of(&app, &arrived.message);
    Ok(Json(WaitResultBody { message, cursor }).into_response())
}

/// A watch to begin.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWatchBody {
    /// How often its agent may ask for the mail to be sent again; 1 by default.
    #[serde(default)]
    budget: Option<u32>,
    /// When it ends: an instant, or a time from now such as `5m`; 10 minutes by default.
    #[serde(default)]
    deadline: Option<String>,
    /// `true`: only mail whose sender is authenticated counts.
    #[serde(default)]
    require_auth: Option<bool>,
}

/// A watch.
#[derive(Serialize, ToSchema)]
pub(crate) struct WatchBody {
    id: String,
    inbox_id: String,
    rev: u32,
    started_at: String,
    deadline: String,
    budget: u32,
    resends_used: u32,
    /// Whether only mail whose sender is authenticated counts.
    require_auth: bool,
    /// Only mail after this place counts.
    cursor: String,
}

impl WatchBody {
    fn of(app: &App, watch: &Watch) -> Self {
        Self {
            id: watch.id.to_string(),
            inbox_id: watch.inbox.to_string(),
            rev: watch.rev,
            started_at: watch.started_at.to_string(),
            deadline: watch.deadline.to_string(),
            budget: watch.resend_budget,
            resends_used: watch.resends_used,
            require_auth: watch.require_auth,
            cursor: app.engine.ctx.cursor(watch.after_seq).to_string(),
        }
    }
}

fn missing_watch(text: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no watch {text}"))
}

fn watch_id(text: &str) -> Result<WatchId, Problem> {
    text.parse().map(WatchId).map_err(|_not_an_id| missing_watch(text))
}

/// Begin a watch: one run of an agent that waits.
#[utoipa::path(post, path = "/v1/inboxes/{id}/watches", operation_id = "create_watch", tag = "inboxes", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")), request_body = NewWatchBody,
    responses((status = 201, description = "Begun", body = WatchBody), (status = 200, description = "Begun before under this key", body = WatchBody)))]
pub(crate) async fn create_watch(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &door, &id).await?;
    let NewWatchBody { budget, deadline, require_auth } = body.parse_or_empty()?;
    let budget = budget.unwrap_or(1);
    if budget > MAX_WATCH_BUDGET {
        return Err(invalid_field("budget", format!("is at most {MAX_WATCH_BUDGET}")).into());
    }
    let lasts = match deadline.as_deref() {
        None => DEFAULT_WATCH_MS,
        Some(text) => match Time::parse(text) {
            Some(at) => at.since(app.engine.ctx.now()),
            None => parse_duration_ms("deadline", text, limits::MAX_WATCH_MS)?,
        },
    };
    if !(1..=limits::MAX_WATCH_MS).contains(&lasts) {
        return Err(invalid_field("deadline", "lies within the next 7 days").into());
    }
    let require_auth = require_auth.unwrap_or(false);
    let mut meaning = serde_json::json!([budget, deadline]);
    // Only when it is asked for, so that a retry of a call from before the upgrade stays the same call.
    if require_auth && let Some(members) = meaning.as_array_mut() {
        members.push("require_auth".into());
    }
    let meaning = meaning.to_string();
    let asked = door.keyed_call("watches", &inbox.id.to_string(), meaning.as_bytes());
    let watch = app.engine.inboxes.create_watch(&door.caller, inbox.id, (budget, lasts, require_auth), asked).await?;
    Ok(created_response(watch.is_new, Json(WatchBody::of(&app, &watch.value))))
}

/// Read one watch.
#[utoipa::path(get, path = "/v1/watches/{id}", operation_id = "read_watch", tag = "inboxes", params(("id" = String, Path)),
    responses((status = 200, description = "The watch", body = WatchBody)))]
pub(crate) async fn read_watch(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let watch = app.engine.inboxes.watch(&door.caller, watch_id(&id)?).await?;
    Ok(Json(WatchBody::of(&app, &watch)).into_response())
}

/// Spend one of a watch's resends: ask here first, then ask for the mail again.
#[utoipa::path(post, path = "/v1/watches/{id}/resend", operation_id = "spend_watch_resend", tag = "inboxes", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")),
    responses((status = 200, description = "It may be asked for again", body = WatchBody),
        (status = 409, description = "The budget is spent, or the watch is over", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn spend(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
) -> Result<Response, crate::api::problem::ApiError> {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let id = watch_id(&id)?;
    let asked = door.keyed_call("watches/resend", &id.to_string(), b"");
    let watch = app.engine.inboxes.spend_resend(&door.caller, id, asked).await?;
    Ok(Json(WatchBody::of(&app, &watch)).into_response())
}
