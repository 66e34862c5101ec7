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
    time::Time,
};
use mailonce_engine::{
    draft_turns::{STEPS, restless},
    drafts::{AboutDraft, Draft, DraftFile},
    links::Linked,
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Answer,
    door::Call,
    draft_send::{at_rest, check_schedule, send_draft},
    labels::check_labels,
    mail::{self, open_for_a_while},
    messages::no_file,
    no_route,
    query::{listed, token},
    send::FileBody,
};
use crate::{
    api::wire::{OneOrMany, given, words},
    dialects::json as as_json,
};

/// Drafts that are looked at for one page.
const LOOKED_AT: usize = 1_000;
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
            let (draft, inbox) = find(call, inbox.as_ref(), id).await?;
            Ok(as_json(StatusCode::OK, &shown(call, &draft, &inbox).await?))
        }
        (&Method::GET, [id, "attachments", file], _) => {
            let (draft, _) = find(call, inbox.as_ref(), id).await?;
            Ok(as_json(StatusCode::OK, &file_link(call, &draft, file)?))
        }
        (&Method::PATCH, [id], Some(inbox)) => change(call, inbox, id).await,
        (&Method::DELETE, [id], Some(inbox)) => remove(call, inbox, id).await,
        (&Method::POST, [id, "send"], Some(inbox)) => send_draft(call, inbox, id).await,
        _ => Err(no_route(call).into()),
    }
}

pub(super) fn missing(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no draft {id}"))
}

/// The problem of a draft that can be changed no more.
fn left(id: &str) -> Problem {
    Problem::new(Code::TooLate, format!("the draft {id} was sent or is being sent, and can no longer be changed"))
}

/// A draft of an inbox, sent or not.
pub(super) async fn any(call: &Call, inbox: Option<&Inbox>, text: &str) -> Result<(Draft, Inbox), Problem> {
    let id = Uuid::try_parse(text).map_err(|_not_an_id| missing(text))?;
    let draft = call.engine.draft(&call.caller, id).await?;
    let own = call.engine.inbox(&call.caller, draft.about.inbox).await?;
    if inbox.is_some_and(|inbox| inbox.id != own.id) { Err(missing(text)) } else { Ok((draft, own)) }
}

/// A draft that is one still.
async fn find(call: &Call, inbox: Option<&Inbox>, text: &str) -> Result<(Draft, Inbox), Problem> {
    let (draft, inbox) = any(call, inbox, text).await?;
    if draft.about.sent || draft.about.removed || has_left(state(call, &draft).await?) {
        return Err(missing(text));
    }
    Ok((draft, inbox))
}

/// Where the email of a scheduled draft stands.
pub(super) async fn state(call: &Call, draft: &Draft) -> Result<Option<EmailState>, Problem> {
    let Some(id) = draft.about.email else { return Ok(None) };
    match call.engine.email(&call.caller, id).await {
        Ok(email) => Ok(Some(email.state())),
        // What the ledger keeps no more ended long ago.
        Err(problem) if problem.code == Code::NotFound => Ok(Some(EmailState::Sent)),
        Err(problem) => Err(problem),
    }
}

/// Whether a draft became a message.
fn has_left(state: Option<EmailState>) -> bool {
    use EmailState::{Abandoned, Bounced, Complained, Delivered, Sent, Unknown};
    matches!(state, Some(Sent | Delivered | Bounced | Complained | Unknown | Abandoned))
}

