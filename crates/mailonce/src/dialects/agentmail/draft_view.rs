//! Finds drafts, and shows them in AgentMail's format.

use mailonce_core::{
    inbox::Inbox,
    outbound::email::EmailState,
    problem::{Code, Problem},
};
use mailonce_engine::{
    conversation::links::LinkTarget,
    outbound::drafts::{Draft, DraftDetails, DraftFile},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{message_view::add_download_link, messages::missing_attachment, request::AgentMailRequest};
use crate::dialects::attachment::decoded_len;

/// Length of a preview in characters.
const PREVIEW_CHARS: usize = 200;

pub(super) fn missing_draft(id: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no draft {id}"))
}

/// Finds a draft of an inbox, sent or not.
pub(super) async fn find_any(
    call: &AgentMailRequest,
    inbox: Option<&Inbox>,
    text: &str,
) -> Result<(Draft, Inbox), Problem> {
    let id = Uuid::try_parse(text).map_err(|_not_an_id| missing_draft(text))?;
    let draft = call.engine.drafts.draft(&call.caller, id).await?;
    let draft_inbox = call.engine.inboxes.inbox(&call.caller, draft.details.inbox).await?;
    if inbox.is_some_and(|inbox| inbox.id != draft_inbox.id) {
        Err(missing_draft(text))
    } else {
        Ok((draft, draft_inbox))
    }
}

/// Finds a draft that is neither sent nor removed.
pub(super) async fn find_unsent(
    call: &AgentMailRequest,
    inbox: Option<&Inbox>,
    text: &str,
) -> Result<(Draft, Inbox), Problem> {
    let (draft, inbox) = find_any(call, inbox, text).await?;
    if draft.details.sent || draft.details.removed || is_sent(email_state(call, &draft).await?) {
        return Err(missing_draft(text));
    }
    Ok((draft, inbox))
}

/// The state of the email of a draft; `None` if the draft has no email.
pub(super) async fn email_state(call: &AgentMailRequest, draft: &Draft) -> Result<Option<EmailState>, Problem> {
    let Some(id) = draft.details.email else { return Ok(None) };
    match call.engine.outbound.email(&call.caller, id).await {
        Ok(email) => Ok(Some(email.state())),
        // The email is no longer stored, so it ended long ago.
        Err(problem) if problem.code == Code::NotFound => Ok(Some(EmailState::Sent)),
        Err(problem) => Err(problem),
    }
}

/// Whether the email of a draft was sent, or may have been sent.
pub(super) fn is_sent(state: Option<EmailState>) -> bool {
    use EmailState::{Abandoned, Bounced, Complained, Delivered, Sent, Unknown};
    matches!(state, Some(Sent | Delivered | Bounced | Complained | Unknown | Abandoned))
}

/// AgentMail's status of a scheduled draft. A held email counts as scheduled: it has not failed and is not being sent.
fn send_status(details: &DraftDetails, state: Option<EmailState>) -> Option<&'static str> {
    match state {
        None => details.is_schedule_pending().then_some("scheduled"),
        Some(EmailState::Scheduled | EmailState::Held) => Some("scheduled"),
        Some(EmailState::Failed) => Some("failed"),
        Some(EmailState::Cancelled) => None,
        Some(_) => Some("sending"),
    }
}

/// A draft in AgentMail's format.
pub(super) async fn to_json(call: &AgentMailRequest, draft: &Draft, inbox: &Inbox) -> Result<Value, Problem> {
    let details = &draft.details;
    let mut body = json!({
        "inbox_id": inbox.address,
        "draft_id": draft.id.to_string(),
        "labels": details.labels,
        "updated_at": details.updated_at.to_string(),
        "created_at": draft.created_at.to_string(),
    });
    let lists = [("reply_to", &details.reply_to), ("to", &details.to), ("cc", &details.cc), ("bcc", &details.bcc)];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        body[name] = json!(list);
    }
    let preview = details.text.as_ref().map(|text| text.chars().take(PREVIEW_CHARS).collect::<String>());
    let texts = [
        ("client_id", &details.client_id),
        ("subject", &details.subject),
        ("preview", &preview),
        ("text", &details.text),
        ("html", &details.html),
        ("in_reply_to", &details.in_reply_to),
        ("forward_of", &details.forward_of),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            body[name] = text.as_str().into();
        }
    }
    if !details.files.is_empty() {
        body["attachments"] = details.files.iter().map(attachment_json).collect::<Vec<_>>().into();
    }
    if let Some(at) = details.send_at {
        body["send_at"] = at.to_string().into();
    }
    let state = email_state(call, draft).await?;
    if let Some(status) = send_status(details, state) {
        body["send_status"] = status.into();
    }
    if let (Some(EmailState::Held), Some(labels)) = (state, body["labels"].as_array_mut()) {
        labels.push(EmailState::Held.as_str().into());
    }
    Ok(body)
}

fn attachment_json(file: &DraftFile) -> Value {
    let mut body = json!({ "attachment_id": file.id, "size": decoded_len(&file.content) });
    let texts = [("filename", &file.filename), ("content_type", &file.content_type), ("content_id", &file.content_id)];
    for (name, text) in texts {
        if let Some(text) = text {
            body[name] = text.as_str().into();
        }
    }
    body
}

pub(super) fn attachment_link(call: &AgentMailRequest, draft: &Draft, name: &str) -> Result<Value, Problem> {
    let at = draft.details.files.iter().position(|file| file.id == name).ok_or_else(|| missing_attachment(name))?;
    let mut body = draft.details.files.get(at).map(attachment_json).ok_or_else(|| missing_attachment(name))?;
    add_download_link(call, LinkTarget::DraftFile(draft.id, at), &mut body).map(|()| body)
}
