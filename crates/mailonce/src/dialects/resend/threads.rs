//! The Resend routes for the threads of an inbox and the emails in them.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    access::team::ApiKeyScope,
    conversation::thread::{Thread, ThreadEdit, ThreadQuery},
    id::{InboxId, ThreadId},
    inbox::message::{Message, MessageState},
    outbound::{content::EmailContent, email::Email},
    problem::{Code, Problem},
};
use mailonce_engine::{
    conversation::threads::{ThreadEntry, ThreadView},
    inbox::messages::{MessageView, RenderedBody},
};
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    DialectError, DialectPath, DialectQuery, OnePathParam, PageParams, PageQuery, ResendDialect, ResendRequest,
    ResendRequestBody, ResendResult, TwoPathSegments,
    attachments::file_id,
    deleted_response,
    inboxes::find_inbox,
    json, list_response, parse_id,
    receiving::{format_parties, format_party},
};
use crate::{
    dialects::{
        field_problem,
        pagination::{MAX_SHORT_LIST, PageRows},
        resend::errors::missing_field,
    },
    http::app::App,
};

/// Threads that are read per query.
const THREADS_PER_READ: usize = 100;
/// The label of threads in the trash. It is not shown as a label.
pub(super) const TRASH: &str = "trash";
/// The folders of Resend. `spam` is always empty in mailonce.
const FOLDERS: [&str; 5] = ["inbox", "sent", "archive", "spam", "trash"];
/// Maximum number of labels in one request.
const MAX_LABELS: usize = 50;

#[derive(Serialize)]
pub(super) struct LabelBody {
    id: String,
    name: String,
    color: &'static str,
}

/// A thread in a list.
#[derive(Serialize)]
pub(super) struct ThreadBody {
    id: String,
    subject: Option<String>,
    from: Option<String>,
    to: Vec<String>,
    cc: Vec<String>,
    bcc: Vec<String>,
    labels: Vec<LabelBody>,
    email_count: u32,
    has_attachment: bool,
    has_draft: bool,
    read: bool,
    received_at: String,
    folder: &'static str,
}

/// A single thread.
#[derive(Serialize)]
struct ThreadSummaryBody {
    object: &'static str,
    id: String,
    subject: Option<String>,
    folder: &'static str,
    labels: Vec<LabelBody>,
    read: bool,
}

#[derive(Serialize)]
struct FileBody {
    id: String,
    filename: Option<String>,
    size: Option<u64>,
}

/// An email of a thread, received or sent.
#[derive(Serialize)]
struct ThreadEmailBody {
    id: String,
    direction: &'static str,
    from: String,
    to: Vec<String>,
    cc: Vec<String>,
    bcc: Vec<String>,
    reply_to: Vec<String>,
    subject: Option<String>,
    message_id: Option<String>,
    html: Option<String>,
    text: Option<String>,
    attachments: Vec<FileBody>,
    read: bool,
    received_at: String,
}

fn missing_thread() -> Problem {
    Problem::new(Code::NotFound, "Thread not found")
}

/// Handled threads are in the archive, all others in the inbox, unless they were removed.
fn folder(thread: &Thread) -> &'static str {
    match thread.details.handled_at {
        _ if thread.details.labels.iter().any(|label| label == TRASH) => TRASH,
        Some(_) => "archive",
        None => "inbox",
    }
}

/// Labels in Resend's format. All have the same color.
pub(super) fn label_bodies(names: &[String]) -> Vec<LabelBody> {
    let label = |name: &String| LabelBody { id: name.clone(), name: name.clone(), color: "#808080" };
    names.iter().filter(|name| *name != TRASH).map(label).collect()
}

/// Whether no received message of the thread is both unanswered and unread.
pub(super) fn is_read(view: &ThreadView) -> bool {
    let is_unread = |entry: &ThreadEntry| match entry {
        ThreadEntry::Message(message) => message.state == MessageState::Unanswered && !message.annotations.read,
        ThreadEntry::Email(_) => false,
    };
    !view.entries.iter().any(is_unread)
}

pub(super) fn thread_body(view: &ThreadView) -> ThreadBody {
    let thread = &view.thread;
    let latest = view.entries.iter().rev().find_map(|entry| match entry {
        ThreadEntry::Message(message) => Some(message),
        ThreadEntry::Email(_) => None,
    });
    let head = latest.map(|message| &message.head);
    ThreadBody {
        id: thread.id.to_string(),
        subject: Some(thread.details.subject.clone()),
        from: head.and_then(|head| head.from.as_ref()).map(format_party),
        to: head.map(|head| format_parties(&head.to)).unwrap_or_default(),
        cc: head.map(|head| format_parties(&head.cc)).unwrap_or_default(),
        bcc: Vec::new(),
        labels: label_bodies(&thread.details.labels),
        email_count: thread.details.messages + thread.details.emails,
        has_attachment: head.is_some_and(|head| !head.attachments.is_empty()),
        has_draft: false,
        read: is_read(view),
        received_at: thread.last_activity_at.to_string(),
        folder: folder(thread),
    }
}

