//! Inboxes: addresses that receive mail for agents, waiting for messages, and watches.

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
    artifacts::WatchRequest,
    inboxes::{CapsPatch, InboxPatch, NewInbox},
    wait::WaitFilter,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use utoipa::{IntoParams, ToSchema};

use super::messages::MessageBody;
use crate::{
    api::pagination::{PageQuery, created_response},
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::{check_text, given, given_object, object_or_null},
        params::{PathParam, QueryParams},
    },
};

/// Maximum number of `allowed_link_domains`.
const MAX_LINK_DOMAINS: usize = 50;
/// Maximum resend budget of a watch.
const MAX_WATCH_BUDGET: u32 = 100;
/// Default duration of a watch.
const DEFAULT_WATCH_MS: i64 = 10 * 60_000;
/// Default of `timeout`, in seconds.
const DEFAULT_WAIT_S: u64 = 30;

/// An inbox to create.
///
/// Set `address`, or `username` and `domain`, or neither for a random address.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewInboxBody {
    #[serde(default)]
    address: Option<String>,
    #[serde(default)]
    username: Option<String>,
    /// Domain of the address; the first domain of this installation by default.
    #[serde(default)]
    domain: Option<String>,
    /// Lifetime of the inbox, such as `30m`, `24h` or `7d`; permanent when absent.
    #[serde(default)]
    ttl: Option<String>,
    /// Your own id of the inbox. Another call with the same `client_id` returns the same inbox.
    #[serde(default)]
    client_id: Option<String>,
    /// Name of the agent that uses the inbox.
    #[serde(default)]
    agent: Option<String>,
    /// Display name for mail from this inbox.
    #[serde(default)]
    name: Option<String>,
    /// Whether the inbox receives mail for every address of its domain without an inbox; needs the scope `admin`.
    #[serde(default)]
    catch_all: bool,
    /// Registrable domains whose links are allowed, at most 50. When empty, links are judged by the sender's domain.
    #[serde(default)]
    allowed_link_domains: Vec<String>,
    /// Limits on the number of replies.
    #[serde(default, deserialize_with = "object_or_null")]
    caps: Option<CapsBody>,
    /// Whether agents may reply to mail that is likely, but not certainly, automatic.
    #[serde(default)]
    reply_to_likely_automatic: bool,
    /// Whether replies have the header `Auto-Submitted`, which marks them as written by a machine.
    #[serde(default)]
    mark_auto_submitted: bool,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// Limits on the number of replies. A reply beyond a limit is held.
///
/// Absent fields keep their value. The defaults are 3 in 300 seconds and 20 a day in a thread, and 20 a day to one
/// recipient.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapsBody {
    /// Replies in a thread within `window_s`.
    #[serde(default)]
    per_window: Option<u32>,
    /// Length of the window in seconds, 1 to 86400.
    #[serde(default)]
    window_s: Option<u32>,
    /// Replies in a thread per day.
    #[serde(default)]
    per_thread_per_day: Option<u32>,
    /// Replies to one recipient per day, over all threads.
    #[serde(default)]
    per_recipient_per_day: Option<u32>,
    /// Replies in a thread in total; `null` removes the limit. No limit by default.
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
        let count = |field: &str, limit: Option<u32>| match limit {
            Some(limit) if limit > ReplyCaps::MAX => {
                Err(invalid_field(&format!("caps.{field}"), format!("must be at most {}", ReplyCaps::MAX)))
            }
            limit => Ok(limit),
        };
        if self.window_s.is_some_and(|seconds| !(1..=86_400).contains(&seconds)) {
            return Err(invalid_field("caps.window_s", "must be 1 to 86400"));
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

/// Fields of an inbox to change. Absent fields keep their value; `null` removes a value.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxPatchBody {
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    agent: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    name: Option<Option<String>>,
    /// New lifetime from now, such as `30m` or `24h`. `0s` expires the inbox now; `null` makes it permanent.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    ttl: Option<Option<String>>,
    #[serde(default)]
    catch_all: Option<bool>,
    #[serde(default)]
    allowed_link_domains: Option<Vec<String>>,
    /// Limits on the number of replies; `null` restores the defaults.
    #[serde(default, deserialize_with = "given_object")]
    #[schema(value_type = Option<CapsBody>)]
    caps: Option<Option<CapsBody>>,
    #[serde(default)]
    reply_to_likely_automatic: Option<bool>,
    #[serde(default)]
    mark_auto_submitted: Option<bool>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    /// The `rev` that you read. If it is set, the call is refused when the inbox has changed since.
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
    /// When the inbox stops receiving mail; its messages stay readable. Null for a permanent inbox.
    expires_at: Option<String>,
    catch_all: bool,
    allowed_link_domains: Vec<String>,
    caps: CapsBody,
    reply_to_likely_automatic: bool,
    mark_auto_submitted: bool,
    metadata: BTreeMap<String, String>,
    /// Number of messages that were received.
    message_count: u64,
    /// Cursor of the latest message; pass it as `after`.
    cursor: String,
}

