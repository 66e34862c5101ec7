//! The AgentMail routes for drafts: create, list, read, change, schedule, send once and remove.

use axum::{
    http::{Method, StatusCode},
    response::IntoResponse as _,
};
use mailonce_core::{
    inbox::Inbox,
    limits,
    outbound::content::RawAttachment,
    problem::{Code, Problem},
    time::Time,
};
use mailonce_engine::outbound::{
    draft_send_cycles::{MAX_CONFLICT_RETRIES, draft_changes_too_fast},
    drafts::{Draft, DraftDetails, DraftFile},
};
use serde::{Deserialize, Deserializer};
use uuid::Uuid;

use super::{
    AgentMailResult,
    draft_send::{apply_pending_schedule, check_schedule, send_draft},
    draft_view::{attachment_link, email_state, find_any, find_unsent, is_sent, missing_draft, to_json},
    labels::check_labels,
    no_route,
    query::{encode_page_token, page_json},
    send::FileBody,
};
use crate::{
    dialects::{
        agentmail::{message_view, request::AgentMailRequest},
        json as as_json,
    },
    http::json::{OneOrMany, check_text, given, non_empty_text},
};

/// Maximum drafts scanned per page.
const MAX_SCANNED: usize = 1_000;

/// Parses a list that is present. Null means the empty list.
fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<OneOrMany>, D::Error> {
    OneOrMany::deserialize(deserializer).map(Some)
}

/// The body of a request that creates or changes a draft.
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

impl DraftBody {
    /// Parses a request. Typed clients send an empty text for a field that they do not use.
    fn parse(call: &AgentMailRequest) -> Result<Self, Problem> {
        let mut body: Self = call.parse()?;
        let lists = [&mut body.labels, &mut body.reply_to, &mut body.to, &mut body.cc, &mut body.bcc];
        lists.into_iter().flatten().for_each(OneOrMany::drop_empty);
        for text in [&mut body.in_reply_to, &mut body.forward_of, &mut body.client_id] {
            *text = non_empty_text(text.take());
        }
        Ok(body)
    }

    /// Applies the fields that are present to a draft.
    fn apply(self, details: &mut DraftDetails, now: Time) -> Result<(), Problem> {
        for (target, value) in [
            (&mut details.reply_to, self.reply_to),
            (&mut details.to, self.to),
            (&mut details.cc, self.cc),
            (&mut details.bcc, self.bcc),
            (&mut details.labels, self.labels),
        ] {
            if let Some(OneOrMany(list)) = value {
                *target = list;
            }
        }
        for (target, value) in
            [(&mut details.subject, self.subject), (&mut details.text, self.text), (&mut details.html, self.html)]
        {
            if let Some(text) = value {
                *target = text;
            }
        }
        details.labels.retain(|label| !self.remove_labels.0.contains(label));
        details.labels.extend(self.add_labels.0);
        details.labels.dedup();
        check_labels(&details.labels, "labels")?;
        let removed = self.remove_attachments.unwrap_or_default();
        details.files.retain(|file| !removed.contains(&file.id));
        let next =
            details.files.iter().filter_map(|file| file.id.parse::<usize>().ok()).max().map_or(0, |last| last + 1);
        let added = [self.attachments, self.add_attachments].into_iter().flatten().flatten();
        for (index, file) in added.enumerate() {
            details.files.push(draft_file(file.decode(index)?, next + index));
        }
        if let Some(at) = self.send_at {
            let parse_time = |text: String| {
                Time::parse(&text).ok_or_else(|| Problem::invalid_field("send_at", "must be a time with an offset"))
            };
            details.send_at = non_empty_text(at).map(parse_time).transpose()?;
        }
        details.updated_at = now;
        Ok(())
    }

    /// Whether the request changes the content of the email, not only labels or `send_at`.
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

/// The problem of a draft that can no longer be changed.
fn already_sent(id: &str) -> Problem {
    Problem::new(Code::TooLate, format!("the draft {id} was sent or is being sent, and can no longer be changed"))
}

/// Which drafts a list includes.
struct DraftFilter<'a> {
    inbox: Option<&'a Inbox>,
    labels: Vec<String>,
    until: Option<Time>,
    since: Option<Time>,
}

