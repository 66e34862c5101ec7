//! The Resend routes for the drafts of an inbox. A draft is sent once.

use axum::{extract::State, http::StatusCode, response::Response};
use mailonce_core::{
    id::MessageId,
    inbox::Inbox,
    limits,
    outbound::content::{EmailContent, RawAttachment, RawContent},
    problem::{Code, Problem},
    time::Time,
    ttl::Ttl,
};
use mailonce_engine::{
    conversation::reply::{ReplyOverrides, ReplyRequest},
    outbound::{
        draft_send_cycles::{MAX_CONFLICT_RETRIES, draft_changes_too_fast},
        drafts::{Draft, DraftDetails, DraftFile},
        keyed_send::SendRequest,
        send_receipt::SendReceipt,
    },
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    DialectError, DialectPath, DialectQuery, OnePathParam, PageParams, ResendDialect, ResendRequest, ResendRequestBody,
    ResendResult, TwoPathSegments, attachments::file_id, deleted_response, inboxes::find_inbox, json, list_response,
    object_response, parse_id, send::check_test_recipients,
};
use crate::{
    dialects::{
        MessageAction,
        attachment::{DialectAttachment, decoded_len},
        draft_lock::{lock_for_sending, reopen},
        field_problem,
        pagination::{MAX_SHORT_LIST, PageRows},
        reject_different_payload,
        resend::errors::missing_field,
        respond_to_send,
    },
    http::{
        app::App,
        json::{OneOrMany, OrderedMap, given},
    },
};

/// Characters of the text that a list shows.
const SNIPPET_CHARS: usize = 100;
/// Headers that follow from the draft itself.
const RESERVED_HEADERS: [&str; 3] = ["in-reply-to", "references", "reply-to"];

#[derive(Serialize)]
struct DraftFileBody {
    id: String,
    filename: String,
    content_type: String,
    size: usize,
}

/// A draft. The list has a snippet in the place of the content.
#[derive(Serialize)]
struct DraftBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<&'static str>,
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    to: Option<Vec<String>>,
    cc: Vec<String>,
    bcc: Vec<String>,
    subject: Option<String>,
    thread_id: Option<String>,
    reply_to_email_id: Option<String>,
    updated_at: String,
    attachments: Vec<DraftFileBody>,
    #[serde(flatten)]
    content: DraftContentBody,
}

#[derive(Serialize)]
#[serde(untagged)]
enum DraftContentBody {
    Whole { html: Option<String>, text: Option<String>, email_id: Option<String>, created_at: String },
    Snippet { snippet: Option<String> },
}

async fn draft_body(app: &App, auth: &ResendRequest, draft: &Draft) -> Result<DraftBody, Problem> {
    let details = &draft.details;
    let message = replied_to(details);
    let thread = match message {
        // The message may be deleted meanwhile.
        Some(id) => app.engine.inboxes.message(&auth.caller, id).await.ok().map(|message| message.thread.to_string()),
        None => None,
    };
    let file = |(number, file): (usize, &DraftFile)| DraftFileBody {
        id: file_id(draft.id, number).to_string(),
        filename: file.filename.clone().unwrap_or_default(),
        content_type: file.content_type.clone().unwrap_or_else(|| "application/octet-stream".to_owned()),
        size: decoded_len(&file.content),
    };
    Ok(DraftBody {
        object: Some("inbox_draft"),
        id: draft.id.to_string(),
        kind: if details.in_reply_to.is_some() { "reply" } else { "standalone" },
        to: Some(details.to.clone()).filter(|to| !to.is_empty()),
        cc: details.cc.clone(),
        bcc: details.bcc.clone(),
        subject: details.subject.clone(),
        thread_id: thread,
        reply_to_email_id: message.map(|id| id.to_string()),
        updated_at: details.updated_at.to_string(),
        attachments: details.files.iter().enumerate().map(file).collect(),
        content: DraftContentBody::Whole {
            html: details.html.clone(),
            text: details.text.clone(),
            email_id: details.email.map(|id| id.to_string()),
            created_at: draft.created_at.to_string(),
        },
    })
}

/// The message that a draft replies to.
fn replied_to(details: &DraftDetails) -> Option<MessageId> {
    details.in_reply_to.as_deref()?.parse().ok()
}

fn missing_draft() -> Problem {
    Problem::new(Code::NotFound, "Draft not found")
}

/// Finds a draft of the inbox of a path, sent or not.
async fn find_any(
    app: &App,
    auth: &ResendRequest,
    inbox: &str,
    draft: &str,
) -> Result<(Draft, Inbox), DialectError<ResendDialect>> {
    let inbox = find_inbox(app, auth, inbox).await?;
    let id: Uuid = parse_id(draft)?;
    let with_dialect_message =
        |problem: Problem| if problem.code == Code::NotFound { missing_draft() } else { problem };
    let draft = app.engine.drafts.draft(&auth.caller, id).await.map_err(with_dialect_message)?;
    if draft.details.inbox == inbox.id { Ok((draft, inbox)) } else { Err(missing_draft().into()) }
}