impl InboxBody {
    pub(crate) fn of(app: &App, inbox: Inbox) -> Self {
        let settings = inbox.settings;
        let InboxSettings { agent, name, expires_at, catch_all, allowed_link_domains, caps, .. } = settings;
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
            reply_to_likely_automatic: settings.reply_to_likely_automatic,
            mark_auto_submitted: settings.mark_auto_submitted,
            metadata: settings.metadata,
            message_count: inbox.latest_seq,
            cursor: app.engine.ctx.cursor(inbox.latest_seq).to_string(),
        }
    }
}

/// A page of inboxes, newest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct InboxPage {
    data: Vec<InboxBody>,
    next_cursor: Option<String>,
}

pub(crate) fn invalid_field(path: &str, message: impl Into<String>) -> Problem {
    Problem::from(vec![FieldError::new(path, message)])
}

pub(crate) fn parse_duration_ms(path: &str, text: &str, max_ms: i64) -> Result<i64, Problem> {
    let ms = parse_span(text).filter(|ms| (0..=max_ms).contains(ms));
    ms.ok_or_else(|| {
        invalid_field(path, format!("must be a duration such as 30m, 24h or 7d, at most {}d", max_ms / 86_400_000))
    })
}

pub(crate) fn check_texts(texts: &[(&str, Option<&String>)]) -> Result<(), Problem> {
    texts.iter().try_for_each(|(at, text)| text.map_or(Ok(()), |text| check_text(at, text)))
}

fn check_domains(domains: &[String]) -> Result<(), Problem> {
    if domains.len() > MAX_LINK_DOMAINS {
        return Err(invalid_field("allowed_link_domains", format!("must have at most {MAX_LINK_DOMAINS} domains")));
    }
    domains.iter().try_for_each(|domain| check_text("allowed_link_domains", domain))
}

fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), Problem> {
    if metadata.len() > limits::METADATA {
        return Err(invalid_field("metadata", format!("must have at most {} entries", limits::METADATA)));
    }
    metadata.iter().flat_map(|(name, value)| [name, value]).try_for_each(|text| check_text("metadata", text))
}

/// Maximum lifetime of an inbox that is not permanent.
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
            return Err(invalid_field("client_id", "must not be empty"));
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

/// Finds the inbox in a path, by its id or its address.
pub(crate) async fn find_inbox(app: &App, auth: &AuthedRequest, text: &str) -> Result<Inbox, Problem> {
    if text.contains('@') {
        return app.engine.inboxes.inbox_by_address(&auth.caller, text).await;
    }
    app.engine.inboxes.inbox(&auth.caller, inbox_id(text)?).await
}

pub(crate) fn inbox_id(text: &str) -> Result<InboxId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no inbox {text}")))
}

/// Create an inbox.
#[utoipa::path(post, path = "/v1/inboxes", operation_id = "create_inbox", tag = "inboxes", request_body = NewInboxBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 201, description = "Created", body = InboxBody),
        (status = 200, description = "Created before with this idempotency key or `client_id`", body = InboxBody),
        (status = 409, description = "The address is already taken", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn create(State(app): State<App>, auth: AuthedRequest, body: RawBody) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let new = body.parse_or_empty::<NewInboxBody>()?.validate()?;
    let keyed_call = auth.keyed_call("inboxes", "", &body.canonical()?);
    let inbox = app.engine.inboxes.create_inbox(&auth.caller, new, keyed_call).await?;
    Ok(created_response(inbox.is_new, Json(InboxBody::of(&app, inbox.value))))
}

/// List inboxes, newest first.
#[utoipa::path(get, path = "/v1/inboxes", operation_id = "list_inboxes", tag = "inboxes", params(PageQuery),
    responses((status = 200, description = "A page of results", body = InboxPage)))]
pub(crate) async fn list(State(app): State<App>, auth: AuthedRequest, query: QueryParams<PageQuery>) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let (before, limit) = query.0.parse()?;
    let page = app.engine.inboxes.inboxes(&auth.caller, before, limit).await?;
    let data = page.rows.into_iter().map(|inbox| InboxBody::of(&app, inbox)).collect();
    Ok(Json(InboxPage { data, next_cursor: page.next.map(|id| id.to_string()) }).into_response())
}

/// Read one inbox, by its id or its address.
#[utoipa::path(get, path = "/v1/inboxes/{id}", operation_id = "read_inbox", tag = "inboxes", params(("id" = String, Path)),
    responses((status = 200, description = "The inbox", body = InboxBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &id).await?;
    Ok(Json(InboxBody::of(&app, inbox)).into_response())
}

