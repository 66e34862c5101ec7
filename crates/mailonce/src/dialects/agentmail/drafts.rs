//! Drafts of an inbox: made, changed, scheduled, sent once and removed.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    content::RawAttachment,
    email::EmailState,
    inbox::Inbox,
    limits,
    problem::{Code, FieldError, Problem},
    schedule::Schedule,
    time::Time,
};
use mailonce_engine::{
    drafts::{AboutDraft, Draft, DraftFile},
    links::Linked,
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Answer,
    door::Call,
    draft_send::{scheduled, send_draft},
    labels::check_labels,
    mail::{self, open_for_a_while},
    messages::no_file,
    no_route,
    query::token,
    send::FileBody,
};
use crate::{
    api::wire::{OneOrMany, given, words},
    dialects::json as as_json,
};

/// Drafts that are looked at for one page.
const LOOKED_AT: usize = 1_000;
/// How often a change that raced with another is tried anew.
const TRIES: usize = 4;
/// Characters of a preview.
const PREVIEW: usize = 200;

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

fn fault(path: &str, text: &str) -> Problem {
    Problem::from(vec![FieldError::new(path, text)])
}

impl DraftBody {
    /// Puts what was given into a draft.
    fn apply(self, about: &mut AboutDraft, now: Time) -> Result<(), Problem> {
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
            about.files.push(draft_file(file.raw(index)?, next + index));
        }
        if let Some(at) = self.send_at {
            let read = |text: String| Time::parse(&text).ok_or_else(|| fault("send_at", "is a time with an offset"));
            about.send_at = at.map(read).transpose()?;
        }
        about.updated_at = now;
        Ok(())
    }

    /// Whether anything but the time changes.
    fn changes_words(&self) -> bool {
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

pub(super) async fn route(call: &Call, inbox: Option<&str>, rest: &[&str]) -> Answer {
    let inbox = match inbox {
        Some(name) => Some(call.inbox(name).await?),
        None => None,
    };
    match (&call.method, rest, &inbox) {
        (&Method::GET, [], _) => list_drafts(call, inbox.as_ref()).await,
        (&Method::POST, [], Some(inbox)) => create(call, inbox).await,
        (&Method::GET, [id], _) => {
            let (draft, inbox) = find(call, inbox, id).await?;
            Ok(as_json(StatusCode::OK, &shown(call, &draft, &inbox).await?))
        }
        (&Method::GET, [id, "attachments", file], _) => {
            let (draft, _) = find(call, inbox, id).await?;
            Ok(as_json(StatusCode::OK, &file_link(call, &draft, file)?))
        }
        (&Method::PATCH, [id], Some(_)) => change(call, inbox, id).await,
        (&Method::DELETE, [id], Some(_)) => remove(call, inbox, id).await,
        (&Method::POST, [id, "send"], Some(inbox)) => send_draft(call, inbox, id).await,
        _ => Err(no_route(call).into()),
    }
}

fn missing(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no draft {id}"))
}

/// A draft of an inbox, sent or not.
pub(super) async fn any(call: &Call, inbox: Option<Inbox>, text: &str) -> Result<(Draft, Inbox), Problem> {
    let id = Uuid::try_parse(text).map_err(|_not_an_id| missing(text))?;
    let draft = call.engine.draft(&call.caller, id).await?;
    let own = call.engine.inbox(&call.caller, draft.about.inbox).await?;
    if inbox.is_some_and(|inbox| inbox.id != own.id) { Err(missing(text)) } else { Ok((draft, own)) }
}

/// A draft that is one still.
async fn find(call: &Call, inbox: Option<Inbox>, text: &str) -> Result<(Draft, Inbox), Problem> {
    let (draft, inbox) = any(call, inbox, text).await?;
    if draft.about.sent || has_left(state(call, &draft).await?) {
        return Err(missing(text));
    }
    Ok((draft, inbox))
}

/// Where the email of a scheduled draft stands.
pub(super) async fn state(call: &Call, draft: &Draft) -> Result<Option<EmailState>, Problem> {
    match draft.about.email {
        Some(id) => Ok(Some(call.engine.email(&call.caller, id).await?.state())),
        None => Ok(None),
    }
}

/// Whether a draft became a message.
fn has_left(state: Option<EmailState>) -> bool {
    use EmailState::{Abandoned, Bounced, Complained, Delivered, Sent, Unknown};
    matches!(state, Some(Sent | Delivered | Bounced | Complained | Unknown | Abandoned))
}

/// What AgentMail calls the state of a scheduled draft.
fn send_status(state: Option<EmailState>) -> Option<&'static str> {
    match state? {
        EmailState::Scheduled => Some("scheduled"),
        EmailState::Failed | EmailState::Held => Some("failed"),
        EmailState::Cancelled => None,
        _ => Some("sending"),
    }
}

/// A draft as AgentMail shows it.
async fn shown(call: &Call, draft: &Draft, inbox: &Inbox) -> Result<Value, Problem> {
    let about = &draft.about;
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
    let preview = about.text.as_ref().map(|text| text.chars().take(PREVIEW).collect::<String>());
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
        body["attachments"] = about.files.iter().map(file_body).collect::<Vec<_>>().into();
    }
    if let Some(at) = about.send_at {
        body["send_at"] = at.to_string().into();
    }
    if let Some(word) = send_status(state(call, draft).await?) {
        body["send_status"] = word.into();
    }
    Ok(body)
}

fn file_body(file: &DraftFile) -> Value {
    let mut body = json!({ "attachment_id": file.id, "size": file.content.len() / 4 * 3 });
    let texts = [("filename", &file.filename), ("content_type", &file.content_type), ("content_id", &file.content_id)];
    for (name, text) in texts {
        if let Some(text) = text {
            body[name] = text.as_str().into();
        }
    }
    body
}