impl DraftFilter<'_> {
    fn matches(&self, details: &DraftDetails) -> bool {
        let at = details.updated_at;
        self.inbox.is_none_or(|inbox| inbox.id == details.inbox)
            && self.until.is_none_or(|until| at < until)
            && self.since.is_none_or(|since| at > since)
            && self.labels.iter().all(|label| details.labels.contains(label))
            && !details.sent
            && !details.removed
    }
}

/// Matching drafts, newest first, and the cursor of the next page.
async fn newest_drafts(
    call: &AgentMailRequest,
    filter: &DraftFilter<'_>,
    mut before: Option<Uuid>,
    limit: usize,
) -> Result<(Vec<(Draft, Inbox)>, Option<Uuid>), Problem> {
    let (mut found, mut scanned) = (Vec::new(), 0);
    while scanned < MAX_SCANNED {
        let page = call.engine.drafts.drafts(&call.caller, before, limits::PAGE_ROWS).await?;
        for draft in page.rows {
            if found.len() == limit {
                return Ok((found, before));
            }
            (before, scanned) = (Some(draft.id), scanned + 1);
            if !filter.matches(&draft.details) || is_sent(email_state(call, &draft).await?) {
                continue;
            }
            // Drafts of inboxes that this key may not use are hidden.
            if let Ok(draft_inbox) = call.engine.inboxes.inbox(&call.caller, draft.details.inbox).await {
                found.push((draft, draft_inbox));
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
    for (draft, draft_inbox) in &found {
        drafts.push(to_json(call, draft, draft_inbox).await?);
    }
    Ok(as_json(StatusCode::OK, &page_json("drafts", drafts, limit, next)))
}

async fn create(call: &AgentMailRequest, inbox: &Inbox) -> AgentMailResult {
    let body = DraftBody::parse(call)?;
    let mut details = DraftDetails::empty(inbox.id, call.engine.ctx.now());
    if body.in_reply_to.is_some() && body.forward_of.is_some() {
        return Err(Problem::invalid_field("in_reply_to", "cannot be used together with forward_of").into());
    }
    let has_recipients =
        [&body.to, &body.cc, &body.bcc].iter().any(|list| list.as_ref().is_some_and(|l| !l.0.is_empty()));
    if body.reply_all == Some(true) && (has_recipients || body.in_reply_to.is_none()) {
        return Err(Problem::invalid_field("reply_all", "requires in_reply_to, and no to, cc or bcc").into());
    }
    check_text("client_id", body.client_id.as_deref().unwrap_or_default())?;
    details.client_id.clone_from(&body.client_id);
    details.in_reply_to.clone_from(&body.in_reply_to);
    details.forward_of.clone_from(&body.forward_of);
    details.reply_all = body.reply_all == Some(true);
    for name in [&details.in_reply_to, &details.forward_of].into_iter().flatten() {
        message_view::find(call, inbox, name).await?;
    }
    body.apply(&mut details, call.engine.ctx.now())?;
    check_schedule(call, inbox, &details)?;
    let (draft, is_new) = get_or_create(call, &details).await?;
    if draft.details.inbox != inbox.id {
        return Err(Problem::for_field(
            Code::NameTaken,
            "client_id",
            "this client_id belongs to a draft of another inbox",
        )
        .into());
    }
    match apply_pending_schedule(call, Some(inbox), &draft.id.to_string()).await {
        Ok((draft, _)) => Ok(as_json(StatusCode::OK, &to_json(call, &draft, inbox).await?)),
        Err(problem) => {
            // A refused request leaves no draft. If the outcome is unknown, the draft stays and a retry finds out.
            if is_new && !matches!(problem.code, Code::Unavailable | Code::Internal | Code::Timeout) {
                call.engine.drafts.remove_draft(&call.caller, draft.id).await?;
            }
            Err(problem.into())
        }
    }
}

/// Creates the draft, or returns the existing one for its `client_id`, and whether it is new. A draft whose removal was
/// interrupted is removed first.
async fn get_or_create(call: &AgentMailRequest, details: &DraftDetails) -> Result<(Draft, bool), Problem> {
    loop {
        let created = call.engine.drafts.create_draft(&call.caller, details, None).await?;
        if !created.value.details.removed
            || call.engine.drafts.remove_draft(&call.caller, created.value.id).await?.details.sent
        {
            return Ok((created.value, created.is_new));
        }
    }
}

/// Refuses changes of fields that are fixed when a draft is created.
fn check_change(body: &DraftBody) -> Result<(), Problem> {
    let present = [
        ("attachments", body.attachments.is_some()),
        ("labels", body.labels.is_some()),
        ("in_reply_to", body.in_reply_to.is_some()),
        ("forward_of", body.forward_of.is_some()),
        ("reply_all", body.reply_all.is_some()),
        ("client_id", body.client_id.is_some()),
    ];
    match present.into_iter().find(|(_, present)| *present) {
        Some(("attachments", _)) => Err(Problem::invalid_field(
            "attachments",
            "can only be set for a new draft; use add_attachments and remove_attachments",
        )),
        Some(("labels", _)) => {
            Err(Problem::invalid_field("labels", "can only be set for a new draft; use add_labels and remove_labels"))
        }
        Some((name, _)) => Err(Problem::invalid_field(name, "can only be set for a new draft")),
        None => Ok(()),
    }
}

async fn change(call: &AgentMailRequest, inbox: &Inbox, id: &str) -> AgentMailResult {
    for _ in 0..MAX_CONFLICT_RETRIES {
        let (draft, _) = apply_pending_schedule(call, Some(inbox), id).await?;
        ensure_unsent(call, &draft, id).await?;
        let body = DraftBody::parse(call)?;
        check_change(&body)?;
        let content_changed = body.changes_content();
        let mut details = draft.details.clone();
        body.apply(&mut details, call.engine.ctx.now())?;
        // New content or a new time needs a new email, and the previous email must not be sent.
        if details.email.is_some() && (content_changed || details.send_at != draft.details.send_at) {
            details = details.next_send_cycle();
        }
        if details.is_schedule_pending() {
            check_schedule(call, inbox, &details)?;
        }
        match call.engine.drafts.change_draft(&call.caller, &draft, &details, None).await {
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

/// Copies the changed labels of a draft to its scheduled email.
async fn sync_labels(call: &AgentMailRequest, draft: &Draft, changed: &Draft) -> Result<(), Problem> {
    let only = |here: &Draft, there: &Draft| -> Vec<String> {
        here.details.labels.iter().filter(|label| !there.details.labels.contains(label)).cloned().collect()
    };
    let (add, remove) = (only(changed, draft), only(draft, changed));
    if let Some(email) = changed.details.email.filter(|_| !add.is_empty() || !remove.is_empty()) {
        call.engine.inboxes.change_labels(&call.caller, email.0, &add, &remove).await?;
    }
    Ok(())
}

/// The response to a change: the current draft, or a conflict if its previous email was already sent.
async fn respond_with_change(call: &AgentMailRequest, inbox: &Inbox, changed: Draft) -> AgentMailResult {
    let id = changed.id.to_string();
    let current = match apply_pending_schedule(call, Some(inbox), &id).await {
        Ok((current, _))
            if changed.details.email_to_cancel.is_some()
                && current.details.email == changed.details.email_to_cancel =>
        {
            return Err(already_sent(&id).into());
        }
        Ok((current, _)) => current,
        // Another request removed the draft after this change, which still succeeded.
        Err(problem) if problem.code == Code::NotFound => changed,
        Err(problem) => return Err(problem.into()),
    };
    Ok(as_json(StatusCode::OK, &to_json(call, &current, inbox).await?))
}

/// Refuses a draft that was sent or removed.
async fn ensure_unsent(call: &AgentMailRequest, draft: &Draft, id: &str) -> Result<(), Problem> {
    if draft.details.removed {
        return Err(missing_draft(id));
    }
    if draft.details.sent || is_sent(email_state(call, draft).await?) { Err(already_sent(id)) } else { Ok(()) }
}

/// Removes a draft. A scheduled one is cancelled if nothing can have been sent yet; a sent one gets a 404.
async fn remove(call: &AgentMailRequest, inbox: &Inbox, id: &str) -> AgentMailResult {
    let sent_as_not_found = |problem: Problem| match problem.code {
        Code::TooLate => {
            Problem::new(Code::NotFound, format!("there is no draft {id} any more: it was sent, or is being sent"))
        }
        _ => problem,
    };
    let (draft, _) = find_any(call, Some(inbox), id).await?;
    ensure_unsent(call, &draft, id).await.map_err(sent_as_not_found)?;
    if call.engine.drafts.remove_draft(&call.caller, draft.id).await.map_err(sent_as_not_found)?.details.sent {
        return Err(sent_as_not_found(self::already_sent(id)).into());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