/// Finds the thread of a path, if it is in the inbox of that path.
pub(super) async fn find_thread(
    app: &App,
    auth: &ResendRequest,
    inbox: &str,
    thread: &str,
) -> Result<ThreadView, DialectError<ResendDialect>> {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(app, auth, inbox).await?;
    let thread: ThreadId = parse_id(thread)?;
    let with_dialect_message =
        |problem: Problem| if problem.code == Code::NotFound { missing_thread() } else { problem };
    let view = app.engine.conversations.thread_view(&auth.caller, thread).await.map_err(with_dialect_message)?;
    if view.thread.inbox == inbox.id { Ok(view) } else { Err(missing_thread().into()) }
}

/// The parameters of a thread list, not parsed yet. Lists are separated by commas.
#[derive(Deserialize)]
pub(super) struct ThreadsQuery {
    limit: Option<String>,
    after: Option<String>,
    before: Option<String>,
    folders: Option<String>,
    labels: Option<String>,
    read: Option<String>,
}

/// Which threads a list includes.
pub(super) struct ThreadFilter {
    folders: Vec<String>,
    labels: Vec<String>,
    pub(super) read: Option<bool>,
}

/// Splits a list of a query parameter at its commas.
pub(super) fn split_list(text: Option<&str>) -> Vec<String> {
    let parts = text.unwrap_or_default().split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Parses a boolean query parameter.
pub(super) fn parse_flag(field: &str, text: Option<&str>) -> Result<Option<bool>, Problem> {
    match text {
        None => Ok(None),
        Some("true" | "True") => Ok(Some(true)),
        Some("false" | "False") => Ok(Some(false)),
        Some(_) => Err(Problem::invalid_query(field, format!("The `{field}` must be `true` or `false`."))),
    }
}

impl ThreadsQuery {
    pub(super) fn page(&self) -> PageQuery {
        PageQuery { limit: self.limit.clone(), after: self.after.clone(), before: self.before.clone() }
    }

    pub(super) fn parse_filter(&self) -> Result<ThreadFilter, Problem> {
        let (mut folders, labels) = (split_list(self.folders.as_deref()), split_list(self.labels.as_deref()));
        if folders.iter().any(|folder| !FOLDERS.contains(&folder.as_str())) {
            let text = format!("The `folders` must be among `{}`.", FOLDERS.join("`, `"));
            return Err(Problem::invalid_query("folders", text));
        }
        if labels.len() > MAX_LABELS {
            let text = format!("The `labels` must hold at most {MAX_LABELS} labels.");
            return Err(Problem::invalid_query("labels", text));
        }
        if folders.is_empty() {
            let defaults: &[&str] = if labels.is_empty() { &["inbox"] } else { &["inbox", "archive", "sent"] };
            folders = defaults.iter().map(ToString::to_string).collect();
        }
        Ok(ThreadFilter { folders, labels, read: parse_flag("read", self.read.as_deref())? })
    }
}

impl ThreadFilter {
    /// Refuses labels that no thread has.
    pub(super) fn check_labels(&self, threads: &[Thread]) -> Result<(), Problem> {
        let is_known = |label: &String| threads.iter().any(|thread| thread.details.labels.contains(label));
        if self.labels.iter().all(is_known) { Ok(()) } else { Err(Problem::new(Code::NotFound, "Label not found")) }
    }

    /// Whether a thread is in one of the folders and has one of the labels. Threads with a sent email are in `sent`.
    pub(super) fn matches(&self, thread: &Thread) -> bool {
        let is_sent = thread.details.emails > 0 && folder(thread) != TRASH;
        let in_folder = |name: &String| name == folder(thread) || (name == "sent" && is_sent);
        let has_label = |label: &String| thread.details.labels.contains(label);
        self.folders.iter().any(in_folder) && (self.labels.is_empty() || self.labels.iter().any(has_label))
    }
}

/// All threads of an inbox, the latest activity first.
pub(super) async fn all_threads(app: &App, auth: &ResendRequest, inbox: InboxId) -> Result<Vec<Thread>, Problem> {
    let (mut all, mut before) = (Vec::new(), None);
    while all.len() < MAX_SHORT_LIST {
        let query = ThreadQuery { inbox: Some(inbox), label: None, handled: None, before, limit: THREADS_PER_READ };
        let page = app.engine.conversations.threads(&auth.caller, query).await?;
        all.extend(page.rows);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    Ok(all)
}

/// `GET /inboxes/{inbox}/threads`.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(name, ..): OnePathParam,
    DialectQuery(query, ..): DialectQuery<ThreadsQuery, ResendDialect>,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Read)?;
    let inbox = find_inbox(&app, &auth, &name).await?;
    let (page, filter) = (query.page().parse()?, query.parse_filter()?);
    let mut all = all_threads(&app, &auth, inbox.id).await?;
    filter.check_labels(&all)?;
    all.retain(|thread| filter.matches(thread));
    if let Some(read) = filter.read {
        let mut kept = Vec::new();
        for thread in all {
            if is_read(&app.engine.conversations.thread_view(&auth.caller, thread.id).await?) == read {
                kept.push(thread);
            }
        }
        all = kept;
    }
    let PageRows { rows, has_more: more } = page.slice_in_order(all, |thread| thread.id.0);
    let mut bodies = Vec::with_capacity(rows.len());
    for thread in rows {
        bodies.push(thread_body(&app.engine.conversations.thread_view(&auth.caller, thread.id).await?));
    }
    Ok(list_response(PageRows { rows: bodies, has_more: more }, |body| body))
}

