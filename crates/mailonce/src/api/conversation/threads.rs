//! Threads: lists, what was said, labels, and the lease.

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

use crate::api::conversation::work_queue::{LeaseBody, lease_duration_ms, lease_holder};
use crate::api::{
    ApiResult, App, PathParam, QueryParams,
    door::{AuthedRequest, RawBody},
    inbox::{
        inboxes::{CapsBody, find_inbox, invalid_field, invalid_query},
        messages::MessageBody,
    },
    outbound::emails::page_limit,
    wire::{EmailBody, check_required_text},
};

/// A day in milliseconds.
const DAY_MS: i64 = 86_400_000;

/// Who works on a thread.
#[derive(Serialize, ToSchema)]
pub(crate) struct LeaseHolderBody {
    holder: String,
    expires_at: String,
    /// The message it was offered with.
    message: Option<String>,
}

/// How often a thread was answered, and how often it may be.
#[derive(Serialize, ToSchema)]
pub(crate) struct ReplyCountsBody {
    in_window: usize,
    /// Within the last 24 hours.
    last_24h: usize,
    total: u32,
    caps: CapsBody,
}

/// Something that was said.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ThreadEntryBody {
    /// By somebody else.
    Message {
        /// The message.
        message: Box<MessageBody>,
    },
    /// By us.
    Email {
        /// The email.
        email: Box<EmailBody>,
    },
}

/// Messages and emails that answer each other.
#[derive(Serialize, ToSchema)]
pub(crate) struct ThreadBody {
    id: String,
    inbox_id: String,
    rev: u32,
    subject: String,
    created_at: String,
    /// When something was last added to it.
    last_activity_at: String,
    labels: Vec<String>,
    /// When somebody said that nothing is left to do; a new message takes that back.
    handled_at: Option<String>,
    message_count: u32,
    email_count: u32,
    /// The fence of its latest lease.
    fence: u64,
    /// Who works on it now.
    lease: Option<LeaseHolderBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replies: Option<ReplyCountsBody>,
    /// What was said, oldest first, the latest 100 of each direction; only when one thread is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<Vec<ThreadEntryBody>>,
}

impl ThreadBody {
    fn of(app: &App, thread: &Thread) -> Self {
        let about = &thread.details;
        let lease = thread.active_lease(app.engine.ctx.now()).map(|lease| LeaseHolderBody {
            holder: lease.holder.clone(),
            expires_at: lease.expires_at.to_string(),
            message: lease.message.map(|id| id.to_string()),
        });
        Self {
            id: thread.id.to_string(),
            inbox_id: thread.inbox.to_string(),
            rev: thread.rev,
            subject: about.subject.clone(),
            created_at: about.created_at.to_string(),
            last_activity_at: thread.last_activity_at.to_string(),
            labels: about.labels.clone(),
            handled_at: about.handled_at.map(|at| at.to_string()),
            message_count: about.messages,
            email_count: about.emails,
            fence: about.fence,
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

/// Threads, those with the latest news first.
#[derive(Serialize, ToSchema)]
pub(crate) struct ThreadPage {
    data: Vec<ThreadBody>,
    next_cursor: Option<String>,
}

/// Which threads.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThreadListQuery {
    /// 1 to 100, 20 by default.
    limit: Option<String>,
    /// Where the page before ended.
    cursor: Option<String>,
    /// The id or address of an inbox.
    inbox: Option<String>,
    label: Option<String>,
    /// `true` or `false`.
    handled: Option<String>,
}

/// The place in the order of the list: time and id.
fn parse_cursor(text: &str) -> Result<(Time, ThreadId), Problem> {
    let wrong = || invalid_query("cursor", "cursor is the next_cursor of another page");
    let (at, id) = text.split_once('-').ok_or_else(wrong)?;
    Ok((Time(at.parse().map_err(|_not_a_number| wrong())?), id.parse().map_err(|_not_an_id| wrong())?))
}

fn thread_id(text: &str) -> Result<ThreadId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no thread {text}")))
}

/// List threads, those with the latest news first.
#[utoipa::path(get, path = "/v1/threads", operation_id = "list_threads", tag = "conversations", params(ThreadListQuery),
    responses((status = 200, description = "A page", body = ThreadPage)))]
pub(crate) async fn list(
    State(app): State<App>,
    door: AuthedRequest,
    query: QueryParams<ThreadListQuery>,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let ThreadListQuery { limit, cursor, inbox, label, handled } = query.0;
    let inbox = match inbox {
        Some(text) => Some(find_inbox(&app, &door, &text).await?.id),
        None => None,
    };
    let handled = match handled.as_deref() {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(invalid_query("handled", "handled is true or false").into()),
    };
    let before = cursor.as_deref().map(parse_cursor).transpose()?;
    let limit = page_limit(limit.as_deref(), limits::PAGE_ROWS, 20)?;
    let page =
        app.engine.conversations.threads(&door.caller, ThreadQuery { inbox, label, handled, before, limit }).await?;
    let data = page.rows.iter().map(|thread| ThreadBody::of(&app, thread)).collect();
    let next_cursor = page.next.map(|(at, id)| format!("{}-{id}", at.0));
    Ok(Json(ThreadPage { data, next_cursor }).into_response())
}

