//! Threads: lists, what was said, labels, and the lease.

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use mailonce_core::{
    conversation::{
        caps::Caps,
        thread::{Thread, ThreadEdit, ThreadQuery},
    },
    id::ThreadId,
    limits,
    problem::{Code, Problem},
    team::Scope,
    time::Time,
};
use mailonce_engine::threads::{LABELS, LeaseRequest, Said, ThreadView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Answer, App, PathOf, QueryOf,
    door::{Door, RawBody},
    emails::page_limit,
    inboxes::{CapsBody, bad_query, fault, inbox_of},
    messages::MessageBody,
    next::{LeaseBody, holder, lease_ms},
    wire::{EmailBody, named_words},
};

/// A day in milliseconds.
const DAY_MS: i64 = 86_400_000;

/// Who works on a thread.
#[derive(Serialize, ToSchema)]
pub(super) struct HolderBody {
    holder: String,
    expires_at: String,
    /// The message it was offered with.
    message: Option<String>,
}

/// How often a thread was answered, and how often it may be.
#[derive(Serialize, ToSchema)]
pub(super) struct RepliesBody {
    in_window: usize,
    today: usize,
    in_all: u32,
    caps: CapsBody,
}

/// Something that was said.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum SaidBody {
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
pub(super) struct ThreadBody {
    id: String,
    inbox_id: String,
    rev: u32,
    subject: String,
    created_at: String,
    /// When something was last added to it.
    latest_at: String,
    labels: Vec<String>,
    /// When somebody said that nothing is left to do; a new message takes that back.
    handled_at: Option<String>,
    messages: u32,
    emails: u32,
    /// The fence of its latest lease.
    fence: u64,
    /// Who works on it now.
    lease: Option<HolderBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replies: Option<RepliesBody>,
    /// What was said, oldest first, the latest 100 of each direction; only when one thread is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<Vec<SaidBody>>,
}

impl ThreadBody {
    fn of(app: &App, thread: &Thread) -> Self {
        let about = &thread.about;
        let lease = thread.lease_at(app.engine.now()).map(|lease| HolderBody {
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
            latest_at: thread.latest_at.to_string(),
            labels: about.labels.clone(),
            handled_at: about.handled_at.map(|at| at.to_string()),
            messages: about.messages,
            emails: about.emails,
            fence: about.fence,
            lease,
            replies: None,
            said: None,
        }
    }

    fn with_replies(mut self, app: &App, view: &ThreadView) -> Self {
        let (sends, now, caps): (_, _, Caps) = (&view.thread.about.sends, app.engine.now(), view.caps);
        self.replies = Some(RepliesBody {
            in_window: sends.within(caps.window_ms, now),
            today: sends.within(DAY_MS, now),
            in_all: view.thread.about.sent,
            caps: CapsBody::from(caps),
        });
        self
    }
}

fn said_body(app: &App, said: &Said) -> SaidBody {
    match said {
        Said::Message(message) => SaidBody::Message { message: Box::new(MessageBody::of(app, message)) },
        Said::Email(email) => SaidBody::Email { email: Box::new(EmailBody::of(email, app.engine.message_id(email))) },
    }
}

/// Threads, those with the latest news first.
#[derive(Serialize, ToSchema)]
pub(super) struct ThreadPage {
    data: Vec<ThreadBody>,
    next_cursor: Option<String>,
}

/// Which threads.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
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
fn place(text: &str) -> Result<(Time, ThreadId), Problem> {
    let wrong = || bad_query("cursor", "cursor is the next_cursor of another page");
    let (at, id) = text.split_once('-').ok_or_else(wrong)?;
    Ok((Time(at.parse().map_err(|_not_a_number| wrong())?), id.parse().map_err(|_not_an_id| wrong())?))
}

fn thread_id(text: &str) -> Result<ThreadId, Problem> {
    text.parse().map_err(|_not_an_id| Problem::new(Code::NotFound, format!("there is no thread {text}")))
}

/// List threads, those with the latest news first.
#[utoipa::path(get, path = "/v1/threads", tag = "conversations", params(ListQuery),
    responses((status = 200, description = "A page", body = ThreadPage)))]