fn summary(view: &ThreadView) -> ThreadSummaryBody {
    ThreadSummaryBody {
        object: "inbox_thread",
        id: view.thread.id.to_string(),
        subject: Some(view.thread.details.subject.clone()),
        folder: folder(&view.thread),
        labels: label_bodies(&view.thread.details.labels),
        read: is_read(view),
    }
}

/// `GET /inboxes/{inbox}/threads/{thread}`.
pub(super) async fn read(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, thread), ..): TwoPathSegments,
) -> ResendResult {
    let view = find_thread(&app, &auth, &inbox, &thread).await?;
    Ok(json(StatusCode::OK, &summary(&view)))
}

#[derive(Deserialize)]
struct ThreadPatchBody {
    #[serde(default)]
    read: Option<IgnoredAny>,
    #[serde(default)]
    folder: Option<String>,
}

/// `PATCH /inboxes/{inbox}/threads/{thread}`. Moving a thread to the archive marks it as handled.
pub(super) async fn change(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, thread), ..): TwoPathSegments,
    body: ResendRequestBody,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let mut view = find_thread(&app, &auth, &inbox, &thread).await?;
    let ThreadPatchBody { read, folder } = body.parse()?;
    if read.is_some() {
        return Err(field_problem(
            "read",
            "`read` cannot be set: a thread is read once it is answered or archived. Use `folder` to move it.",
        )
        .into());
    }
    let edit = match folder.as_deref() {
        Some("archive") => ThreadEdit { handled: Some(true), ..restore_from_trash() },
        Some("inbox") => ThreadEdit { handled: Some(false), ..restore_from_trash() },
        Some(TRASH) => move_to_trash(),
        Some(_) => {
            return Err(field_problem("folder", "The `folder` must be `inbox`, `archive` or `trash`.").into());
        }
        None => return Err(missing_field("folder").into()),
    };
    view.thread = app.engine.conversations.change_thread(&auth.caller, view.thread.id, edit).await?.thread;
    Ok(json(StatusCode::OK, &summary(&view)))
}

fn move_to_trash() -> ThreadEdit {
    ThreadEdit { add_labels: vec![TRASH.to_owned()], ..ThreadEdit::default() }
}

fn restore_from_trash() -> ThreadEdit {
    ThreadEdit { remove_labels: vec![TRASH.to_owned()], ..ThreadEdit::default() }
}

/// `DELETE /inboxes/{inbox}/threads/{thread}`. Moves the thread to the trash, as Resend does; `folder` moves it back.
pub(super) async fn remove(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, thread), ..): TwoPathSegments,
) -> ResendResult {
    auth.caller.require_scope(ApiKeyScope::Reply)?;
    let thread = find_thread(&app, &auth, &inbox, &thread).await?.thread;
    app.engine.conversations.change_thread(&auth.caller, thread.id, move_to_trash()).await?;
    Ok(deleted_response("inbox_thread", thread.id))
}

