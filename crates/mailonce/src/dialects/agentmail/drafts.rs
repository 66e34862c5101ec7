//! Drafts of an inbox: made, changed, scheduled, sent once and removed.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    inbox::Inbox,
    limits,
    outbound::{content::RawAttachment, email::EmailState},
    problem::{Code, FieldError, Problem},
    time::Time,
};
use mailonce_engine::{
    inbox::links::LinkTarget,
    outbound::{
        draft_send_cycles::{MAX_CONFLICT_RETRIES, draft_changes_too_fast},
        drafts::{Draft, DraftDetails, DraftFile},
    },
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    AgentMailResult,
    draft_send::{check_schedule, send_draft, settle_schedule},
    labels::check_labels,
    messages::missing_attachment,
    no_route,
    query::{encode_page_token, page_json},
    send::FileBody,
};
use crate::dialects::agentmail::{
    message_view::{self, add_download_link},
    request::AgentMailRequest,
};
use crate::{
    api::wire::{OneOrMany, check_text, given},
    dialects::json as as_json,
};

/// Drafts that are looked at for one page.
const MAX_SCANNED: usize = 1_000;
/// Characters of a preview.
const PREVIEW_CHARS: usize = 200;

/// A list that was given, where null and the empty one mean the same.
fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Option<OneOrMany>, D::Error> {
    OneOrMany::deserialize(from).map(Some)
}

/// A draft to make, or what is to change about one.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DraftBody {
    #[serde(deserialize_with = "list")]
    labels: Option<OneOrMany>,
    #[serde(deserialize_with = "list")]
    reply_to: Option<OneOrMany>,
    #[serde(deserialize_with = "list")]
    to: Option<OneOrMany>,
    #[serde(deserialize_with = "list")]
    cc: Option<OneOrMany>,
    #[serde(deserialize_with = "list")]
    bcc: Option<OneOrMany>,
    #[serde(deserialize_with = "given")]
    subject: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    text: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    html: Option<Option<String>>,
    attachments: Option<Vec<FileBody>>,
    in_reply_to: Option<String>,
    forward_of: Option<String>,
    reply_all: Option<bool>,
    #[serde(deserialize_with = "given")]
    send_at: Option<Option<String>>,
    client_id: Option<String>,
    add_attachments: Option<Vec<FileBody>>,
    remove_attachments: Option<Vec<String>>,
    add_labels: OneOrMany,
    remove_labels: OneOrMany,
}

fn invalid_field(path: &str, text: &str) -> Problem {
    Problem::from(vec![FieldError::new(path, text)])
}

impl DraftBody {
    /// Puts what was given into a draft.
    fn apply(self, about: &mut DraftDetails, now: Time) -> Result<(), Problem> {
        for (place, given) in [
            (&mut about.reply_to, self.reply_to),
            (&mut about.to, self.to),
            (&mut about.cc, self.cc),
            (&mut about.bcc, self.bcc),
            (&mut about.labels, self.labels),
        ] {
            if let Some(OneOrMany(list)) = given {
                *place = list;
            }
        }
        for (place, given) in
            [(&mut about.subject, self.subject), (&mut about.text, self.text), (&mut about.html, self.html)]
        {
            if let Some(text) = given {
                *place = text;
            }
        }
        about.labels.retain(|label| !self.remove_labels.0.contains(label));
        about.labels.extend(self.add_labels.0);
        about.labels.dedup();
        check_labels(&about.labels, "labels")?;
        let removed = self.remove_attachments.unwrap_or_default();
        about.files.retain(|file| !removed.contains(&file.id));
        let next = about.files.iter().filter_map(|file| file.id.parse::<usize>().ok()).max().map_or(0, |last| last + 1);
        let added = [self.attachments, self.add_attachments].into_iter().flatten().flatten();
        for (index, file) in added.enumerate() {
            about.files.push(draft_file(file.decode(index)?, next + index));
        }
        if let Some(at) = self.send_at {
            let read =
                |text: String| Time::parse(&text).ok_or_else(|| invalid_field("send_at", "is a time with an offset"));
            about.send_at = at.map(read).transpose()?;
        }
        about.updated_at = now;
        Ok(())
    }

