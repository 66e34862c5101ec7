//! Threads: list, read, labels and leases.

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::{
        caps::ReplyCaps,
        thread::{Thread, ThreadEdit, ThreadQuery},
    },
    id::ThreadId,
    limits,
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::conversation::threads::{MAX_LABELS, NewThreadLease, ThreadEntry, ThreadView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    api::{
        conversation::work_queue::{LeaseBody, lease_duration_ms, lease_holder},
        inbox::{inboxes::find_inbox, message_body::MessageBody, reply_caps::CapsBody},
        outbound::{email_bodies::EmailBody, emails::page_limit},
    },
    http::{
        app::{ApiResult, App},
        extract::{AuthedRequest, RawBody},
        json::check_required_text,
        params::{PathParam, QueryParams},
    },
};

/// One day in milliseconds.
const DAY_MS: i64 = 86_400_000;

/// The current lease of a thread, without its token.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeaseHolderBody {
    /// Name of the worker that holds the lease.
    holder: String,
    /// When the lease expires unless it is extended.
    expires_at: String,
    /// Id of the message that the lease was taken with.
    message: Option<String>,
}

/// Number of replies in a thread, and its limits.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReplyCountsBody {
    /// Replies within the window of `caps`, the latest `window_s` seconds.
    in_window: usize,
    /// Within the last 24 hours.
    last_24h: usize,
    /// All replies in the thread.
    total: u32,
    caps: CapsBody,
}

/// An entry of a thread: a received message or a sent email.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ThreadEntryBody {
    /// A received message.
    Message {
        /// The message.
        message: Box<MessageBody>,
    },
    /// An email that the team sent.
    Email {
        /// The email.
        email: Box<EmailBody>,
    },
}

/// A thread: messages and emails that reply to each other.
#[derive(Serialize, ToSchema)]
pub(crate) struct ThreadBody {
    /// Id of the thread.
    id: String,
    /// Id of the inbox.
    inbox_id: String,
    /// Revision; grows with every change.
    rev: u32,
    /// Subject of the first message.
    subject: String,
    /// When the thread began.
    created_at: String,
    /// When the last message or email was added.
    last_activity_at: String,
    /// Labels of the thread.
    labels: Vec<String>,
    /// When the thread was marked as handled; null if it is not. A new message clears the mark.
    handled_at: Option<String>,
    /// Number of received messages.
    message_count: u32,
    /// Number of sent emails.
    email_count: u32,
    /// Fence of the latest lease; grows with each lease.
    fence: u64,
    /// The current lease; null when no agent holds one.
    lease: Option<LeaseHolderBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replies: Option<ReplyCountsBody>,
    /// The latest 100 messages and 100 emails, oldest first; only when a single thread is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<ThreadEntryBody>>,
}

impl ThreadBody {
    fn of(app: &App, thread: &Thread) -> Self {
        let details = &thread.details;
        let lease = thread.active_lease(app.engine.ctx.now()).map(|lease| LeaseHolderBody {
            holder: lease.holder.clone(),
            expires_at: lease.expires_at.to_string(),
            message: lease.message.map(|id| id.to_string()),
        });
        Self {
            id: thread.id.to_string(),
            inbox_id: thread.inbox.to_string(),
            rev: thread.rev,
            subject: details.subject.clone(),
            created_at: details.created_at.to_string(),
            last_activity_at: thread.last_activity_at.to_string(),
            labels: details.labels.clone(),
            handled_at: details.handled_at.map(|at| at.to_string()),
            message_count: details.messages,
            email_count: details.emails,
            fence: details.fence,
            lease,
            replies: None,
            entries: None,
        }
    }

    fn with_replies(mut self, app: &App, view: &ThreadView) -> Self {
        let (sends, now, caps): (_, _, ReplyCaps) = (&view.thread.details.sends, app.engine.ctx.now(), view.caps);
        self.replies = Some(ReplyCountsBody {
            in_window: sends.count_within(caps.window_ms, now),
            last_24h: sends.count_within(DAY_MS, now),
            total: view.thread.details.sent,
            caps: CapsBody::from(caps),
        });
        self
    }
}

