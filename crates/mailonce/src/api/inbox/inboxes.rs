//! Inboxes: addresses that receive mail for agents.

use axum::{Json, extract::State, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::caps::ReplyCaps,
    events::event::EventCursor,
    id::InboxId,
    inbox::{Inbox, InboxRetention, InboxSettings, artifact::ArtifactKind},
    limits,
    problem::{Code, Problem},
    time::{format_span, parse_span},
};
use mailonce_engine::inbox::inboxes::{InboxPatch, NewInbox};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

use super::reply_caps::CapsBody;
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

/// The shortest and the longest `retention.raw`.
const RAW_RETENTION_MS: std::ops::RangeInclusive<i64> = 3_600_000..=3_650 * 86_400_000;

/// How long an inbox keeps mail. It can be shorter than the team's `retention`, and never longer.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxRetentionBody {
    /// Received mail, with its text and attachments: a duration from 1 hour to 3,650 days; null means as long as the team
    /// keeps it.
    #[serde(default)]
    raw: Option<String>,
}

impl InboxRetentionBody {
    fn validate(self) -> Result<InboxRetention, Problem> {
        let field = "retention.raw";
        let read = |text: String| parse_duration_ms(field, &text, *RAW_RETENTION_MS.end());
        let raw_ms = self.raw.map(read).transpose()?;
        if raw_ms.is_some_and(|ms| ms < *RAW_RETENTION_MS.start()) {
            return Err(Problem::invalid_field(
                field,
                "must be at least 1 hour, or null for as long as the team keeps it",
            ));
        }
        Ok(InboxRetention { raw_ms })
    }

    /// As answers show it. `None` when nothing is set.
    fn of(retention: InboxRetention) -> Option<Self> {
        (!retention.is_empty()).then(|| Self { raw: retention.raw_ms.map(format_span) })
    }
}

/// An inbox to create.
///
/// Set `address`, or `username` and `domain`, or neither for a random address.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewInboxBody {
    /// Whole address; a random one by default. Not with `username` or `domain`.
    #[serde(default)]
    address: Option<String>,
    /// Part of the address before the @; random by default.
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
    /// How long mail is kept, if shorter than the team keeps it; needs the scope `admin`.
    #[serde(default, deserialize_with = "object_or_null")]
    retention: Option<InboxRetentionBody>,
    /// Your own values.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// Fields of an inbox to change. Absent fields keep their value; `null` removes a value.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxPatchBody {
    /// Name of the agent that uses the inbox; `null` removes it.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    agent: Option<Option<String>>,
    /// Display name for mail from this inbox; `null` removes it.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    name: Option<Option<String>>,
    /// New lifetime from now, such as `30m` or `24h`. `0s` expires the inbox now; `null` makes it permanent.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    ttl: Option<Option<String>>,
    /// Whether the inbox receives mail for every address of its domain without an inbox; needs the scope `admin`.
    #[serde(default)]
    catch_all: Option<bool>,
    /// Registrable domains whose links are allowed, at most 50; replaces the list.
    #[serde(default)]
    allowed_link_domains: Option<Vec<String>>,
    /// Limits on the number of replies; `null` restores the defaults.
    #[serde(default, deserialize_with = "given_object")]
    #[schema(value_type = Option<CapsBody>)]
    caps: Option<Option<CapsBody>>,
    /// Whether agents may reply to mail that is likely, but not certainly, automatic.
    #[serde(default)]
    reply_to_likely_automatic: Option<bool>,
    /// Whether replies have the header `Auto-Submitted`.
    #[serde(default)]
    mark_auto_submitted: Option<bool>,
    /// How long mail is kept, if shorter than the team keeps it; `null` removes it. Needs the scope `admin`.
    #[serde(default, deserialize_with = "given_object")]
    #[schema(value_type = Option<InboxRetentionBody>)]
    retention: Option<Option<InboxRetentionBody>>,
    /// Your own values; replaces all of them.
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    /// The `rev` that you read. If it is set, the call is refused when the inbox has changed since.
    #[serde(default)]
    rev: Option<u32>,
}