/// Finds a draft that can still be changed. A sent one is a conflict.
async fn find_unsent(
    app: &App,
    auth: &ResendRequest,
    inbox: &str,
    draft: &str,
) -> Result<Draft, DialectError<ResendDialect>> {
    let (draft, _) = find_any(app, auth, inbox, draft).await?;
    match &draft.details {
        details if details.removed => Err(missing_draft().into()),
        details if details.sent => Err(already_sent().into()),
        _ => Ok(draft),
    }
}

fn already_sent() -> Problem {
    Problem::new(Code::StaleRev, "This draft was already sent.")
}

/// `GET /inboxes/{inbox}/drafts`, most recently updated first.
pub(super) async fn list(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(inbox, ..): OnePathParam,
    DialectQuery(query, ..): PageParams,
) -> ResendResult {
    let (page, inbox) = (query.parse()?, find_inbox(&app, &auth, &inbox).await?);
    let (mut all, mut before) = (Vec::new(), None);
    while all.len() < MAX_SHORT_LIST {
        let found = app.engine.drafts.drafts(&auth.caller, before, limits::PAGE_ROWS).await?;
        let is_listed = |details: &DraftDetails| details.inbox == inbox.id && !details.sent && !details.removed;
        all.extend(found.rows.into_iter().filter(|draft| is_listed(&draft.details)));
        before = found.next;
        if before.is_none() {
            break;
        }
    }
    all.sort_by_key(|draft| std::cmp::Reverse(draft.details.updated_at));
    let PageRows { rows, has_more } = page.slice_in_order(all, |draft| draft.id);
    let mut bodies = Vec::with_capacity(rows.len());
    for draft in &rows {
        let snippet = draft.details.text.as_ref().map(|text| text.chars().take(SNIPPET_CHARS).collect());
        let body = draft_body(&app, &auth, draft).await?;
        bodies.push(DraftBody { object: None, content: DraftContentBody::Snippet { snippet }, ..body });
    }
    Ok(list_response(PageRows { rows: bodies, has_more }, |body| body))
}

/// `GET /inboxes/{inbox}/drafts/{draft}`.
pub(super) async fn read(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, draft), ..): TwoPathSegments,
) -> ResendResult {
    let (draft, _) = find_any(&app, &auth, &inbox, &draft).await?;
    if draft.details.sent || draft.details.removed {
        return Err(missing_draft().into());
    }
    Ok(json(StatusCode::OK, &draft_body(&app, &auth, &draft).await?))
}

/// The body of a request that creates or changes a draft. A field that is null is cleared.
#[derive(Deserialize)]
struct DraftRequestBody {
    #[serde(default, deserialize_with = "given")]
    to: Option<Option<OneOrMany>>,
    #[serde(default, deserialize_with = "given")]
    cc: Option<Option<OneOrMany>>,
    #[serde(default, deserialize_with = "given")]
    bcc: Option<Option<OneOrMany>>,
    #[serde(default, deserialize_with = "given")]
    subject: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    text: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    html: Option<Option<String>>,
    #[serde(default, deserialize_with = "given")]
    attachments: Option<Option<Vec<DialectAttachment>>>,
    #[serde(default)]
    thread_id: Option<String>,
    #[serde(default)]
    reply_to_email_id: Option<String>,
}

impl DraftRequestBody {
    fn is_empty(&self) -> bool {
        let lists = self.to.is_none() && self.cc.is_none() && self.bcc.is_none() && self.attachments.is_none();
        lists && self.subject.is_none() && self.text.is_none() && self.html.is_none()
    }

    /// Applies the fields that are present to a draft.
    fn apply(self, details: &mut DraftDetails, now: Time) -> Result<(), Problem> {
        let lists = [(&mut details.to, self.to), (&mut details.cc, self.cc), (&mut details.bcc, self.bcc)];
        for (target, list) in lists {
            if let Some(list) = list {
                *target = list.map(OneOrMany::non_empty).unwrap_or_default();
            }
        }
        // A request with one part of the body replaces the whole body.
        if self.text.is_some() || self.html.is_some() {
            (details.text, details.html) = (None, None);
        }
        let texts =
            [(&mut details.subject, self.subject), (&mut details.text, self.text), (&mut details.html, self.html)];
        for (target, text) in texts {
            if let Some(text) = text {
                *target = text;
            }
        }
        if let Some(files) = self.attachments {
            details.files =
                files.unwrap_or_default().into_iter().enumerate().map(draft_file).collect::<Result<_, _>>()?;
        }
        details.updated_at = now;
        Ok(())
    }
}