fn entry_body(app: &App, entry: &ThreadEntry) -> ThreadEntryBody {
    match entry {
        ThreadEntry::Message(message) => ThreadEntryBody::Message { message: Box::new(MessageBody::of(app, message)) },
        ThreadEntry::Email(email) => {
            ThreadEntryBody::Email { email: Box::new(EmailBody::of(email, app.engine.ctx.message_id(email))) }
        }
    }
}

/// A page of threads, latest activity first.
#[derive(Serialize, ToSchema)]
pub(crate) struct ThreadPage {
    data: Vec<ThreadBody>,
    next_cursor: Option<String>,
}

/// Filters for the list of threads.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThreadListQuery {
    /// Page size, 1 to 100; 20 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Only threads of this inbox, by id or address.
    inbox: Option<String>,
    label: Option<String>,
    /// Only threads that are marked as handled (`true`) or not (`false`).
    handled: Option<String>,
}

/// Parses the cursor of the thread list: time of the last activity and thread id.
fn parse_cursor(text: &str) -> Result<(Time, ThreadId), Problem> {
    let invalid = || Problem::invalid_query("cursor", "cursor must be the next_cursor of a previous page");
    let (at, id) = text.split_once('-').ok_or_else(invalid)?;
    Ok((Time(at.parse().map_err(|_not_a_number| invalid())?), id.parse().map_err(|_not_an_id| invalid())?))
}

fn thread_id(text: &str) -> Result<ThreadId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no thread {text}")))
}

/// List threads, latest activity first.
#[utoipa::path(get, path = "/v1/threads", operation_id = "list_threads", tag = "conversations", params(ThreadListQuery),
    responses((status = 200, description = "A page of results", body = ThreadPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    auth: AuthedRequest,
    query: QueryParams<ThreadListQuery>,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let ThreadListQuery { limit, cursor, inbox, label, handled } = query.0;
    let inbox = match inbox {
        Some(text) => Some(find_inbox(&app, &auth, &text).await?.id),
        None => None,
    };
    let handled = match handled.as_deref() {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(Problem::invalid_query("handled", "handled must be true or false").into()),
    };
    let before = cursor.as_deref().map(parse_cursor).transpose()?;
    let limit = page_limit(limit.as_deref(), limits::PAGE_ROWS, 20)?;
    let page =
        app.engine.conversations.threads(&auth.caller, ThreadQuery { inbox, label, handled, before, limit }).await?;
    let data = page.rows.iter().map(|thread| ThreadBody::of(&app, thread)).collect();
    let next_cursor = page.next.map(|(at, id)| format!("{}-{id}", at.0));
    Ok(Json(ThreadPage { data, next_cursor }).into_response())
}

/// Read a thread, with its lease, reply counts, messages and emails.
#[utoipa::path(get, path = "/v1/threads/{id}", operation_id = "read_thread", tag = "conversations", params(("id" = String, Path)),
    responses((status = 200, description = "The thread", body = ThreadBody)))]
pub(crate) async fn read(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let view = app.engine.conversations.thread_view(&auth.caller, thread_id(&id)?).await?;
    let mut body = ThreadBody::of(&app, &view.thread).with_replies(&app, &view);
    body.entries = Some(view.entries.iter().map(|entry| entry_body(&app, entry)).collect());
    Ok(Json(body).into_response())
}

/// Fields of a thread to change. Absent fields keep their value.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThreadPatchBody {
    /// Replaces all labels.
    #[serde(default)]
    labels: Option<Vec<String>>,
    /// Whether the thread is handled: nothing is left to do.
    #[serde(default)]
    handled: Option<bool>,
}

/// Change the labels of a thread, or mark it as handled.
#[utoipa::path(patch, path = "/v1/threads/{id}", operation_id = "update_thread", tag = "conversations", params(("id" = String, Path)), request_body = ThreadPatchBody,
    responses((status = 200, description = "The updated thread", body = ThreadBody)))]