pub(super) async fn list(State(app): State<App>, door: Door, query: QueryOf<ListQuery>) -> Answer {
    door.caller.need(Scope::Read)?;
    let ListQuery { limit, cursor, inbox, label, handled } = query.0;
    let inbox = match inbox {
        Some(text) => Some(inbox_of(&app, &door, &text).await?.id),
        None => None,
    };
    let handled = match handled.as_deref() {
        None => None,
        Some("true") => Some(true),
        Some("false") => Some(false),
        Some(_) => return Err(bad_query("handled", "handled is true or false").into()),
    };
    let before = cursor.as_deref().map(place).transpose()?;
    let limit = page_limit(limit.as_deref(), limits::PAGE_ROWS, 20)?;
    let page = app.engine.threads(&door.caller, ThreadQuery { inbox, label, handled, before, limit }).await?;
    let data = page.rows.iter().map(|thread| ThreadBody::of(&app, thread)).collect();
    let next_cursor = page.next.map(|(at, id)| format!("{}-{id}", at.0));
    Ok(Json(ThreadPage { data, next_cursor }).into_response())
}

/// Read a thread: who works on it, how often it was answered, and what was said in both directions.
#[utoipa::path(get, path = "/v1/threads/{id}", tag = "conversations", params(("id" = String, Path)),
    responses((status = 200, description = "The thread", body = ThreadBody)))]
pub(super) async fn read(State(app): State<App>, door: Door, PathOf(id): PathOf) -> Answer {
    door.caller.need(Scope::Read)?;
    let view = app.engine.read_thread(&door.caller, thread_id(&id)?).await?;
    let mut body = ThreadBody::of(&app, &view.thread).with_replies(&app, &view);
    body.said = Some(view.said.iter().map(|said| said_body(&app, said)).collect());
    Ok(Json(body).into_response())
}

/// What to change. Absent members stay.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ThreadPatchBody {
    /// All labels from now on.
    #[serde(default)]
    labels: Option<Vec<String>>,
    /// Whether nothing is left to do.
    #[serde(default)]
    handled: Option<bool>,
}

/// Change a thread's labels, or say that nothing is left to do.
#[utoipa::path(patch, path = "/v1/threads/{id}", tag = "conversations", params(("id" = String, Path)), request_body = ThreadPatchBody,
    responses((status = 200, description = "The thread as it is now", body = ThreadBody)))]
pub(super) async fn change(State(app): State<App>, door: Door, PathOf(id): PathOf, body: RawBody) -> Answer {
    door.caller.need(Scope::Reply)?;
    let id = thread_id(&id)?;
    let ThreadPatchBody { labels, handled } = body.parse()?;
    if let Some(labels) = &labels {
        if labels.len() > LABELS {
            return Err(fault("labels", format!("holds more than {LABELS} labels")).into());
        }
        labels.iter().try_for_each(|label| named_words("labels", label))?;
    }
    let view = app.engine.change_thread(&door.caller, id, ThreadEdit { labels, handled }).await?;
    Ok(Json(ThreadBody::of(&app, &view.thread).with_replies(&app, &view)).into_response())
}

/// A wish for a lease.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseAskBody {
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
#[utoipa::path(post, path = "/v1/threads/{id}/lease", tag = "conversations", params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "The same for every retry")), request_body = Option<LeaseAskBody>,
    responses((status = 201, description = "Taken or renewed", body = LeaseBody),
        (status = 409, description = "Another agent holds it, or the lease was lost", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn lease(State(app): State<App>, door: Door, PathOf(id): PathOf, body: RawBody) -> Answer {
    door.caller.need(Scope::Reply)?;
    let id = thread_id(&id)?;
    let asked = door.asked("threads/lease", &id.to_string(), &body.canonical()?);
    let LeaseAskBody { ttl_s, holder: given, token } = body.parse_or_empty()?;
    let request = LeaseRequest { renew: token, holder: holder(&door, given)?, ttl_ms: lease_ms(ttl_s)? };
    let lease = app.engine.lease_thread(&door.caller, id, request, asked).await?;
    Ok((StatusCode::CREATED, Json(LeaseBody::from(lease))).into_response())
}

/// Which lease to give back.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseBody {
    /// Its token: only your own is given back.
    token: String,
}

/// Give your lease of a thread back.
#[utoipa::path(delete, path = "/v1/threads/{id}/lease", tag = "conversations", params(("id" = String, Path)), request_body = ReleaseBody,
    responses((status = 200, description = "The thread as it is now", body = ThreadBody),
        (status = 409, description = "It is not yours", body = super::problem::ProblemBody, content_type = "application/problem+json")))]
pub(super) async fn release(State(app): State<App>, door: Door, PathOf(id): PathOf, body: RawBody) -> Answer {
    door.caller.need(Scope::Reply)?;
    let id = thread_id(&id)?;
    let ReleaseBody { token } = body.parse()?;
    let view = app.engine.release_thread(&door.caller, id, &token).await?;
    Ok(Json(ThreadBody::of(&app, &view.thread).with_replies(&app, &view)).into_response())
}