    /// Whether anything but the time changes.
    fn changes_content(&self) -> bool {
        self.reply_to.is_some()
            || self.to.is_some()
            || self.cc.is_some()
            || self.bcc.is_some()
            || self.subject.is_some()
            || self.text.is_some()
            || self.html.is_some()
            || self.add_attachments.is_some()
            || self.remove_attachments.is_some()
    }
}

fn draft_file(raw: RawAttachment, number: usize) -> DraftFile {
    let RawAttachment { filename, content, content_type, content_id } = raw;
    DraftFile { id: number.to_string(), filename, content, content_type, content_id }
}

pub(super) async fn route(call: &AgentMailRequest, inbox: Option<&str>, rest: &[&str]) -> AgentMailResult {
    let inbox = match inbox {
        Some(name) => Some(call.inbox(name).await?),
        None => None,
    };
    match (&call.method, rest, &inbox) {
        (&Method::GET, [], _) => list_drafts(call, inbox.as_ref()).await,
        (&Method::POST, [], Some(inbox)) => create(call, inbox).await,
        (&Method::GET, [id], _) => {
            let (draft, inbox) = find_unsent(call, inbox.as_ref(), id).await?;
            Ok(as_json(StatusCode::OK, &to_json(call, &draft, &inbox).await?))
        }
        (&Method::GET, [id, "attachments", file], _) => {
            let (draft, _) = find_unsent(call, inbox.as_ref(), id).await?;
            Ok(as_json(StatusCode::OK, &attachment_link(call, &draft, file)?))
        }
        (&Method::PATCH, [id], Some(inbox)) => change(call, inbox, id).await,
        (&Method::DELETE, [id], Some(inbox)) => remove(call, inbox, id).await,
        (&Method::POST, [id, "send"], Some(inbox)) => send_draft(call, inbox, id).await,
        _ => Err(no_route(call).into()),
    }
}

pub(super) fn missing_draft(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no draft {id}"))
}

/// The problem of a draft that can be changed no more.
fn already_sent(id: &str) -> Problem {
    Problem::new(Code::TooLate, format!("the draft {id} was sent or is being sent, and can no longer be changed"))
}

/// A draft of an inbox, sent or not.
pub(super) async fn find_any(
    call: &AgentMailRequest,
    inbox: Option<&Inbox>,
    text: &str,
) -> Result<(Draft, Inbox), Problem> {
    let id = Uuid::try_parse(text).map_err(|_not_an_id| missing_draft(text))?;
    let draft = call.engine.draft(&call.caller, id).await?;
    let own = call.engine.inbox(&call.caller, draft.details.inbox).await?;
    if inbox.is_some_and(|inbox| inbox.id != own.id) { Err(missing_draft(text)) } else { Ok((draft, own)) }
}

/// A draft that is one still.
async fn find_unsent(call: &AgentMailRequest, inbox: Option<&Inbox>, text: &str) -> Result<(Draft, Inbox), Problem> {
    let (draft, inbox) = find_any(call, inbox, text).await?;
    if draft.details.sent || draft.details.removed || is_sent(email_state(call, &draft).await?) {
        return Err(missing_draft(text));
    }
    Ok((draft, inbox))
}

/// Where the email of a scheduled draft stands.
pub(super) async fn email_state(call: &AgentMailRequest, draft: &Draft) -> Result<Option<EmailState>, Problem> {
    let Some(id) = draft.details.email else { return Ok(None) };
    match call.engine.email(&call.caller, id).await {
        Ok(email) => Ok(Some(email.state())),
        // What the ledger keeps no more ended long ago.
        Err(problem) if problem.code == Code::NotFound => Ok(Some(EmailState::Sent)),
        Err(problem) => Err(problem),
    }
}

/// Whether a draft became a message.
fn is_sent(state: Option<EmailState>) -> bool {
    use EmailState::{Abandoned, Bounced, Complained, Delivered, Sent, Unknown};
    matches!(state, Some(Sent | Delivered | Bounced | Complained | Unknown | Abandoned))
}