fn file_link(call: &Call, draft: &Draft, name: &str) -> Result<Value, Problem> {
    let at = draft.about.files.iter().position(|file| file.id == name).ok_or_else(|| no_file(name))?;
    let mut body = draft.about.files.get(at).map(file_body).ok_or_else(|| no_file(name))?;
    open_for_a_while(call, Linked::DraftFile(draft.id, at), &mut body).map(|()| body)
}

async fn list_drafts(call: &Call, inbox: Option<&Inbox>) -> Answer {
    let limit = call.query.limit()?;
    call.query.newest_first()?;
    let labels = call.query.list("labels")?;
    let (until, since) = (call.query.time("before")?, call.query.time("after")?);
    let mut before = call.query.page::<1>()?.map(|[id]| Uuid::from_u128(id));
    let (mut found, mut looked) = (Vec::new(), 0);
    'pages: while looked < LOOKED_AT {
        let page = call.engine.drafts(&call.caller, before, limits::PAGE_ROWS).await?;
        for draft in page.rows {
            if found.len() == limit {
                break 'pages;
            }
            (before, looked) = (Some(draft.id), looked + 1);
            let here = inbox.is_none_or(|inbox| inbox.id == draft.about.inbox);
            let at = draft.about.updated_at;
            let then = until.is_none_or(|until| at < until) && since.is_none_or(|since| at > since);
            let labelled = labels.iter().all(|label| draft.about.labels.contains(label));
            if !here || !then || !labelled || draft.about.sent {
                continue;
            }
            if has_left(state(call, &draft).await?) {
                continue;
            }
            // Drafts of inboxes that this key may not use are not there for it.
            if let Ok(own) = call.engine.inbox(&call.caller, draft.about.inbox).await {
                found.push(shown(call, &draft, &own).await?);
            }
        }
        if page.next.is_none() {
            before = None;
            break;
        }
    }
    let mut body = json!({ "count": found.len(), "limit": limit, "drafts": found });
    if let Some(before) = before {
        body["next_page_token"] = token(&[before.as_u128()]).into();
    }
    Ok(as_json(StatusCode::OK, &body))
}

async fn create(call: &Call, inbox: &Inbox) -> Answer {
    let body: DraftBody = call.parse()?;
    let mut about = AboutDraft::of(inbox.id, call.engine.now());
    if body.in_reply_to.is_some() && body.forward_of.is_some() {
        return Err(fault("in_reply_to", "and forward_of are not given together").into());
    }
    let people = [&body.to, &body.cc, &body.bcc].iter().any(|list| list.as_ref().is_some_and(|l| !l.0.is_empty()));
    if body.reply_all == Some(true) && (people || body.in_reply_to.is_none()) {
        return Err(fault("reply_all", "is for answers, and without to, cc and bcc").into());
    }
    words("client_id", body.client_id.as_deref().unwrap_or_default())?;
    about.client_id.clone_from(&body.client_id);
    about.in_reply_to.clone_from(&body.in_reply_to);
    about.forward_of.clone_from(&body.forward_of);
    about.reply_all = body.reply_all == Some(true);
    for name in [&about.in_reply_to, &about.forward_of].into_iter().flatten() {
        mail::find(call, inbox, name).await?;
    }
    let now = call.engine.now();
    body.apply(&mut about, now)?;
    let draft = call.engine.create_draft(&call.caller, &about).await?.thing;
    if draft.about.inbox != inbox.id {
        return Err(
            Problem::field(Code::NameTaken, "client_id", "this client_id is of a draft of another inbox").into()
        );
    }
    let draft = scheduled(call, inbox, draft).await?;
    Ok(as_json(StatusCode::OK, &shown(call, &draft, inbox).await?))
}

async fn change(call: &Call, inbox: Option<Inbox>, id: &str) -> Answer {
    let (mut draft, inbox) = find(call, inbox, id).await?;
    for _ in 0..TRIES {
        let body: DraftBody = call.parse()?;
        if body.attachments.is_some()
            || body.in_reply_to.is_some()
            || body.forward_of.is_some()
            || body.client_id.is_some()
        {
            return Err(fault("in_reply_to", "and what else a draft is made with cannot be changed").into());
        }
        let rewords = body.changes_words();
        let mut about = draft.about.clone();
        body.apply(&mut about, call.engine.now())?;
        if let Some(email) = about.email {
            match about.send_at {
                Some(at) if !rewords => {
                    call.engine.reschedule(&call.caller, email, &Schedule::At(at)).await?;
                }
                _ => {
                    // What says something else is another email; the one before must not go.
                    call.engine.cancel(&call.caller, email, None).await?;
                    (about.email, about.turn) = (None, about.turn + 1);
                }
            }
        }
        match call.engine.change_draft(&call.caller, &draft, &about, None).await {
            Ok((changed, _)) => {
                let draft = scheduled(call, &inbox, changed).await?;
                return Ok(as_json(StatusCode::OK, &shown(call, &draft, &inbox).await?));
            }
            Err(problem) if problem.code == Code::StaleRev => {
                draft = call.engine.draft(&call.caller, draft.id).await?;
            }
            Err(problem) => return Err(problem.into()),
        }
    }
    Err(Problem::new(Code::StaleRev, "the draft changes all the time; try again").into())
}

/// Removes a draft. One that is scheduled is taken back, if nothing can have left yet.
async fn remove(call: &Call, inbox: Option<Inbox>, id: &str) -> Answer {
    let (draft, _) = find(call, inbox, id).await?;
    if let Some(email) = draft.about.email {
        call.engine.cancel(&call.caller, email, None).await?;
    }
    call.engine.remove_draft(&call.caller, draft.id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