/// Read a thread: who works on it, how often it was answered, and what was said in both directions.
#[utoipa::path(get, path = "/v1/threads/{id}", operation_id = "read_thread", tag = "conversations", params(("id" = String, Path)),
    responses((status = 200, description = "The thread", body = ThreadBody)))]
pub(crate) async fn read(State(app): State<App>, door: AuthedRequest, PathParam(id): PathParam) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Read)?;
    let view = app.engine.conversations.thread_view(&door.caller, thread_id(&id)?).await?;
    let mut body = ThreadBody::of(&app, &view.thread).with_replies(&app, &view);
    body.entries = Some(view.entries.iter().map(|entry| entry_body(&app, entry)).collect());
    Ok(Json(body).into_response())
}

/// What to change. Absent members stay.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThreadPatchBody {
    /// All labels from now on.
    #[serde(default)]
    labels: Option<Vec<String>>,
    /// Whether nothing is left to do.
    #[serde(default)]
    handled: Option<bool>,
}

/// Change a thread's labels, or say that nothing is left to do.
#[utoipa::path(patch, path = "/v1/threads/{id}", operation_id = "update_thread", tag = "conversations", params(("id" = String, Path)), request_body = ThreadPatchBody,
    responses((status = 200, description = "The thread as it is now", body = ThreadBody)))]
pub(crate) async fn change(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Reply)?;
    let id = thread_id(&id)?;
    let ThreadPatchBody { labels, handled } = body.parse()?;
    if let Some(labels) = &labels {
        if labels.len() > MAX_LABELS {
            return Err(invalid_field("labels", format!("holds more than {MAX_LABELS} labels")).into());
        }
        labels.iter().try_for_each(|label| check_required_text("labels", label))?;
    }
    let view = app.engine.conversations.change_thread(&door.caller, id, ThreadEdit { labels, handled }).await?;
    Ok(Json(ThreadBody::of(&app, &view.thread).with_replies(&app, &view)).into_response())
}

/// A wish for a lease.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLeaseBody {
    /// 1 to 600; 30 by default.
    #[serde(default)]
    ttl_s: Option<u32>,
    /// Who asks, as people call it; the name of the API key by default.
    #[serde(default)]
    holder: Option<String>,
    /// The token of your lease, to renew it.
    #[serde(default)]
    token: Option<String>,
}

/// Take the lease of a thread, or renew it with its token.
#[utoipa::path(post, path = "/v1/threads/{id}/lease", operation_id = "lease_thread", tag = "conversations", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")), request_body = Option<NewLeaseBody>,
    responses((status = 201, description = "Taken or renewed", body = LeaseBody),
        (status = 409, description = "Another agent holds it, or the lease was lost", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn lease(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Reply)?;
    let id = thread_id(&id)?;
    let asked = door.keyed_call("threads/lease", &id.to_string(), &body.canonical()?);
    let NewLeaseBody { ttl_s, holder: given, token } = body.parse_or_empty()?;
    let request =
        NewThreadLease { renew: token, holder: lease_holder(&door, given)?, ttl_ms: lease_duration_ms(ttl_s)? };
    let lease = app.engine.conversations.lease_thread(&door.caller, id, request, asked).await?;
    Ok((StatusCode::CREATED, Json(LeaseBody::from(lease))).into_response())
}

/// Which lease to give back.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseLeaseBody {
    /// Its token: only your own is given back.
    token: String,
}

/// Give your lease of a thread back.
#[utoipa::path(delete, path = "/v1/threads/{id}/lease", operation_id = "release_thread_lease", tag = "conversations", params(("id" = String, Path)), request_body = ReleaseLeaseBody,
    responses((status = 200, description = "The thread as it is now", body = ThreadBody),
        (status = 409, description = "It is not yours", body = crate::api::problem::ProblemBody, content_type = "application/problem+json")))]
pub(crate) async fn release(
    State(app): State<App>,
    door: AuthedRequest,
    PathParam(id): PathParam,
    body: RawBody,
) -> ApiResult {
    door.caller.require_scope(ApiKeyScope::Reply)?;
    let id = thread_id(&id)?;
    let ReleaseLeaseBody { token } = body.parse()?;
    let view = app.engine.conversations.release_thread(&door.caller, id, &token).await?;
    Ok(Json(ThreadBody::of(&app, &view.thread).with_replies(&app, &view)).into_response())
}