/// What AgentMail calls the state of a scheduled draft. What is held waits: nothing is wrong with it, and nothing goes.
fn send_status(about: &DraftDetails, state: Option<EmailState>) -> Option<&'static str> {
    match state {
        None => about.is_schedule_pending().then_some("scheduled"),
        Some(EmailState::Scheduled | EmailState::Held) => Some("scheduled"),
        Some(EmailState::Failed) => Some("failed"),
        Some(EmailState::Cancelled) => None,
        Some(_) => Some("sending"),
    }
}

/// A draft as AgentMail shows it.
async fn to_json(call: &AgentMailRequest, draft: &Draft, inbox: &Inbox) -> Result<Value, Problem> {
    let about = &draft.details;
    let mut body = json!({
        "inbox_id": inbox.address,
        "draft_id": draft.id.to_string(),
        "labels": about.labels,
        "updated_at": about.updated_at.to_string(),
        "created_at": draft.created_at.to_string(),
    });
    let lists = [("reply_to", &about.reply_to), ("to", &about.to), ("cc", &about.cc), ("bcc", &about.bcc)];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        body[name] = json!(list);
    }
    let preview = about.text.as_ref().map(|text| text.chars().take(PREVIEW_CHARS).collect::<String>());
    let texts = [
        ("client_id", &about.client_id),
        ("subject", &about.subject),
        ("preview", &preview),
        ("text", &about.text),
        ("html", &about.html),
        ("in_reply_to", &about.in_reply_to),
        ("forward_of", &about.forward_of),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            body[name] = text.as_str().into();
        }
    }
    if !about.files.is_empty() {
        body["attachments"] = about.files.iter().map(attachment_json).collect::<Vec<_>>().into();
    }
    if let Some(at) = about.send_at {
        body["send_at"] = at.to_string().into();
    }
    let state = email_state(call, draft).await?;
    if let Some(word) = send_status(about, state) {
        body["send_status"] = word.into();
    }
    if let (Some(EmailState::Held), Some(labels)) = (state, body["labels"].as_array_mut()) {
        labels.push(EmailState::Held.as_str().into());
    }
    Ok(body)
}

fn attachment_json(file: &DraftFile) -> Value {
    let mut body = json!({ "attachment_id": file.id, "size": file.content.len() / 4 * 3 });
    let texts = [("filename", &file.filename), ("content_type", &file.content_type), ("content_id", &file.content_id)];
    for (name, text) in texts {
        if let Some(text) = text {
            body[name] = text.as_str().into();
        }
    }
    body
}

fn attachment_link(call: &AgentMailRequest, draft: &Draft, name: &str) -> Result<Value, Problem> {
    let at = draft.details.files.iter().position(|file| file.id == name).ok_or_else(|| missing_attachment(name))?;
    let mut body = draft.details.files.get(at).map(attachment_json).ok_or_else(|| missing_attachment(name))?;
    add_download_link(call, LinkTarget::DraftFile(draft.id, at), &mut body).map(|()| body)
}

/// Which drafts of a list are wanted.
struct DraftFilter<'a> {
    inbox: Option<&'a Inbox>,
    labels: Vec<String>,
    until: Option<Time>,
    since: Option<Time>,
}

impl DraftFilter<'_> {
    fn matches(&self, about: &DraftDetails) -> bool {
        let at = about.updated_at;
        self.inbox.is_none_or(|inbox| inbox.id == about.inbox)
            && self.until.is_none_or(|until| at < until)
            && self.since.is_none_or(|since| at > since)
            && self.labels.iter().all(|label| about.labels.contains(label))
            && !about.sent
            && !about.removed
    }
}

/// Wanted drafts, newest first, and behind which to go on.
async fn newest_drafts(
    call: &AgentMailRequest,
    filter: &DraftFilter<'_>,
    mut before: Option<Uuid>,
    limit: usize,
) -> Result<(Vec<(Draft, Inbox)>, Option<Uuid>), Problem> {
    let (mut found, mut looked) = (Vec::new(), 0);
    while looked < MAX_SCANNED {
        let page = call.engine.drafts(&call.caller, before, limits::PAGE_ROWS).await?;
        for draft in page.rows {
            if found.len() == limit {
                return Ok((found, before));
            }
            (before, looked) = (Some(draft.id), looked + 1);
            if !filter.matches(&draft.details) || is_sent(email_state(call, &draft).await?) {
                continue;
            }
            // Drafts of inboxes that this key may not use are not there for it.
            if let Ok(own) = call.engine.inbox(&call.caller, draft.details.inbox).await {
                found.push((draft, own));
            }
        }
        if page.next.is_none() {
            return Ok((found, None));
        }
    }
    Ok((found, before))
}