/// Change or expire an inbox.
#[utoipa::path(patch, path = "/v1/inboxes/{id}", operation_id = "update_inbox", tag = "inboxes", params(("id" = String, Path)), request_body = InboxPatchBody,
    responses((status = 200, description = "The updated inbox", body = InboxBody),
        (status = 409, description = "The inbox changed since you read it, or its domain has another catch-all inbox", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn change(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &id).await?;
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
    let inbox = app.engine.inboxes.change_inbox(&auth.caller, inbox.id, patch, rev).await?;
    Ok(Json(InboxBody::of(&app, inbox)).into_response())
}

/// Remove an inbox with everything in it.
///
/// Its address cannot be used for another inbox.
#[utoipa::path(delete, path = "/v1/inboxes/{id}", operation_id = "delete_inbox", tag = "inboxes", params(("id" = String, Path)),
    responses((status = 200, description = "The removed object", body = InboxBody)))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let inbox = find_inbox(&app, &auth, &id).await?;
    let inbox = app.engine.inboxes.remove_inbox(&auth.caller, inbox.id).await?;
    Ok(Json(InboxBody::of(&app, inbox)).into_response())
}

/// Give an inbox a new random address.
///
/// Mail to the old address is refused.
#[utoipa::path(post, path = "/v1/inboxes/{id}/rotate", operation_id = "rotate_inbox_address", tag = "inboxes", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "The updated inbox", body = InboxBody),
        (status = 409, description = "The object changed during the call; retry", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn rotate(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    let inbox = find_inbox(&app, &auth, &id).await?;
    let keyed_call = auth.keyed_call("inboxes/rotate", &inbox.id.to_string(), b"");
    let inbox = app.engine.inboxes.rotate_inbox(&auth.caller, inbox.id, keyed_call).await?;
    Ok(Json(InboxBody::of(&app, inbox)).into_response())
}

/// What to wait for, and how long.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    /// How long to wait in seconds, at most 60; 30 by default.
    timeout: Option<String>,
    /// Return the first match after this cursor. When absent, the latest match that is already there is returned.
    after: Option<String>,
    /// Only from this address or `@domain`.
    from: Option<String>,
    /// Only with this text in the subject.
    subject: Option<String>,
    /// Only with an artifact of this type: `code` or `link`.
    has: Option<String>,
    /// Id of a watch: only messages after its start.
    watch: Option<String>,
}

pub(crate) fn invalid_query(field: &str, detail: &str) -> Problem {
    Problem::for_field(Code::InvalidQuery, field, detail)
}

/// Parses a cursor of an inbox; `0` is its start.
pub(crate) fn parse_inbox_cursor(app: &App, field: &str, text: &str) -> Result<u64, Problem> {
    let invalid = || invalid_query(field, &format!("{field} must be a cursor such as 1-42, or 0"));
    app.engine.ctx.seq_of(EventCursor::parse(text).ok_or_else(invalid)?)
}

pub(crate) fn artifact_kind(field: &str, word: &str) -> Result<ArtifactKind, Problem> {
    ArtifactKind::parse(word).ok_or_else(|| invalid_query(field, &format!("{field} must be code or link")))
}

impl WaitQuery {
    fn parse(self, app: &App) -> Result<(WaitFilter, Duration), Problem> {
        let seconds = match self.timeout.as_deref() {
            None => DEFAULT_WAIT_S,
            Some(text) => {
                text.parse().map_err(|_not_a_number| invalid_query("timeout", "timeout must be a number of seconds"))?
            }
        };
        let after = self.after.as_deref().map(|text| parse_inbox_cursor(app, "after", text)).transpose()?;
        let watch = |text: &str| text.parse().map(WatchId).map_err(|_not_an_id| missing_watch(text));
        let filter = WaitFilter {
            after: after.map(|seq| app.engine.ctx.cursor(seq)),
            from: self.from,
            subject: self.subject,
            has: self.has.as_deref().map(|word| artifact_kind("has", word)).transpose()?,
            watch: self.watch.as_deref().map(watch).transpose()?,
        };
        Ok((filter, Duration::from_secs(seconds.min(limits::MAX_WAIT_MS as u64 / 1000))))
    }
}

/// The message that was waited for.
#[derive(Serialize, ToSchema)]
pub(crate) struct WaitResultBody {
    message: MessageBody,
    /// Pass it as `after` to wait for the next message.
    cursor: String,
}