fn draft_file((number, file): (usize, DialectAttachment)) -> Result<DraftFile, Problem> {
    let field = format!("attachments[{number}]");
    if file.path.is_some() {
        return Err(field_problem(&field, "Attachments are not fetched from a `path`; send their `content`."));
    }
    let RawAttachment { filename, content, content_type, content_id } =
        file.into_raw().ok_or_else(|| field_problem(&field, "Attachment must have either a `content` or `path`."))?;
    Ok(DraftFile { id: number.to_string(), filename, content, content_type, content_id })
}

/// `POST /inboxes/{inbox}/drafts`. The same idempotency key again returns the first draft.
pub(super) async fn create(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath(inbox, ..): OnePathParam,
    body: ResendRequestBody,
) -> ResendResult {
    let inbox = find_inbox(&app, &auth, &inbox).await?;
    let keyed_call = auth.keyed_call("resend draft", &inbox.id.to_string(), &body.canonical()?);
    let body: DraftRequestBody = body.parse()?;
    if body.is_empty() {
        return Err(field_problem(
            "",
            "A draft must have at least one of `to`, `cc`, `bcc`, `subject`, `text`, `html` and `attachments`.",
        )
        .into());
    }
    let mut details = DraftDetails::empty(inbox.id, app.engine.ctx.now());
    let replied_to = (body.thread_id.as_deref(), body.reply_to_email_id.as_deref());
    details.in_reply_to = match (replied_to.0.filter(|id| !id.is_empty()), replied_to.1.filter(|id| !id.is_empty())) {
        (None, None) => None,
        (Some(thread), Some(email)) => Some(check_replied_to(&app, &auth, &inbox, (thread, email)).await?.to_string()),
        _ => return Err(field_problem("thread_id", "Use `thread_id` and `reply_to_email_id` together.").into()),
    };
    body.apply(&mut details, app.engine.ctx.now())?;
    let created = app.engine.drafts.create_draft(&auth.caller, &details, keyed_call).await?.value;
    Ok(object_response("inbox_draft", created.id))
}

/// The message that a reply draft answers, which must be in the thread and in the inbox.
async fn check_replied_to(
    app: &App,
    auth: &ResendRequest,
    inbox: &Inbox,
    (thread, email): (&str, &str),
) -> Result<MessageId, DialectError<ResendDialect>> {
    let missing = || Problem::new(Code::NotFound, "Email not found");
    let id: MessageId = parse_id(email)?;
    let message = app.engine.inboxes.message(&auth.caller, id).await.map_err(|_problem| missing())?;
    let is_there = message.inbox == inbox.id && message.thread.to_string() == thread;
    if is_there { Ok(id) } else { Err(missing().into()) }
}

/// `PATCH /inboxes/{inbox}/drafts/{draft}`.
pub(super) async fn change(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, name), ..): TwoPathSegments,
    body: ResendRequestBody,
) -> ResendResult {
    for _ in 0..MAX_CONFLICT_RETRIES {
        let draft = find_unsent(&app, &auth, &inbox, &name).await?;
        refuse_foreign(&draft)?;
        let mut details = draft.details.clone();
        body.parse::<DraftRequestBody>()?.apply(&mut details, app.engine.ctx.now())?;
        // The email of the last attempt was refused, so the new content needs another one.
        if details.email.is_some() {
            details = details.next_send_cycle();
        }
        match app.engine.drafts.change_draft(&auth.caller, &draft, &details, None).await {
            Ok((changed, _)) => return Ok(object_response("inbox_draft", changed.id)),
            Err(problem) if problem.code == Code::StaleRev => {}
            Err(problem) => return Err(problem.into()),
        }
    }
    Err(draft_changes_too_fast().into())
}

/// Refuses drafts of AgentMail's API that have what Resend's drafts do not have: they would be sent without it, and a
/// reply to a Message-ID would be sent as a new email.
fn refuse_foreign(draft: &Draft) -> Result<(), Problem> {
    let DraftDetails { send_at, forward_of, reply_to, reply_all, in_reply_to, .. } = &draft.details;
    let is_own_reply = in_reply_to.is_none() || replied_to(&draft.details).is_some();
    if send_at.is_none() && forward_of.is_none() && reply_to.is_empty() && !reply_all && is_own_reply {
        return Ok(());
    }
    let detail = "This draft has a schedule, a forwarded email or reply settings; use the API that created it.";
    Err(Problem::new(Code::TooLate, detail))
}

/// `DELETE /inboxes/{inbox}/drafts/{draft}`.
pub(super) async fn remove(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, name), ..): TwoPathSegments,
) -> ResendResult {
    let draft = find_unsent(&app, &auth, &inbox, &name).await?;
    if app.engine.drafts.remove_draft(&auth.caller, draft.id).await?.details.sent {
        return Err(already_sent().into());
    }
    Ok(deleted_response("inbox_draft", draft.id))
}