async fn list_drafts(call: &AgentMailRequest, inbox: Option<&Inbox>) -> AgentMailResult {
    let limit = call.query.limit()?;
    let labels = call.query.list("labels")?;
    let (until, since) = (call.query.time("before")?, call.query.time("after")?);
    let filter = DraftFilter { inbox, labels, until, since };
    let (found, next) = if call.query.flag("ascending")? {
        let (all, rest) = newest_drafts(call, &filter, None, MAX_SCANNED).await?;
        call.query.paginate_oldest_first(all, rest.is_some())?
    } else {
        let before = call.query.page_token::<1>()?.map(|[id]| Uuid::from_u128(id));
        let (found, rest) = newest_drafts(call, &filter, before, limit).await?;
        (found, rest.map(|id| encode_page_token(&[id.as_u128()])))
    };
    let mut drafts = Vec::new();
    for (draft, own) in &found {
        drafts.push(to_json(call, draft, own).await?);
    }
    Ok(as_json(StatusCode::OK, &page_json("drafts", drafts, limit, next)))
}

async fn create(call: &AgentMailRequest, inbox: &Inbox) -> AgentMailResult {
    let body: DraftBody = call.parse()?;
    let mut about = DraftDetails::empty(inbox.id, call.engine.now());
    if body.in_reply_to.is_some() && body.forward_of.is_some() {
        return Err(invalid_field("in_reply_to", "cannot be given together with forward_of").into());
    }
    let people = [&body.to, &body.cc, &body.bcc].iter().any(|list| list.as_ref().is_some_and(|l| !l.0.is_empty()));
    if body.reply_all == Some(true) && (people || body.in_reply_to.is_none()) {
        return Err(
            invalid_field("reply_all", "is only for drafts with in_reply_to, and without to, cc and bcc").into()
        );
    }
    check_text("client_id", body.client_id.as_deref().unwrap_or_default())?;
    about.client_id.clone_from(&body.client_id);
    about.in_reply_to.clone_from(&body.in_reply_to);
    about.forward_of.clone_from(&body.forward_of);
    about.reply_all = body.reply_all == Some(true);
    for name in [&about.in_reply_to, &about.forward_of].into_iter().flatten() {
        message_view::find(call, inbox, name).await?;
    }
    body.apply(&mut about, call.engine.now())?;
    check_schedule(call, inbox, &about)?;
    let (draft, first) = get_or_create(call, &about).await?;
    if draft.details.inbox != inbox.id {
        return Err(
            Problem::for_field(Code::NameTaken, "client_id", "this client_id is of a draft of another inbox").into()
        );
    }
    match settle_schedule(call, Some(inbox), &draft.id.to_string()).await {
        Ok((draft, _)) => Ok(as_json(StatusCode::OK, &to_json(call, &draft, inbox).await?)),
        Err(problem) => {
            // What was refused was not made. Where nobody can tell, the repeat finds out.
            if first && !matches!(problem.code, Code::Unavailable | Code::Internal | Code::Timeout) {
                call.engine.remove_draft(&call.caller, draft.id).await?;
            }
            Err(problem.into())
        }
    }
}

/// The draft of a wish, and whether it is new. One whose removal was cut short is removed first.
async fn get_or_create(call: &AgentMailRequest, about: &DraftDetails) -> Result<(Draft, bool), Problem> {
    loop {
        let made = call.engine.create_draft(&call.caller, about).await?;
        if !made.value.details.removed || call.engine.remove_draft(&call.caller, made.value.id).await?.details.sent {
            return Ok((made.value, made.is_new));
        }
    }
}