/// What AgentMail calls the state of a scheduled draft. What is held waits: nothing is wrong with it, and nothing goes.
fn send_status(about: &AboutDraft, state: Option<EmailState>) -> Option<&'static str> {
    match state {
        None => about.is_pending().then_some("scheduled"),
        Some(EmailState::Scheduled | EmailState::Held) => Some("scheduled"),
        Some(EmailState::Failed) => Some("failed"),
        Some(EmailState::Cancelled) => None,
        Some(_) => Some("sending"),
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
    let state = state(call, draft).await?;
    if let Some(word) = send_status(about, state) {
        body["send_status"] = word.into();
    }
    if let (Some(EmailState::Held), Some(labels)) = (state, body["labels"].as_array_mut()) {
        labels.push(EmailState::Held.word().into());
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

/// Which drafts of a list are wanted.
struct Filter<'a> {
    inbox: Option<&'a Inbox>,
    labels: Vec<String>,
    until: Option<Time>,
    since: Option<Time>,
}

impl Filter<'_> {
    fn wants(&self, about: &AboutDraft) -> bool {
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
async fn newest(
    call: &Call,
    filter: &Filter<'_>,
    mut before: Option<Uuid>,
    limit: usize,
) -> Result<(Vec<(Draft, Inbox)>, Option<Uuid>), Problem> {
    let (mut found, mut looked) = (Vec::new(), 0);
    while looked < LOOKED_AT {
        let page = call.engine.drafts(&call.caller, before, limits::PAGE_ROWS).await?;
        for draft in page.rows {
            if found.len() == limit {
                return Ok((found, before));
            }
            (before, looked) = (Some(draft.id), looked + 1);
            if !filter.wants(&draft.about) || has_left(state(call, &draft).await?) {
                continue;
            }
            // Drafts of inboxes that this key may not use are not there for it.
            if let Ok(own) = call.engine.inbox(&call.caller, draft.about.inbox).await {
                found.push((draft, own));
            }
        }
        if page.next.is_none() {
            return Ok((found, None));
        }
    }
    Ok((found, before))
}

async fn list_drafts(call: &Call, inbox: Option<&Inbox>) -> Answer {
    let limit = call.query.limit()?;
    let labels = call.query.list("labels")?;
    let (until, since) = (call.query.time("before")?, call.query.time("after")?);
    let filter = Filter { inbox, labels, until, since };
    let (found, next) = if call.query.flag("ascending")? {
        let (all, rest) = newest(call, &filter, None, LOOKED_AT).await?;
        call.query.turned(all, rest.is_some())?
    } else {
        let before = call.query.page::<1>()?.map(|[id]| Uuid::from_u128(id));
        let (found, rest) = newest(call, &filter, before, limit).await?;
        (found, rest.map(|id| token(&[id.as_u128()])))
    };
    let mut drafts = Vec::new();
    for (draft, own) in &found {
        drafts.push(shown(call, draft, own).await?);
    }
    Ok(as_json(StatusCode::OK, &listed("drafts", drafts, limit, next)))
}

async fn create(call: &Call, inbox: &Inbox) -> Answer {
    let body: DraftBody = call.parse()?;
    let mut about = AboutDraft::of(inbox.id, call.engine.now());
    if body.in_reply_to.is_some() && body.forward_of.is_some() {
        return Err(fault("in_reply_to", "cannot be given together with forward_of").into());
    }
    let people = [&body.to, &body.cc, &body.bcc].iter().any(|list| list.as_ref().is_some_and(|l| !l.0.is_empty()));
    if body.reply_all == Some(true) && (people || body.in_reply_to.is_none()) {
        return Err(fault("reply_all", "is only for drafts with in_reply_to, and without to, cc and bcc").into());
    }
    words("client_id", body.client_id.as_deref().unwrap_or_default())?;
    about.client_id.clone_from(&body.client_id);
    about.in_reply_to.clone_from(&body.in_reply_to);
    about.forward_of.clone_from(&body.forward_of);
    about.reply_all = body.reply_all == Some(true);
    for name in [&about.in_reply_to, &about.forward_of].into_iter().flatten() {
        mail::find(call, inbox, name).await?;
    }
    body.apply(&mut about, call.engine.now())?;
    check_schedule(call, inbox, &about)?;
    let (draft, first) = made(call, &about).await?;
    if draft.about.inbox != inbox.id {
        return Err(
            Problem::field(Code::NameTaken, "client_id", "this client_id is of a draft of another inbox").into()
        );
    }
    match at_rest(call, Some(inbox), &draft.id.to_string()).await {
        Ok((draft, _)) => Ok(as_json(StatusCode::OK, &shown(call, &draft, inbox).await?)),
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
async fn made(call: &Call, about: &AboutDraft) -> Result<(Draft, bool), Problem> {
    loop {
        let made = call.engine.create_draft(&call.caller, about).await?;
        if !made.thing.about.removed || call.engine.remove_draft(&call.caller, made.thing.id).await?.about.sent {
            return Ok((made.thing, made.first));
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
            Err(fault("attachments", "is for new drafts; use add_attachments and remove_attachments"))
        }
        Some(("labels", _)) => Err(fault("labels", "is for new drafts; use add_labels and remove_labels")),
        Some((name, _)) => Err(fault(name, "is for new drafts and cannot be changed")),
        None => Ok(()),
    }
}

async fn change(call: &Call, inbox: &Inbox, id: &str) -> Answer {
    for _ in 0..STEPS {
        let (draft, _) = at_rest(call, Some(inbox), id).await?;
        is_open(call, &draft, id).await?;
        let body: DraftBody = call.parse()?;
        check_change(&body)?;
        let rewords = body.changes_words();
        let mut about = draft.about.clone();
        body.apply(&mut about, call.engine.now())?;
        // What says something else, or at another time, is another email; the one before must not go.
        if about.email.is_some() && (rewords || about.send_at != draft.about.send_at) {
            about = about.next_turn();
        }
        if about.is_pending() {
            check_schedule(call, inbox, &about)?;
        }
        match call.engine.change_draft(&call.caller, &draft, &about, None).await {
            Ok((changed, _)) => {
                relabelled(call, &draft, &changed).await?;
                return changed_to(call, inbox, changed).await;
            }
            Err(problem) if problem.code == Code::StaleRev => {}
            Err(problem) => return Err(problem.into()),
        }
    }
    Err(restless().into())
}

/// Gives the email that waits the labels that its draft has now.
async fn relabelled(call: &Call, draft: &Draft, changed: &Draft) -> Result<(), Problem> {
    let only = |here: &Draft, there: &Draft| -> Vec<String> {
        here.about.labels.iter().filter(|label| !there.about.labels.contains(label)).cloned().collect()
    };
    let (add, remove) = (only(changed, draft), only(draft, changed));
    if let Some(email) = changed.about.email.filter(|_| !add.is_empty() || !remove.is_empty()) {
        call.engine.relabel(&call.caller, email.0, &add, &remove).await?;
    }
    Ok(())
}

/// What a draft that was changed is now; a conflict when the email before had left.
async fn changed_to(call: &Call, inbox: &Inbox, changed: Draft) -> Answer {
    let id = changed.id.to_string();
    let now = match at_rest(call, Some(inbox), &id).await {
        Ok((now, _)) if changed.about.owed.is_some() && now.about.email == changed.about.owed => {
            return Err(left(&id).into());
        }
        Ok((now, _)) => now,
        // Somebody removed it since: it was changed all the same.
        Err(problem) if problem.code == Code::NotFound => changed,
        Err(problem) => return Err(problem.into()),
    };
    Ok(as_json(StatusCode::OK, &shown(call, &now, inbox).await?))
}

/// Refuses what is a draft no more.
async fn is_open(call: &Call, draft: &Draft, id: &str) -> Result<(), Problem> {
    if draft.about.removed {
        return Err(missing(id));
    }
    if draft.about.sent || has_left(state(call, draft).await?) { Err(left(id)) } else { Ok(()) }
}

/// Removes a draft. One that is scheduled is taken back, if nothing can have left yet; one that left is a draft no more.
async fn remove(call: &Call, inbox: &Inbox, id: &str) -> Answer {
    let left = |problem: Problem| match problem.code {
        Code::TooLate => {
            Problem::new(Code::NotFound, format!("there is no draft {id} any more: it was sent, or is being sent"))
        }
        _ => problem,
    };
    let (draft, _) = any(call, Some(inbox), id).await?;
    is_open(call, &draft, id).await.map_err(left)?;
    if call.engine.remove_draft(&call.caller, draft.id).await.map_err(left)?.about.sent {
        return Err(left(self::left(id)).into());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