#[derive(Deserialize)]
struct DraftSendBody {
    #[serde(default)]
    headers: Option<OrderedMap<String>>,
}

impl DraftSendBody {
    fn check(self) -> Result<Vec<(String, String)>, Problem> {
        let headers = self.headers.unwrap_or_default().0;
        match headers.iter().find(|(name, _)| RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str())) {
            Some((name, _)) => Err(field_problem("headers", format!("The `{name}` header cannot be set."))),
            None => Ok(headers),
        }
    }
}

#[derive(Serialize)]
struct SendReceiptBody {
    id: String,
}

/// `POST /inboxes/{inbox}/drafts/{draft}/send`. A repeated request returns the same email.
pub(super) async fn send(
    State(app): State<App>,
    auth: ResendRequest,
    DialectPath((inbox, name), ..): TwoPathSegments,
    body: ResendRequestBody,
) -> ResendResult {
    let headers = body.parse::<DraftSendBody>()?.check()?;
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (draft, inbox) = find_any(&app, &auth, &inbox, &name).await?;
        refuse_foreign(&draft)?;
        let draft = app.engine.drafts.finish_pending_cancel(&auth.caller, draft.id).await?;
        if draft.details.removed {
            return Err(missing_draft().into());
        }
        let keyed_call = auth.keyed_call("resend draft send", &name, &body.canonical()?);
        let Some(draft) = lock_for_sending(&app.engine, &auth.caller, &draft, keyed_call).await? else { continue };
        // Its key is forgotten after a day; the draft itself says for good that it was sent.
        if let Some(id) = draft.details.email {
            let email = app.engine.outbound.email(&auth.caller, id).await?;
            return Ok(draft_sent_response(&app.engine.outbound.repeat_receipt(&auth.caller, &email)));
        }
        match send_as_email(&app, &auth, &inbox, &draft, headers.clone()).await {
            Ok(sent) => {
                app.engine.drafts.record_draft_email(&auth.caller, &draft, sent.id).await?;
                return Ok(draft_sent_response(&sent));
            }
            Err(problem) => reopen(&app.engine, &auth.caller, &draft, problem).await?,
        }
    }
    Err(draft_changes_too_fast().into())
}

/// The response to every call that sends a draft. An email that is held, unknown, failed or cancelled is never a success; one that waits is.
fn draft_sent_response(sent: &SendReceipt) -> Response {
    respond_to_send::<ResendDialect>(sent, || json(StatusCode::OK, &SendReceiptBody { id: sent.id.to_string() }))
}

/// Accepts the email of a draft, under the idempotency key that is derived from the draft.
async fn send_as_email(
    app: &App,
    auth: &ResendRequest,
    inbox: &Inbox,
    draft: &Draft,
    headers: Vec<(String, String)>,
) -> Result<SendReceipt, Problem> {
    let (details, ttl) = (&draft.details, Some(Ttl(limits::OPERATION_RETENTION_MS)));
    let key = Some(app.engine.drafts.send_cycle_key(&auth.caller, draft)?);
    let attachments = details.attachments();
    check_test_recipients(&details.to, &details.cc, &details.bcc)?;
    if let Some(message) = replied_to(details) {
        let request =
            ReplyRequest { text: details.text.clone(), html: details.html.clone(), key, ..Default::default() };
        let overrides = ReplyOverrides {
            to: details.to.clone(),
            cc: details.cc.clone(),
            bcc: details.bcc.clone(),
            subject: details.subject.clone(),
            headers,
            attachments,
            ttl,
            ..ReplyOverrides::default()
        };
        let sent = app.engine.conversations.reply_with(&auth.caller, message, request, overrides).await?;
        return reject_different_payload(sent, MessageAction::Answered);
    }
    let raw = RawContent {
        from: inbox.address.clone(),
        to: details.to.clone(),
        cc: details.cc.clone(),
        bcc: details.bcc.clone(),
        subject: details.subject.clone().unwrap_or_default(),
        text: details.text.clone(),
        html: details.html.clone(),
        headers,
        attachments,
        ..RawContent::default()
    };
    let is_empty = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    for (field, absent) in [
        ("to", details.to.is_empty()),
        ("subject", is_empty(&details.subject)),
        ("html` or `text", is_empty(&details.text) && is_empty(&details.html)),
    ] {
        if absent {
            return Err(missing_field(field));
        }
    }
    let (content, sender_name) = (EmailContent::validate(raw)?, inbox.settings.name.clone());
    app.engine.outbound.send(&auth.caller, SendRequest { ttl, sender_name, ..SendRequest::new(content, key) }).await
}