/// An inbox.
#[derive(Serialize, ToSchema)]
pub(crate) struct InboxBody {
    /// Id of the inbox.
    id: String,
    /// Address of the inbox.
    address: String,
    /// Revision; grows with every change.
    rev: u32,
    /// Name of the agent that uses the inbox.
    agent: Option<String>,
    /// Display name for mail from this inbox.
    name: Option<String>,
    /// Your own id of the inbox.
    client_id: Option<String>,
    /// When the inbox was created.
    created_at: String,
    /// When the inbox stops receiving mail; its messages stay readable. Null for a permanent inbox.
    expires_at: Option<String>,
    /// Whether the inbox receives mail for every address of its domain without an inbox.
    catch_all: bool,
    /// Registrable domains whose links are allowed. When empty, links are judged by the sender's domain.
    allowed_link_domains: Vec<String>,
    caps: CapsBody,
    /// Whether agents may reply to mail that is likely, but not certainly, automatic.
    reply_to_likely_automatic: bool,
    /// Whether replies have the header `Auto-Submitted`.
    mark_auto_submitted: bool,
    /// How long mail is kept, if the inbox has a period of its own. Left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<InboxRetentionBody>,
    /// Your own values.
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
            retention: InboxRetentionBody::of(settings.retention),
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

pub(crate) fn parse_duration_ms(path: &str, text: &str, max_ms: i64) -> Result<i64, Problem> {
    let ms = parse_span(text).filter(|ms| (0..=max_ms).contains(ms));
    ms.ok_or_else(|| {
        Problem::invalid_field(
            path,
            format!("must be a duration such as 30m, 24h or 7d, at most {}d", max_ms / 86_400_000),
        )
    })
}

pub(crate) fn check_texts(texts: &[(&str, Option<&String>)]) -> Result<(), Problem> {
    texts.iter().try_for_each(|(at, text)| text.map_or(Ok(()), |text| check_text(at, text)))
}

fn check_domains(domains: &[String]) -> Result<(), Problem> {
    if domains.len() > MAX_LINK_DOMAINS {
        return Err(Problem::invalid_field(
            "allowed_link_domains",
            format!("must have at most {MAX_LINK_DOMAINS} domains"),
        ));
    }
    domains.iter().try_for_each(|domain| check_text("allowed_link_domains", domain))
}

fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), Problem> {
    if metadata.len() > limits::METADATA {
        return Err(Problem::invalid_field("metadata", format!("must have at most {} entries", limits::METADATA)));
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
            return Err(Problem::invalid_field("client_id", "must not be empty"));
        }
        let ttl_ms = self.ttl.as_deref().map(|ttl| parse_duration_ms("ttl", ttl, MAX_TTL_MS)).transpose()?;
        let caps = self.caps.map(CapsBody::validate).transpose()?;
        let retention = self.retention.map(InboxRetentionBody::validate).transpose()?.unwrap_or_default();
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
                retention,
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

/// Parses a cursor of an inbox; `0` is its start.
pub(crate) fn parse_inbox_cursor(app: &App, field: &str, text: &str) -> Result<u64, Problem> {
    let invalid = || Problem::invalid_query(field, format!("{field} must be a cursor such as 1-42, or 0"));
    app.engine.ctx.seq_of(EventCursor::parse(text).ok_or_else(invalid)?)
}

pub(crate) fn artifact_kind(field: &str, word: &str) -> Result<ArtifactKind, Problem> {
    ArtifactKind::parse(word).ok_or_else(|| Problem::invalid_query(field, format!("{field} must be code or link")))
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
    let retention = match body.retention {
        Some(Some(retention)) => Some(retention.validate()?),
        given => given.map(|_null| InboxRetention::default()),
    };
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
        retention,
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
