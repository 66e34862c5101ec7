//! Threads of an inbox in Resend's words: which there are, and what was said.

use axum::{extract::State, http::StatusCode};
use mailonce_core::{
    content::Content,
    conversation::thread::{Thread, ThreadEdit, ThreadQuery},
    email::Email,
    id::{InboxId, ThreadId},
    message::{Message, MessageState},
    problem::{Code, Problem},
    team::Scope,
};
use mailonce_engine::{
    messages::{Body as MessageWords, View},
    threads::{Said, ThreadView},
};
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    Answer, Body, Guest, Named, One, Page, PageQuery, Queried, Refusal, Resend, Three, Two,
    attachments::file_id,
    id,
    inboxes::named,
    json, list as listed,
    receiving::{all_written, written},
    refuse::{missing, unfit},
};
use crate::{
    api::App,
    dialects::pages::{FEW, Rows},
};

/// Threads that are looked through for a page.
const PAGE: usize = 100;
/// Where an email of a thread may lie. Nothing lies in the last two here.
const FOLDERS: [&str; 5] = ["inbox", "sent", "archive", "spam", "trash"];
/// Labels that are asked for at a time.
const LABELS: usize = 50;

#[derive(Serialize)]
struct LabelBody {
    id: String,
    name: String,
    color: &'static str,
}

/// A thread in a list.
#[derive(Serialize)]
struct ThreadBody {
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

/// A thread by itself.
#[derive(Serialize)]
struct SummaryBody {
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

/// Something that was said, by them or by us.
#[derive(Serialize)]
struct SaidBody {
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

/// What is done with is in the archive.
fn folder(thread: &Thread) -> &'static str {
    if thread.about.handled_at.is_some() { "archive" } else { "inbox" }
}

fn labels(thread: &Thread) -> Vec<LabelBody> {
    let label = |name: &String| LabelBody { id: name.clone(), name: name.clone(), color: "#808080" };
    thread.about.labels.iter().map(label).collect()
}

/// Whether everything in it was answered or put aside.
fn is_read(view: &ThreadView) -> bool {
    let open = |said: &Said| match said {
        Said::Message(message) => message.state == MessageState::Unanswered && !message.marks.read,
        Said::Email(_) => false,
    };
    !view.said.iter().any(open)
}

fn thread_body(view: &ThreadView) -> ThreadBody {
    let thread = &view.thread;
    let latest = view.said.iter().rev().find_map(|said| match said {
        Said::Message(message) => Some(message),
        Said::Email(_) => None,
    });
    let head = latest.map(|message| &message.head);
    ThreadBody {
        id: thread.id.to_string(),
        subject: Some(thread.about.subject.clone()),
        from: head.and_then(|head| head.from.as_ref()).map(written),
        to: head.map(|head| all_written(&head.to)).unwrap_or_default(),
        cc: head.map(|head| all_written(&head.cc)).unwrap_or_default(),
        bcc: Vec::new(),
        labels: labels(thread),
        email_count: thread.about.messages + thread.about.emails,
        has_attachment: head.is_some_and(|head| !head.attachments.is_empty()),
        has_draft: false,
        read: is_read(view),
        received_at: thread.latest_at.to_string(),
        folder: folder(thread),
    }
}

/// The thread of a path, if it is in the inbox of that path.
async fn own(app: &App, guest: &Guest, (inbox, thread): (&str, &str)) -> Result<ThreadView, Refusal<Resend>> {
    guest.caller.need(Scope::Read)?;
    let inbox = named(app, guest, inbox).await?;
    let thread: ThreadId = id(thread)?;
    let in_words = |problem: Problem| if problem.code == Code::NotFound { missing_thread() } else { problem };
    let view = app.engine.read_thread(&guest.caller, thread).await.map_err(in_words)?;
    if view.thread.inbox == inbox.id { Ok(view) } else { Err(missing_thread().into()) }
}

/// Which threads are wanted, as it was asked for. Lists come with commas.
#[derive(Deserialize)]
pub(super) struct ThreadsQuery {
    limit: Option<String>,
    after: Option<String>,
    before: Option<String>,
    folders: Option<String>,
    labels: Option<String>,
    read: Option<String>,
}

/// Which threads are wanted.
struct Wanted {
    folders: Vec<String>,
    labels: Vec<String>,
    read: Option<bool>,
}

impl ThreadsQuery {
    fn page(&self) -> PageQuery {
        PageQuery { limit: self.limit.clone(), after: self.after.clone(), before: self.before.clone() }
    }