pub(crate) async fn change(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let id = thread_id(&id)?;
    let ThreadPatchBody { labels, handled } = body.parse()?;
    if let Some(labels) = &labels {
        if labels.len() > MAX_LABELS {
            return Err(Problem::invalid_field("labels", format!("must have at most {MAX_LABELS} labels")).into());
        }
        labels.iter().try_for_each(|label| check_required_text("labels", label))?;
    }
    let view = app
        .engine
        .conversations
        .change_thread(&auth.caller, id, ThreadEdit { labels, handled, ..ThreadEdit::default() })
        .await?;
    Ok(Json(ThreadBody::of(&app, &view.thread).with_replies(&app, &view)).into_response())
}

/// Delete a thread with its messages.
///
/// The emails in it stay. A later mail of the conversation starts a new thread.
#[utoipa::path(delete, path = "/v1/threads/{id}", operation_id = "delete_thread", tag = "conversations", params(("id" = String, Path)),
    responses((status = 204, description = "Deleted")))]
pub(crate) async fn remove(State(app): State<App>, auth: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Admin)?;
    app.engine.inboxes.delete_thread(&auth.caller, thread_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A request for the lease of a thread.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLeaseBody {
    /// Duration of the lease in seconds, 1 to 600; 30 by default.
    #[serde(default)]
    ttl_s: Option<u32>,
    /// Name of the agent, shown to others; the name of the API key by default.
    #[serde(default)]
    holder: Option<String>,
    /// Token of your current lease, to renew it.
    #[serde(default)]
    token: Option<String>,
}

/// Take or renew the lease of a thread.
///
/// Pass the token of your lease to renew it.
#[utoipa::path(post, path = "/v1/threads/{id}/lease", operation_id = "lease_thread", tag = "conversations", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Idempotency key: use the same value for every retry of this call")), request_body = Option<NewLeaseBody>,
    responses((status = 201, description = "Taken or renewed", body = LeaseBody),
        (status = 409, description = "Another agent holds the lease, or your lease was lost", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn lease(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let id = thread_id(&id)?;
    let keyed_call = auth.keyed_call("threads/lease", &id.to_string(), &body.canonical()?);
    let NewLeaseBody { ttl_s, holder, token } = body.parse_or_empty()?;
    let request =
        NewThreadLease { renew: token, holder: lease_holder(&auth, holder)?, ttl_ms: lease_duration_ms(ttl_s)? };
    let lease = app.engine.conversations.lease_thread(&auth.caller, id, request, keyed_call).await?;
    Ok((StatusCode::CREATED, Json(LeaseBody::from(lease))).into_response())
}

/// The lease to release: your own by its token, or anybody's by force.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseLeaseBody {
    /// Token of the lease. Only its holder knows it.
    #[serde(default)]
    token: Option<String>,
    /// End the lease of another agent, to take over. Needs the scope `approve` or `admin` instead of `reply`.
    #[serde(default)]
    force: bool,
}

/// Release the lease of a thread.
///
/// With `force` a person ends the lease of an agent that is stuck. Replies that the agent sends under its lease are refused afterwards.
#[utoipa::path(delete, path = "/v1/threads/{id}/lease", operation_id = "release_thread_lease", tag = "conversations", params(("id" = String, Path)), request_body = ReleaseLeaseBody,
    responses((status = 200, description = "The updated thread", body = ThreadBody),
        (status = 409, description = "The token is not that of the current lease", body = crate::http::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn release(
    State(app): State<App>,
    auth: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    if !auth.caller.key.has_scope(ApiKeyScope::Reply) {
        auth.caller.require_decider()?;
    }
    let id = thread_id(&id)?;
    let conversations = &app.engine.conversations;
    let view = match body.parse()? {
        ReleaseLeaseBody { token: Some(token), force: false } => {
            conversations.release_thread(&auth.caller, id, &token).await?
        }
        ReleaseLeaseBody { token: None, force: true } => conversations.end_thread_lease(&auth.caller, id).await?,
        _ => return Err(Problem::invalid_field("token", "give the token of your lease, or `force`: true").into()),
    };
    Ok(Json(ThreadBody::of(&app, &view.thread).with_replies(&app, &view)).into_response())
}