/// Refuses to change what a draft was made with.
fn check_change(body: &DraftBody) -> Result<(), Problem> {
    let given = [
        ("attachments", body.attachments.is_some()),
        ("labels", body.labels.is_some()),
        ("in_reply_to", body.in_reply_to.is_some()),
        ("forward_of", body.forward_of.is_some()),
        ("reply_all", body.reply_all.is_some()),
        ("client_id", body.client_id.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some(("attachments", _)) => {
            Err(invalid_field("attachments", "is for new drafts; use add_attachments and remove_attachments"))
        }
        Some(("labels", _)) => Err(invalid_field("labels", "is for new drafts; use add_labels and remove_labels")),
        Some((name, _)) => Err(invalid_field(name, "is for new drafts and cannot be changed")),
        None => Ok(()),
    }
}

async fn change(call: &AgentMailRequest, inbox: &Inbox, id: &str) -> AgentMailResult {
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (draft, _) = settle_schedule(call, Some(inbox), id).await?;
        ensure_unsent(call, &draft, id).await?;
        let body: DraftBody = call.parse()?;
        check_change(&body)?;
        let rewords = body.changes_content();
        let mut about = draft.details.clone();
        body.apply(&mut about, call.engine.now())?;
        // What says something else, or at another time, is another email; the one before must not go.
        if about.email.is_some() && (rewords || about.send_at != draft.details.send_at) {
            about = about.next_send_cycle();
        }
        if about.is_schedule_pending() {
            check_schedule(call, inbox, &about)?;
        }
        match call.engine.change_draft(&call.caller, &draft, &about, None).await {
            Ok((changed, _)) => {
                sync_labels(call, &draft, &changed).await?;
                return respond_with_change(call, inbox, changed).await;
            }
            Err(problem) if problem.code == Code::StaleRev => {}
            Err(problem) => return Err(problem.into()),
        }
    }
    Err(draft_changes_too_fast().into())
}

/// Gives the email that waits the labels that its draft has now.
async fn sync_labels(call: &AgentMailRequest, draft: &Draft, changed: &Draft) -> Result<(), Problem> {
    let only = |here: &Draft, there: &Draft| -> Vec<String> {
        here.details.labels.iter().filter(|label| !there.details.labels.contains(label)).cloned().collect()
    };
    let (add, remove) = (only(changed, draft), only(draft, changed));
    if let Some(email) = changed.details.email.filter(|_| !add.is_empty() || !remove.is_empty()) {
        call.engine.change_labels(&call.caller, email.0, &add, &remove).await?;
    }
    Ok(())
}

/// What a draft that was changed is now; a conflict when the email before had left.
async fn respond_with_change(call: &AgentMailRequest, inbox: &Inbox, changed: Draft) -> AgentMailResult {
    let id = changed.id.to_string();
    let now = match settle_schedule(call, Some(inbox), &id).await {
        Ok((now, _)) if changed.details.owed.is_some() && now.details.email == changed.details.owed => {
            return Err(already_sent(&id).into());
        }
        Ok((now, _)) => now,
        // Somebody removed it since: it was changed all the same.
        Err(problem) if problem.code == Code::NotFound => changed,
        Err(problem) => return Err(problem.into()),
    };
    Ok(as_json(StatusCode::OK, &to_json(call, &now, inbox).await?))
}

/// Refuses what is a draft no more.
async fn ensure_unsent(call: &AgentMailRequest, draft: &Draft, id: &str) -> Result<(), Problem> {
    if draft.details.removed {
        return Err(missing_draft(id));
    }
    if draft.details.sent || is_sent(email_state(call, draft).await?) { Err(already_sent(id)) } else { Ok(()) }
}

/// Removes a draft. One that is scheduled is taken back, if nothing can have left yet; one that left is a draft no more.
async fn remove(call: &AgentMailRequest, inbox: &Inbox, id: &str) -> AgentMailResult {
    let left = |problem: Problem| match problem.code {
        Code::TooLate => {
            Problem::new(Code::NotFound, format!("there is no draft {id} any more: it was sent, or is being sent"))
        }
        _ => problem,
    };
    let (draft, _) = find_any(call, Some(inbox), id).await?;
    ensure_unsent(call, &draft, id).await.map_err(left)?;
    if call.engine.remove_draft(&call.caller, draft.id).await.map_err(left)?.details.sent {
        return Err(left(self::already_sent(id)).into());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