    fn wanted(&self) -> Result<Wanted, Problem> {
        let split = |text: &Option<String>| -> Vec<String> {
            let words = text.as_deref().unwrap_or_default().split(',').map(str::trim);
            words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let (mut folders, labels) = (split(&self.folders), split(&self.labels));
        if folders.iter().any(|folder| !FOLDERS.contains(&folder.as_str())) {
            let text = format!("The `folders` must be of `{}`.", FOLDERS.join("`, `"));
            return Err(Problem::field(Code::InvalidQuery, "folders", text));
        }
        if labels.len() > LABELS {
            let text = format!("The `labels` must be at most {LABELS}.");
            return Err(Problem::field(Code::InvalidQuery, "labels", text));
        }
        if folders.is_empty() {
            let usual: &[&str] = if labels.is_empty() { &["inbox"] } else { &["inbox", "archive", "sent"] };
            folders = usual.iter().map(ToString::to_string).collect();
        }
        let read = match self.read.as_deref() {
            None => None,
            Some("true" | "True") => Some(true),
            Some("false" | "False") => Some(false),
            Some(_) => {
                return Err(Problem::field(Code::InvalidQuery, "read", "The `read` must be `true` or `false`."));
            }
        };
        Ok(Wanted { folders, labels, read })
    }
}

impl Wanted {
    /// Whether a thread is in one of the folders and has one of the labels. What we said is in `sent`.
    fn has(&self, thread: &Thread) -> bool {
        let lies = |name: &String| name == folder(thread) || (name == "sent" && thread.about.emails > 0);
        let labelled = |label: &String| thread.about.labels.contains(label);
        self.folders.iter().any(lies) && (self.labels.is_empty() || self.labels.iter().any(labelled))
    }
}

/// Every thread of an inbox, those with the latest news first.
async fn all_of(app: &App, guest: &Guest, inbox: InboxId) -> Result<Vec<Thread>, Problem> {
    let (mut all, mut before) = (Vec::new(), None);
    while all.len() < FEW {
        let query = ThreadQuery { inbox: Some(inbox), label: None, handled: None, before, limit: PAGE };
        let page = app.engine.threads(&guest.caller, query).await?;
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
    guest: Guest,
    Named(name, ..): One,
    Queried(query, ..): Queried<ThreadsQuery, Resend>,
) -> Answer {
    guest.caller.need(Scope::Read)?;
    let inbox = named(&app, &guest, &name).await?;
    let (wish, wanted) = (query.page().read()?, query.wanted()?);
    let mut all = all_of(&app, &guest, inbox.id).await?;
    let unheard = |label: &&String| !all.iter().any(|thread| thread.about.labels.contains(label));
    if wanted.labels.iter().any(|label| unheard(&label)) {
        return Err(Problem::new(Code::NotFound, "Label not found").into());
    }
    all.retain(|thread| wanted.has(thread));
    if let Some(read) = wanted.read {
        let mut kept = Vec::new();
        for thread in all {
            if is_read(&app.engine.read_thread(&guest.caller, thread.id).await?) == read {
                kept.push(thread);
            }
        }
        all = kept;
    }
    let Rows { rows, more } = wish.along(all, |thread| thread.id.0);
    let mut bodies = Vec::with_capacity(rows.len());
    for thread in rows {
        bodies.push(thread_body(&app.engine.read_thread(&guest.caller, thread.id).await?));
    }
    Ok(listed(Rows { rows: bodies, more }, |body| body))
}

fn summary(view: &ThreadView) -> SummaryBody {
    SummaryBody {
        object: "inbox_thread",
        id: view.thread.id.to_string(),
        subject: Some(view.thread.about.subject.clone()),
        folder: folder(&view.thread),
        labels: labels(&view.thread),
        read: is_read(view),
    }
}

/// `GET /inboxes/{inbox}/threads/{thread}`.
pub(super) async fn read(State(app): State<App>, guest: Guest, Named((inbox, thread), ..): Two) -> Answer {
    let view = own(&app, &guest, (&inbox, &thread)).await?;
    Ok(json(StatusCode::OK, &summary(&view)))
}

#[derive(Deserialize)]
struct MoveBody {
    #[serde(default)]
    read: Option<IgnoredAny>,
    #[serde(default)]
    folder: Option<String>,
}

/// `PATCH /inboxes/{inbox}/threads/{thread}`. The archive is where threads are with which nothing is left to do.
pub(super) async fn change(
    State(app): State<App>,
    guest: Guest,
    Named((inbox, thread), ..): Two,
    body: Body,
) -> Answer {
    guest.caller.need(Scope::Reply)?;
    let mut view = own(&app, &guest, (&inbox, &thread)).await?;
    let MoveBody { read, folder } = body.parse()?;
    if read.is_some() {
        return Err(
            unfit("read", "Threads are read here when they are answered or archived; move them by `folder`.").into()
        );
    }
    let handled = match folder.as_deref() {
        Some("archive") => true,
        Some("inbox") => false,
        Some(_) => return Err(unfit("folder", "Threads can be moved to `inbox` and `archive` here.").into()),
        None => return Err(missing("folder").into()),
    };
    let edit = ThreadEdit { labels: None, handled: Some(handled) };
    view.thread = app.engine.change_thread(&guest.caller, view.thread.id, edit).await?.thread;
    Ok(json(StatusCode::OK, &summary(&view)))
}

/// What they said.
async fn inbound(app: &App, guest: &Guest, message: &Message) -> Result<SaidBody, Problem> {
    let secrets = guest.caller.key.may(Scope::Secrets);
    let shown = app.engine.show(&guest.caller, message.id, if secrets { View::Full } else { View::Plain }).await?;
    let (html, text) = match shown.body {
        MessageWords::Full { text, html, .. } => (html, text),
        MessageWords::Plain { text } => (None, Some(text)),
        MessageWords::Min { .. } | MessageWords::Gone => (None, None),
    };
    let head = &message.head;
    let file = |(number, handle): (usize, &mailonce_core::message::Handle)| FileBody {
        id: file_id(message.id.0, number).to_string(),
        filename: handle.filename.clone(),
        size: Some(handle.size),
    };
    Ok(SaidBody {
        id: message.id.to_string(),
        direction: "inbound",
        from: head.from.as_ref().map(written).unwrap_or_default(),
        to: all_written(&head.to),
        cc: all_written(&head.cc),
        bcc: Vec::new(),
        reply_to: all_written(&head.reply_to),
        subject: Some(head.subject.clone()),
        message_id: head.message_id.clone(),
        html,
        text,
        attachments: head.attachments.iter().enumerate().map(file).collect(),
        read: message.marks.read || message.state != MessageState::Unanswered,
        received_at: message.received_at.to_string(),
    })
}

/// What we said.
async fn outbound(app: &App, guest: &Guest, email: &Email) -> Result<SaidBody, Problem> {
    let content: Option<Content> = app.engine.email_view(&guest.caller, email.id).await?.content;
    let files = content.as_ref().map(|content| content.attachments.as_slice()).unwrap_or_default();
    let file = |(number, file): (usize, &mailonce_core::content::Attachment)| FileBody {
        id: file_id(email.id.0, number).to_string(),
        filename: file.filename.clone(),
        size: Some(file.bytes.len() as u64),
    };
    Ok(SaidBody {
        id: email.id.to_string(),
        direction: "outbound",
        from: email.head.from.clone(),
        to: email.head.to.clone(),
        cc: email.head.cc.clone(),
        bcc: email.head.bcc.clone(),
        reply_to: Vec::new(),
        subject: Some(email.head.subject.clone()),
        message_id: Some(app.engine.message_id(email)),
        attachments: files.iter().enumerate().map(file).collect(),
        html: content.as_ref().and_then(|content| content.html.clone()),
        text: content.as_ref().and_then(|content| content.text.clone()),
        read: true,
        received_at: email.head.created_at.to_string(),
    })
}

async fn said_body(app: &App, guest: &Guest, said: &Said) -> Result<SaidBody, Problem> {
    match said {
        Said::Message(message) => inbound(app, guest, message).await,
        Said::Email(email) => outbound(app, guest, email).await,
    }
}

fn said_id(said: &Said) -> uuid::Uuid {
    match said {
        Said::Message(message) => message.id.0,
        Said::Email(email) => email.id.0,
    }
}

/// `GET /inboxes/{inbox}/threads/{thread}/emails`, the latest first.
pub(super) async fn list_said(
    State(app): State<App>,
    guest: Guest,
    Named((inbox, thread), ..): Two,
    Queried(query, ..): Page,
) -> Answer {
    let mut said = own(&app, &guest, (&inbox, &thread)).await?.said;
    said.reverse();
    let Rows { rows, more } = query.read()?.along(said, said_id);
    let mut bodies = Vec::with_capacity(rows.len());
    for said in &rows {
        bodies.push(said_body(&app, &guest, said).await?);
    }
    Ok(listed(Rows { rows: bodies, more }, |body| body))
}

/// One thing that was said in the thread of a path.
pub(super) async fn own_said(
    app: &App,
    guest: &Guest,
    (inbox, thread, email): (&str, &str, &str),
) -> Result<Said, Refusal<Resend>> {
    let wanted: uuid::Uuid = id(email)?;
    let said = own(app, guest, (inbox, thread)).await?.said;
    let found = said.into_iter().find(|said| said_id(said) == wanted);
    found.ok_or_else(|| Problem::new(Code::NotFound, "Email not found").into())
}

/// `GET /inboxes/{inbox}/threads/{thread}/emails/{email}`.
pub(super) async fn read_said(
    State(app): State<App>,
    guest: Guest,
    Named((inbox, thread, email), ..): Three,
) -> Answer {
    let said = own_said(&app, &guest, (&inbox, &thread, &email)).await?;
    Ok(json(StatusCode::OK, &said_body(&app, &guest, &said).await?))
}