/// A received message.
async fn inbound_body(app: &App, auth: &ResendRequest, message: &Message) -> Result<ThreadEmailBody, Problem> {
    let may_read_secrets = auth.caller.key.has_scope(ApiKeyScope::Secrets);
    let rendered = app
        .engine
        .inboxes
        .render_message(&auth.caller, message.id, if may_read_secrets { MessageView::Full } else { MessageView::Plain })
        .await?;
    let (html, text) = match rendered.body {
        RenderedBody::Full { text, html, .. } => (html, text),
        RenderedBody::Plain { text } => (None, Some(text)),
        RenderedBody::Min { .. } | RenderedBody::Gone => (None, None),
    };
    let head = &message.head;
    let file = |(number, info): (usize, &mailonce_core::inbox::message::AttachmentInfo)| FileBody {
        id: file_id(message.id.0, number).to_string(),
        filename: info.filename.clone(),
        size: Some(info.size),
    };
    Ok(ThreadEmailBody {
        id: message.id.to_string(),
        direction: "inbound",
        from: head.from.as_ref().map(format_party).unwrap_or_default(),
        to: format_parties(&head.to),
        cc: format_parties(&head.cc),
        bcc: Vec::new(),
        reply_to: format_parties(&head.reply_to),
        subject: Some(head.subject.clone()),
        message_id: head.message_id.clone(),
        html,
        text,
        attachments: head.attachments.iter().enumerate().map(file).collect(),
        read: message.annotations.read || message.state != MessageState::Unanswered,
        received_at: message.received_at.to_string(),
    })
}

/// A sent email.
async fn outbound_body(app: &App, auth: &ResendRequest, email: &Email) -> Result<ThreadEmailBody, Problem> {
    let content: Option<EmailContent> = app.engine.outbound.email_view(&auth.caller, email.id).await?.content;
    let files = content.as_ref().map(|content| content.attachments.as_slice()).unwrap_or_default();
    let file = |(number, file): (usize, &mailonce_core::outbound::content::Attachment)| FileBody {
        id: file_id(email.id.0, number).to_string(),
        filename: file.filename.clone(),
        size: Some(file.bytes.len() as u64),
    };
    Ok(ThreadEmailBody {
        id: email.id.to_string(),
        direction: "outbound",
        from: email.head.from.clone(),
        to: email.head.to.clone(),
        cc: email.head.cc.clone(),
        bcc: email.head.bcc.clone(),
        reply_to: Vec::new(),
        subject: Some(email.head.subject.clone()),
        message_id: Some(app.engine.ctx.message_id(email)),
        attachments: files.iter().enumerate().map(file).collect(),
        html: content.as_ref().and_then(|content| content.html.clone()),
        text: content.as_ref().and_then(|content| content.text.clone()),
        read: true,
        received_at: email.head.created_at.to_string(),
    })
}

async fn entry_body(app: &App, auth: &ResendRequest, entry: &ThreadEntry) -> Result<ThreadEmailBody, Problem> {
    match entry {
        ThreadEntry::Message(message) => inbound_body(app, auth, message).await,
        ThreadEntry::Email(email) => outbound_body(app, auth, email).await,
    }
}

pub(super) fn entry_id(entry: &ThreadEntry) -> uuid::Uuid {
    match entry {
        ThreadEntry::Message(message) => message.id.0,
        ThreadEntry::Email(email) => email.id.0,
    }
}

/// `GET /inboxes/{inbox}/threads/{thread}/emails`, newest first.
pub(super) async fn list_entries(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, thread), ..): TwoPathSegments,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let mut entries = find_thread(&app, &auth, &inbox, &thread).await?.entries;
    entries.reverse();
    let PageRows { rows, has_more: more } = query.parse()?.slice_in_order(entries, entry_id);
    let mut bodies = Vec::with_capacity(rows.len());
    for entry in &rows {
        bodies.push(entry_body(&app, &auth, entry).await?);
    }
    Ok(list_response(PageRows { rows: bodies, has_more: more }, |body| body))
}

/// The path of one email in a thread.
#[derive(Deserialize)]
pub(super) struct EntryPath {
    inbox: String,
    thread: String,
    pub(super) email: String,
}

/// Finds one email in the thread of a path.
pub(super) async fn find_entry(
    app: &App,
    auth: &ResendRequest,
    path: &EntryPath,
) -> Result<ThreadEntry, DialectError<ResendDialect>> {
    let wanted: uuid::Uuid = parse_id(&path.email)?;
    let entries = find_thread(app, auth, &path.inbox, &path.thread).await?.entries;
    let found = entries.into_iter().find(|entry| entry_id(entry) == wanted);
    found.ok_or_else(|| Problem::new(Code::NotFound, "Email not found").into())
}

/// `GET /inboxes/{inbox}/threads/{thread}/emails/{email}`.
pub(super) async fn read_entry(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(path, ..): DialectPath<EntryPath, ResendDialect>,
) -> ResendResult {
    let entry = find_entry(&app, &auth, &path).await?;
    Ok(json(StatusCode::OK, &entry_body(&app, &auth, &entry).await?))
}