/// Wait for a message (long polling).
///
/// Returns at once when a matching message is already there.
#[utoipa::path(get, path = "/v1/inboxes/{id}/wait", operation_id = "wait_for_message", tag = "inboxes", params(("id" = String, Path), WaitQuery),
    responses((status = 200, description = "The message", body = WaitResultBody), (status = 204, description = "No matching message arrived in time"),
        (status = 410, description = "The cursor is from before a restore or database failover", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn wait(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    query: QueryParams<WaitQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &id).await?;
    let (filter, timeout) = query.0.parse(&app)?;
    // Boxed, because thousands of callers wait at the same time and the future is large.
    let waited = Box::pin(app.engine.inboxes.wait_for_message(&auth.caller, inbox.id, filter, timeout)).await?;
    let Some(arrived) = waited else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let cursor = arrived.cursor.to_string();
    let message = MessageBody::of(&app, &arrived.message);
    Ok(Json(WaitResultBody { message, cursor }).into_response())
}

/// A watch to start.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWatchBody {
    /// How often the agent may request that the email is sent again, at most 100; 1 by default.
    #[serde(default)]
    budget: Option<u32>,
    /// When the watch ends: an RFC 3339 time, or a duration from now such as `5m`.
    ///
    /// 10 minutes by default, at most 7 days.
    #[serde(default)]
    deadline: Option<String>,
    /// `true`: only messages with an authenticated sender count.
    #[serde(default)]
    require_auth: Option<bool>,
}

/// A watch: one run of an agent that waits for mail.
#[derive(Serialize, ToSchema)]
pub(crate) struct WatchBody {
    id: String,
    inbox_id: String,
    rev: u32,
    started_at: String,
    deadline: String,
    budget: u32,
    resends_used: u32,
    /// Whether only messages with an authenticated sender count.
    require_auth: bool,
    /// Only messages after this cursor count.
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

/// Start a watch: one run of an agent that waits for mail.
#[utoipa::path(post, path = "/v1/inboxes/{id}/watches", operation_id = "create_watch", tag = "inboxes", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = NewWatchBody,
    responses((status = 201, description = "Started", body = WatchBody), (status = 200, description = "Started before with this idempotency key", body = WatchBody)))]
pub(crate) async fn create_watch(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &id).await?;
    let NewWatchBody { budget, deadline, require_auth } = body.parse_or_empty()?;
    let budget = budget.unwrap_or(1);
    if budget > MAX_WATCH_BUDGET {
        return Err(invalid_field("budget", format!("must be at most {MAX_WATCH_BUDGET}")).into());
    }
    let duration_ms = match deadline.as_deref() {
        None => DEFAULT_WATCH_MS,
        Some(text) => match Time::parse(text) {
            Some(at) => at.since(app.engine.ctx.now()),
            None => parse_duration_ms("deadline", text, limits::MAX_WATCH_MS)?,
        },
    };
    if !(1..=limits::MAX_WATCH_MS).contains(&duration_ms) {
        return Err(invalid_field("deadline", "must be within the next 7 days").into());
    }
    let require_auth = require_auth.unwrap_or(false);
    let mut digest_input = serde_json::json!([budget, deadline]);
    // Added only when it is set. So a call keeps the digest from before the field existed.
    if require_auth && let Some(members) = digest_input.as_array_mut() {
        members.push("require_auth".into());
    }
    let digest_input = digest_input.to_string();
    let keyed_call = auth.keyed_call("watches", &inbox.id.to_string(), digest_input.as_bytes());
    let request = WatchRequest { resend_budget: budget, duration_ms, require_auth };
    let watch = app.engine.inboxes.create_watch(&auth.caller, inbox.id, request, keyed_call).await?;
    Ok(created_response(watch.is_new, Json(WatchBody::of(&app, &watch.value))))
}

/// Read one watch.
#[utoipa::path(get, path = "/v1/watches/{id}", operation_id = "read_watch", tag = "inboxes", params(("id" = String, Path)),
    responses((status = 200, description = "The watch", body = WatchBody)))]
pub(crate) async fn read_watch(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let watch = app.engine.inboxes.watch(&auth.caller, watch_id(&id)?).await?;
    Ok(Json(WatchBody::of(&app, &watch)).into_response())
}

/// Use one resend of a watch's budget.
///
/// Call this before you request the email again from its sender.
#[utoipa::path(post, path = "/v1/watches/{id}/resend", operation_id = "spend_watch_resend", tag = "inboxes", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")),
    responses((status = 200, description = "The email may be requested again", body = WatchBody),
        (status = 409, description = "The budget is used up, or the watch has ended", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn spend(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
) -> Result<Response, crate::http::problem::ApiError> {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let id = watch_id(&id)?;
    let keyed_call = auth.keyed_call("watches/resend", &id.to_string(), b"");
    let watch = app.engine.inboxes.spend_resend(&auth.caller, id, keyed_call).await?;
    Ok(Json(WatchBody::of(&app, &watch)).into_response())
}
